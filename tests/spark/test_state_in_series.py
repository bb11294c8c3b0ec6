"""Steps with state one behind the other, and unions before them: results as a plain loop finds them, over two runs."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.spark.test_stateful_steps import HEAD, at, events, late
from tests.spark.test_stateless_steps import letters, ran

if TYPE_CHECKING:
    from scribengin.local.contract import RunView
    from tests.conftest import FlowFolder


def test_doubles_are_taken_out_before_they_are_counted_over_a_restart(folder: FlowFolder) -> None:
    folder.flow(
        HEAD
        + """
steps:
  once:  {from: events, dedupe: {key: [id], time: ts, within: 30m}}
  hours: {from: once, aggregate: {by: [who], window: {time: ts, size: 1h}, columns: {ids: "sort_array(collect_list(id))"}}}
sinks:
  out: {from: hours, type: files, path: out, format: json}
"""
    )
    events(folder, "0", (1, 10), (2, 20), (1, 11))
    events(folder, "1", (2, 20), (3, 70))
    first = ran(folder)
    events(folder, "2", (1, 12), (3, 71), (4, 125))
    events(folder, "3", (5, 1000))
    last = ran(folder)

    assert sorted(row["ids"] for row in folder.read("out")) == [[1, 2], [3], [4]]
    nodes = last.queries[0].nodes
    assert nodes["once+hours"].rows_in == 9 - nodes["once+hours"].late_dead
    # one node of the ledger, and what both steps hold: two ids and one window at least
    assert first.queries[0].nodes["once+hours"].held == 4
    assert nodes["once+hours"].held == 2


def test_pairs_of_two_streams_are_named_by_a_table_and_counted(folder: FlowFolder) -> None:
    folder.flow(
        HEAD
        + """  pays: {type: files, path: pays, format: json, schema: "pay BIGINT, who STRING, at TIMESTAMP", watermark: at 10m,
         max_files: 1}
  people: {type: files, path: people, format: csv, schema: "who STRING, name STRING", static: true}
steps:
  paid:  {from: [events, pays], join: {key: [who], time: {events: ts, pays: at}, within: 5m}}
  named: {from: [paid, people], join: {key: [who], how: left}}
  hours: {from: named, aggregate: {by: [name], window: {time: ts, size: 1h}, columns: {n: count(*)}}}
sinks:
  out: {from: hours, type: files, path: out, format: json}
"""
    )
    for index, rows in enumerate([[(0, 10), (1, 50), (2, 62)], [(3, 64), (4, 300)], [(5, 1000)]]):
        events(folder, str(index), *rows)
        folder.data(f"pays/{index}.jsonl", [{"pay": id_, "who": "a", "at": at(minute + 1)} for id_, minute in rows])
    folder.data("people/all.csv", ["who,name", "a,Ada", "b,Bob"])
    ran(folder)

    # 0-0 and 1-1; 2-2, 2-3, 3-2, 3-3; 4-4
    found = sorted((row["window_start"][11:16], row["name"], row["n"]) for row in folder.read("out"))
    assert found == [("00:00", "Ada", 2), ("01:00", "Ada", 4), ("05:00", "Ada", 1)]


UNION = """  slow: {type: files, path: slow, format: json, schema: "id BIGINT, who STRING, at TIMESTAMP", watermark: at 20m, max_files: 1}
steps:
  named: {from: slow, select: {id: id, who: who, ts: at}}
  both:  {from: [events, named]}
  known: {from: both, filter: id <> 99, require: {small: id < 1000}}
  same:  {from: known, python: "steps:same"}
  told:  {from: same, select: {id: id, time: ts}}
  hours: {from: told, aggregate: {window: {time: time, size: 1h}, columns: {ids: "sort_array(collect_list(id))"}}}
sinks:
  out: {from: hours, type: files, path: out, format: json}
"""


def test_the_slowest_watermark_of_a_union_rules_through_the_steps_behind_it(folder: FlowFolder) -> None:
    folder.steps('def same(row):\n    if row["id"] == 98:\n        raise ValueError\n    return {**row}\n').flow(HEAD + UNION)
    for index, (fast, behind) in enumerate([(500, 20), (510, 30), (520, 40), (900, 920)]):
        events(folder, str(index), (index, fast), (99, fast), (98, fast))
        folder.data(
            f"slow/{index}.jsonl", [{"id": 10 + index, "who": "b", "at": at(behind)}, {"id": 1000 + index, "who": "b", "at": at(1)}]
        )
    result = ran(folder)

    assert sorted(row["ids"] for row in folder.read("out")) == [[0, 1, 2], [10, 11, 12]]
    assert late(result, "hours") == 0
    found = {(letter.step, letter.reason, letter.file[-12:], letter.line) for letter in letters(folder, "timed", "out")}
    assert {step: len([1 for letter in found if letter[0] == step]) for step in ("known", "same")} == {"known": 4, "same": 4}
    assert ("known", "require", "slow/2.jsonl", 2) in found
    assert ("same", "raised", "ents/2.jsonl", 3) in found


@pytest.mark.long
def test_hours_of_two_streams_are_joined_and_the_slower_stream_is_named(folder: FlowFolder) -> None:
    folder.flow(
        HEAD
        + """  pays: {type: files, path: pays, format: json, max_files: 1, schema: "pay BIGINT, who STRING, at TIMESTAMP",
         watermark: at 10m}
steps:
  visits: {from: events, aggregate: {by: [who], window: {time: ts, size: 1h}, columns: {ids: sort_array(collect_list(id))}}}
  sums:   {from: pays, aggregate: {by: [who], window: {time: at, size: 1h}, columns: {pays: sort_array(collect_list(pay))}}}
  seen:   {from: visits, select: {who: who, hour: window_end, ids: ids}}
  paid:   {from: sums, select: {who: who, end: window_end, pays: pays}}
  both:   {from: [seen, paid], join: {key: [who], time: {seen: hour, paid: end}, within: 1ms}}
sinks:
  out: {from: both, type: files, path: out, format: json}
"""
    )
    events(folder, "0", (0, 10), (1, 50), (2, 70))
    events(folder, "1", (3, 100), (4, 200))
    folder.data("pays/0.jsonl", [{"pay": id_, "who": "a", "at": at(minute)} for id_, minute in ((10, 20), (11, 65), (12, 80))])
    folder.data("pays/1.jsonl", [{"pay": 13, "who": "a", "at": at(130)}])
    first = ran(folder)
    for id_, minute in ((5, 300), (6, 1000), (7, 1001)):
        events(folder, f"{id_}", (id_, minute))
    views: list[RunView] = []
    folder.data("pays/2.jsonl", [{"pay": 14, "who": "a", "at": at(900)}])
    folder.data("pays/3.jsonl", [{"pay": 15, "who": "a", "at": at(901)}])
    last = ran(folder, watch=views.append)

    # events end hours 1 and 2 with 0, 1 | 2, 3, and pays with 10 | 11, 12; hour 3 has pays only, hour 4 events only
    found = sorted((row["ids"], row["pays"]) for row in folder.read("out"))
    assert found == [([0, 1], [10]), ([2, 3], [11, 12])]
    assert {late(result, "both") for result in (first, last)} == {0}
    assert [view.queries[0].held_back_by for view in views if view.queries][-1] == "pays"
