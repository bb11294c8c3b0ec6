from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from scribengin.core.types import parse_schema
from scribengin.spec.model import Aggregate, Dedupe, Filter, Join, Merge, Parse, Python, Route, Select, WindowSpec
from tests.design_flow import FLOW, TWEETS


def test_the_flow_of_the_design_is_read(parse: Any) -> None:
    parsed = parse(TWEETS)
    assert parsed.ok
    assert parsed.problems == ()
    assert [test.name for test in parsed.flow.tests] == ["exactly five hundred is not enough"]
    assert replace(parsed.flow, tests=()) == FLOW


@pytest.mark.parametrize(
    ("step", "inputs", "action"),
    [
        ("{from: a, dedupe: {key: [id], time: ts, within: 10m}}", ("a",), Dedupe(("id",), "ts", 600.0)),
        ("{from: a, dedupe: {key: id}}", ("a",), Dedupe(("id",))),
        ("{from: [a, b]}", ("a", "b"), Merge()),
        (
            "{from: [a, b], merge: {how: intersect, key: [id], time: ts, within: 10m}}",
            ("a", "b"),
            Merge("intersect", ("id",), "ts", 600.0),
        ),
        (
            "{from: [a, b], join: {key: [id], how: inner, time: {a: ts, b: at}, within: 10m}}",
            ("a", "b"),
            Join(("id",), "inner", (("a", "ts"), ("b", "at")), 600.0),
        ),
        (
            "{from: a, aggregate: {by: [user], window: {time: ts, size: 1h, slide: 10m}, columns: {n: count(*)}}}",
            ("a",),
            Aggregate(("user",), (("n", "count(*)"),), WindowSpec("ts", 3600.0, 600.0)),
        ),
        (
            "{from: a, aggregate: {window: {time: ts, size: 1h}, columns: {n: count(*)}}}",
            ("a",),
            Aggregate((), (("n", "count(*)"),), WindowSpec("ts", 3600.0, 3600.0)),
        ),
        ('{from: a, parse: {column: value, format: json, schema: "id BIGINT"}}', ("a",), Parse("value", "json", parse_schema("id BIGINT"))),
        (
            '{from: a, parse: {column: value, format: csv, schema: "id BIGINT", delimiter: "\\t", null: NA}}',
            ("a",),
            Parse("value", "csv", parse_schema("id BIGINT"), "\t", "NA"),
        ),
        (
            "{from: a, route: {big: amount > 100, small: amount <= 100, otherwise: odd}}",
            ("a",),
            Route((("big", "amount > 100"), ("small", "amount <= 100")), "odd"),
        ),
        ("{from: r.big, filter: true}", ("r.big",), Filter("true")),
        (
            '{from: a, select: [id, upper(user) AS who, "a.b", "`two words`", "cast(x AS INT) as y"]}',
            ("a",),
            Select((("id", "id"), ("who", "upper(user)"), ("b", "a.b"), ("two words", "`two words`"), ("y", "cast(x AS INT)"))),
        ),
        ("{from: a, select: {who: upper(user)}}", ("a",), Select((("who", "upper(user)"),))),
        (
            '{from: a, python: {function: "pkg.steps:f", branches: [late], time_limit: 5s}}',
            ("a",),
            Python("pkg.steps:f", ("late",), 5.0),
        ),
    ],
)
def test_every_form_of_a_step_is_read(parse: Any, step: str, inputs: tuple[str, ...], action: object) -> None:
    parsed = parse(step=step)
    assert parsed.problems == ()
    assert parsed.flow.steps["s"].inputs == inputs
    assert parsed.flow.steps["s"].action == action


@pytest.mark.parametrize(
    "step", ["{from: a, aggregate: {emit: update, columns: {n: count(*)}}}", "{from: a, aggregate: {columns: {n: count(*)}}, emit: update}"]
)
def test_emit_may_stand_in_an_aggregation_or_beside_it(parse: Any, step: str) -> None:
    assert parse(step=step).flow.steps["s"].emit == "update"


def test_a_schema_may_be_a_text_or_a_mapping(parse: Any) -> None:
    short = parse(step='{from: a, python: "m:f", schema: "id BIGINT"}')
    long = parse(step='{from: a, python: "m:f", schema: {fields: "id BIGINT", evolve: strict}}')
    assert short.flow == long.flow


def test_keys_that_begin_with_x_are_free_at_every_level(parse: Any) -> None:
    text = (
        "x-a: {b: [1]}\nversion: 1\nname: shop\ndefaults: {x-b: 1}\n"
        "sources:\n  x-note: {}\n  a: {type: sequence, x-c: 1}\n"
        "steps:\n  s: {from: a, x-d: 1, dedupe: {key: id, x-e: 2}}\n"
        "sinks:\n  k: {from: s, type: console, x-f: {}}\n"
    )
    assert parse(text).problems == ()


