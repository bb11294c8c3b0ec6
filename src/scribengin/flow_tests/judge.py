"""Compares the output of a test with its expectations."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from scribengin.core.errors import InputError, ScribenginError
from scribengin.core.problems import Problem, did_you_mean
from scribengin.flow_tests.compare import assign, compare_rows
from scribengin.flow_tests.contract import Difference, Pair
from scribengin.flow_tests.outputs import format_of, read_rows
from scribengin.formats.json_types import MisfitError
from scribengin.formats.written_values import typed_value
from scribengin.spec.flow_tests import ALL

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from scribengin.core.problems import Place
    from scribengin.core.types import Schema
    from scribengin.flow_tests.contract import Result, Row
    from scribengin.spec.flow_tests import Expected, FlowTest
    from scribengin.state.contract import DeadLetter


@dataclass(frozen=True, slots=True)
class Judge:
    """Compares. `folder`: the folder that paths of files are relative to; `place_of`: the place of a part of the test."""

    test: FlowTest
    folder: Path
    place_of: Callable[[Sequence[str | int]], Place]

    def differences(self, result: Result) -> Iterator[Difference]:
        """Return all differences. Raises InputError for an expectation that cannot be met."""
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
    """Whether all expected columns match; for the message a part is enough."""
    return all(
        value in letter[name] if name == "message" and isinstance(value, str) else letter[name] == value for name, value in expected.items()
    )
