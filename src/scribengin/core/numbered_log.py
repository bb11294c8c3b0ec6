"""A folder of numbered records, each written once: the form of source logs, decisions and the sinks' commit records.

    <folder>/0000000007.json              record 7, written if absent, durable
    <folder>/0000000007.beside.json       a later result for it, in some logs: written if absent; read as a part of the record
    <folder>/folded/0000000000.json.gz    records 0 to 999, once they are old
    <folder>/folded/0000001999.summary    the sum of records 0 to 1,999; the highest such number is the *high mark*
    <folder>/folded/0000000999.pruned     the sum of records 0 to 999, whose details are deleted; the highest is the *pruned mark*
    <folder>/folded/0000000000.rest.gz    what was kept of these records

Old records are folded in whole chunks, so that any two processes that fold at the same time write the same files. A summary
is numbered and written if absent, too: one that a suspended process writes late cannot move the high mark back.

A record outside `folded/` at or below the high mark has no effect: it is a leftover, or was written by a process that was
suspended during the folding, which notices that and deletes it (`put`).

If a log may delete records, whole folded chunks are pruned, oldest first. Their sum is kept, and of each record what its owner keeps.
"""

from __future__ import annotations

import gzip
from typing import TYPE_CHECKING, Any

from scribengin.core import faults
from scribengin.core.errors import FencedError, StateError
from scribengin.core.log_storage import Disk
from scribengin.core.records import seal, unseal

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping
    from pathlib import Path

    from scribengin.core.log_storage import Shelf

CHUNK = 1000
"""Records in a folded file; at least as many stay unfolded."""
FORMAT = 1
BESIDE = ".beside.json"
_NONE = -1


