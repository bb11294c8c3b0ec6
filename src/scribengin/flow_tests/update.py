"""`--update`: rewrites expectations with the actual output. Comments, quotes and layout around them stay."""

from __future__ import annotations

import difflib
import re
import shlex
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import yaml

from scribengin.core.errors import Refused
from scribengin.core.storage import rewrite
from scribengin.flow_tests.judge import letter_rows
from scribengin.flow_tests.report import flow_text
from scribengin.formats.written_values import written_value
from scribengin.spec.flow_tests import ALL, Expected
from scribengin.spec.yaml_document import Document

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from scribengin.flow_tests.contract import FlowTestOutcome, Result, Row
    from scribengin.plan.test_files import PlacedTest
    from scribengin.spec.flow_tests import FlowTest

_WIDTH = 140


@dataclass(frozen=True, slots=True)
class Rewrite:
    """The new content of a file."""

    file: Path
    before: str
    after: str

    def difference(self) -> str:
        """The change in the format of `diff -u`."""
        lines = difflib.unified_diff(
            self.before.splitlines(keepends=True), self.after.splitlines(keepends=True), str(self.file), f"{self.file} (updated)"
        )
        return "".join(line if line.endswith("\n") else f"{line}\n" for line in lines)

    def write(self) -> None:
        """Replace the file. Raises OSError."""
        rewrite(self.file, self.after.encode())


def rewrites(failed: Sequence[tuple[PlacedTest, FlowTestOutcome]]) -> Iterator[Rewrite]:
    """One rewrite for each file with expectations that differ from the output. Raises Refused for a file that cannot be rewritten
    safely."""
    by_file: dict[Path, list[tuple[PlacedTest, FlowTestOutcome]]] = {}
    for placed, outcome in failed:
        by_file.setdefault(placed.file.resolve(), []).append((placed, outcome))
    for members in by_file.values():
        file = members[0][0].file
        before = file.read_bytes().decode()
        if file.suffix == ".py":
            raise Refused(
                f"{file} is Python; --update does not rewrite Python files", remedy=f"keep its tests in {file.with_suffix('.test.yaml')}"
            )
        if any(placed.text != "\n".join(re.split("\r\n?|\n", before)) for placed, _ in members):
            raise Refused(f"{file} has changed since its tests were read", remedy="run the command again")
        cuts = {cut for placed, outcome in members for cut in _cuts(before, placed, outcome)}
        newline = "\r\n" if "\r\n" in before else "\n"
        after, begun = before, len(before) + 1
        for start, end, text in sorted(cuts, reverse=True):
            if end > begun or start == begun:
                raise Refused(f"{file} has a test with different results in different flows", remedy="write a separate test for each flow")
            after, begun = after[:start] + text.replace("\n", newline) + after[end:], start
        if any(problem.severity == "error" for problem in Document(after, str(file)).problems):
            remedy = f"format it first: scribengin fmt {shlex.quote(str(file))}"
            raise Refused(f"{file} cannot be rewritten: its layout is too unusual", remedy=remedy)
        if after != before:
            yield Rewrite(file, before, after)


def _cuts(text: str, placed: PlacedTest, outcome: FlowTestOutcome) -> Iterator[tuple[int, int, str]]:
    """(start, end, new text) of each expectation that was not met."""
    if outcome.result is None or outcome.problems:
        return
    test = placed.test
    expect = _node(text, (*placed.at, "expect"))
    wrong = {difference.node for difference in outcome.differences if difference.node}
    for sink in test.expect:
        if sink in wrong:
            _check_form(test, sink, test.expect[sink])
            data = _as_expected(test.expect[sink], outcome.result.outputs[sink])
            yield _cut(text, _entry(expect, sink), data)
    if any(difference.where.startswith("dead letters") for difference in outcome.differences):
        dead = _dead(test, outcome.result)
        entry = _entry(expect, "dead")
        if entry is not None:
            yield _cut(text, entry, dead)
        else:
            yield _added(expect, f"dead: {flow_text(dead)}")


