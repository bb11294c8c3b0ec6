"""Compares the output of a test with its expectations."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from scribengin.core.errors import InputError, ScribenginError
from scribengin.core.problems import Problem, did_you_mean
from scribengin.flow_tests.contract import Difference, Pair
from scribengin.flow_tests.twin import format_of, read_rows
from scribengin.formats.json_types import MisfitError
from scribengin.formats.written_values import typed_value
from scribengin.spec.flow_tests import ALL

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
    from pathlib import Path

    from scribengin.core.problems import Place
    from scribengin.core.types import Schema, Type
    from scribengin.flow_tests.contract import Result, Row
    from scribengin.spec.flow_tests import Expected, FlowTest
    from scribengin.state.contract import DeadLetter


# Compares expected rows with found rows: equality by the flow's types, in any order unless an order is required.
#
# A DOUBLE is compared to 12 digits, a FLOAT to 6; NaN equals NaN. Columns that an expected row does not name are not compared.


_DIGITS = {"DOUBLE": 12, "FLOAT": 6}
_COMPARED = 200
"""the maximum number of rows of each side for which the most similar pairs are searched"""


@dataclass(frozen=True, slots=True)
class Comparison:
    """The result of a comparison. `what` describes the differences; it is empty if everything is as expected."""

    what: str
    pairs: tuple[Pair, ...] = ()
    columns: tuple[str, ...] = ()
    order: bool = False
    """True if the rows are as expected, but not their order"""


def compare_rows(expected: Sequence[Row], got: Sequence[Row], schema: Schema, *, ordered: bool = False, among: bool = False) -> Comparison:
    """Compare typed rows.

    Args:
        expected: The expected rows. Columns that a row does not name are not compared.
        got: The found rows.
        schema: The columns of the found rows.
        ordered: True if the order is compared too.
        among: True if other rows are allowed besides the expected ones.
    """
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


@dataclass(frozen=True, slots=True)
class Judge:
    """Compares the result of a test with its expectations. `folder`: the folder that paths of files are relative to; `place_of`: the place
    of a part of the test."""

    test: FlowTest
    folder: Path
    place_of: Callable[[Sequence[str | int]], Place]

    def differences(self, result: Result) -> Iterator[Difference]:
        """Yields all differences. Raises InputError for an expectation that cannot be met."""
        for sink, expected in self.test.expect.items():
            if sink not in result.columns:
                raise InputError(
                    [self._unknown(("expect", sink), f'expects rows of "{sink}", which is not a sink in any version of the flow')]
                )
            yield from self._sink(sink, expected, result.outputs[sink], result.columns[sink])
        yield from self._dead(result.dead)
        if not result.balanced:
            yield Difference("ledger", f"does not balance: {'; '.join(result.violations)}", self.place_of(("name",)))

    def _unknown(self, at: Sequence[str | int], what: str) -> Problem:
        return Problem("test-node-unknown", self.place_of(at), f'test "{self.test.name}" {what}', "correct the name, or take it out")

    def _sink(self, sink: str, expected: Expected, got: Sequence[Row], schema: Schema) -> Iterator[Difference]:
        place = self.place_of(("expect", sink))
        if expected.count is not None and len(got) != expected.count:
            pairs = tuple(Pair(None, row) for row in got)
            yield Difference(
                f"sink {sink}",
                f"has {len(got)} row{'s' * (len(got) != 1)}, not {expected.count}",
                place,
                schema.names,
                pairs,
                node=sink,
                matched=False,
            )
        rows = self._rows(expected, sink, schema)
        if rows is not None:
            among = expected.contains is not None
            found = compare_rows(rows, got, schema, ordered=expected.ordered, among=among)
            if found.what:
                yield Difference(f"sink {sink}", found.what, place, found.columns, found.pairs, node=sink, matched=not found.order)

    def _rows(self, expected: Expected, sink: str, schema: Schema) -> list[Row] | None:
        if expected.files:
            return [row for name in expected.files for row in self._file(expected, name, schema)]
        written = expected.contains if expected.contains is not None else expected.rows
        return None if written is None else [self._typed(row, (*expected.at, index), sink, schema) for index, row in enumerate(written)]

    def _typed(self, row: Row, at: Sequence[str | int], sink: str, schema: Schema) -> Row:
        typed: dict[str, Any] = {}
        for name, value in row.items():
            if name not in schema:
                remedy = did_you_mean(name, schema.names) or f"its columns are {', '.join(schema.names)}"
                message = f'test "{self.test.name}" has a row with "{name}", which sink "{sink}" does not have'
                raise InputError([Problem("test-column-unknown", self.place_of((*at, name)), message, remedy)])
            try:
                typed[name] = typed_value(value, schema[name].type)
            except MisfitError as misfit:
                where = f'"{name}{"".join(misfit.path)}" of sink "{sink}"'
                message = f'test "{self.test.name}" has, for {where}, {misfit.found}, but the column is {schema[name].type}'
                raise InputError([Problem("test-value", self.place_of((*at, name)), message, "write a value of that type")]) from misfit
        return typed

    def _file(self, expected: Expected, name: str, schema: Schema) -> list[dict[str, Any]]:
        place = self.place_of(expected.at)
        path, format_ = expected_file(self.folder, name, place)
        try:
            return read_rows(path, format_, schema, {}, named=True)
        except (ScribenginError, ValueError, ArithmeticError, OSError) as error:
            message = f"{path} cannot be read back: {error}"
            raise InputError([Problem("test-file", place, message, f"its columns are {schema}")]) from error

    def _dead(self, letters: Sequence[DeadLetter]) -> Iterator[Difference]:
        expected = self.test.dead
        if expected is None:
            if letters:
                what = (
                    f"{len(letters)} that {'were' if len(letters) != 1 else 'was'} not expected; if this is right, write expect: "
                    f"{{dead: {len(letters)}}}"
                )
                yield Difference(
                    "dead letters", what, self.place_of(("expect",)), _SHOWN, tuple(Pair(None, row) for row in letter_rows(letters))
                )
            return
        for step, wanted in expected.items():
            mine = [letter for letter in letters if step in (ALL, letter.step)]
            yield from self._letters(f"dead letters of {step}" if step else "dead letters", wanted, mine)
        if ALL not in expected:
            others = [letter for letter in letters if letter.step not in expected]
            if others:
                pairs = tuple(Pair(None, row) for row in letter_rows(others))
                yield Difference(
                    "dead letters",
                    f"{len(others)} of other steps that {'were' if len(others) != 1 else 'was'} not expected",
                    self.place_of(("expect", "dead")),
                    _SHOWN,
                    pairs,
                )

    def _letters(self, where: str, wanted: Expected, letters: Sequence[DeadLetter]) -> Iterator[Difference]:
        place = self.place_of(wanted.at)
        rows = letter_rows(letters)
        if wanted.count is not None and len(rows) != wanted.count:
            pairs = tuple(Pair(None, row) for row in rows)
            yield Difference(where, f"expected {wanted.count}, found {len(rows)}", place, _SHOWN, pairs)
        asked = wanted.contains if wanted.contains is not None else wanted.rows
        if asked is None:
            return
        partner = assign([[index for index, other in enumerate(rows) if _is_so(row, other)] for row in asked])
        missing = [row for row, index in zip(asked, partner, strict=True) if index is None]
        surplus = [] if wanted.contains is not None else [row for index, row in enumerate(rows) if index not in partner]
        if missing or surplus:
            columns = tuple(dict.fromkeys([*(name for row in asked for name in row), *_SHOWN]))
            pairs = (*(Pair(row, None) for row in missing), *(Pair(None, row) for row in surplus))
            yield Difference(where, f"{len(missing)} missing, {len(surplus)} not expected", place, columns, pairs)


_SHOWN = ("step", "reason", "message", "record")


def expected_file(folder: Path, name: str, place: Place) -> tuple[Path, str]:
    """(the file, its format). Raises InputError if it does not exist, or is of another kind."""
    path = folder / name
    format_ = format_of(path)
    if not path.is_file() or format_ is None:
        what = "is not a file" if format_ else "is not a known kind of file"
        raise InputError([Problem("test-file", place, f"{path} {what}", "use a .jsonl, .csv, .txt or .parquet file")])
    return path, format_


def letter_rows(letters: Sequence[DeadLetter]) -> list[dict[str, Any]]:
    """The columns of each dead letter that a test can compare."""
    names = ("step", "reason", "message", "source", "exception", "code_line", "line", "row")
    return [{name: getattr(letter, name) for name in names} | {"record": letter.payload.decode("utf-8", "replace")} for letter in letters]


def _is_so(expected: Row, letter: Row) -> bool:
    """True if all expected columns match; for the message a part is enough."""
    return all(
        value in letter[name] if name == "message" and isinstance(value, str) else letter[name] == value for name, value in expected.items()
    )
