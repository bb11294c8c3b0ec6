"""Rows of one stage that are read on several ways: Spark runs it once for each, the ledger counts it once, and so do dead letters."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.spark.test_stateful_steps import HEAD, events
from tests.spark.test_stateless_steps import letters, ran

if TYPE_CHECKING:
    from tests.conftest import FlowFolder

SIDES = """
from scribengin import record, to

@record
def sides(row):
    if row["id"] == 3:
        raise ValueError("three")
    return to("left" if row["id"] % 2 else "right", row)
"""


def test_a_python_step_whose_branches_meet_before_a_step_with_state_is_counted_once(folder: FlowFolder) -> None:
    folder.steps(SIDES).flow(
        HEAD
        + """
steps:
  known: {from: events, filter: id <> 99}
  sides: {from: known, python: {function: "steps:sides", branches: [left, right]}}
  both:  {from: [sides.left, sides.right, events]}
  hours: {from: both, aggregate: {window: {time: ts, size: 1h}, columns: {ids: "sort_array(collect_list(id))"}}}
sinks:
  out: {from: hours, type: files, path: out, format: json}
"""
    )
    events(folder, "0", (1, 10), (2, 20), (3, 30))
    events(folder, "1", (4, 70), (99, 80))
    events(folder, "2", (10, 1000), (11, 1000))
    events(folder, "3", (12, 1001), (13, 1001))
    nodes = ran(folder).queries[0].nodes

    assert sorted(row["ids"] for row in folder.read("out")) == [[1, 1, 2, 2, 3], [4, 4, 99]]
    assert (nodes["known"].rows_in, nodes["known"].out) == (9, 8)
    assert (nodes["sides"].rows_in, nodes["sides"].out, nodes["sides"].dead) == (8, 7, 1)
    assert nodes["hours"].rows_in == 7 + 9
    assert [(letter.step, letter.reason, letter.line) for letter in letters(folder, "timed", "out")] == [("sides", "raised", 3)]


def test_a_python_step_between_native_ones_is_counted_once_for_all_its_readers(folder: FlowFolder) -> None:
    folder.steps(SIDES).flow(
        """
version: 1
name: sides
sources:
  events: {type: files, path: events, format: json, schema: "id BIGINT", split: 64KiB}
  others: {type: files, path: others, format: json, schema: "id BIGINT"}
steps:
  known: {from: events, filter: id < 9000}
  sides: {from: known, python: {function: "steps:sides", branches: [left, right]}}
  odd:   {from: sides.left, select: {id: id}}
  even:  {from: sides.right, select: {id: id}}
  both:  {from: [odd, even, others]}
  few:   {from: both, filter: id < 100}
sinks:
  one: {from: odd, type: files, path: out/odd, format: json, together: all}
  two: {from: even, type: files, path: out/even, format: json, together: all}
  all: {from: few, type: files, path: out/few, format: json, together: all}
"""
    )
    folder.data("events/0.jsonl", [{"id": id_} for id_ in range(10_000)])
    folder.data("others/0.jsonl", [{"id": id_} for id_ in (9, 7000)])
    nodes = ran(folder).queries[0].nodes

    found = [sorted(row["id"] for row in folder.read(f"out/{name}")) for name in ("odd", "even", "few")]
    odd, even = [id_ for id_ in range(1, 9000, 2) if id_ != 3], list(range(0, 9000, 2))
    assert found == [odd, even, sorted(id_ for id_ in (*odd, *even, 9) if id_ < 100)]
    assert (nodes["known"].rows_in, nodes["known"].out) == (10_000, 9_000)
    assert (nodes["sides"].rows_in, nodes["sides"].out, nodes["sides"].dead) == (9_000, 8_999, 1)
    assert [(letter.step, letter.reason, letter.line) for letter in letters(folder, "sides", "all")] == [("sides", "raised", 4)]


def test_a_stream_as_it_is_and_behind_a_dedupe_is_counted_on_both_ways(folder: FlowFolder) -> None:
    folder.steps("def same(row):\n    return {**row}\n").flow(
        HEAD
        + """