def _as_expected(expected: Expected, got: Sequence[Row]) -> Any:
    """The output in the form of the expectation, with the columns it named, or all columns if it named none."""
    if expected.count is not None:
        return len(got)
    named = {name for row in expected.rows or () for name in row}
    rows = [{name: written_value(value) for name, value in row.items() if not named or name in named} for row in got]
    return {"rows": rows, "ordered": True} if expected.ordered else rows


def _check_form(test: FlowTest, of: str, expected: Expected) -> None:
    """Raises Refused if the rewritten expectation would check less than before."""
    form = "contains" if expected.contains is not None else "files" if expected.files else ""
    if form:
        what = "which of the rows to expect" if form == "contains" else "the content of the files"
        raise Refused(f'test "{test.name}" expects {form} of {of}: --update cannot decide {what}', remedy="change it by hand")


def _dead(test: FlowTest, result: Result) -> Any:
    """Dead letters with the expected columns, if dead letters were listed; else their number, of all steps or of each."""
    wanted = test.dead or {}
    data: dict[str, Any] = {}
    for step in [ALL] if ALL in wanted else dict.fromkeys([*wanted, *(letter.step for letter in result.dead)]):
        letters = [letter for letter in result.dead if step in (ALL, letter.step)]
        expected = wanted.get(step, Expected(count=0))
        _check_form(test, "dead letters", expected)
        if letters or step == ALL or expected.rows is not None:
            data[step] = len(letters) if expected.count is not None else _as_expected(expected, letter_rows(letters))
    return data.get(ALL, data)


def _node(text: str, path: Sequence[str | int]) -> Any:
    """The YAML node at a path, with its marks. Raises Refused if it is an alias, whose value is elsewhere."""
    node = yaml.compose(text, Loader=yaml.SafeLoader)
    assert node is not None
    for part in path:
        node = node.value[part] if isinstance(part, int) else dict(_entries(node))[part]
    return node


def _entries(node: Any) -> list[tuple[str, Any]]:
    return [(key.value, value) for key, value in node.value]


def _entry(node: Any, name: str) -> Any:
    return next(((key, value) for key, value in node.value if key.value == name), None)


def _cut(text: str, entry: Any, data: Any) -> tuple[int, int, str]:
    """The replacement of the value of an entry: (start, end, new text)."""
    key, value = entry
    if value.start_mark.index < key.end_mark.index:
        raise Refused(f"the expectation of {key.value} is an alias", remedy="write the value in full")
    start, end = value.start_mark.index, _end(value)
    line_start = text.rfind("\n", 0, key.start_mark.index) + 1
    one_line = flow_text(data)
    inside_flow = _in_flow(text, key)
    if inside_flow or start - line_start + len(one_line) <= _WIDTH or not isinstance(data, list):
        if text[key.end_mark.index : start].count("\n"):  # a block that began on the next line goes up to its key
            return text.index(":", key.end_mark.index) + 1, end, f" {one_line}"
        return start, end, one_line
    indent = " " * (key.start_mark.column + 2)
    lines = "".join(f"\n{indent}- {flow_text(row)}" for row in data)
    return text.index(":", key.end_mark.index) + 1, end, lines


def _added(expect: Any, entry: str) -> tuple[int, int, str]:
    """The insertion of a further entry of `expect`: (start, end, new text)."""
    if expect.flow_style:
        at = expect.end_mark.index - 1
        return at, at, f", {entry}" if expect.value else entry
    last = _end(expect)
    return last, last, "\n" + " " * expect.value[0][0].start_mark.column + entry


def _end(node: Any) -> int:
    """The end of a node's content; in PyYAML a block ends where the next node begins."""
    if isinstance(node, yaml.ScalarNode) or node.flow_style or not node.value:
        end: int = node.end_mark.index
        return end
    last = node.value[-1]
    return _end(last[1] if isinstance(last, tuple) else last)


def _in_flow(text: str, key: Any) -> bool:
    """True if the key is inside `{…}`: then its value must stay on its line."""
    before = text[text.rfind("\n", 0, key.start_mark.index) + 1 : key.start_mark.index]
    return bool(before.strip().lstrip("- "))
