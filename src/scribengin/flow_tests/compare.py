"""Compares expected rows with found rows: equality by the flow's types, in any order unless an order is required.

A DOUBLE is compared to 12 digits, a FLOAT to 6; NaN equals NaN. Columns that an expected row does not name are not compared.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from scribengin.flow_tests.contract import Pair

if TYPE_CHECKING:
    from collections.abc import Hashable, Mapping, Sequence

    from scribengin.core.types import Schema, Type
    from scribengin.flow_tests.contract import Row

_DIGITS = {"DOUBLE": 12, "FLOAT": 6}
_COMPARED = 200
"""the maximum number of rows of each side for which the most similar pairs are searched"""


@dataclass(frozen=True, slots=True)
class Comparison:
    """`what` is empty if everything is as expected."""

    what: str
    pairs: tuple[Pair, ...] = ()
    columns: tuple[str, ...] = ()
    order: bool = False
    """the rows are as expected, but not their order"""


def compare_rows(expected: Sequence[Row], got: Sequence[Row], schema: Schema, *, ordered: bool = False, among: bool = False) -> Comparison:
    """Compare typed rows. `among`: further rows are allowed. Columns that a row of `expected` does not name are not compared."""
    named = {name for row in expected for name in row}
    columns = tuple(name for name in schema.names if name in named) or schema.names
    types = {name: schema[name].type for name in columns}
    partner = _partners(expected, got, types)
    missing = [row for row, index in zip(expected, partner, strict=True) if index is None]
    taken = set(partner)
    left = [row for index, row in enumerate(got) if index not in taken]
    surplus = [] if among else left
    if missing or surplus:
        what = _sentence(len(missing), len(surplus), len(expected) - len(missing), among=among)
        return Comparison(what, tuple(_paired(missing, left, types, among=among)), columns)
    if ordered and not among:
        differ = [differing(row, other, types) for row, other in zip(expected, got, strict=True)]
        first = next((index for index, names in enumerate(differ) if names), None)
        if first is not None:
            pairs = tuple(Pair(*each) for each in zip(expected, got, differ, strict=True))
            return Comparison(f"the rows are the same, but the order differs from row {first + 1} on", pairs, columns, order=True)
    return Comparison("", columns=columns)


def _partners(expected: Sequence[Row], got: Sequence[Row], types: Mapping[str, Type]) -> list[int | None]:
    """Assign to each expected row its own equal found row, for as many rows as possible; None for the others."""
    indexes: dict[tuple[str, ...], dict[Hashable, list[int]]] = {}
    candidates: list[list[int]] = []
    for row in expected:
        names = tuple(sorted(row))
        if names not in indexes:
            index = indexes[names] = {}
            for number, other in enumerate(got):
                index.setdefault(_key(other, names, types), []).append(number)
        candidates.append(indexes[names].get(_key(row, names, types), []))
    if len(indexes) <= 1:  # equal rows have the same candidates: any one will do
        return _dealt(candidates)
    return assign(candidates)


def assign(candidates: Sequence[Sequence[int]]) -> list[int | None]:
    """Assign to each row one of its candidates, each candidate once, for as many rows as possible; None for the others."""
    holder: dict[int, int] = {}
    held: dict[int, int] = {}
    for start in range(len(candidates)):
        _place(start, candidates, holder, held)
    return [held.get(row) for row in range(len(candidates))]


def _dealt(candidates: list[list[int]]) -> list[int | None]:
    given: dict[int, int] = {}
    dealt: list[int | None] = []
    for each in candidates:
        number = given.get(id(each), 0)
        given[id(each)] = number + 1
        dealt.append(each[number] if number < len(each) else None)
    return dealt


def _place(row: int, candidates: Sequence[Sequence[int]], holder: dict[int, int], held: dict[int, int]) -> None:
    """Find a partner for the row, reassigning others if needed (an augmenting path to a free candidate)."""
    came: dict[int, int] = {}
    waiting = [row]
    while waiting:
        asking = waiting.pop()
        for other in candidates[asking]:
            if other in came:
                continue
            came[other] = asking
            if other not in holder:
                _hand_on(other, row, came, holder, held)
                return
            waiting.append(holder[other])


def _hand_on(free: int, row: int, came: dict[int, int], holder: dict[int, int], held: dict[int, int]) -> None:
    at = free
    while True:
        asking = came[at]
        before = held.get(asking)
        holder[at], held[asking] = asking, at
        if asking == row or before is None:
            return
        at = before


def canonical(value: Any, type_: Type) -> Hashable:
    """A form of a typed value that is equal for equal values, and hashable."""
    if value is None:
        return None
    match type_.name:
        case "DOUBLE" | "FLOAT":
            return "NaN" if math.isnan(value) else float(f"{value:.{_DIGITS[type_.name]}g}")
        case "ARRAY":
            return tuple(canonical(item, type_.parts[0]) for item in value)
        case "MAP":
            return frozenset((canonical(key, type_.parts[0]), canonical(item, type_.parts[1])) for key, item in value.items())
        case "STRUCT":
            return tuple(canonical(value.get(field.name), field.type) for field in type_.fields)
    hashable: Hashable = value
    return hashable


def differing(expected: Row, got: Row, types: Mapping[str, Type]) -> tuple[str, ...]:
    """The columns that the expected row names and in which the two differ."""
    named = {name: type_ for name, type_ in types.items() if name in expected}
    return tuple(name for name, type_ in named.items() if canonical(expected[name], type_) != canonical(got.get(name), type_))


def _key(row: Row, names: tuple[str, ...], types: Mapping[str, Type]) -> Hashable:
    return tuple(canonical(row.get(name), types[name]) for name in names)


def _paired(missing: list[Row], left: list[Row], types: Mapping[str, Type], *, among: bool) -> list[Pair]:
    """Pair each missing row with the most similar remaining row, the most similar pair first; others stay single. Rows without a common
    value are paired only if they are the only ones."""
    near = list(enumerate(left[:_COMPARED]))
    differ = {(at, other): differing(row, got, types) for at, row in enumerate(missing[:_COMPARED]) for other, got in near}
    alike = sorted((len(names), *each) for each, names in differ.items() if len(names) < len(missing[each[0]]))
    partner: dict[int, int] = {}
    for _, at, other in alike:
        if at not in partner and other not in partner.values():
            partner[at] = other
    if not partner and len(missing) == len(left) == 1:
        partner[0] = 0
    pairs = [Pair(row, left[partner[at]], differ[at, partner[at]]) if at in partner else Pair(row, None) for at, row in enumerate(missing)]
    return pairs + ([] if among else [Pair(None, row) for other, row in enumerate(left) if other not in partner.values()])


def _sentence(missing: int, surplus: int, same: int, *, among: bool) -> str:
    parts = []
    if missing:
        parts.append(f"{missing} expected row{'s are' if missing != 1 else ' is'} missing")
    if surplus:
        parts.append(f"{surplus} row{'s' * (surplus != 1)} that {'were' if surplus != 1 else 'was'} not expected")
    if same and not among:
        parts.append(f"{same} {'are' if same != 1 else 'is'} as expected")
    return ", ".join(parts)
