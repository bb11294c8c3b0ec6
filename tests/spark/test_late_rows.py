"""What becomes of rows that a step with state does not take: letters by default, or a count, or the end of the Query."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from scribengin.state.folder import StateFolder
from scribengin.state.ledger import read_totals
from tests.spark.test_stateful_steps import at, late
from tests.spark.test_stateless_steps import letters, ran

if TYPE_CHECKING:
    from scribengin.local.contract import RunView
    from tests.conftest import FlowFolder

FLOW = """
version: 1
name: late
sources:
  rows: {type: files, path: data, format: json, schema: "id BIGINT, who STRING, ts TIMESTAMP", watermark: WATERMARK, max_files: 1}
"""
KEPT = """
steps:
  hours: {from: rows, aggregate: {window: {time: ts, size: 1h}, columns: {ids: "sort_array(collect_list(id))"}}}
  counted: {from: rows, late: drop, aggregate: {window: {time: ts, size: 1h}, columns: {ids: "sort_array(collect_list(id))"}}}
  sessions:
    from: rows
    sql: SELECT who, session_window.end AS until, collect_list(id) AS ids FROM rows GROUP BY who, session_window(ts, '5 minutes')
sinks:
  kept: {from: hours, type: files, path: out/kept, format: json}
  counts: {from: counted, type: files, path: out/counts, format: json}
  meetings: {from: sessions, type: files, path: out/meetings, format: json}
"""


def data(folder: FlowFolder, name: str, *rows: tuple[int, float | None]) -> None:
    folder.data(f"data/{name}.jsonl", [{"id": id_, "who": "a", "ts": None if minutes is None else at(minutes)} for id_, minutes in rows])


def test_late_rows_are_letters_or_only_counted_and_are_told_of_at_once(folder: FlowFolder) -> None:
    folder.flow(FLOW.replace("WATERMARK", "ts 10m") + KEPT)
    data(folder, "0", (0, 10), (1, 70))
    data(folder, "1", (2, 5000))
    ran(folder)
    data(folder, "2", (3, 20), (4, 75), (5, 5010))
    data(folder, "3", (6, 9000))
    views: list[RunView] = []
    result = ran(folder, watch=views.append)

    for query, step in (("kept", "hours"), ("meetings", "sessions")):
        found = letters(folder, "late", query)
        assert [(letter.step, letter.reason, letter.line, letter.payload[:8]) for letter in found] == [
            (step, "late", 1, b'{"id": 3'),
            (step, "late", 2, b'{"id": 4'),
        ]
        assert "2026-01-04T11:10:00Z" in found[0].message  # minute 5000 without ten
    assert letters(folder, "late", "counts") == []
    for step in ("hours", "counted", "sessions"):
        assert late(result, step) == 2
    nodes = {query.name: query.nodes for query in result.queries}
    assert (nodes["kept"]["hours"].dead, nodes["kept"]["hours"].late) == (2, 0)
    assert (nodes["counts"]["counted"].dead, nodes["counts"]["counted"].late) == (0, 2)
    # what is late is in no window, and what is not late in the same ones whatever becomes of the others
    assert folder.read("out/kept") == folder.read("out/counts")
    assert [row["ids"] for row in folder.read("out/kept")] == [[0], [1], [2, 5]]
    assert [row["ids"] for row in folder.read("out/meetings")] in ([[0], [1], [2], [5]], [[0], [1], [5], [2]])
    told = {notice for view in views for notice in view.notices if "are late" in notice}
    (kept,) = [notice for notice in told if "rows at hours" in notice]
    assert kept.startswith("2 of 3 rows at hours in Batch 3 are late, they are dead letters: ")
    assert "the watermark is at 2026-01-04T11:10:00Z, moved there by rows (" in kept
    assert kept.endswith('1.jsonl:1, "ts" is 2026-01-04T11:20:00Z)')
    assert any("rows at counted" in notice and "they are dropped" in notice for notice in told)


def test_a_late_row_ends_a_query_that_takes_it_for_an_error(folder: FlowFolder) -> None:
    one = KEPT.partition("  counted")[0] + "sinks:\n  kept: {from: hours, type: files, path: out, format: json}\n"
    folder.flow("defaults: {late: error}\n" + FLOW.replace("WATERMARK", "ts 10m") + one)
    data(folder, "0", (0, 5000))
    ran(folder)
    data(folder, "1", (1, 5001), (2, 20))
    result = folder.run()
    (query,) = result.queries
    assert result.state == "failed"
    assert '"hours" failed on a record at' in query.error
    assert 'data/1.jsonl:2: "ts" is 2026-01-01T00:20:00Z' in query.error
    assert "late: dead_letter" in query.remedy
    # nothing of the Batch is decided: with another word it is run again, and the row is a letter
    folder.flow(FLOW.replace("WATERMARK", "ts 10m") + one)
    ran(folder)
    assert [letter.line for letter in letters(folder, "late", "kept")] == [2]


def test_a_clock_that_is_ahead_moves_no_watermark(folder: FlowFolder) -> None:
    one = KEPT.partition("  counted")[0] + "sinks:\n  kept: {from: hours, type: files, path: out, format: json}\n"
    folder.flow(FLOW.replace("WATERMARK", "{column: ts, delay: 10m, ahead: 1h}") + one)
    data(folder, "0", (0, 10), (1, 70))
    ran(folder)
    folder.data("data/1.jsonl", [{"id": 2, "who": "a", "ts": "2099-01-01T00:00:00Z"}])
    ran(folder)
    data(folder, "2", (3, 80), (4, None), (5, 200))
    ran(folder)
    assert [row["ids"] for row in folder.read("out")] == [[0], [1, 3]]
    assert [(letter.reason, letter.line) for letter in letters(folder, "late", "kept")] == [("ahead", 1), ("null-time", 2)]


def test_complete_windows_take_late_rows_as_spark_does(folder: FlowFolder) -> None:
    folder.flow(
        FLOW.replace("WATERMARK", "ts 10m")
        + """
