"""The files of which something was read, and how they are found: by how they begin, and by their names."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from scribengin.connectors.files.identity import FIXED, WINDOW, Trace, openings, stem, steps_of

if TYPE_CHECKING:
    from scribengin.connectors.files.identity import ContentMark, FileStatus, Head


@dataclass(slots=True, eq=False)
class KnownFile:
    """A file of which something was read. `path` is where it is, or was when it was last `found`; `seen` is how it was there."""

    id: str
    path: str
    seen: FileStatus
    end: int
    """of its content, decompressed: up to where it was read"""
    mark: ContentMark | None
    """of the content up to `end`; None of one that was never read but compressed, or that was noted before there were marks"""
    packed: ContentMark | None = None
    """of the whole compressed file that it is now; None of a plain one"""
    rest: ContentMark | None = None
    """of the whole content of a compressed file, where that has more than was read"""
    copy: str = ""
    """the file that it is a copy of"""
    names: set[str] = field(default_factory=set)
    born: int = 0
    """the look at which it was first taken"""
    found: bool = True
    trusted: bool = False
    """whether size and time as they were `seen` mean the same content"""
    lost_s: float = 0.0
    """since when it is not found, monotonic"""
    waits: bool = False
    """whether a compressed file may be it, that is not settled yet"""
    told: bool = False
    """whether it was said that the rest of it is lost"""

    @property
    def unread(self) -> int:
        """Bytes that it had when it was last seen, and that were not read."""
        return 0 if self.packed is not None else max(0, self.seen.size - self.end)

    def trace(self) -> Trace:
        """For the log: where it is, and how far it is read."""
        return Trace(self.id, self.end, self.seen.device, self.mark, self.packed, self.copy)


class Contents:
    """Known files by how they begin."""

    def __init__(self) -> None:
        self._by_head: dict[tuple[int, str], list[KnownFile]] = {}
        self._lengths: dict[tuple[int, str], dict[int, int]] = {}
        """(length, hash) of a prefix of a fixed length → how many files begin so, by the length of what is compared next"""
        self._packed: dict[tuple[int, str], list[KnownFile]] = {}

    def add(self, known: KnownFile) -> None:
        """By its marks as they are; of one without any nothing happens."""
        if known.mark is not None and known.mark.end:
            steps = steps_of(known.mark.end)
            self._by_head.setdefault((steps[-1], known.mark.head[-1]), []).append(known)
            lengths = self._lengths.setdefault(_first(known.mark), {})
            lengths[steps[-1]] = lengths.get(steps[-1], 0) + 1
        if known.packed is not None and known.packed.head:
            self._packed.setdefault((known.packed.end, known.packed.head[-1]), []).append(known)

    def remove(self, known: KnownFile) -> None:
        """Before its marks change; of one that is not there nothing happens."""
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
        """Those whose first bytes, as far as a mark covers and as they were read, the content `head` begins with."""
        found: list[KnownFile] = []
        for step in (0, *steps_of(WINDOW)):
            if step > len(head):
                break
            for length in self._lengths.get((step, head.hash(step) if step else ""), ()):
                if length <= len(head):
                    found += self._by_head.get((length, head.hash(length)), ())
        return found

    def packed(self, size: int, head: Head) -> list[KnownFile]:
        """Those that are compressed files of so many bytes that begin so."""
        return list(self._packed.get((size, head.hash(min(size, WINDOW))), ()))


def _first(mark: ContentMark) -> tuple[int, str]:
    """The longest prefix of a fixed length that the mark knows; length 0 where it is shorter than each."""
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
    """Known files by their names, to find those that a rotation may have made of one another."""

    def __init__(self) -> None:
        self._by_stem: dict[str, dict[str, KnownFile]] = {}
        self._by_opening: dict[str, dict[str, KnownFile]] = {}
        self._added: dict[str, KnownFile] = {}
        """which are not in the indexes yet: most are never asked for"""

    def add(self, known: KnownFile) -> None:
        """By the name of its path."""
        self._added[known.id] = known

    def _index(self, known: KnownFile) -> None:
        name = known.path.rpartition("/")[2]
        self._by_stem.setdefault(stem(name), {})[known.id] = known
        for opening in openings(name):
            self._by_opening.setdefault(opening, {})[known.id] = known

    def remove(self, known: KnownFile) -> None:
        """Before its path changes; of one that is not there nothing happens."""
        if self._added.pop(known.id, None) is not None:
            return
        name = known.path.rpartition("/")[2]
        self._by_stem.get(stem(name), {}).pop(known.id, None)
        for opening in openings(name):
            self._by_opening.get(opening, {}).pop(known.id, None)

    def like(self, name: str) -> list[KnownFile]:
        """Those whose names are `related` to it."""
        for known in self._added.values():
            self._index(known)
        self._added.clear()
        found = dict(self._by_opening.get(stem(name), {}))
        for opening in openings(name):
            found |= self._by_stem.get(opening, {})
        return list(found.values())


def by_end(marked: KnownFile | ContentMark) -> int:
    """For sorting."""
    return marked.end
