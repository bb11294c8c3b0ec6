from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scribengin.connectors.catalog import sink_types, source_types
from scribengin.spec import keys
from scribengin.spec.dump import dump_flow
from scribengin.spec.flow_tests import ALL, Crash, Expected, FlowTest, GivenRows, VersionChange
from scribengin.spec.model import Flow, Sink, Source
from scribengin.spec.parse import Parsed, parse_flow
from scribengin.spec.read_tests import parse_tests

TYPES: dict[str, Any] = {"source_types": source_types(), "sink_types": sink_types()}
HEAD = "version: 1\nname: shop\nsources: {n: {type: sequence}}\nsinks: {k: {from: n, type: console}}\n"


def parse(text: str) -> Parsed:
    return parse_flow(text, "f.yaml", folder=Path(), environment={}, **TYPES)


def only(text: str) -> FlowTest:
    parsed = parse(HEAD + text)
    assert parsed.problems == ()
    assert parsed.flow is not None
    (test,) = parsed.flow.tests
    return test


def test_a_test_is_read_in_every_form() -> None:
    test = only(
        """tests:
  - name: all of it
    given:
      n:
        batches:
          - [{id: 1, ts: "2026-01-01T00:00:00Z"}, '{"id": ']
          - {files: more.jsonl}
          - []
    expect:
      k: {contains: [{id: 1}]}
      dead: {n: [{reason: malformed}]}
    clock: ["2026-01-01", "2026-01-02T01:00:00+01:00"]
    crash_after: batch 2 published
    changed: {before: batch 3, patch: {steps: null}}
"""
    )
    first = GivenRows(({"id": 1, "ts": "2026-01-01T00:00:00Z"}, '{"id": '))
    assert test.given == {"n": (first, GivenRows(files=("more.jsonl",)), GivenRows())}
    assert test.expect == {"k": Expected(contains=({"id": 1},))}
    assert test.dead == {"n": Expected(({"reason": "malformed"},))}
    assert test.clock == (datetime(2026, 1, 1, tzinfo=UTC), datetime(2026, 1, 2, tzinfo=UTC))
    assert test.crash == Crash(2, "published")
    assert test.changes == (VersionChange(3, patch={"steps": None}),)
    assert test.batches == 3


def test_dead_letters_of_all_steps_are_counted_or_listed() -> None:
    assert only("tests: [{name: a, expect: {dead: 2}}]").dead == {ALL: Expected(count=2)}
    assert only("tests: [{name: a, expect: {dead: [{step: n}]}}]").dead == {ALL: Expected(({"step": "n"},))}
    assert only("tests: [{name: a, expect: {}}]").dead is None


@pytest.mark.parametrize(
    ("text", "at", "said"),
    [
        ("{name: a, expect: {}, gven: {}}", "gven", "unknown key"),
        ("{name: a, expect: {k: [1]}}", "1]", "not a row"),
        ("{name: a, given: {n: {id: 1}}, expect: {}}", "id: 1", "unknown key"),
        ("{name: a, given: {n: [5]}, expect: {}}", "5]", "not a row"),
        ("{name: a, expect: {}, crash_after: Batch one}", "Batch one", "crash_after"),
        ("{name: a, expect: {}, clock: noon}", "noon", "not a valid time"),
        ('{name: a, expect: {}, clock: "0001-01-01T00:00:00+02:00"}', '"0001', "not a valid time"),
        ('{name: a, expect: {}, clock: ["2026-01-02", "2026-01-01"]}', '"2026-01-01', "runs backwards"),
        ("{name: a, expect: {}, changed: {before: batch 1, flow: b.yaml}}", "batch 1", "changed.before"),
        ("{name: a, expect: {}, changed: {before: batch 2}}", "{before", "needs exactly one of `flow` and `patch`"),
        ("{expect: {}}", "{expect", "no `name`"),
        ("{name: a, expect: {k: {rows: [], ordred: true}}}", "ordred", "unknown key"),
        ("{name: a, expect: {k: {rows: [{id: 1}], contains: []}}}", "{rows", "`rows` and `contains`"),
        ("{name: a, expect: {k: {rows: [], files: [k.csv]}}}", "{rows", "`rows` and `files`"),
        ("{name: a, expect: {k: {rows: [], count: 1}}}", "{rows", "`rows` and `count`"),
        ("{name: a, expect: {k: {ordered: true}}}", "{ordered", "does not state what is expected"),
        ("{name: a, expect: {k: {contains: []}}}", "[]", "the test would always pass"),
        ("{name: a, expect: {k: {contains: [], ordered: true}}}", "true", "`ordered` beside `contains`"),
        ("{name: a, expect: {dead: {files: [x.csv]}}}", "[x.csv", "`files`, which dead letters do not have"),
        ("{name: a, expect: {dead: {n: {ordered: true}}}}", "true", "`ordered`, which dead letters do not have"),
        ("{name: a, expect: {dead: {n: {rows: [], contains: []}}}}", "{rows", "`rows` and `contains`"),
        ("{name: a, given: {n: {batches: [{rows: [], files: [a.jsonl]}]}}, expect: {}}", "{rows", "`rows` and `files`"),
    ],
)
def test_what_is_wrong_is_told_with_its_place(text: str, at: str, said: str) -> None:
    line = f"tests: [{text}]"
    (problem,) = parse(f"{HEAD}{line}\n").problems
    assert (problem.place.line, problem.place.column) == (5, line.index(at) + 1)
    assert said in problem.message
    assert problem.remedy


