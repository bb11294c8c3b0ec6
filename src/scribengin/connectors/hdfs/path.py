"""Paths in an HDFS, for a flow's state: `hdfs://NAMENODE:PORT/FOLDER`. A file appears as a whole, by the rename of a draft."""

from __future__ import annotations

import io
import os
from contextlib import suppress
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from scribengin.connectors.addresses import HDFS_URL, store_url_fault
from scribengin.connectors.hdfs import store as client
from scribengin.connectors.objects.address import ObjectsAddress
from scribengin.core import faults
from scribengin.core.errors import FencedError, StateError
from scribengin.core.limited import limited
from scribengin.core.remote import RemotePath, RemoteStat

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

_BUFFER_BYTES = 2**20


class HdfsPath(RemotePath):
    """A path in an HDFS, see RemotePath. Requests to its NameNode use the user in HADOOP_USER_NAME and the settings in HADOOP_CONF_DIR."""

    @staticmethod
    def of(url: str) -> HdfsPath:
        """Parse a path. Raises ValueError, with the remedy, if it has no NameNode or no folder."""
        if fault := store_url_fault(url, HDFS_URL):
            raise ValueError(f'"{url}" {fault[0]}; {fault[1]}')
        return HdfsPath(url)

    @property
    def inside(self) -> str:
        """The path without the NameNode, as requests name it."""
        return "/" + "/".join(self.parts[2:])

    def put(self, data: bytes) -> bool:
        """See RemotePath."""
        if self.probe() is not None:
            return False
        return self._written(data, over=False, private=False)

    def put_over(self, data: bytes, *, private: bool = False) -> None:
        """See RemotePath."""
        self._written(data, over=True, private=private)

    def get(self) -> bytes | None:
        """See RemotePath."""
        return self._store.get(self.inside.lstrip("/"))

    def probe(self) -> RemoteStat | None:
        """See RemotePath."""
        with self._store._explained(f"failed to read {self.inside}"):
            status = self._store._status(self.inside)
            return None if status is None else _seen(status)

    def entries(self) -> dict[str, RemoteStat]:
        """See RemotePath."""
        with self._store._explained(f"failed to list {self.inside}"):
            found = self._store._folder(self.inside.lstrip("/"))
        return {str(status.path).rpartition("/")[2]: _seen(status) for status in found}

    def make(self) -> None:
        """See RemotePath."""
        self._asked(lambda raw: raw.mkdirs(self.inside, 0o755, True), "failed to create")

    def touch_over(self) -> None:
        """See RemotePath."""
        self._begun(self.inside, over=True).close()

    def remove(self, *, all_in_it: bool) -> bool:
        """See RemotePath."""
        try:
            return bool(self._asked(lambda raw: raw.delete(self.inside, all_in_it), "failed to delete"))
        except FileNotFoundError:
            return False

    def move(self, target: Path, *, over: bool) -> None:
        """See RemotePath."""
        assert isinstance(target, HdfsPath)
        self._asked(lambda raw: raw.rename(self.inside, target.inside, over), "failed to move")

    def new(self) -> HdfsFile:
        """See RemotePath."""
        return HdfsFile(self)

    def guard(self, drafts: Path | None, why: str = "") -> None:
        """See RemotePath."""
        if drafts is None:
            _guards.pop(self, None)
        else:
            assert isinstance(drafts, HdfsPath)
            _guards[self] = (drafts, why)

    # --- implementation ---

    @property
    def _store(self) -> client.HdfsStore:
        host = self.parts[1]
        try:
            return _stores[host]
        except KeyError:
            pass
        address = ObjectsAddress("", f"hdfs://{host}", None, "", path_style=True, ca_file=None, config={}, profile=None)
        return _stores.setdefault(host, client.HdfsStore(address, f"hdfs://{host}", "", {}))

    def _asked(self, call: Callable[[Any], Any], what: str, *, data: bool = False) -> Any:
        """The result of `call` with the client. Raises FileNotFoundError, or a ScribenginError."""
        store = self._store
        with store._explained(f"{what} {self.inside}"):
            return limited(lambda: call(store._client), client.DATA_S if data else client.CALL_S)

    def _begun(self, path: str, *, over: bool = False, parents: bool = True, private: bool = False) -> Any:
        options = self._store._module.WriteOptions(overwrite=over, create_parent=parents, permission=0o600 if private else 0o644)
        return self._asked(lambda raw: raw.create(path, options), "failed to write")

    def _written(self, data: bytes, *, over: bool, private: bool) -> bool:
        """Write the file by the rename of a draft. True if this call created it."""
        guard = next((_guards[above] for above in self.parents if above in _guards), None) if _guards else None
        folder = self.parent if guard is None else guard[0]
        draft = folder / f".{self.name}.{uuid4().hex}"
        try:
            writer = self._begun(draft.inside, parents=guard is None, private=private)
        except FileNotFoundError:
            raise self._fenced(guard) from None
        try:
            self._asked(lambda _: _finished(writer, data), "failed to write", data=True)
            faults.reached("state.drafted")
            named = self._named(draft, data, over=over, fenced=lambda: self._fenced(guard))
            faults.reached("state.renamed")
            return named
        except BaseException:
            with suppress(Exception):
                draft.remove(all_in_it=False)
            raise

    def _named(self, draft: HdfsPath, data: bytes, *, over: bool, fenced: Callable[[], Exception]) -> bool:
        """Rename a draft, which has these bytes, to this file. True if that succeeded; otherwise the draft does not exist any more."""

        def rename(raw: Any) -> bool:
            try:
                raw.rename(draft.inside, self.inside, over)
            except FileNotFoundError as error:
                if "destination parent" not in str(error):
                    raise
                raw.mkdirs(self.parent.inside, 0o755, True)
                raw.rename(draft.inside, self.inside, over)
            except FileExistsError:
                raw.delete(draft.inside, False)
                return False
            return True

        try:
            return bool(self._asked(rename, "failed to write"))
        except FileNotFoundError:
            # the rename succeeded, and the client repeated it because it got no answer; or another process deleted the draft
            stands = self.get()
            if stands != data and (over or stands is None):
                raise fenced() from None
            return stands == data

    def _fenced(self, guard: _Guard | None) -> Exception:
        if guard is not None:
            return FencedError(f"{self} is not written: {guard[1]}", remedy="this driver stops; no part of it is visible")
        return StateError(f"{self} is not written: its draft was deleted", remedy="another driver has taken over; stop this driver")


