"""Options of CSV and text are checked where the flow writes them: with the line and column, and what to write."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from scribengin.connectors import catalog
from scribengin.plan.validate import validate_file
from scribengin.spec.dump import dump_flow
from scribengin.spec.load import load_flow

if TYPE_CHECKING:
    from pathlib import Path

    from scribengin.core.problems import Problem

FLOW = """\
version: 1
name: orders
sources:
  orders:
    type: files
    path: data
    schema: id INT, t STRING
    {source}
steps:
  parsed: {{from: orders, parse: {{column: t, format: csv, schema: x INT{parse}}}}}
sinks:
  kept: {{from: parsed, type: files, path: out, format: csv{sink}}}
"""


def problems_of(folder: Path, source: str = "format: csv", parse: str = "", sink: str = "") -> list[Problem]:
    path = folder / "flow.yaml"
    path.write_text(FLOW.format(source=source, parse=parse and f", {parse}", sink=sink and f", {sink}"))
    (folder / "data").mkdir(exist_ok=True)
    return validate_file(path, {})[1]


WRONG = [
    ('delimiter: ""', "has 0 characters"),
    ('delimiter: "\\n"', "line end"),
    ("delimiter: \\t", "a backslash and a t"),
    ("delimiter: '\"'", "contains the quote"),
    ("quote: ab", "not one ASCII character"),
    ("quote: x", "not one ASCII character"),
    ('quote: "§"', "not one ASCII character"),
    ('quote: ","', "contains the quote"),
    ("escape: x", "not one ASCII character"),
    ('escape: "\\\\\\\\"', "not one ASCII character"),
    ('escape: ","', "also in the delimiter"),
    ("escape: '\"'", "is the same as the quote"),
    ("null: []", "is empty"),
    ('null: ["a\\nb"]', "line end"),
    ("quoted_null: yes_please", "cannot be"),
    ("trim: blanks", "not true or false"),
    ("extra_cells: keep", "cannot be"),
    ("encoding: utf-17", "not a known encoding"),
    ("encoding: base64", "not a known encoding"),
    ("quote: none | quoted_null: typed", "has no effect with quote: none"),
]
OF_FILES = [
    ('comment: " "', "is ' '"),
    ("comment: '\"x'", "begins with the quote"),
    ("skip_lines: -1", "is -1"),
    ("line_end: lfcr", "cannot be"),
    ("header_names: lower", "cannot be"),
    ("columns: {amount: x}", "its schema does not have"),
    ("header: false | columns: {id: x}", "has no effect with header: false"),
    ("header: false | header_names: trim", "has no effect with header: false"),
    ("header: false | parse: spark | quote: none", "parse: spark does not support"),
    ("header: false | parse: spark | null: [a, b]", "parse: spark does not support"),
]


@pytest.mark.parametrize(("options", "told"), [*WRONG, *OF_FILES])
def test_an_option_of_a_source_that_cannot_be_is_told_at_its_line(options: str, told: str, tmp_path: Path) -> None:
    written = options.split(" | ")
    found = problems_of(tmp_path, "\n    ".join(["format: csv", *written]))
    assert [problem.place.line for problem in found] == [8 + len(written)]
    assert told in found[0].message
    assert found[0].place.column > 4
    assert found[0].remedy


@pytest.mark.parametrize(("options", "told"), WRONG)
def test_an_option_of_a_parse_step_that_cannot_be_is_told_at_its_line(options: str, told: str, tmp_path: Path) -> None:
    found = problems_of(tmp_path, parse=options.replace(" | ", ", "))
    assert [problem.place.line for problem in found] == [10]
    assert told in found[0].message


@pytest.mark.parametrize(
    ("sink", "told"),
    [('delimiter: "||"', "not one ASCII character"), ("delimiter: \\t", "backslash and a t"), ('null: "a\\nb"', "line end")],
)
def test_an_option_of_a_sink_that_cannot_be_is_told_at_its_line(sink: str, told: str, tmp_path: Path) -> None:
    found = problems_of(tmp_path, sink=sink)
    assert [problem.place.line for problem in found] == [12]
    assert told in found[0].message


def test_what_csv_alone_has_is_refused_beside_other_formats(tmp_path: Path) -> None:
    found = problems_of(tmp_path, "format: json\n    quote: none\n    encoding: utf-16")
    assert [problem.code for problem in found] == ["option-not-of-format"] * 2
    found = problems_of(tmp_path, parse="quote: none")
    assert not found


def test_options_stay_what_they_are_when_a_flow_is_written_again(tmp_path: Path) -> None:
    source = 'format: csv\n    null: ["\\\\N", ""]\n    quote: none\n    columns: {id: " id"}\n    skip_lines: 2'
    assert not problems_of(tmp_path, source, parse='null: [NA, ""], trim: true, escape: "\\\\"')
    types = {"source_types": catalog.source_types(), "sink_types": catalog.sink_types()}
    flow = load_flow(tmp_path / "flow.yaml", environment={}, **types).flow
    assert flow is not None
    assert flow.sources["orders"].options["null"] == ("\\N", "")
    again = tmp_path / "again.yaml"
    again.write_text(dump_flow(flow, **types))
    read = load_flow(again, environment={}, **types).flow
    assert read is not None
    assert (read.sources, read.steps) == (flow.sources, flow.steps)