def test_files_of_tests_stand_among_tests() -> None:
    flow = parse(HEAD + "tests: [tests/*.yaml, {name: a, expect: {}}]").flow
    assert flow is not None
    assert flow.test_files == ("tests/*.yaml",)
    assert [test.index for test in flow.tests] == [1]
    single = parse(HEAD + "tests: more.yaml").flow
    assert single is not None
    assert single.test_files == ("more.yaml",)


def test_a_file_of_tests_is_a_list_or_has_the_key_tests() -> None:
    for text, at in (("- {name: a, expect: {}}", ()), ("tests:\n  - {name: a, expect: {}}", ("tests",))):
        tests, problems, _, prefix = parse_tests(text, "a.test.yaml", folder=Path())
        assert ([test.name for test in tests], problems, prefix) == (["a"], (), at)
    _, (problem,), _, _ = parse_tests("name: a\nexpect: {}", "a.test.yaml", folder=Path())
    assert "not a list of tests" in problem.message


def test_rows_are_taken_as_they_are_written() -> None:
    test = only("""tests: [{name: "$${x}", given: {n: [{id: 0o17, a: "5", b: yes, c: 1e3, d: ~, e: "${env:X}"}]}, expect: {}}]""")
    assert test.name == "${x}"
    assert test.given["n"][0].rows == ({"id": 15, "a": "5", "b": "yes", "c": 1000.0, "d": None, "e": "${env:X}"},)


texts = st.text(st.characters(exclude_categories=("Cs",), exclude_characters="\x00"), max_size=10)
values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**63) | st.floats(allow_nan=False) | texts,
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(texts, inner, max_size=2),
    max_leaves=4,
)
rows = st.dictionaries(texts.filter(lambda name: not name.startswith("x-") and name.strip()), values, max_size=3)
lists = st.lists(rows, max_size=2).map(tuple)
given_rows = st.builds(GivenRows, st.lists(rows | texts, max_size=2).map(tuple)) | st.just(GivenRows(files=("a.jsonl",)))
expected = st.one_of(
    st.builds(Expected, lists),
    st.builds(lambda found: Expected(contains=found), st.lists(rows, min_size=1, max_size=2).map(tuple)),
    st.builds(lambda count: Expected(count=count), st.integers(0, 9)),
    st.builds(lambda found: Expected(found, ordered=True), lists),
    st.just(Expected(files=("a.parquet",))),
)
letters = st.builds(Expected, lists) | st.builds(lambda found: Expected(contains=found, count=2), lists) | st.just(Expected(count=1))
names = st.text(st.characters(categories=("L", "N", "P")), min_size=1, max_size=10)
times = st.datetimes(datetime(1980, 1, 1), datetime(2100, 1, 1), timezones=st.just(UTC))
tests = st.builds(
    FlowTest,
    names,
    st.dictionaries(st.sampled_from(["n", "m"]), st.lists(given_rows, min_size=1, max_size=3).map(tuple), max_size=2),
    st.dictionaries(st.sampled_from(["k", "l"]), expected, max_size=2),
    st.none() | st.dictionaries(st.sampled_from(["n", "step"]), letters, max_size=2) | letters.map(lambda one: {ALL: one}),
    st.lists(times, max_size=3).map(lambda found: tuple(sorted(found))),
    st.none() | st.builds(Crash, st.integers(1, 9), st.sampled_from(["staged", "decided", "published"])),
    st.lists(st.builds(VersionChange, st.integers(2, 9), st.just("next.yaml")), max_size=2).map(tuple),
)


@given(st.lists(tests, max_size=2).map(tuple))
def test_dumped_tests_read_back_as_the_same(declared: tuple[FlowTest, ...]) -> None:
    source, sink = Source("n", "sequence"), Sink("k", ("n",), "console")
    flow = Flow("shop", {"n": source}, {}, {"k": sink}, tests=declared, test_files=("t/*.yaml",))
    parsed = parse(dump_flow(flow, **TYPES))
    assert parsed.problems == ()
    assert parsed.flow == flow


@pytest.mark.parametrize("section", keys.TEST_SECTIONS, ids=lambda section: section.called)
def test_every_key_of_tests_says_what_it_means(section: Any) -> None:
    for key in section.keys:
        assert key.doc
        assert key.example
        assert not key.doc.endswith(".")
