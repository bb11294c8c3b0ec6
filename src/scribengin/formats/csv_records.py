"""Finds the end and the cells of CSV records: RFC 4180 with the deviations of a `Dialect`. A quote opens a cell only at its very beginning;
a cell in quotes may contain delimiters, line ends, and doubled quotes."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache
from itertools import accumulate
from typing import TYPE_CHECKING

import numpy as np

from scribengin.formats.blocks import LineBlock
from scribengin.formats.contract import RecordPlace
from scribengin.formats.dialect import AUTO, CR, CRLF, Dialect

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray

RFC_4180 = Dialect()
_LINE_END, _RETURN = b"\n\r"


class _Words:
    """The parts of a dialect's patterns. They never backtrack, so that matching takes time in proportion to the data: by `*+` if the
    repeated part has no alternatives, else by `(?>…)`, since `*+` is wrong there in Python before 3.11.5 (cpython 106052)."""

    def __init__(self, dialect: Dialect, *, of_bytes: bool) -> None:
        """`of_bytes`: the parts are for patterns of bytes; they are texts whose characters are the bytes."""
        end = dialect.line_end
        delimiter, comment = (_as_bytes(each) if of_bytes else each for each in (dialect.delimiter, dialect.comment or ""))
        self.escape = re.escape(dialect.escape or "")
        self.quote = re.escape(dialect.quote or "")
        self.blank = f"[{''.join(map(re.escape, dialect.blanks))}]*+" if dialect.trim and dialect.blanks else ""
        self.delimiter = re.escape(delimiter)
        self.comment = re.escape(comment)
        mark = end.mark.decode()
        self.mark = (r"\r*+" if end.loose else "") + re.escape(mark)
        self.at_end = {AUTO: r"\r*+\Z", CRLF: r"\r?\Z"}.get(end, r"\Z")
        lone_return = [r"\r(?!\n)"] * (end == CRLF)
        self.rest = _run(re.escape(mark[0]), lone_return)
        """the rest of a line"""
        parted = [rf"{re.escape(delimiter[0])}(?!{re.escape(delimiter[1:])})"] * (len(delimiter) > 1)
        escaped = [rf"{self.escape}(?:\r\n|.|\Z)"] * bool(self.escape)
        self.plain = _run(re.escape(delimiter[0]) + re.escape(mark[0]) + self.escape, [*parted, *lone_return, *escaped])
        """a cell, in a record, that does not begin with a quote"""
        self.unquoted = _run(re.escape(delimiter[0]) + self.quote + self.escape, [*parted, *escaped])
        """the same, in a record without its line end; it has no quote that is not escaped"""
        self.inside = _run(self.quote + self.escape, [self.quote * 2, *([rf"{self.escape}."] if self.escape else [])])
        """the content of a cell in quotes"""
        self.no_quote = f"(?!{self.blank}{self.quote})"


def _run(stops: str, others: list[str]) -> str:
    """A pattern for any characters except `stops`, and for `others`, in any order."""
    one = f"[^{stops}]*+"
    if not others:
        return one
    each = others[0] if len(others) == 1 else f"(?:{'|'.join(others)})"
    return f"{one}(?>(?:{each}{one})*)"


def _as_bytes(text: str) -> str:
    return text.encode().decode("latin-1")


@cache
def _patterns(dialect: Dialect) -> tuple[re.Pattern[bytes], re.Pattern[bytes]]:
    """The patterns of (one record, with the line end as its group if it has one; a record whose last cell, in quotes, continues after the
    data)."""
    words = _Words(dialect, of_bytes=True)
    d = words.delimiter
    cell, unclosed = words.plain, r"(?!)"
    comment = f"(?!{words.comment})" if words.comment else ""
    if words.quote:
        opened = f"{words.blank}{words.quote}{words.inside}"
        cell = f"(?:{opened}{words.quote}{words.blank}|{words.no_quote}{words.plain})"
        unclosed = rf"{comment}(?>(?:{cell}{d})*){opened}{f'{words.escape}?' if words.escape else ''}\Z"
    record = rf"{comment}{cell}(?>(?:{d}{cell})*)"
    if words.comment:
        record = f"(?>{words.comment}{words.rest}|{record})"
    record = rf"{record}(?:({words.mark})|{words.at_end})"
    return re.compile(record.encode("latin-1"), re.DOTALL), re.compile(unclosed.encode("latin-1"), re.DOTALL)


@cache
def _cell(dialect: Dialect) -> re.Pattern[str]:
    """The pattern of a cell and its end: the delimiter or the end of the record. Groups: the content of the quotes, or the whole unquoted
    cell; the end."""
    words = _Words(dialect, of_bytes=False)
    ends = rf"({words.delimiter}|\Z)"
    if not words.quote:
        return re.compile(rf"(?:((?!))|({words.unquoted})){ends}", re.DOTALL)
    quoted = f"{words.blank}{words.quote}({words.inside}){words.quote}{words.blank}"
    return re.compile(rf"(?:{quoted}|({words.no_quote}{words.unquoted})){ends}", re.DOTALL)


def is_commented(data: bytes, dialect: Dialect) -> bool:
    """True if a line of `data` may be a comment."""
    if dialect.comment is None:
        return False
    comment = dialect.comment.encode()
    return data.startswith(comment) or dialect.line_end.mark + comment in data


def is_escaped(data: bytes, dialect: Dialect) -> bool:
    r"""True if `data` contains an escape other than that of `\N`, which has no effect on the division into records and cells."""
    if dialect.escape is None:
        return False
    escapes = data.count(dialect.escape.encode())
    return escapes > 0 and (dialect.escape != "\\" or escapes != data.count(b"\\N"))


def _holds_quotes(data: bytes, dialect: Dialect) -> bool:
    return dialect.quote is not None and dialect.quote.encode() in data


def has_whole_cells(data: bytes, dialect: Dialect) -> bool:
    """True if each quote of `data`, which begins at the start of a record, opens or closes a cell or is doubled in one, and no cell is left
    open."""
    quotes = _quotes(data, dialect)
    return quotes is not None and not len(quotes) % 2


def _quotes(data: bytes, dialect: Dialect) -> NDArray[np.int64] | None:
    """The positions of quotes; None if one is misplaced, or if this cannot be decided. Every second one closes its cell, or is followed by
    one that opens it again: two such quotes are one quote in the cell. The last cell may be left open."""
    end = dialect.line_end
    if dialect.quote is None or len(dialect.delimiter) > 1 or not dialect.delimiter.isascii() or end not in (AUTO, CR):
        return None
    quote, delimiter, mark = ord(dialect.quote), ord(dialect.delimiter), end.mark[0]
    bytes_ = np.frombuffer(data, np.uint8)
    at = np.flatnonzero(bytes_ == quote)
    opening, closing = at[::2], at[1::2]
    before = bytes_[opening - 1]  # for a quote at position 0 this is the last byte, which is not used
    if not ((opening == 0) | (before == delimiter) | (before == mark) | (before == quote)).all():
        return None
    after = closing[closing < len(data) - 1] + 1
    follows = bytes_[after]
    ends = (follows == delimiter) | (follows == mark) | (follows == quote)
    if end == CR:
        return at if ends.all() else None
    returns = after[follows == _RETURN] + 1
    returns = returns[returns < len(data)]
    return at if (ends | (follows == _RETURN)).all() and (bytes_[returns] == _LINE_END).all() else None


def whole_records_end(data: bytes, dialect: Dialect) -> int:
    """The end of the last complete record of `data`, which begins at the start of a record; 0 if there is none."""
    mark = dialect.line_end.mark
    end = data.rfind(mark) + len(mark) if mark in data else 0
    escaped = is_escaped(data, dialect)
    if not escaped and not _holds_quotes(data, dialect):
        return end
    quotes = None if escaped or is_commented(data, dialect) else _quotes(data, dialect)
    if quotes is None:
        return end_by_records(data, end, dialect)
    while end and (inside := int(np.searchsorted(quotes, end))) % 2:  # that line end is in a cell
        end = data.rfind(mark, 0, int(quotes[inside - 1])) + 1
    return end


def end_by_records(data: bytes, end: int, dialect: Dialect) -> int:
    """The same end, found record by record, for data whose quotes may be misplaced. `end` is after the last line end."""
    record, unclosed = _patterns(dialect)
    mark = dialect.line_end.mark
    at = 0
    while at < end:
        found = record.match(data, at)
        if (found and found.group(1) is None) or (not found and unclosed.match(data, at)):
            break
        at = found.end() if found else data.find(mark, at) + len(mark)
    return at


def split_records(data: bytes, dialect: Dialect) -> Iterator[bytes]:
    """The records with their line ends. A record with misplaced quotes ends with its line, so that it does not affect other records."""
    match = _patterns(dialect)[0].match
    mark = dialect.line_end.mark
    at = 0
    while at < len(data):
        found = match(data, at)
        end = found.end() if found else data.find(mark, at) + len(mark)
        if end < at + len(mark) and not found:  # no line end is left
            end = len(data)
        yield data[at:end]
        at = end


def split_cells(record: str, dialect: Dialect) -> list[str | None] | None:
    """The cells of a record without its line end; None for a cell that is null. None if quotes are misplaced."""
    cells: list[str | None] = []
    match = _cell(dialect).match
    nulls, escape, quote = dialect.raw_nulls, dialect.escape, dialect.quote or ""
    quoted_is_null = dialect.quoted_null == "always"
    blanks = dialect.blanks if dialect.trim else ""
    at = 0
    while True:
        found = match(record, at)
        if found is None:
            return None
        quoted, plain, end = found.groups()
        if quoted is not None:
            text = quoted.replace(quote * 2, quote) if escape is None or escape not in quoted else _unescaped(quoted, dialect)
            cells.append(None if quoted_is_null and (quoted in nulls or text in dialect.nulls) else text)
        else:
            text = plain.strip(blanks) if blanks else plain
            cells.append(None if text in nulls else text if escape is None else dialect.unescaped(text))
        if not end:
            return cells
        at = found.end()


def join_cells(cells: Sequence[str | None], dialect: Dialect) -> str | None:
    """The record that `split_cells` splits into these cells; None if the dialect cannot represent one of them."""
    texts = [_written(cell, dialect) for cell in cells]
    return None if None in texts else dialect.delimiter.join(text for text in texts if text is not None)


def _written(cell: str | None, dialect: Dialect) -> str | None:
    if cell is None:
        return dialect.nulls[0]
    quote, escape = dialect.quote, dialect.escape
    plain = cell if escape is None else cell.replace(escape, escape * 2).replace(dialect.delimiter, escape + dialect.delimiter)
    inside = cell if escape is None else cell.replace(escape, escape * 2)
    meets = len(dialect.delimiter) > 1 and set(dialect.delimiter) & set(cell)  # parts of it may combine with the next ones
    if not meets and not any(mark in plain for mark in "\r\n") and split_cells(plain, dialect) == [cell]:
        return plain
    return f"{quote}{inside.replace(quote, quote * 2)}{quote}" if quote is not None else None


@cache
def _inside(quote: str, escape: str) -> re.Pattern[str]:
    return re.compile(rf"{re.escape(quote)}{re.escape(quote)}|{re.escape(escape)}.", re.DOTALL)


def _unescaped(quoted: str, dialect: Dialect) -> str:
    """The content of quotes, in which quotes may be escaped or doubled."""
    quote, escape = dialect.quote or "", dialect.escape or ""
    return _inside(quote, escape).sub(lambda two: quote if two[0][0] == quote else dialect.unescaped(two[0]), quoted)


@dataclass(slots=True)
class CsvBlock(LineBlock):
    """Whole CSV records of one file. `header` has the names of the columns; None if the file has no header."""

    dialect: Dialect = RFC_4180
    header: tuple[str, ...] | None = None

    def __post_init__(self) -> None:
        """Set the line end of the dialect."""
        self.end = self.dialect.line_end

    def lines(self) -> list[bytes]:
        """The records without their line ends."""
        if self._lines is None:
            if self._has_longer_records():
                mark = self.end.mark
                self._lines = [record.removesuffix(mark) for record in split_records(self.data, self.dialect)]
            else:
                self._lines = LineBlock.lines(self)
        return self._lines

    def place(self, ordinal: int) -> RecordPlace:
        """The line on which the record begins, and its offset."""
        place = LineBlock.place(self, ordinal)
        if place.line is None or not self._has_longer_records():
            return place
        if self._line_ends is None:
            mark = self.end.mark
            self._line_ends = list(accumulate((line.count(mark) + 1 for line in self.lines()), initial=0))
        return RecordPlace(place.file, line=self.first_line + self._line_ends[ordinal], offset=place.offset)  # type: ignore[operator]

    def line_numbers(self, ordinals: NDArray[np.int64]) -> NDArray[np.int64] | None:
        """The line number of each of these records; see `place`."""
        if not len(ordinals) or self.place(0).line is None or self._line_ends is None:
            return LineBlock.line_numbers(self, ordinals)
        return np.asarray(self._line_ends, np.int64)[ordinals] + self.first_line  # type: ignore[operator]

    def __len__(self) -> int:
        """The number of records."""
        if self._length < 0:
            self._length = len(self.lines()) if self._has_longer_records() else LineBlock.__len__(self)
        return self._length

    def _has_longer_records(self) -> bool:
        """True if a record may span several lines."""
        if _holds_quotes(self.data, self.dialect):
            return True
        escape = (self.dialect.escape or "").encode()
        return bool(escape) and (escape + b"\n" in self.data or escape + b"\r" in self.data)

    _line_ends: list[int] | None = None


def longer_cell(block: CsvBlock) -> RecordPlace | None:
    """The place of the first record in a block that spans several lines, in a file with tabs; None if there is none."""
    quote, mark = block.dialect.quote, block.end.mark
    if block.dialect.delimiter != "\t" or quote is None or quote.encode() not in block.data:
        return None
    at = next((at for at, line in enumerate(block.lines()) if mark in line and quote.encode() in line), None)
    return None if at is None else block.place(at)
