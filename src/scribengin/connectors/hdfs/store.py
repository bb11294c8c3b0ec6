"""Files of an HDFS as a `Store`, with hdfs-native, which needs no JVM; each call has a time limit, and errors become Scribengin errors.

A file has a temporary name (`.NAME.…`) until it is complete; then it is renamed, which HDFS does atomically and never over an existing
file.
"""

from __future__ import annotations

import re
import sys
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from scribengin.connectors.objects.counted import CountedWriter
from scribengin.core.errors import EnvironmentFault, ScribenginError, SinkError, Unreachable
from scribengin.core.limited import limited
from scribengin.core.store import StoreEntry

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from scribengin.connectors.objects.address import ObjectsAddress

CALL_S = 30.0
"""seconds to wait for the NameNode"""
DATA_S = 150.0
"""seconds that a data transfer may take: the client itself waits 60 s for a DataNode before it uses another one"""
_TAIL = re.compile(r"\.(.+)\.[0-9a-f]{32}")
_COPIED = "._COPYING_"
"""suffix of the files that Hadoop's own tools write before they rename them"""
_GATHERED = 2**20
_SETTINGS = {
    # by default the client waits for minutes: with these settings the error is reported, and the caller retries
    "dfs.client.failover.max.attempts": "3",
    "dfs.client.failover.sleep.base.millis": "200",
    "dfs.client.failover.sleep.max.millis": "1000",
    "dfs.client.socket-timeout": "20000",
}
_RPC = re.compile(r'(?:Fatal)?RPCError\("(?:[\w.]*\.)?([\w$]+)", "(.*)', re.DOTALL)
_REMEDIES = {
    ("AccessControlException", "AuthorizationException"): (
        "hdfs-rights",
        "grant the user (of this process, or HADOOP_USER_NAME) read and write access below the url",
    ),
    ("NSQuotaExceededException", "DSQuotaExceededException", "QuotaExceededException"): (
        "hdfs-quota",
        "delete unused files there, or raise the folder's quota",
    ),
    ("ParentNotDirectoryException", "InvalidPathException", "FSLimitException$PathComponentTooLongException"): (
        "hdfs-path",
        "choose another folder: a part of its path is a file, or its name is not valid in HDFS",
    ),
}
"""NameNode exceptions → our code, and the remedy"""
_PASSING = ("SafeModeException", "StandbyException", "RetriableException", "NotReplicatedYetException", "could only be written to")


def client() -> Any:
    """The module `hdfs_native`. Raises EnvironmentFault if it is not installed."""
    try:
        import hdfs_native
    except ImportError as error:
        raise EnvironmentFault(
            f"type: hdfs needs the package hdfs-native: {error}",
            remedy="install it: pip install 'scribengin[hdfs]'",
            code="hdfs-client",
        ) from error
    return hdfs_native


