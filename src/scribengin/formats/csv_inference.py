"""Guesses the properties of a CSV file: delimiter, header line, cells that mean null, and types of columns.

Types are tried with the code that reads the cells later, so that a column's type fits every sampled cell.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from scribengin.core.types import Field, Type
from scribengin.formats.csv import CellColumn
from scribengin.formats.csv_records import split_cells, split_records
from scribengin.formats.dialect import Dialect, line_end_of
from scribengin.formats.json_types import MisfitError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from scribengin.formats.dialect import LineEnd


DELIMITERS = (",", ";", "\t", "|", ":", "^", "~", "\x01", "||")
_LOOKED_AT = 50
_NULLS = ("NA", "N/A", "NULL", "null", "None", "\\N", "nan", "NaN", "-", "?")
_STRING = Type("STRING")
_TYPES = (Type("BOOLEAN"), Type("BIGINT"), Type("DECIMAL", precision=38), Type("DOUBLE"), Type("DATE"), Type("TIMESTAMP"))
_NEARLY = 0.9
_WHOLE = re.compile(r"\s*-?[0-9]+\s*")
"""the numbers for which DECIMAL is proposed: it would fit 1e3 too, which is a DOUBLE"""

Cells = list[str | None]


@dataclass(slots=True)
class CsvShape:
    """How a file is divided into cells. `skip_lines` lines come before the first record."""

    dialect: Dialect
    skip_lines: int = 0


def guess_shape(head: bytes, delimiter: str | None = None) -> CsvShape:
    """Guess from the first lines of a file, in UTF-8: the delimiter if none is given, lines before the records, quotes and escapes."""
    end = line_end_of("auto", head)
    comment, skip = _before(head, end)
    shape = CsvShape(Dialect(line_end=end, comment=comment), skip)
    rest = _lines_from(head, end, skip)
    plain = Dialect(line_end=end, comment=comment, delimiter=delimiter or guess_delimiter(rest, shape.dialect))
    widths = [_width(cells) for cells in _first_cells(rest, plain) if cells != [None]]
    usual = Counter(widths).most_common(1)[0][0] if widths else 0
    before = next((at for at, width in enumerate(widths) if width * 2 > usual), 0)
    if usual > 1 and before and not skip:
        records = [record for record in split_records(rest, plain) if record.strip() and not _is_comment(record, plain)]
        shape.skip_lines = head[: head.find(records[before])].count(end.mark)
        rest = _lines_from(head, end, shape.skip_lines)
    shape.dialect = _quoting(rest, plain)
    return shape


def _is_comment(record: bytes, dialect: Dialect) -> bool:
    return dialect.comment is not None and record.startswith(dialect.comment.encode())


def _lines_from(head: bytes, end: LineEnd, skip: int) -> bytes:
    return end.mark.join(head.split(end.mark)[skip:])


def _before(head: bytes, end: LineEnd) -> tuple[str | None, int]:
    """(the prefix of comments, the number of lines to skip). Lines that begin with # are comments, except one that names the columns."""
    lines = [end.stripped(line) for line in head.split(end.mark)[:_LOOKED_AT]]
    marked = next((at for at, line in enumerate(lines) if line.strip() and not line.startswith(b"#")), 0)
    if not marked or not lines[0].startswith(b"#"):
        return None, 0
    named, below = lines[marked - 1], lines[marked]
    for mark in (b"\t", b",", b";"):
        cells = below.decode("utf-8", "replace").split(mark.decode())
        if mark in named and named.count(mark) == below.count(mark) and any(cell and is_value(cell) for cell in cells):
            return None, marked - 1
    return "#", 0


def _quoting(head: bytes, plain: Dialect) -> Dialect:
    """The dialect, with the quotes and escapes by which the most records have the usual number of cells."""
    backslash_null = b"\\N" in head
    escapes = b'\\"' in head or (backslash_null and head.count(b"\\") != head.count(b"\\N"))
    unquoted = replace(plain, quote=None)
    if b'"' not in head:
        if plain.delimiter == "\t" and backslash_null:
            plain = unquoted
        return replace(plain, escape="\\") if escapes else _trimmed(head, plain)
    tried = [plain, replace(plain, trim=True), *([replace(plain, escape="\\")] if escapes else []), unquoted]
    if backslash_null and escapes:
        tried.append(replace(unquoted, escape="\\"))
    best = max(tried, key=lambda dialect: _fitting(head, dialect))
    return _trimmed(head, best)


def _fitting(head: bytes, dialect: Dialect) -> float:
    """The share of lines that are in records of the usual width. Lines of a cell over several lines do not count in files with tabs."""
    records = [record for record in split_records(head, dialect) if record.strip() and not _is_comment(record, dialect)][: _LOOKED_AT * 4]
    cut = [split_cells(_text(record, dialect), dialect) for record in records]
    longer = dialect.delimiter == "\t" and dialect.quote is not None
    mark = dialect.line_end.mark
    lines = [max(1, record.count(mark)) for record in records]
    best = 0.0
    for measure in (len, _width):
        widths = [None if cells is None or (longer and each > 1) else measure(cells) for cells, each in zip(cut, lines, strict=True)]
        known = Counter(width for width in widths if width is not None)
        usual = known.most_common(1)[0][0] if known else None
        good = sum(each for width, each in zip(widths, lines, strict=True) if width is not None and width == usual)
        best = max(best, good / max(1, sum(lines)))
    return best


