"""Where a CSV record ends, and its cells: RFC 4180. A quote opens a cell only at its very beginning; a cell in quotes may hold
delimiters, line ends, and quotes that are written twice."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache
from itertools import accumulate
from typing import TYPE_CHECKING

import numpy as np

from scribengin.formats.blocks import LineBlock
from scribengin.formats.contract import RecordPlace

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

_QUOTED = r'[^"]*+(?:""[^"]*+)*+'
_QUOTE, _LINE_END, _RETURN = b'"\n\r'
_OPEN = b'"' + _QUOTED.encode()


@cache
def _patterns(delimiter: str) -> tuple[re.Pattern[bytes], re.Pattern[bytes]]:
    """One record with its line end; and a record whose last quote is not closed before the data end. Nothing goes back, so that each
    takes time in proportion to what it reads: by `*+` where what is repeated has no choice, else by `(?>…)`, since `*+` is wrong there
    in Python before 3.11.5 (cpython 106052)."""
    d = re.escape(delimiter.encode())
    cell = rb"(?:" + _OPEN + rb'"|(?!")[^' + d + rb"\n]*+)"
    begin = cell + rb"(?>(?:" + d + cell + rb")*)"
    return re.compile(begin + rb"(?:\r?\n|\r?\Z)"), re.compile(rb"(?>(?:" + cell + d + rb")*)" + _OPEN + rb"\Z")


@cache
def _cell(delimiter: str) -> re.Pattern[str]:
    d = re.escape(delimiter)
    return re.compile(rf'(?:"({_QUOTED})"|((?!")[^{d}"]*+))({d}|\Z)')


def check_delimiter(delimiter: str) -> None:
    """Raises ValueError for anything but one ASCII character that can stand between cells."""
    if len(delimiter) != 1 or not delimiter.isascii() or delimiter in '"\r\n':
        raise ValueError(f"`delimiter` is {delimiter!r}; it must be one ASCII character, no quote and no line end")


def has_whole_cells(data: bytes, delimiter: str) -> bool:
    """True where each quote of `data`, which begins at the start of a record, opens or closes a cell or stands for one in it, and
    none is left open."""
    quotes = _quotes(data, delimiter)
    return quotes is not None and not len(quotes) % 2


def _quotes(data: bytes, delimiter: str) -> NDArray[np.int64] | None:
    """Where quotes stand; None where any stands wrong. Every second one closes its cell, or is followed by one that opens it again:
    so two of them stand for a quote in the cell. The last may be left open."""
    bytes_ = np.frombuffer(data, np.uint8)
    at = np.flatnonzero(bytes_ == _QUOTE)
    opening, closing = at[::2], at[1::2]
    before = bytes_[opening - 1]  # of the first byte the last one, which says nothing
    if not ((opening == 0) | _is_end(before, delimiter) | (before == _QUOTE)).all():
        return None
    after = closing[closing < len(data) - 1] + 1
    returns = after[bytes_[after] == _RETURN] + 1
    returns = returns[returns < len(data)]
    follows = bytes_[after]
    if (_is_end(follows, delimiter) | (follows == _QUOTE) | (follows == _RETURN)).all() and (bytes_[returns] == _LINE_END).all():
        return at
    return None


def _is_end(bytes_: NDArray[np.uint8], delimiter: str) -> NDArray[np.bool_]:
    ends: NDArray[np.bool_] = (bytes_ == ord(delimiter)) | (bytes_ == _LINE_END)
    return ends


def whole_records_end(data: bytes, delimiter: str) -> int:
    """Where the last whole record of `data`, which begins at the start of one, ends; 0 where none does."""
    end = data.rfind(b"\n") + 1
    if b'"' not in data:
        return end
    quotes = _quotes(data, delimiter)
    if quotes is not None:
        while end and (inside := int(np.searchsorted(quotes, end))) % 2:  # that line end is in a cell
            end = data.rfind(b"\n", 0, int(quotes[inside - 1])) + 1
        return end
    return end_by_records(data, end, delimiter)


def end_by_records(data: bytes, end: int, delimiter: str) -> int:
    """The same, record by record, for data in which quotes may stand wrong. `end` is behind the last line end."""
    record, unclosed = _patterns(delimiter)
    at = 0
    while at < end:
        found = record.match(data, at)
        if (found and found.end() > end) or (not found and unclosed.match(data, at)):
            break
        at = found.end() if found else data.find(b"\n", at) + 1
    return at


def split_records(data: bytes, delimiter: str) -> Iterator[bytes]:
    """The records with their line ends. Where quotes stand wrong the record ends with its line: a bad one takes no other with it."""
    match = _patterns(delimiter)[0].match
    at = 0
    while at < len(data):
        found = match(data, at)
        end = found.end() if found else data.find(b"\n", at) + 1 or len(data)
        yield data[at:end]
        at = end


def split_cells(record: str, delimiter: str, null: str) -> list[str | None] | None:
    """The cells of a record without its line end; None for a cell that is `null` without quotes. None where quotes stand wrong."""
    cells: list[str | None] = []
    match = _cell(delimiter).match
    at = 0
    while True:
        found = match(record, at)
        if found is None:
            return None
        quoted, plain, end = found.groups()
        if quoted is not None:
            cells.append(quoted.replace('""', '"'))
        else:
            cells.append(None if plain == null else plain)
        if not end:
            return cells
        at = found.end()


@dataclass(slots=True)
class CsvBlock(LineBlock):
    """Whole CSV records of one file. `header` names the columns that the cells stand under; None where the file has no header."""

    delimiter: str = ","
    header: tuple[str, ...] | None = None

    def lines(self) -> list[bytes]:
        """The records without their line ends."""
        if self._lines is None:
            if b'"' in self.data:
                records = split_records(self.data, self.delimiter)
                self._lines = [record.removesuffix(b"\n") for record in records]
            else:
                self._lines = LineBlock.lines(self)
        return self._lines

    def place(self, ordinal: int) -> RecordPlace:
        """The line on which the record begins, and its offset."""
        place = LineBlock.place(self, ordinal)
        if place.line is None or b'"' not in self.data:
            return place
        if self._line_ends is None:
            self._line_ends = list(accumulate((line.count(b"\n") + 1 for line in self.lines()), initial=0))
        return RecordPlace(place.file, line=self.first_line + self._line_ends[ordinal], offset=place.offset)  # type: ignore[operator]

    def __len__(self) -> int:
        """How many records."""
        if self._length < 0:
            self._length = len(self.lines()) if b'"' in self.data else LineBlock.__len__(self)
        return self._length

    _line_ends: list[int] | None = None