def test_options_are_typed_by_their_declaration(parse: Any) -> None:
    text = (
        "version: 1\nname: shop\nsources:\n"
        "  a: {type: files, path: 5, format: text, max_bytes: 256MiB, settle: 500ms, growing: true, max_files: 7}\n"
        "sinks:\n  k: {from: a, type: files, path: out, format: csv, partition_by: x, delimiter: ' ', header: false, trigger: 2m}\n"
    )
    flow = parse(text).flow
    expected = {"path": "5", "format": "text", "max_bytes": 256 * 2**20, "settle": 0.5, "growing": True, "max_files": 7}
    assert flow.sources["a"].options == expected
    assert flow.sinks["k"].options == {"path": "out", "format": "csv", "partition_by": ("x",), "delimiter": " ", "header": False}
    assert flow.sinks["k"].trigger_s == 120.0


def test_every_problem_is_told_at_once_in_file_order(parse: Any) -> None:
    text = (
        "version: 2\nname: My Shop\ndefaults: {trigger: 5}\n"
        "sources:\n  a: {type: fils, path: data}\n  B: {type: sequence, rows: many}\n"
        "steps:\n  s: {from: a, filtr: x > 5}\n  t: {from: a, filter: x, select: [y]}\n  u: nothing\n"
        "sinks:\n  k: {type: console, rows: 0}\n"
    )
    found = [f"{problem.place.line}:{problem.place.column} {problem.code}" for problem in parse(text).problems]
    assert found == [
        "1:10 version",
        "2:7 bad-name",
        "3:21 bad-unit",
        "5:13 unknown-type",
        "6:3 bad-name",
        "6:29 bad-value",
        "8:16 unknown-key",
        "9:27 operation-twice",
        "10:6 wrong-kind",
        "12:3 missing-key",
        "12:28 out-of-range",
    ]


def test_nodes_that_could_not_be_read_are_named_so_that_nobody_misses_them(parse: Any) -> None:
    parsed = parse(step="{from: a, filter: [x]}")
    assert parsed.broken == {"s"}
    assert "s" not in parsed.flow.steps
    assert "kept" in parsed.flow.sinks


@pytest.mark.parametrize(
    ("step", "message"),
    [
        ("{from: a, filtr: x}", 'step "s" has the unknown key "filtr"; did you mean "filter"? [unknown-key]'),
        ("{from: a, interceptor: x}", 'did you mean "python"? ("interceptor" is a word of Flume; an interceptor is a step'),
        ("{from: a, where: x}", 'did you mean "filter"? ("where" is a word of PySpark)'),
        ("{from: a, dropDuplicates: x}", 'did you mean "dedupe"?'),
        ("{from: a, choke: x}", '"choke" of Flume is "limit" here: a property of an edge'),
        ("{from: a, path: x}", '"path" belongs to a source of type files, agents or a sink of type files'),
        ("{from: a, trigger: 1s}", '"trigger" belongs to `defaults` or a sink'),
        ("{from: a, on-error: drop}", 'did you mean "on_error"?'),
        ("{from: a, filter: x, on_error: dead-letter}", 'did you mean "dead_letter"?'),
        ("{from: a, filter: x, on_error: failfast}", 'did you mean "fail"? ("failfast" is a word of PySpark)'),
        ("{from: [a, b], join: {key: id, how: leftouter}}", 'did you mean "left"?'),
        ("{from: a, dedupe: {key: id, time: ts, within: 10 minutes}}", 'did you mean "10m"?'),
        ("{from: a, dedupe: {key: id, time: ts, within: 10}}", '"10" has no unit'),
        ("{from: a, dedupe: {key: id, time: ts, within: 0s}}", "write at least 1ms"),
        ("{from: a, filter: x IN (1, 2)}", 'a comma inside { } ends the value before "2)" in step "s"; put the whole text in quotes'),
        ("{from: a, filter:x}", 'there is no space after "filter:" in step "s"'),
        ("{from: a, python: steps.f}", 'did you mean "steps:f"?'),
        ("{from: a, python: steps/more.py:f}", 'did you mean "steps.more:f"?'),
        ("{from: a, python: steps.py}", 'name the function too: "steps:function"'),
        ("{from: a, filter: }", '`filter` of step "s" has no value'),
        ("{from: a, filter: ''}", '`filter` of step "s" is empty'),
        ("{from: a, watermark: ts, filter: x}", "write COLUMN 10m"),
        ("{from: a, route: {otherwise: b}}", 'route` of step "s" has no case'),
        ("{from: a, route: {b: x, otherwise: b}}", "write another branch name under otherwise"),
        ("{from: a, route: {B-1: x}}", 'write "b_1"'),
        ("{from: [a, b, c], join: {key: id}}", 'step "s" has 3 inputs; join takes two'),
        ("{from: a, merge: {how: union}}", 'step "s" has one input; merge takes two or more'),
        ("{from: [a, b], merge: {how: intersect}}", "has no `merge.key`"),
        ("{from: [a, b], join: {key: id, time: {a: ts, c: ts}, within: 1m}}", 'names "c", which it does not read'),
        ('{from: a, python: "m:f", schema: "id BIGNT"}', 'unknown type "BIGNT"; did you mean "BIGINT"?'),
        ('{from: a, filter: x, schema: "id BIGINT"}', "take it out [key-misplaced]"),
        ("{from: a, utilities: [f], order: free}", 'write "module:function"'),
        ('{from: a, utilities: ["m:f"], order: quick}', '`order` of step "s" cannot be "quick"'),
        ("{from: a, filter: x, order: free}", "which is valid only with utilities"),
        ("{from: a, utilities: []}", "is empty"),
        ("{from: a, select: [id, 'upper(x)']}", "write upper(x) AS a_name"),
        ("[from, a]", 'step "s" is a list, not a mapping'),
    ],
)
def test_what_is_wrong_is_told_with_what_to_do(parse: Any, step: str, message: str) -> None:
    parsed = parse(step=step)
    assert not parsed.ok
    assert any(message in str(problem) for problem in parsed.problems), [str(problem) for problem in parsed.problems]


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ("type: sequence, rows: '5'", "write 5 without quotes"),
        ("type: sequence, rows: 1_000_000", "write 1000000"),
        ("type: sequence, rows: 1e6", "write 1000000"),
        ("type: sequence, rows: true", "the boolean true, not a whole number"),
        ("type: sequence, rows: -1", "write at least 0"),
        ("type: sequence, path: x", '"path" belongs to a source of type files, agents'),
        (
            "type: files, path: x, format: json, max_rows: 5",
            '"max_rows" belongs to a source of type kafka, postgres, opensearch, elasticsearch, cassandra, hbase, sequence; here there is '
            "max_files and max_bytes",
        ),
        ("type: sequence, mode: x", '"mode" belongs to a source of type postgres or a sink of type postgres, delta, opensearch, '),
        ("type: console", 'the type "console", which is only a sink'),
        ("connector: files", 'did you mean "type"? ("connector" is a word of Kafka Connect)'),
        ("type: files, format: json", 'source "n" (type files) has no `path`; add path: data'),
        ("type: files, path: x, format: jsonl", 'did you mean "json"?'),
        ("type: files, path: x, format: json, growing: yes", 'did you mean "true"?'),
        ("type: files, path: x, format: json, max_bytes: 64mb", 'did you mean "64MB"?'),
        ("type: files, path: x, format: json, max_bytes: 64MiB, schema: 5 5", "schema-syntax"),
        ("type: files, path: x, format: json, null: null", '`null` of source "n" has no value'),
    ],
)
def test_what_is_wrong_in_a_source_is_told_with_what_to_do(parse: Any, keys: str, message: str) -> None:
    parsed = parse(f"version: 1\nname: shop\nsources:\n  n: {{{keys}}}\nsinks:\n  k: {{from: n, type: console}}\n")
    assert not parsed.ok
    assert any(message in str(problem) for problem in parsed.problems), [str(problem) for problem in parsed.problems]