class HdfsStore:
    """Files of an HDFS, see Store; keys are relative to `folder`. Not pickled. Names of files that begin with a dot are not keys."""

    copy_bytes = sys.maxsize

    def __init__(self, address: ObjectsAddress, root: str, folder: str, settings: Mapping[str, Any]) -> None:
        """`root` is `hdfs://HOST[:PORT]`."""
        self.address = address
        self._module = client()
        self._top = f"/{folder}/" if folder else "/"
        with self._explained("cannot be opened"):
            given = {str(name): str(value) for name, value in settings.items()}
            self._client = limited(lambda: self._module.RawClient(root, _SETTINGS | given, None), CALL_S)

    def __str__(self) -> str:
        return str(self.address)

    def put(self, key: str, data: bytes) -> bool:
        """See Store."""
        with self._explained(f"failed to write {key}"):
            if not data:  # an empty file is complete as soon as it exists
                return self._created(self._top + key)
            if self._status(self._top + key) is not None:
                return False
            draft = self._draft(key)
            writer = self._begun(draft)
            try:
                limited(lambda: writer.write(data), DATA_S)
                _end(writer)
            except BaseException:
                with suppress(Exception):
                    self._deleted(draft)
                raise
            return self._named(draft, key) or self.get(key) == data

    def get(self, key: str) -> bytes | None:
        """See Store."""
        with self._explained(f"failed to read {key}"):
            try:
                return self._read(key, 0, None)
            except FileNotFoundError:
                return None

    def range(self, key: str, start: int, end: int) -> bytes:
        """See Store."""
        if end <= start:
            return b""
        with self._explained(f"failed to read {key}"):
            return self._read(key, start, end)

    def head(self, key: str) -> StoreEntry | None:
        """See Store."""
        with self._explained(f"failed to read {key}"):
            status = self._status(self._top + key)
            return None if status is None or status.isdir else _entry(key, status)

    def list(self, folder: str = "", after: str = "") -> Iterator[StoreEntry]:
        """See Store. Folders that are completely before `after` are not listed."""
        with self._explained(f"failed to list {folder or 'its files'}"):
            yield from self._listed(f"{folder}/" if folder else "", after)

    def delete(self, *keys: str) -> None:
        """See Store. Also deletes folders that become empty."""
        for key in keys:
            with self._explained(f"failed to delete {key}"):
                self._deleted(self._top + key)
        folders = {key.rpartition("/")[0] for key in keys} - {""}
        for folder in sorted(folders, key=lambda name: -name.count("/")):
            self._prune(folder)

    def move(self, key: str, to: str) -> None:
        """See Store. A rename: its cost does not depend on the size. Also deletes folders that become empty."""
        with self._explained(f"failed to move {key}"):
            folder = f"{self._top}{to}".rpartition("/")[0]
            limited(lambda: self._client.mkdirs(folder, 0o755, True), CALL_S)
            limited(lambda: self._client.rename(self._top + key, self._top + to, True), CALL_S)
        self._prune(key.rpartition("/")[0])

    def writer(self, key: str) -> HdfsWriter:
        """See Store."""
        return HdfsWriter(self, key)

    def abandon(self, key: str) -> None:
        """See Store."""
        folder, _, name = key.rpartition("/")
        with self._explained(f"failed to delete {key}"):
            for status in self._folder(folder):
                if draft_of(_name(status)) == name:
                    self._deleted(status.path)
        self.delete(key)

    def unfinished(self, folder: str = "") -> Iterator[tuple[str, StoreEntry]]:
        """(key, current state) of unfinished files, of running or killed writers; in no particular order."""
        with self._explained("failed to list its files"):
            for status in self._folder(folder):
                name = _name(status)
                below = f"{folder}/{name}" if folder else name
                if status.isdir:
                    yield from self.unfinished(below)
                elif kept := draft_of(name):
                    yield (f"{folder}/{kept}" if folder else kept), _entry(below, status)

    def later(self) -> HdfsLater:
        """The writers of files that are complete, and are renamed later on request. See Later."""
        return HdfsLater(self)

    def complete(self, key: str, upload: str) -> bool:
        """Rename the file that a writer in any process wrote as `upload`. Returns False if it does not exist (any more)."""
        with self._explained(f"failed to write {key}"):
            return self._named(f"{self._top}{key.rpartition('/')[0]}/{upload}".replace("//", "/"), key)

    def begin(self, key: str) -> tuple[str, Any]:
        """Start a draft of the file; returns (name of the draft, its writer)."""
        draft = self._draft(key)
        with self._explained(f"failed to write {key}"):
            return draft, self._begun(draft)

    def _draft(self, key: str) -> str:
        folder, _, name = key.rpartition("/")
        return f"{self._top}{folder}{'/' if folder else ''}.{name}.{uuid4().hex}"

    def _begun(self, path: str) -> Any:
        options = self._module.WriteOptions(overwrite=False, create_parent=True)
        return limited(lambda: self._client.create(path, options), CALL_S)

    def _created(self, path: str) -> bool:
        try:
            writer = self._begun(path)
        except FileExistsError:
            return False
        limited(writer.close, CALL_S)
        return True

    def _named(self, draft: str, key: str) -> bool:
        """Rename a draft to the file. True if that succeeded; otherwise the draft does not exist any more."""
        try:
            limited(lambda: self._client.rename(draft, self._top + key, False), CALL_S)
        except FileExistsError:
            self._deleted(draft)
            return False
        except FileNotFoundError:  # it was renamed before, and the answer was lost; or another process deleted it
            return False
        return True

    def _read(self, key: str, start: int, end: int | None) -> bytes:
        def read() -> bytes:
            file = self._client.read(self._top + key)
            size = file.file_length()
            last = size if end is None else min(end, size)
            return bytes(file.read_range(start, last - start)) if last > start else b""

        return limited(read, DATA_S)

    def _status(self, path: str) -> Any:
        try:
            return limited(lambda: self._client.get_file_info(path), CALL_S)
        except FileNotFoundError:
            return None

    def _folder(self, folder: str) -> Sequence[Any]:
        """The direct contents of a folder; empty if it does not exist."""
        try:
            return limited(lambda: list(self._client.list_status((self._top + folder).rstrip("/") or "/", False)), DATA_S)
        except FileNotFoundError:
            return []

    def _listed(self, under: str, after: str) -> Iterator[StoreEntry]:
        found = [(f"{under}{_name(status)}{'/' if status.isdir else ''}", status) for status in self._folder(under.rstrip("/"))]
        for key, status in sorted(found, key=lambda each: each[0].encode()):
            if status.isdir:
                if after.startswith(key) or key.encode() > after.encode():
                    yield from self._listed(key, after)
            elif key.encode() > after.encode() and not _is_half(_name(status)):
                yield _entry(key, status)

    def _deleted(self, path: str) -> None:
        with suppress(FileNotFoundError):
            limited(lambda: self._client.delete(path, False), CALL_S)

    def _prune(self, folder: str) -> None:
        while folder:
            try:
                if not limited(lambda path=self._top + folder: self._client.delete(path, False), CALL_S):  # type: ignore[misc]
                    return
            except Exception:  # not empty; or the NameNode is unavailable: an empty folder does no harm
                return
            folder = folder.rpartition("/")[0]

    @contextmanager
    def _explained(self, what: str) -> Iterator[None]:
        try:
            yield
        except FileNotFoundError:
            raise FileNotFoundError(f"{what.rpartition(' ')[2]} does not exist") from None
        except (GeneratorExit, KeyboardInterrupt, SystemExit, ScribenginError):
            raise
        except BaseException as error:  # a panic of the library is not an Exception
            raise self.fault(error, what) from None

    def fault(self, error: BaseException, what: str) -> ScribenginError:
        """A client error as a Scribengin error. `what`: the action that failed, such as "cannot be written"."""
        found = _RPC.match(str(error))
        kind = found[1] if found else ""
        message = re.split(r"\n|\\n", found[2].removesuffix('")') if found else str(error) or type(error).__name__)[0]
        if (left := message.partition(": [DatanodeInfoProto")[0]) != message:
            message = left.rpartition('("')[2]
        node = self.address.node
        whose = f'"{node}": ' if node else ""
        said = f"{whose}{self.address} {what}: {f'{kind}: ' if kind else ''}{message[:400]}"
        for kinds, (code, remedy) in _REMEDIES.items():
            if kind in kinds:
                return SinkError(said, remedy=remedy, code=code, node=node)
        if "must both be directories" in message or isinstance(error, FileExistsError):
            return SinkError(
                said, remedy="choose another name: a file or folder with that name already exists", code="hdfs-path", node=node
            )
        if kind and not any(each in said for each in _PASSING):
            return SinkError(said, remedy="correct the flow, or the file system", code="hdfs", node=node)
        return Unreachable(
            said,
            # a full DataNode disconnects from writers until the NameNode has noticed it
            remedy="check that its NameNode and DataNodes are up and have free space, and that the url names the NameNode's RPC port; a "
            "running flow retries automatically",
            code="hdfs-away",
            node=node,
        )


