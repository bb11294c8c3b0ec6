"""A JOIN of two inputs: by which equal columns their rows come together, and what a column of either says of that."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from scribengin.plan.made_rows import KeyColumn

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from sqlglot import exp


@dataclass(frozen=True, slots=True)
class Pairs:
    """All names but those of `parts` are in lower case."""

    parts: tuple[str, ...]
    """what is equal in both rows, as it is written first"""
    _of: Mapping[tuple[str, str], str]
    """(input, column) → its part"""
    _columns: Mapping[str, frozenset[str]]
    """input → its columns"""

    @staticmethod
    def of(select: exp.Select, columns: Mapping[str, frozenset[str]]) -> Pairs | None:
        """`columns`: of each input, by the name that the query has for it. None where rows do not come in pairs."""
        joins = select.args.get("joins") or []
        if len(columns) != 2 or len(joins) != 1 or select.args.get("laterals") or joins[0].kind in ("SEMI", "ANTI", "CROSS"):
            return None
        parts: dict[str, None] = {}
        of: dict[tuple[str, str], str] = {}
        for name in joins[0].args.get("using") or ():
            parts[name.name] = None
            of |= {(input_, name.name.lower()): name.name for input_ in columns}
        for left, right in _equal(joins[0].args.get("on")):
            sides = [_place(left, columns), _place(right, columns)]
            if None not in sides and len({side[0] for side in sides if side}) == 2:
                part = next((of[side] for side in sides if side in of), left.name)
                parts[part] = None
                of |= {side: part for side in sides if side}
        return Pairs(tuple(parts), of, columns)

    def cell(self, column: exp.Column) -> KeyColumn | None:
        """What it says; None where it is not known which column it is."""
        place = _place(column, self._columns) or self._merged(column)
        if place is None:
            return None
        part = self._of.get(place, "")
        return KeyColumn(frozenset({part} - {""}), part)

    def _merged(self, column: exp.Column) -> tuple[str, str] | None:
        """A column of USING, which both have and which is one."""
        places = [(input_, column.name.lower()) for input_ in self._columns]
        return places[0] if len(column.parts) == 1 and all(place in self._of for place in places) else None


def _equal(condition: exp.Expr | None) -> Iterator[tuple[exp.Column, exp.Column]]:
    from sqlglot import exp

    waiting = [] if condition is None else [condition]
    while waiting:
        match waiting.pop().unnest():
            case exp.And() as both:
                waiting += [both.right, both.left]
            case exp.EQ(this=exp.Column() as left, expression=exp.Column() as right):
                yield left, right
            case _:
                pass


def _place(column: exp.Column, columns: Mapping[str, frozenset[str]]) -> tuple[str, str] | None:
    """(input, column), where it is one for certain."""
    names = [part.name.lower() for part in column.parts]
    if len(names) == 2 and names[0] in columns:
        return (names[0], names[1]) if names[1] in columns[names[0]] else None
    having = [input_ for input_, known in columns.items() if names[0] in known]
    return (having[0], names[0]) if len(names) == 1 and len(having) == 1 else None