steps:
  once:  {from: events, dedupe: {key: [id], time: ts, within: 1h}}
  both:  {from: [events, once]}
  same:  {from: both, python: "steps:same"}
  known: {from: same, filter: id <> 3}
  hours: {from: known, aggregate: {window: {time: ts, size: 1h}, columns: {ids: "sort_array(collect_list(id))"}}}
  plain: {from: [events, once]}
sinks:
  out:   {from: hours, type: files, path: out/hours, format: json}
  whole: {from: plain, type: files, path: out/whole, format: json}
"""
    )
    events(folder, "0", (1, 10), (2, 20), (3, 30), (1, 10))
    events(folder, "1", (4, 70))
    events(folder, "2", (10, 1000))
    events(folder, "3", (11, 1001))
    hours, whole = (query.nodes for query in ran(folder).queries)

    assert sorted(row["ids"] for row in folder.read("out/hours")) == [[1, 1, 1, 2, 2], [4, 4]]
    assert {name: (counts.rows_in, counts.out, counts.filtered) for name, counts in hours.items() if name != "known+hours"} == {
        "events": (7, 7, 0),
        "both": (7, 7, 0),
        "once+both": (7, 6, 0),
        "same": (13, 13, 0),
        "known": (7, 6, 1),  # what has not met state ends at the gate
        "out": (2, 2, 0),
    }
    assert hours["known+hours"].rows_in == 6 + 6
    (union,) = [counts for name, counts in whole.items() if "once" in name]
    assert (union.rows_in, union.out) == (14, 13)
    assert len(folder.read("out/whole")) == 13


def test_rows_that_a_lookup_makes_hide_none_that_the_steps_around_it_drop(folder: FlowFolder) -> None:
    folder.flow(
        """
version: 1
name: shop
sources:
  events: {type: files, path: events, format: json, schema: "id BIGINT, kind STRING, code STRING"}
  names:  {type: files, path: names, format: csv, schema: "code STRING, name STRING", static: true}
steps:
  bought: {from: events, filter: kind = 'buy'}
  named:  {from: [bought, names], join: {key: [code], how: left}}
  known:  {from: named, filter: "name IS NOT NULL"}
sinks:
  out: {from: known, type: files, path: out, format: json}
"""
    )
    folder.data("events/0.jsonl", [{"id": id_, "kind": "buy" if id_ < 10 else "see", "code": "abz"[id_ % 3]} for id_ in range(25)])
    folder.data("names/names.csv", ["code,name", "a,one", "a,two", "a,three", "b,other"])
    result = ran(folder)
    run = result.queries[0].nodes["bought+named+known"]

    # of the ten, four find three names, three find one, three find none
    assert len(folder.read("out")) == run.out == 15
    assert run.made == 8
    assert run.rows_in + run.made == run.out + run.filtered
    assert run.filtered == 15 + 3 + result.queries[0].nodes["names"].out


def test_rows_that_a_select_makes_hide_none_that_a_filter_drops(folder: FlowFolder) -> None:
    folder.flow(
        """
version: 1
name: words
sources:
  lines: {type: files, path: lines, format: json, schema: "id BIGINT, words ARRAY<STRING>"}
steps:
  low:   {from: lines, filter: id < 5}
  apart: {from: low, select: {id: id, word: explode(words)}}
sinks:
  out: {from: apart, type: files, path: out, format: json}
"""
    )
    folder.data("lines/0.jsonl", [{"id": id_, "words": ["a", "b", "c"] if id_ else []} for id_ in range(20)])
    run = ran(folder).queries[0].nodes["low+apart"]

    assert (run.rows_in, run.made, run.out, run.filtered) == (20, 8, 12, 16)