def _trimmed(head: bytes, dialect: Dialect) -> Dialect:
    """The dialect, with blanks trimmed if names in the first record have some."""
    first = next((cells for cells in _first_cells(head, dialect) if cells != [None]), [])
    blank = any(cell is not None and cell != cell.strip(" \t") and cell.strip(" \t") for cell in first)
    return replace(dialect, trim=True) if blank and len(first) > 1 else dialect


def _width(cells: Cells) -> int:
    """The number of cells without the empty cells at the end."""
    width = len(cells)
    while width > 1 and not cells[width - 1]:
        width -= 1
    return width


def guess_delimiter(data: bytes, dialect: Dialect = Dialect()) -> str:  # noqa: B008 (frozen)
    """The delimiter by which the first records of whole lines have the most equal widths; a comma if no delimiter divides them."""
    best, most = ",", (0.0, 1)
    for delimiter in DELIMITERS:
        cut = [cells for cells in _first_cells(data, replace(dialect, delimiter=delimiter)) if cells != [None]]
        for measure in (len, _width):
            widths = Counter(map(measure, cut))
            if not widths:
                continue
            width, count = widths.most_common(1)[0]
            found = (count / widths.total(), width)
            if width > 1 and found[0] > 0.5 and found > most:
                best, most = delimiter, found
    doubled = best.encode() * 2
    if best == "|" and doubled in data and data.count(best.encode()) == 2 * data.count(doubled):
        return best * 2
    return best


def guess_header(data: bytes, dialect: Dialect) -> bool:
    """True if the first record may be names: each of its cells is a distinct text that is not a value. An empty or repeated cell, which
    some programs write, is allowed if a column below a name is not text."""
    records = [cells for cells in _first_cells(data, dialect) if cells != [None]]
    first = records[0] if records else []
    named = [cell for cell in first if cell is not None]
    if not named or any(map(is_value, named)):
        return False
    below = [cells for cells in records[1:] if len(cells) == len(first)]
    if any(cell is not None and cell in {cells[index] for cells in below} for index, cell in enumerate(first)):
        return False
    if len(set(named)) == len(first):
        return True
    columns = [[cell for cells in below if (cell := cells[index]) is not None] for index, name in enumerate(first) if name is not None]
    return any(column and guess_column("", list(column)).type != _STRING for column in columns)


def is_value(text: str) -> bool:
    """True if the text can be of another type than STRING."""
    return any(_holds(type_, [text]) for type_ in _TYPES)


@dataclass(slots=True)
class Guessed:
    """The type of a column, and a note on it."""

    type: Type
    note: str = ""


def guess_column(name: str, cells: Cells) -> Guessed:
    """The narrowest type that fits all cells; nulls are ignored."""
    given = [cell for cell in cells if cell is not None]
    if not given:
        return Guessed(_STRING, f"{name} was always null: STRING is a guess")
    for type_ in _TYPES:
        if _holds(type_, given) and (type_.name != "DECIMAL" or all(map(_WHOLE.fullmatch, given))):
            note = f"{name} has whole numbers of more than 64 bits, so its type is {type_}, not BIGINT" if type_.name == "DECIMAL" else ""
            return Guessed(type_, note)
    for type_ in _TYPES:
        others = [cell for cell in given if not _holds(type_, [cell])] if _likely(type_, given) else given
        if others and len(others) <= (1 - _NEARLY) * len(given):
            return Guessed(_STRING, f'{name} would be {type_} except for {len(others):,} of {len(given):,} cells, such as "{others[0]}"')
    return Guessed(_STRING)


def guess_null(records: Sequence[Cells]) -> str | tuple[str, ...]:
    """The text for null by which the most columns get another type than STRING; the empty text if no other gives more. Several texts if
    each of them adds columns.

    `records` have equal widths, with the empty text for an empty cell.
    """
    columns = [list(column) for column in zip(*records, strict=True)]

    def typed(nulls: tuple[str, ...]) -> int:
        emptied = ([None if cell in nulls or cell is None else cell for cell in column] for column in columns)
        return sum(any(cell is not None for cell in cells) and guess_column("", cells).type != _STRING for cells in emptied)

    seen = {cell for column in columns for cell in column}
    best: tuple[str, ...] = ("",)
    most = typed(best)
    for null in (null for null in _NULLS if null in seen):
        if (count := typed((null,))) > most:
            best, most = (null,), count
    for null in ("", *_NULLS):
        if null in seen and null not in best and (count := typed((*best, null))) > most:
            best, most = (*best, null), count
    if best == ("",) and "\\N" in seen:  # that text has no other use
        best = ("\\N", "") if "" in seen else ("\\N",)
    return best[0] if len(best) == 1 else best


def _first_cells(data: bytes, dialect: Dialect) -> list[Cells]:
    found: list[Cells] = []
    for record in split_records(data, dialect):
        cells = None if _is_comment(record, dialect) else split_cells(_text(record, dialect), dialect)
        if cells is not None:
            found.append(cells)
        if len(found) == _LOOKED_AT:
            break
    return found


def _text(record: bytes, dialect: Dialect) -> str:
    return dialect.line_end.stripped(record.removesuffix(dialect.line_end.mark)).decode("utf-8", "replace")


def _likely(type_: Type, cells: list[str]) -> bool:
    """True if the type fits most of some cells; tested before each cell is tested."""
    some = cells[:: max(1, len(cells) // 20)]
    return sum(_holds(type_, [cell]) for cell in some) >= 0.75 * len(some)


def _holds(type_: Type, cells: list[str]) -> bool:
    column = CellColumn(Field("c", type_))
    if len(cells) == 1:
        try:
            column.value(cells[0])
        except MisfitError:
            return False
        return True
    return column.values(list(cells)) is not None
