"""The driver side of the source: finds new objects, and checks that assigned objects are unchanged."""

from __future__ import annotations

import time
from bisect import insort
from hashlib import blake2b
from typing import TYPE_CHECKING

from scribengin.connectors.contract import Backlog, BatchLimits, SourceStream
from scribengin.connectors.files.globs import matches
from scribengin.connectors.files.pieces import FilePiece, pieces_of, streams_of
from scribengin.connectors.objects.manifests import DATA, Owners
from scribengin.core.errors import SourceError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from scribengin.connectors.objects.address import ObjectsAddress
    from scribengin.core.store import Store, StoreEntry

KEPT = 1000
"""with `names: sorted`, the number of the last assigned keys that are remembered: a listing starts at the first of them. One request
returns as many keys"""
_MANY = 10_000
_NONE = 1 << 62


class ObjectsReader:
    """Hands out the objects below an address, each once; waiting objects in the order of their keys.

    With `ordered` a new key sorts after all assigned ones except the last KEPT, and a listing begins there. Otherwise all keys are listed,
    at most once in `look_s` seconds. `check_first` checks the very first object, by its key and size, and raises SourceError if it must not
    be read.
    """

    def __init__(
        self,
        address: ObjectsAddress,
        *,
        divide: Callable[[FilePiece], list[FilePiece]],
        match: str | None = None,
        ordered: bool = False,
        look_s: float = 0.0,
        split_bytes: int = 32 * 2**20,
        max_files: int | None = None,
        max_bytes: int | None = None,
        stop_on_change: bool = True,
        check_first: Callable[[str, int], None] = lambda _key, _size: None,
    ) -> None:
        self._address = address
        self._store: Store = address.open()
        self._divide = divide
        self._patterns = None if match is None else tuple(match.split("/"))
        self._ordered = ordered
        self._look_s = look_s
        self._split_bytes = split_bytes
        self._max_files = max_files
        self._max_bytes = max_bytes
        self._stop_on_change = stop_on_change
        self._check_first = check_first
        self.checks_first = False
        """True if the very first object is checked: see `ColumnCheckingReader`"""
        self._taken: dict[str, tuple[int, int]] = {}
        """key → (size, number of its ETag), with sorted names only for the last KEPT"""
        self._last: list[str] = []
        """with sorted names: these keys, in order"""
        self._floor = ""
        """with sorted names: keys up to this one are not checked any more"""
        self._waiting: dict[str, StoreEntry] = {}
        self._looked_s = -1e9
        self._notices: list[str] = []
        self._told = False
        if Owners(self._store).claims() and next(iter(self._store.list(DATA)), None) is not None:
            raise SourceError(
                (
                    f'source "{address.node}": {address} is written by a Scribengin sink, and only its manifests say which objects are '
                    "committed"
                ),
                remedy="set visible: listing on that sink, or read another url",
                node=address.node,
            )

    def restore(self, entries: Iterable[Sequence[SourceStream]]) -> None:
        """Apply the log entries of objects that were handed out."""
        for streams in entries:
            for stream in streams:
                for piece in pieces_of(stream):
                    self._remember(piece)

    def split(self, limits: BatchLimits, *, final: bool = False) -> list[SourceStream]:
        """The next objects, as streams of about `split` bytes each. Raises SourceError if an assigned object changed."""
        self._list_objects(at_once=final)
        pieces: list[FilePiece] = []
        files = total = 0
        max_files = min(limits.max_files or _NONE, self._max_files or _NONE)
        max_bytes = min(limits.max_bytes or _NONE, self._max_bytes or _NONE)
        for key, entry in list(self._waiting.items()):
            if files and (files + 1 > max_files or total + entry.size > max_bytes):
                break
            if self.checks_first and not self._taken:
                self._check_first(key, entry.size)
            files, total = files + 1, total + entry.size
            piece = FilePiece(key, entry.size, round(entry.modified_s * 1e9), number_of(entry.etag), 0, entry.size, entry.size)
            pieces += self._divide(piece)
            self._remember(piece)
            del self._waiting[key]
        return streams_of(pieces, root=self._address.url, stream_bytes=self._split_bytes)

    def backlog(self) -> Backlog:
        """The objects seen in the last poll that were not handed out."""
        waiting = self._waiting.values()
        oldest_s = min((entry.modified_s for entry in waiting), default=None)
        return Backlog(
            files=len(waiting),
            bytes=sum(entry.size for entry in waiting),
            oldest_s=None if oldest_s is None else max(0.0, time.time() - oldest_s),
        )

    def measure(self) -> Backlog:
        """See `MeasuringReader`."""
        self._list_objects(at_once=True)
        return self.backlog()

    def notices(self) -> list[str]:
        """Notices for people, each shown once."""
        notices, self._notices = self._notices, []
        return notices

    def first(self) -> StoreEntry | None:
        """The first matching object; None if there is none."""
        return next(self._wanted(""), None)

    def _list_objects(self, *, at_once: bool) -> None:
        """Update `_waiting` from the store. Waiting objects are checked again only if a listing includes them anyway."""
        now_s = time.monotonic()
        if not at_once and now_s - self._looked_s < self._look_s:
            return
        self._looked_s = now_s
        seen = 0
        waiting: dict[str, StoreEntry] = {}
        for entry in self._wanted(self._floor):
            seen += 1
            taken = self._taken.get(entry.key)
            if taken is None and entry.size:
                waiting[entry.key] = entry
            elif taken is not None and taken != (entry.size, number_of(entry.etag)):
                self._changed(entry, taken[0])
        self._waiting = waiting
        if not self._ordered and seen > _MANY and not self._told:
            self._told = True
            self._notices.append(
                f"each poll of {self._address} lists {seen:,} keys; if new keys sort after old ones (names by time), write `names: "
                "sorted`, else a longer interval such as `look: 5m`"
            )

    def _changed(self, entry: StoreEntry, size: int) -> None:
        how = how_changed(size, entry.size)
        if self._stop_on_change:
            raise SourceError(
                f"{self._address}/{entry.key} changed after it was assigned to a Batch: {how}",
                remedy="restore the old content and put new records into new objects, or set `on_change: ignore`",
                node=self._address.node,
            )
        self._notices.append(f"{self._address}/{entry.key} changed after it was assigned to a Batch ({how}); the change is ignored")
        self._taken[entry.key] = (entry.size, number_of(entry.etag))

    def _wanted(self, after: str) -> Iterator[StoreEntry]:
        for entry in self._store.list(after=after):
            parts = entry.key.split("/")
            if not any(part[:1] in ("_", ".") for part in parts) and (self._patterns is None or matches(parts, self._patterns)):
                yield entry

    def _remember(self, piece: FilePiece) -> None:
        key = piece.path
        if self._ordered and key not in self._taken:
            if key <= self._floor:
                return
            insort(self._last, key)
            if len(self._last) > KEPT:
                self._floor = self._last.pop(0)
                self._taken.pop(self._floor, None)
                if key == self._floor:
                    return
        self._taken[key] = (piece.size, piece.inode)


def how_changed(size: int, now: int) -> str:
    """How an object has changed that had `size` bytes when it was assigned, and has `now` bytes now."""
    return f"it had {size} bytes, and now has {now}" if size != now else f"it has {size} bytes as before, but another ETag"


def number_of(etag: str) -> int:
    """An ETag as a number of 63 bits."""
    return int.from_bytes(blake2b(etag.encode(), digest_size=8).digest()) >> 1
