"""The files that were read at least partly, with indexes to find them by their first bytes, and by their names."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from scribengin.connectors.files.identity import FIXED, WINDOW, Trace, openings, stem, steps_of

if TYPE_CHECKING:
    from scribengin.connectors.files.identity import ContentMark, FileStatus, Head


@dataclass(slots=True, eq=False)
class KnownFile:
    """A file that was read at least partly. `path` is its current place if it is `found`, otherwise its last one; `seen` is its state
    there."""

    id: str
    path: str
    seen: FileStatus
    end: int
    """position in its decompressed content up to which it was read"""
    mark: ContentMark | None
    """mark of the content up to `end`; None for a file that was always compressed when it was read, or was recorded before marks existed"""
    packed: ContentMark | None = None
    """mark of the whole compressed file that it is now; None for a plain one"""
    rest: ContentMark | None = None
    """mark of the whole content of a compressed file, if that is longer than the read part"""
    copy: str = ""
    """the file that it is a copy of"""
    names: set[str] = field(default_factory=set)
    born: int = 0
    """the poll in which it was first read"""
    found: bool = True
    trusted: bool = False
    """True if an unchanged size and time, as in `seen`, mean the same content"""
    lost_s: float = 0.0
    """since when it is missing, in seconds of the monotonic clock"""
    waits: bool = False
    """True if a compressed file that is not settled yet may be this file"""
    told: bool = False
    """True if the loss of its rest is reported"""

    @property
    def unread(self) -> int:
        """The number of unread bytes in its last seen state."""
        return 0 if self.packed is not None else max(0, self.seen.size - self.end)

    def trace(self) -> Trace:
        """The trace for the log: its identity, and how far it is read."""
        return Trace(self.id, self.end, self.seen.device, self.mark, self.packed, self.copy)


class Contents:
    """Known files, indexed by their first bytes."""

    def __init__(self) -> None:
        self._by_head: dict[tuple[int, str], list[KnownFile]] = {}
        self._lengths: dict[tuple[int, str], dict[int, int]] = {}
        """(length, hash) of a prefix of a fixed length → the number of files with this prefix, by the length that is compared next"""
        self._packed: dict[tuple[int, str], list[KnownFile]] = {}

    def add(self, known: KnownFile) -> None:
        """Add a file by its current marks; a file without marks is ignored."""
        if known.mark is not None and known.mark.end:
            steps = steps_of(known.mark.end)
            self._by_head.setdefault((steps[-1], known.mark.head[-1]), []).append(known)
            lengths = self._lengths.setdefault(_first(known.mark), {})
            lengths[steps[-1]] = lengths.get(steps[-1], 0) + 1
        if known.packed is not None and known.packed.head:
            self._packed.setdefault((known.packed.end, known.packed.head[-1]), []).append(known)

    def remove(self, known: KnownFile) -> None:
        """Remove a file before its marks change; a file that is not indexed is ignored."""
        if known.mark is not None and known.mark.end:
            length = steps_of(known.mark.end)[-1]
            if _drop(self._by_head, (length, known.mark.head[-1]), known):
                lengths = self._lengths[_first(known.mark)]
                lengths[length] -= 1
                if not lengths[length]:
                    del lengths[length]
        if known.packed is not None and known.packed.head:
            _drop(self._packed, (known.packed.end, known.packed.head[-1]), known)

    def of(self, head: Head) -> list[KnownFile]:
        """The files whose first bytes, as far as a mark covers them and they were read, are the beginning of `head`."""
        found: list[KnownFile] = []
        for step in (0, *steps_of(WINDOW)):
            if step > len(head):
                break
            for length in self._lengths.get((step, head.hash(step) if step else ""), ()):
                if length <= len(head):
                    found += self._by_head.get((length, head.hash(length)), ())
        return found

    def packed(self, size: int, head: Head) -> list[KnownFile]:
        """The compressed files with this size and these first bytes."""
        return list(self._packed.get((size, head.hash(min(size, WINDOW))), ()))


def _first(mark: ContentMark) -> tuple[int, str]:
    """(length, hash) of the longest prefix of a fixed length in the mark; length 0 if the content is shorter than each."""
    at = max((index for index, step in enumerate(steps_of(mark.end)) if step in FIXED), default=-1)
    return (steps_of(mark.end)[at], mark.head[at]) if at >= 0 else (0, "")


def _drop(index: dict[tuple[int, str], list[KnownFile]], key: tuple[int, str], known: KnownFile) -> bool:
    files = index.get(key, [])
    if known not in files:
        return False
    files.remove(known)
    if not files:
        del index[key]
    return True


class Names:
    """Known files, indexed by their names, to find the names that a rotation may have given them."""

    def __init__(self) -> None:
        self._by_stem: dict[str, dict[str, KnownFile]] = {}
        self._by_opening: dict[str, dict[str, KnownFile]] = {}
        self._added: dict[str, KnownFile] = {}
        """files that are not indexed yet: most are never looked up"""

    def add(self, known: KnownFile) -> None:
        """Add a file by the name of its path."""
        self._added[known.id] = known

    def _index(self, known: KnownFile) -> None:
        name = known.path.rpartition("/")[2]
        self._by_stem.setdefault(stem(name), {})[known.id] = known
        for opening in openings(name):
            self._by_opening.setdefault(opening, {})[known.id] = known

    def remove(self, known: KnownFile) -> None:
        """Remove a file before its path changes; a file that is not indexed is ignored."""
        if self._added.pop(known.id, None) is not None:
            return
        name = known.path.rpartition("/")[2]
        self._by_stem.get(stem(name), {}).pop(known.id, None)
        for opening in openings(name):
            self._by_opening.get(opening, {}).pop(known.id, None)

    def like(self, name: str) -> list[KnownFile]:
        """The files whose names are `related` to it."""
        for known in self._added.values():
            self._index(known)
        self._added.clear()
        found = dict(self._by_opening.get(stem(name), {}))
        for opening in openings(name):
            found |= self._by_stem.get(opening, {})
        return list(found.values())


def by_end(marked: KnownFile | ContentMark) -> int:
    """The end of the file's mark, as a sort key."""
    return marked.end
