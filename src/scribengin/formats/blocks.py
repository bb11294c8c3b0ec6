"""Blocks: what a source stream yields and a decoder reads. Text stays undecoded bytes until the task pipeline; Parquet is Arrow already."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import accumulate
from typing import TYPE_CHECKING

from scribengin.formats.contract import Bad, RecordPlace
from scribengin.formats.dialect import AUTO

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    import numpy as np
    import pyarrow as pa
    from numpy.typing import NDArray

    from scribengin.formats.dialect import LineEnd


_PART_BYTES = 64 * 1024


def parts(data: bytes | memoryview, further: int = 0) -> Iterator[NDArray[np.uint8]]:
    """The bytes as arrays of up to 64 KiB, each followed by the next `further` bytes; none if there are no more than `further` bytes.

    For a larger array NumPy allocates its result from the system at every call and frees it, which costs more than the call.
    """
    import numpy as np

    octets = np.frombuffer(data, np.uint8)
    for start in range(0, len(octets) - further, _PART_BYTES):
        yield octets[start : start + _PART_BYTES + further]


def count_lines(data: bytes | memoryview, mark: bytes = b"\n") -> int:
    """The number of line ends. Several times faster than `bytes.count` if there are many."""
    if len(mark) > 1:
        return bytes(data).count(mark)
    import numpy as np

    return sum(int(np.count_nonzero(part == mark[0])) for part in parts(data))


@dataclass(frozen=True, slots=True)
class FileFacts:
    """The metadata of a file when it was assigned: its time in microseconds since 1970, and its size in bytes."""

    time_us: int
    size: int


@dataclass(slots=True)
class LineBlock:
    """Whole lines of one file. `offset` is where `data` begins, in bytes of the decompressed content.

    `first_line` counts from 1. If it is unknown when the block is made (a range inside a file), `find_line` finds it when a place is
    requested, which happens for dead letters only. Without either, places have no line.
    """

    file: str
    data: bytes
    offset: int = 0
    first_line: int | None = None
    find_line: Callable[[int], int | None] | None = None
    """byte offset → line number"""
    end: LineEnd = AUTO
    """the end of each line"""
    _lines: list[bytes] | None = None
    _length: int = -1
    _begins: list[int] | None = None
    """the start of each line in `data`, computed on first use"""
    facts: FileFacts | None = None

    def lines(self) -> list[bytes]:
        r"""The lines without their ends; a `\r` before a `\n` is kept if it is not part of the line end."""
        if self._lines is None:
            self._lines = self.data.split(self.end.mark)
            if not self._lines[-1]:
                self._lines.pop()
        return self._lines

    def place(self, ordinal: int) -> RecordPlace:
        """Line and byte offset of that line."""
        if self.first_line is None and self.find_line is not None:
            self.first_line, self.find_line = self.find_line(self.offset), None
        line = None if self.first_line is None else self.first_line + ordinal
        if self._begins is None:
            self._begins = [0, *accumulate(len(each) + len(self.end.mark) for each in self.lines())]
        return RecordPlace(self.file, line=line, offset=self.offset + self._begins[ordinal])

    def offsets(self, ordinals: NDArray[np.int64]) -> NDArray[np.int64]:
        """The byte offset of each of these records; see `place`."""
        import numpy as np

        if self._lines is None and type(self) is LineBlock and self.end.mark == b"\n":
            begins = np.append(0, np.flatnonzero(np.frombuffer(self.data, np.uint8) == ord("\n")) + 1)
        else:
            if len(ordinals):
                self.place(0)
            begins = np.asarray(self._begins or [0], np.int64)
        return begins[ordinals] + self.offset

    def line_numbers(self, ordinals: NDArray[np.int64]) -> NDArray[np.int64] | None:
        """The line number of each of these records, see `place`; None if line numbers are unknown."""
        first = self.place(0).line if len(ordinals) else 0
        return None if first is None else ordinals + first

    def payload(self, ordinal: int) -> bytes:
        """The line without its end."""
        return self.end.stripped(self.lines()[ordinal])

    def has_lines(self, number: int) -> None:
        """Set the number of lines, if the caller knows it, so that they need not be counted."""
        self._length = number

    @property
    def known_lines(self) -> int | None:
        """The number of lines if it was set or counted, else None."""
        return None if self._length < 0 else self._length

    def __len__(self) -> int:
        """The number of lines, empty ones included."""
        if self._length < 0:
            mark = self.end.mark
            self._length = count_lines(self.data, mark) + (not self.data.endswith(mark) and bool(self.data))
        return self._length


@dataclass(slots=True)
class DamageBlock:
    """One record, or the rest of a file, that cannot be read: every decoder returns one `Bad` for it.

    `reason` is `too-long` or `truncated`; `head` its first bytes, at most one more than PAYLOAD_BYTES.
    """

    file: str
    reason: str
    message: str
    offset: int
    line: int | None = None
    head: bytes = b""
    find_line: Callable[[int], int | None] | None = None
    facts: FileFacts | None = None

    def place(self, ordinal: int) -> RecordPlace:  # noqa: ARG002 (there is one record)
        """The place where the damage begins."""
        if self.line is None and self.find_line is not None:
            self.line, self.find_line = self.find_line(self.offset), None
        return RecordPlace(self.file, line=self.line, offset=self.offset)

    def payload(self, ordinal: int) -> bytes:  # noqa: ARG002 (there is one record)
        """The part that could be read."""
        return self.head

    def __len__(self) -> int:
        """1: the damage counts as one record."""
        return 1

    def bad(self) -> list[Bad]:
        """The Bad for the record."""
        return [Bad(0, self.reason, self.message)]


@dataclass(slots=True)
class ArrowBlock:
    """Rows of typed sources: Parquet, `sequence`. `first_row` counts from 0 within the file."""

    file: str
    batch: pa.RecordBatch
    first_row: int = 0
    columns: tuple[tuple[str, str], ...] | None = None
    """all columns of the file with their types; the same object for all of its blocks"""
    unfit: Mapping[str, int] = field(default_factory=dict)
    """column → number of values that did not fit, and are null in `batch`"""
    facts: FileFacts | None = None

    def place(self, ordinal: int) -> RecordPlace:
        """The row's number in its file."""
        return RecordPlace(self.file, row=self.first_row + ordinal)

    def payload(self, ordinal: int) -> bytes:
        """The row as JSON."""
        from scribengin.formats.json_out import json_lines

        return json_lines(self.batch.slice(ordinal, 1)).rstrip(b"\n")

    def __len__(self) -> int:
        """The number of rows."""
        return int(self.batch.num_rows)