class HdfsWriter(CountedWriter):
    """See StoreWriter."""

    def __init__(self, store: HdfsStore, key: str) -> None:
        self._store = store
        self._key = key
        self._draft, self._writer = store.begin(key)
        self.upload = self._draft.rpartition("/")[2]
        self._gathered = bytearray()
        super().__init__()

    def finish(self) -> None:
        """See StoreWriter."""
        self._end()
        if not self._store.complete(self._key, self.upload):
            found = self._store.head(self._key)
            if found is None or found.size != self.size:
                raise self._store.fault(FileExistsError("another writer wrote it"), f"failed to write {self._key}")

    def abort(self) -> None:
        """See StoreWriter."""
        with suppress(Exception):
            self._store._deleted(self._draft)

    def _end(self) -> None:
        self._send()
        with self._store._explained(f"failed to write {self._key}"):
            _end(self._writer)

    def _write(self, data: Any) -> None:
        self._gathered += data
        if len(self._gathered) >= _GATHERED:
            self._send()

    def _send(self) -> None:
        data, self._gathered = bytes(self._gathered), bytearray()
        if data:
            with self._store._explained(f"failed to write {self._key}"):
                limited(lambda: self._writer.write(data), DATA_S)


class HdfsLaterWriter(HdfsWriter):
    """See LaterWriter."""

    etags: list[str] = []  # noqa: RUF012 (a file has no parts)

    def finish(self) -> None:
        """See LaterWriter. All bytes are durable then, under a temporary name."""
        self._end()


class HdfsLater:
    """See Later."""

    def __init__(self, store: HdfsStore) -> None:
        self._store = store

    def writer(self, key: str) -> HdfsLaterWriter:
        """See Later."""
        return HdfsLaterWriter(self._store, key)

    def complete(self, key: str, upload: str, etags: Sequence[str]) -> bool:  # noqa: ARG002 (a file has no parts)
        """See Later."""
        return self._store.complete(key, upload)


def draft_of(name: str) -> str:
    """The name of the file that a draft of this name will become; empty if it is not the name of a draft.

    >>> draft_of(".part-1.json.0123456789abcdef0123456789abcdef"), draft_of("part-1.json")
    ('part-1.json', '')
    """
    found = _TAIL.fullmatch(name)
    return found[1] if found else ""


def _end(writer: Any) -> None:
    """Make the written bytes durable on the DataNodes' disks, including the length that readers see."""

    def end() -> None:
        writer.hsync()
        writer.close()

    limited(end, DATA_S)


def _is_half(name: str) -> bool:
    return name.endswith(_COPIED) or draft_of(name) != ""


def _name(status: Any) -> str:
    return str(status.path).rpartition("/")[2]


def _entry(key: str, status: Any) -> StoreEntry:
    # milliseconds
    return StoreEntry(key, status.length, f"{status.length:x}-{status.modification_time:x}", status.modification_time / 1000)