class HdfsFile(io.RawIOBase):
    """A new file that is written under its final name. Sends requests of 1 MiB."""

    def __init__(self, path: HdfsPath) -> None:
        self._path = path
        self._writer = path._begun(path.inside)
        self._gathered = bytearray()

    def writable(self) -> bool:
        """True."""
        return True

    def write(self, data: Any) -> int:
        """Append the bytes."""
        self._gathered += data
        if len(self._gathered) >= _BUFFER_BYTES:
            self.flush()
        return memoryview(data).nbytes

    def flush(self) -> None:
        """Send the buffered bytes."""
        data, self._gathered = bytes(self._gathered), bytearray()
        if data:
            self._path._asked(lambda _: self._writer.write(data), "failed to write", data=True)

    def sync(self) -> None:
        """Make the bytes durable on the DataNodes' disks."""
        self.flush()
        self._path._asked(lambda _: self._writer.hsync(), "failed to write", data=True)

    def close(self) -> None:
        """Send the rest: from now on the file can be read."""
        if not self.closed:
            try:
                self.flush()
                self._path._asked(lambda _: self._writer.close(), "failed to write", data=True)
            finally:
                super().close()


def _finished(writer: Any, data: bytes) -> None:
    writer.write(data)
    writer.hsync()
    writer.close()


def _seen(status: Any) -> RemoteStat:
    return RemoteStat(bool(status.isdir), int(status.length), status.modification_time / 1000)


_Guard = tuple[HdfsPath, str]
_guards: dict[HdfsPath, _Guard] = {}
"""folder → the folder for drafts of files below it, and the error text if that does not exist any more"""
_stores: dict[str, client.HdfsStore] = {}
"""NameNode → its store"""
_left: list[dict[str, client.HdfsStore]] = []


def _forget_in_child() -> None:
    """A client's threads do not survive a fork. Its destructor would wait for them, so the client is kept."""
    _left.append(dict(_stores))
    _stores.clear()


os.register_at_fork(after_in_child=_forget_in_child)