steps:
  all: {from: rows, emit: complete, aggregate: {window: {time: ts, size: 1h}, columns: {ids: "sort_array(collect_list(id))"}}}
sinks:
  kept: {from: all, type: console}
"""
    )
    data(folder, "0", (0, 10))
    data(folder, "1", (1, 5000))
    data(folder, "2", (2, 20))
    data(folder, "3", (3, 21))
    result = ran(folder)
    assert late(result, "all") == 0
    assert result.queries[0].nodes["all"].rows_in == 4


def test_a_join_keeps_rows_without_a_time_and_late_ones_as_letters(folder: FlowFolder) -> None:
    folder.flow(
        FLOW.replace("WATERMARK", "ts 10m")
        + """  pays: {type: files, path: pays, format: json, schema: "pay BIGINT, who STRING, at TIMESTAMP", watermark: at 10m}
steps:
  paid: {from: [rows, pays], join: {key: [who], how: left, time: {rows: ts, pays: at}, within: 5m}}
sinks:
  kept: {from: paid, type: files, path: out, format: json}
"""
    )
    data(folder, "0", (0, 10), (1, None))
    folder.data("pays/0.jsonl", [{"pay": 7, "who": "a", "at": at(11)}, {"pay": 8, "who": "a", "at": None}])
    result = ran(folder)
    assert [(row["id"], row["pay"]) for row in folder.read("out")] == [(0, 7)]
    assert {(letter.source, letter.reason, letter.line) for letter in letters(folder, "late", "kept")} == {
        ("rows", "null-time", 2),
        ("pays", "null-time", 2),
    }
    assert result.queries[0].nodes["paid"].dead == 2


IDLE = """
version: 1
name: late
sources:
  a: {type: files, path: a, format: json, schema: "id BIGINT, ts TIMESTAMP", watermark: ts 10m}
  b: {type: files, path: b, format: json, schema: "id BIGINT, ts TIMESTAMP", watermark: WATERMARK}
steps:
  both: {from: [a, b]}
  hours: {from: both, aggregate: {window: {time: ts, size: 1h}, columns: {ids: "sort_array(collect_list(id))"}}}
sinks:
  kept: {from: hours, type: files, path: out, format: json}
"""


@pytest.mark.parametrize("idle", [True, pytest.param(False, marks=pytest.mark.long)])
def test_an_idle_input_holds_the_others_back_no_more_and_loses_nothing(folder: FlowFolder, idle: bool) -> None:
    folder.flow(IDLE.replace("WATERMARK", "{column: ts, delay: 10m, idle: 1ms}" if idle else "ts 10m"))

    def rows(source: str, name: str, *given: tuple[int, float]) -> None:
        folder.data(f"{source}/{name}.jsonl", [{"id": id_, "ts": at(minutes)} for id_, minutes in given])

    rows("a", "0", (0, 10))
    rows("b", "0", (100, 20))
    ran(folder)
    rows("a", "1", (1, 500))
    ran(folder)
    assert [row["ids"] for row in folder.read("out")] == ([[0, 100]] if idle else [])
    rows("b", "1", (101, 30), (102, 505))  # it speaks again: what is behind is a letter, what is not counts
    rows("a", "2", (2, 900))
    ran(folder)
    rows("b", "2", (103, 950))
    rows("a", "3", (3, 950))
    ran(folder)
    late_ones = [(letter.source, letter.reason, letter.line) for letter in letters(folder, "late", "kept")]
    assert late_ones == ([("b", "late", 1)] if idle else [])
    assert [row["ids"] for row in folder.read("out")] == ([[0, 100], [1, 102]] if idle else [[0, 100, 101], [1, 102]])
    totals = read_totals(StateFolder(folder.path / ".scribengin", "late").query("kept"))
    assert totals.nodes["hours"].late_dead == (1 if idle else 0)
