"""Rows that a step made from several rows: what identifies them, and in which columns. Only certain facts are recorded."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from scribengin.spec.model import Emit


WINDOW = "window"
"""the name of the part that is a time window"""


@dataclass(frozen=True, slots=True)
class KeyColumn:
    """The known facts about one column of such rows."""

    parts: frozenset[str] = frozenset()
    """those of `DerivedRows.parts` that its value may tell: surely where it is a copy, perhaps where it is computed from them"""
    copy_of: str = ""
    """the part it is a copy of; for a window its start, its end or both"""
    computed: str = ""
    """an aggregate that it is computed from, as SQL"""


@dataclass(frozen=True, slots=True)
class DerivedRows:
    """The rows of one step: a group each, or a pair of two streams' rows each."""

    step: str
    what: Literal["group", "pair"]
    emit: Emit
    parts: tuple[str, ...]
    """what tells them apart, by name; what is the same in all rows, or follows from others, is left out"""
    cells: Mapping[str, KeyColumn]
    """column → what is known of it; of a column that is not here nothing is"""

    def cell(self, name: str) -> KeyColumn | None:
        """Of the column of that name; in SQL upper and lower case are the same."""
        folded = name.lower()
        return self.cells.get(name) or next((cell for other, cell in self.cells.items() if other.lower() == folded), None)


@dataclass(frozen=True, slots=True)
class EdgeRows:
    """The known facts about the rows of one reference."""

    made: tuple[DerivedRows, ...] = ()
    """one for each step that made some of them; nothing is known of the others"""
    fixed: frozenset[str] = field(default=frozenset())
    """columns, in lower case, that are the same in all rows, or may be"""

    def where(self, fixed: Iterable[str]) -> EdgeRows:
        """Those rows among them in which these columns are the same."""
        names = frozenset(name.lower() for name in fixed)
        return EdgeRows(tuple(_without(made, names) for made in self.made), self.fixed | names) if names else self


def _without(made: DerivedRows, names: frozenset[str]) -> DerivedRows:
    told = {part for name in names if (cell := made.cell(name)) for part in cell.parts}
    return replace(made, parts=tuple(part for part in made.parts if part not in told))
