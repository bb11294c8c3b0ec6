"""Blocks of records that are not single lines of their file: JSON over any number of lines, and text with records of several lines."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from scribengin.formats.blocks import LineBlock
from scribengin.formats.contract import RecordPlace

if TYPE_CHECKING:
    from numpy.typing import NDArray

_BLANK = b" \t\r\n"


@dataclass(slots=True)
class SpanBlock(LineBlock):
    """Whole records of one file. `content` is the file's content from `offset` and `first_line` on; record i is
    `content[starts[i]:ends[i]]`."""

    content: bytes = b""
    starts: list[int] = field(default_factory=list)
    ends: list[int] = field(default_factory=list)

    def lines(self) -> list[bytes]:
        """The records' bytes."""
        return [self.payload(ordinal) for ordinal in range(len(self.starts))]

    def _begin(self, ordinal: int) -> int:
        return self.starts[ordinal]

    def place(self, ordinal: int) -> RecordPlace:
        """The place where the record begins."""
        begin = self._begin(ordinal)
        line = None if self.first_line is None else self.first_line + self.content.count(b"\n", 0, begin)
        return RecordPlace(self.file, line=line, offset=self.offset + begin)

    def payload(self, ordinal: int) -> bytes:
        """The record as written in the file."""
        return self.content[self.starts[ordinal] : self.ends[ordinal]]

    def offsets(self, ordinals: NDArray[np.int64]) -> NDArray[np.int64]:
        """The byte offset of each of these records; see `place`."""
        return np.array([self._begin(ordinal) for ordinal in ordinals.tolist()], np.int64) + self.offset

    def line_numbers(self, ordinals: NDArray[np.int64]) -> NDArray[np.int64] | None:
        """The line number of each of these records; see `place`."""
        if self.first_line is None:
            return None
        ends = np.flatnonzero(np.frombuffer(self.content, np.uint8) == ord("\n"))
        return np.searchsorted(ends, self.offsets(ordinals) - self.offset) + self.first_line

    def __len__(self) -> int:
        """The number of records."""
        return len(self.starts)


@dataclass(slots=True)
class JsonBlock(SpanBlock):
    """JSON records. In `data` each is on a line of its own, for a decoder of lines."""

    @staticmethod
    def of(file: str, content: bytes, offset: int, line: int, starts: list[int], ends: list[int]) -> JsonBlock:
        """Build a block. A line end inside a record is replaced by a carriage return: in JSON both are white space, or both are an error.

        Args:
            file: The name of the file.
            content: The file's content, in which the records are.
            offset: The offset of `content` in the file, in bytes.
            line: The line number of its first byte.
            starts: Where each record begins in `content`.
            ends: Where each record ends in `content`.
        """
        plain = content.replace(b"\n", b"\r") if b"\n" in content else content
        data = b"\n".join([plain[start:end].strip() for start, end in zip(starts, ends, strict=True)]) + b"\n"
        return JsonBlock(file, data, offset, line, content=content, starts=starts, ends=ends)

    def lines(self) -> list[bytes]:
        """The lines of `data`."""
        return LineBlock.lines(self)

    def _begin(self, ordinal: int) -> int:
        """Where the record begins in `content`, without the blanks before it."""
        record = self.content[self.starts[ordinal] : self.ends[ordinal]]
        return self.starts[ordinal] + len(record) - len(record.lstrip(_BLANK))

    def payload(self, ordinal: int) -> bytes:
        """The record without the blanks around it."""
        return SpanBlock.payload(self, ordinal).strip(_BLANK)