def test_a_place_inside_a_schema_goes_through_quotes_and_escapes(parse: Any) -> None:
    (problem,) = parse(step=r'{from: a, python: "m:f", schema: "\x69d BIGINT, b NUMER"}').problems
    line = r'  s: {from: a, python: "m:f", schema: "\x69d BIGINT, b NUMER"}'
    assert problem.place.column == line.index("NUMER") + 1


def test_a_time_zone_that_stands_elsewhere_is_sent_to_the_window(parse: Any) -> None:
    parsed = parse("version: 1\nname: f\ntime_zone: Europe/Berlin\nsources: {n: {type: sequence}}\nsinks: {k: {from: n, type: console}}\n")
    (problem,) = parsed.problems
    assert problem.code == "unknown-key"
    assert "window" in problem.remedy


@pytest.mark.parametrize(
    ("window", "code", "told"),
    [
        ("size: 1d, time_zone: Europe/Berln", "time-zone-unknown", 'did you mean "Europe/Berlin"?'),
        ("size: 1d, time_zone: ../passwd", "time-zone-unknown", "Europe/Berlin"),
        ("size: 1d, slide: 1h, time_zone: Europe/Berlin", "window-time-zone", "slides"),
        ("size: 90m, time_zone: Europe/Berlin", "window-time-zone", "whole number of hours"),
    ],
)
def test_a_window_follows_only_a_clock_that_can_be_followed(parse: Any, window: str, code: str, told: str) -> None:
    (problem,) = parse(step=f"{{from: a, aggregate: {{window: {{time: ts, {window}}}, columns: {{n: count(*)}}}}}}").problems
    assert problem.code == code
    assert told in f"{problem.message} {problem.remedy}"


@pytest.mark.parametrize("text", ["", "# nothing\n", "- a\n", "hello\n", "5\n"])
def test_a_file_that_is_no_mapping_is_one_problem(parse: Any, text: str) -> None:
    parsed = parse(text or "\n")
    assert parsed.flow is None
    assert [problem.code for problem in parsed.problems] == ["wrong-kind"]


def test_empty_sections_are_told(parse: Any) -> None:
    parsed = parse("version: 1\nname: a\nsources: {}\nsteps:\nsinks: []\n")
    assert [problem.code for problem in parsed.problems] == ["wrong-kind", "wrong-kind", "wrong-kind"]


def test_the_folder_is_that_of_the_caller(parse: Any) -> None:
    assert parse(TWEETS, folder=Path("/somewhere")).flow.folder == Path("/somewhere")
