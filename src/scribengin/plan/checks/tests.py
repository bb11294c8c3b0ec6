"""Rules on the tests that a flow declares."""

from __future__ import annotations

from typing import TYPE_CHECKING

from scribengin.core.problems import Problem, did_you_mean, suggestion
from scribengin.formats.json_types import MisfitError
from scribengin.formats.written_values import typed_value
from scribengin.plan.columns import find
from scribengin.spec.flow_tests import ALL

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from scribengin.plan.checks.subject import Subject
    from scribengin.plan.columns import Columns
    from scribengin.spec.flow_tests import Expected, FlowTest, GivenRows
    from scribengin.spec.places import Path, Places

LETTER_COLUMNS = ("step", "reason", "message", "record", "source", "exception", "code_line", "line", "row")
"""the columns of a dead letter in a test"""


def tests_fit(subject: Subject) -> Iterator[Problem]:
    """Tests name existing sources, sinks, steps and columns, with values of the right type; names of tests are unique."""
    return check_tests(subject, subject.flow.tests, subject.places, ("tests",))


def check_tests(subject: Subject, tests: Sequence[FlowTest], places: Places, prefix: Path) -> Iterator[Problem]:
    """The problems of the tests in the list at `prefix` of a document with these places."""
    seen: set[str] = set()
    for test in tests:
        checker = _Checker(subject, test, places, (*prefix, test.index))
        if test.name in seen:
            yield checker.problem("test-twice", ("name",), "has the same name as another test", "give each test a name of its own")
        seen.add(test.name)
        yield from checker.problems()


class _Checker:
    def __init__(self, subject: Subject, test: FlowTest, places: Places, at: Path) -> None:
        self._subject = subject
        self._test = test
        self._places = places
        self._at = at

    def problem(self, code: str, path: Path, message: str, remedy: str, *, key: bool = False) -> Problem:
        place = (self._places.key if key else self._places.value)((*self._at, *path))
        return Problem(code, place, f'test "{self._test.name}" {message}', remedy)

    def problems(self) -> Iterator[Problem]:
        flow, test = self._subject.flow, self._test
        later = min((change.before for change in test.changes), default=None)  # from then on the flow may have other nodes and columns
        for source, batches in test.given.items():
            if source not in flow.sources:
                if self._comes_later("sources", source):
                    continue
                yield self._unknown(("given", source), source, "gives rows to", flow.sources, "source")
                continue
            for rows in batches[: later - 1 if later is not None else None]:
                yield from self._given(source, rows)
        for sink, expected in test.expect.items():
            if sink not in flow.sinks:
                if self._comes_later("sinks", sink):
                    continue
                yield self._unknown(("expect", sink), sink, "expects rows of", flow.sinks, "sink")
                continue
            if later is None:
                yield from self._values(self._subject.resolved.of(sink), expected, f'sink "{sink}"')
        for step, expected in (test.dead or {}).items():
            known = (*flow.sources, *flow.steps, *flow.sinks)
            if step != ALL and step not in known and not any(self._comes_later(each, step) for each in ("sources", "steps", "sinks")):
                yield self._unknown(
                    ("expect", "dead", step), step, "expects dead letters of", (*flow.sources, *flow.steps), "source or step"
                )
            yield from self._names(expected, LETTER_COLUMNS, "a dead letter")
        yield from self._batches()

    def _unknown(self, path: Path, name: str, does: str, known: Iterable[str], what: str) -> Problem:
        names = list(known)
        remedy = did_you_mean(name, names) or f"its {what}s are {', '.join(names)}"
        other = "sources" if name in self._subject.flow.sources else "steps" if name in self._subject.flow.steps else "sinks"
        is_other = name in getattr(self._subject.flow, other)
        message = f'{does} "{name}", which is not a {what}' + (f" but one of the {other}" if is_other else "")
        return self.problem("test-node-unknown", path, message, remedy, key=True)

    def _comes_later(self, section: str, name: str) -> bool:
        """True if a change of the test may add the node."""
        return any(change.flow or name in (change.patch.get(section) or {}) for change in self._test.changes)

    def _given(self, source: str, rows: GivenRows) -> Iterator[Problem]:
        columns = self._subject.resolved.of(source)
        for index, row in enumerate(rows.rows):
            if not isinstance(row, str):
                yield from self._row(columns, row, (*rows.at, index), f'source "{source}"', given=True)

    def _values(self, columns: Columns | None, expected: Expected, where: str) -> Iterator[Problem]:
        for index, row in enumerate(expected.rows or expected.contains or ()):
            yield from self._row(columns, row, (*expected.at, index), where, given=False)

    def _row(self, columns: Columns | None, row: Mapping[str, object], at: Path, where: str, *, given: bool) -> Iterator[Problem]:
        for name, value in row.items() if columns is not None else ():
            assert columns is not None
            column = find(columns, name)
            if column is None or column.name != name:
                remedy = suggestion(name, (one.name for one in columns), "it has")
                yield self.problem(
                    "test-column-unknown", (*at, name), f'has a row with "{name}", which {where} does not have', remedy, key=True
                )
            elif column.type is not None:
                try:
                    typed_value(value, column.type)
                except MisfitError as misfit:
                    inside = "".join(misfit.path)
                    message = f'has, for "{name}{inside}" of {where}, {misfit.found}, but the column is {column.type}'
                    raw = "; to test a bad record, write the whole record as a text" if given else ""
                    yield self.problem("test-value", (*at, name), message, f"write a value of that type{raw}")

    def _names(self, expected: Expected, known: tuple[str, ...], what: str) -> Iterator[Problem]:
        for index, row in enumerate(expected.rows or expected.contains or ()):
            for name in row:
                if name not in known:
                    remedy = suggestion(name, known, "its columns are")
                    path = (*expected.at, index, name)
                    yield self.problem("test-column-unknown", path, f'has "{name}", which {what} does not have', remedy, key=True)

    def _batches(self) -> Iterator[Problem]:
        test = self._test
        given = max((len(batches) for batches in test.given.values()), default=1)
        remedy = "write given: {source: {batches: [[…], […]]}} with a list for each Batch, or use the number of an existing Batch"
        if len(test.clock) > max(1, given):
            yield self.problem(
                "test-batch", ("clock",), f"has {len(test.clock)} times in `clock` for {given} Batch{'es' * (given != 1)}", remedy
            )
        if test.crash is not None and test.crash.batch > given:
            yield self.problem(
                "test-batch",
                ("crash_after",),
                f"has `crash_after` in Batch {test.crash.batch}, but the number of Batches is {given}",
                remedy,
            )
        before = 1
        for change in test.changes:
            if change.before > given:
                yield self.problem(
                    "test-batch", change.at, f"has `changed` before Batch {change.before}, but the number of Batches is {given}", remedy
                )
            elif change.before <= before:
                yield self.problem(
                    "test-batch",
                    change.at,
                    "has `changed` entries that are not in ascending order of Batches",
                    "sort the changes by `before`, with at most one for each Batch",
                )
            before = change.before
