"""What CSV does not say of itself: what stands between its cells, whether its first line names them, what means null, and their types.

Types are tried with what reads the cells later, so that a column's type holds every cell that was seen.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

from scribengin.core.types import Field, Type
from scribengin.formats.csv import CellColumn
from scribengin.formats.csv_records import split_cells, split_records
from scribengin.formats.json_types import MisfitError

if TYPE_CHECKING:
    from collections.abc import Sequence

DELIMITERS = (",", ";", "\t", "|", ":")
_LOOKED_AT = 50
_NULLS = ("NA", "N/A", "NULL", "null", "None", "\\N", "nan", "NaN", "-", "?")
_STRING = Type("STRING")
_TYPES = (Type("BOOLEAN"), Type("BIGINT"), Type("DECIMAL", precision=38), Type("DOUBLE"), Type("DATE"), Type("TIMESTAMP"))
_NEARLY = 0.9
_WHOLE = re.compile(r"\s*-?[0-9]+\s*")
"""what DECIMAL is proposed for: it would hold 1e3 too, which is a DOUBLE"""

Cells = list[str | None]


def guess_delimiter(data: bytes) -> str:
    """The one by which the first records of whole lines have the most equal widths; a comma where none cuts them."""
    best, most = ",", (0.0, 1)
    for delimiter in DELIMITERS:
        widths = Counter(len(cells) for cells in _first_cells(data, delimiter) if cells != [None])
        if not widths:
            continue
        width, count = widths.most_common(1)[0]
        found = (count / widths.total(), width)
        if width > 1 and found[0] > 0.5 and found > most:
            best, most = delimiter, found
    return best


def guess_header(data: bytes, delimiter: str) -> bool:
    """True where the first record may be names: each of its cells is a text of its own, and no value. One that is empty, or twice there, as
    some programs write it, may be a name where the values below another are no texts."""
    records = [cells for cells in _first_cells(data, delimiter) if cells != [None]]
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
    """True where the text can be of another type than STRING."""
    return any(_holds(type_, [text]) for type_ in _TYPES)


@dataclass(slots=True)
class Guessed:
    """The type of a column, and what is to be said of it."""

    type: Type
    note: str = ""


def guess_column(name: str, cells: Cells) -> Guessed:
    """The narrowest type that holds all cells; nulls count for nothing."""
    given = [cell for cell in cells if cell is not None]
    if not given:
        return Guessed(_STRING, f"{name} was always null: STRING is a guess")
    for type_ in _TYPES:
        if _holds(type_, given) and (type_.name != "DECIMAL" or all(map(_WHOLE.fullmatch, given))):
            note = f"{name} holds whole numbers beyond 64 bits, so {type_} and not BIGINT" if type_.name == "DECIMAL" else ""
            return Guessed(type_, note)
    for type_ in _TYPES:
        others = [cell for cell in given if not _holds(type_, [cell])] if _likely(type_, given) else given
        if len(others) <= (1 - _NEARLY) * len(given):
            return Guessed(_STRING, f'{name} would be {type_} but for {len(others):,} of {len(given):,} cells, such as "{others[0]}"')
    return Guessed(_STRING)


def guess_null(records: Sequence[Cells]) -> str:
    """The cell that makes the most columns more than STRING when it means null; the empty one where no other does better.

    `records` are of one width, with the empty text where a cell is empty."""
    columns = [list(column) for column in zip(*records, strict=True)]

    def typed(null: str) -> int:
        emptied = ([None if cell in (null, None) else cell for cell in column] for column in columns)
        return sum(any(cell is not None for cell in cells) and guess_column("", cells).type != _STRING for cells in emptied)

    seen = {cell for column in columns for cell in column}
    best, most = "", typed("")
    for null in (null for null in _NULLS if null in seen):
        if (count := typed(null)) > most:
            best, most = null, count
    return best


def _first_cells(data: bytes, delimiter: str) -> list[Cells]:
    found: list[Cells] = []
    for record in split_records(data, delimiter):
        text = record.decode("utf-8", "replace").rstrip("\r\n")
        cells = split_cells(text, delimiter, null="")
        if cells is not None:
            found.append(cells)
        if len(found) == _LOOKED_AT:
            break
    return found


def _likely(type_: Type, cells: list[str]) -> bool:
    """A look at some, before each is asked alone."""
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