class NumberedLog:
    """The records 0, 1, … of one `kind`. Cheap to create; holds no handle; used by one thread at a time."""

    def __init__(self, folder: Path, kind: str, shelf: Shelf | None = None, *, awaits: Callable[[Any], bool] = lambda _: False) -> None:
        """Open a log, which need not exist.

        Args:
            folder: The folder on the disk, or on the shelf.
            kind: The kind of its records, which each of them contains.
            shelf: Where the folder is; None for the disk.
            awaits: True for a record that has a result beside it, or will have one (`put_beside`) before the next record is written.
        """
        self.folder = folder
        self._shelf: Shelf = Disk() if shelf is None else shelf
        self._kind = kind
        self._awaits = awaits
        self._folded = folder / "folded"
        self._chunk: tuple[int, dict[int, Any]] = (_NONE, {})

    def put(self, number: int, body: Any) -> Any:
        """Write record `number` durably if there is none; returns the stored record: this one, or that of an earlier writer.

        Raises FencedError if `number` is folded: a process that still writes it was suspended while a successor worked.
        """
        stored = body if self._put(number, self._path(number), self._kind, body) else self.read(number)
        if stored is None:
            raise self._gone(self._path(number))
        return stored

    def put_beside(self, number: int, body: Mapping[str, Any]) -> Any:
        """Write the result of record `number`, a mapping with other keys, unless it is written already; returns the record with the stored
        result. Raises FencedError if `number` is folded."""
        path = self._path(number, BESIDE)
        self._put(number, path, f"{self._kind}-beside", body)
        stored = self.read(number)
        if stored is None:
            raise self._gone(self._path(number))
        return stored

    def _put(self, number: int, path: Path, kind: str, body: Any) -> bool:
        mine = self._shelf.put_if_absent(path, seal(kind, FORMAT, body))
        high = self.high_mark()
        if number <= high:
            if mine:
                self._shelf.delete(path)
            raise FencedError(
                f"{self._kind} {number} in {self.folder} was completed long ago: records up to {high} are merged",
                remedy="another driver has taken over; stop this driver",
            )
        return mine

    @staticmethod
    def _gone(path: Path) -> StateError:
        return StateError(f"{path} existed and was deleted", remedy="restore the state folder as a whole; its parts belong together")

    def amend(self, number: int, body: Any) -> None:
        """Replace record `number`, which no process has acted on yet and which is not folded. Readers see the old record or the new one."""
        self._shelf.replace(self._path(number), seal(self._kind, FORMAT, body))

    def read(self, number: int) -> Any | None:
        """Record `number`, or None. Raises StateError for a record that was pruned."""
        if number < 0:
            return None
        if number <= self.high_mark():
            return self._read_chunk(number // CHUNK).get(number)
        data = self._shelf.read_or_none(self._path(number))
        if data is not None:
            return self._whole(number, data)
        # it was folded after the first check
        return self._read_chunk(number // CHUNK).get(number) if number <= self.high_mark() else None

    def _whole(self, number: int, data: bytes) -> Any:
        """The record in `data`, which is not folded, with the contents of its `.beside` file."""
        body = unseal(data, self._kind, FORMAT, self._path(number))
        if not self._awaits(body):
            return body
        path = self._path(number, BESIDE)
        beside = self._shelf.read_or_none(path)
        if beside is not None:
            return body | unseal(beside, f"{self._kind}-beside", FORMAT, path)
        # it was folded after the first check, or has no result yet
        return self._read_chunk(number // CHUNK)[number] if number <= self.high_mark() else body

    def has(self, number: int) -> bool:
        """True if record `number` exists and is not folded."""
        return self._shelf.exists(self._path(number))

    def newest(self) -> int | None:
        """The highest number, or None for an empty log. Lists a folder of at most some thousand files."""
        numbers = self._unfolded()
        if numbers:
            return numbers[-1]
        high = self.high_mark()
        return high if high != _NONE else None

    def newest_below(self, number: int) -> tuple[int, Any] | None:
        """The number and the body of the record before `number`; None if there is none, or only sums of it are left."""
        below = [each for each in self._unfolded() if each < number]
        if below:
            return below[-1], self.read(below[-1])
        first, last = (self.pruned_mark() + 1) // CHUNK, min(number - 1, self.high_mark()) // CHUNK
        for chunk in range(last, first - 1, -1):
            folded = self._read_chunk(chunk)
            below = [each for each in folded if each < number]
            if below:
                return max(below), folded[max(below)]
        return None

    def since(self, number: int = 0) -> Iterator[tuple[int, Any]]:
        """(number, record) from `number` on, in order. Folded ones come first, one chunk in memory at a time; pruned ones are left out."""
        number = max(number, self.pruned_mark() + 1)
        high, unfolded = _NONE - 1, list[int]()
        while high != (high := self.high_mark()):  # records that are folded meanwhile leave the folder: they are read with their chunk
            for chunk in range(number // CHUNK, (high + 1) // CHUNK):
                yield from ((n, body) for n, body in sorted(self._read_chunk(chunk).items()) if n >= number)
            number = max(number, high + 1)
            unfolded = self._unfolded(above=number - 1)
        for n in unfolded:
            data = self._shelf.read_or_none(self._path(n))
            body = self.read(n) if data is None else self._whole(n, data)
            if body is not None:
                yield n, body

    def high_mark(self) -> int:
        """The number up to which records are folded; -1 if none is."""
        return self._mark("summary")

    def pruned_mark(self) -> int:
        """The number up to which only sums are left; -1 if nothing is pruned."""
        return self._mark("pruned")

    def summary(self) -> tuple[int, Any | None]:
        """(high mark, sum of the folded records), or (-1, None)."""
        return self._sum("summary")

    def pruned(self) -> tuple[int, Any | None]:
        """(pruned mark, sum of the pruned records), or (-1, None)."""
        return self._sum("pruned")

    def wants_folding(self, newest: int, *, gaps: bool = False) -> bool:
        """True if a whole chunk is old enough to be folded: another whole one comes after it.

        Args:
            newest: The highest number in the log.
            gaps: True if numbers may be missing. Then the folder is listed; otherwise the result is True for one number in each chunk.
        """
        if gaps:
            return (newest + 1) // CHUNK - 1 > (self.high_mark() + 1) // CHUNK
        return newest % CHUNK == CHUNK - 1 and newest >= 2 * CHUNK - 1

    def has_leftovers(self) -> bool:
        """True if folded records also exist unfolded, because the process that folded them was interrupted. Lists the folder."""
        high = self.high_mark()
        return any(len(name) == 15 and name[:10].isdigit() and int(name[:10]) <= high for name in self._shelf.names_in(self.folder))

    def fold(self, summarize: Callable[[Any | None, Iterable[Any]], Any], check: Callable[[], None] = lambda: None) -> None:
        """Fold all whole chunks but the last. Idempotent: it may be interrupted at any point and repeated, by several processes at once.

        Args:
            summarize: Returns the new summary, given the summary so far and the bodies of a chunk.
            check: Called before each step that writes or deletes. It raises if this process may no longer do that.
        """
        high, summary = self.summary()
        newest = self.newest()
        if newest is None:
            return
        for chunk in range((high + 1) // CHUNK, (newest + 1) // CHUNK - 1):
            faults.reached("fold.before")
            first, last = chunk * CHUNK, chunk * CHUNK + CHUNK - 1
            records = [(number, body) for number in range(first, last + 1) if (body := self.read(number)) is not None]
            check()
            self._shelf.put_if_absent(self._folded / f"{first:010d}.json.gz", self._packed("folded", records))
            summary = summarize(summary, (body for _, body in records))
            check()
            self._shelf.put_if_absent(self._folded / f"{last:010d}.summary", seal(f"{self._kind}-summary", FORMAT, summary))
            faults.reached("fold.written")
        self._sweep(check)
        faults.reached("fold.after")

    def prune(
        self, old: Callable[[Any], bool], rest: Callable[[Any], Any | None], summarize: Callable[[Any | None, Iterable[Any]], Any]
    ) -> int:
        """Prune the oldest folded chunks, as long as all records of a chunk are `old`. The caller holds the lease. Idempotent: it may be
        interrupted at any point and repeated.

        Args:
            old: True for a record that may be pruned.
            rest: Returns what is kept of a record, None for nothing.
            summarize: Returns the new sum, given the sum so far and the bodies of a chunk.

        Returns:
            The number of records that were pruned.
        """
        mark, summary = self.pruned()
        begun = mark
        for chunk in range((mark + 1) // CHUNK, (self.high_mark() + 1) // CHUNK):
            records = sorted(self._read_chunk(chunk).items())
            if not all(old(body) for _, body in records):
                break
            kept = [(number, part) for number, body in records if (part := rest(body)) is not None]
            if kept:
                self._shelf.put_if_absent(self._folded / f"{chunk * CHUNK:010d}.rest.gz", self._packed("rest", kept))
            summary = summarize(summary, (body for _, body in records))
            mark = chunk * CHUNK + CHUNK - 1
            self._shelf.put_if_absent(self._folded / f"{mark:010d}.pruned", seal(f"{self._kind}-pruned", FORMAT, summary))
        self._sweep_pruned()
        return mark - begun

    def rests(self, number: int = 0) -> Iterator[tuple[int, Any]]:
        """(number, what was kept of it) of pruned records from `number` on, in order, one chunk in memory at a time."""
        mark = self.pruned_mark()
        for name in sorted(name for name in self._shelf.names_in(self._folded) if name.endswith(".rest.gz") and int(name[:10]) <= mark):
            data = self._shelf.read_or_none(self._folded / name) if int(name[:10]) + CHUNK > number else None
            if data is not None:  # None: it was deleted, and is not needed any more
                yield from ((n, part) for n, part in self._unpacked("rest", data, self._folded / name) if n >= number)

    def drop_rests(self, through: int) -> None:
        """Delete the rests of chunks that end at record `through` or before."""
        for name in self._shelf.names_in(self._folded):
            if name.endswith(".rest.gz") and int(name[:10]) + CHUNK - 1 <= min(through, self.pruned_mark()):
                self._shelf.delete(self._folded / name)

    def _mark(self, form: str) -> int:
        return max((int(name[:10]) for name in self._shelf.names_in(self._folded) if name.endswith(f".{form}")), default=_NONE)

    def _sum(self, form: str) -> tuple[int, Any | None]:
        mark = self._mark(form)
        if mark == _NONE:
            return _NONE, None
        path = self._folded / f"{mark:010d}.{form}"
        data = self._shelf.read_or_none(path)
        if data is None:  # a newer one has replaced it
            return self._sum(form)
        return mark, unseal(data, f"{self._kind}-{form}", FORMAT, path)

    def _sweep_pruned(self) -> None:
        """Delete the chunks that the highest pruned sum covers."""
        mark = self.pruned_mark()
        for name in self._shelf.names_in(self._folded):
            gone = int(name[:10]) <= mark if name.endswith(".json.gz") else name.endswith(".pruned") and int(name[:10]) < mark
            if gone:
                self._shelf.delete(self._folded / name)

    def _sweep(self, check: Callable[[], None]) -> None:
        """Delete the records that the highest summary covers."""
        high = self.high_mark()
        for name in self._shelf.names_in(self.folder):
            if name.endswith(".json") and name[:10].isdigit() and int(name[:10]) <= high:  # including results beside records
                check()
                self._shelf.delete(self.folder / name)
        for name in self._shelf.names_in(self._folded):
            if name.endswith(".summary") and int(name[:10]) < high:
                check()
                self._shelf.delete(self._folded / name)

    def _unfolded(self, above: int | None = None) -> list[int]:
        floor = self.high_mark() if above is None else above
        numbers = (
            int(name[:10])
            for name in self._shelf.names_in(self.folder)
            if len(name) == 15 and name.endswith(".json") and name[:10].isdigit()
        )
        return sorted(number for number in numbers if number > floor)

    def _read_chunk(self, chunk: int) -> dict[int, Any]:
        if self._chunk[0] != chunk:
            if chunk * CHUNK <= self.pruned_mark():
                raise StateError(f"{self._kind} {chunk * CHUNK} in {self.folder} was pruned: only sums of such old records are kept")
            path = self._folded / f"{chunk * CHUNK:010d}.json.gz"
            data = self._shelf.read_or_none(path)
            if data is None:
                raise StateError(
                    f"{path} is missing: it holds records {chunk * CHUNK} to {chunk * CHUNK + CHUNK - 1}", remedy="restore it from a backup"
                )
            self._chunk = (chunk, dict(self._unpacked("folded", data, path)))
        return self._chunk[1]

    def _packed(self, form: str, records: list[tuple[int, Any]]) -> bytes:
        return gzip.compress(seal(f"{self._kind}-{form}", FORMAT, records), 6, mtime=0)

    def _unpacked(self, form: str, data: bytes, path: Path) -> list[tuple[int, Any]]:
        try:
            plain = gzip.decompress(data)
        except (OSError, EOFError, ValueError) as error:
            raise StateError(f"{path} is torn: {error}", remedy="restore it from a backup") from error
        return [(number, body) for number, body in unseal(plain, f"{self._kind}-{form}", FORMAT, path)]

    def _path(self, number: int, ending: str = ".json") -> Path:
        return self.folder / f"{number:010d}{ending}"
