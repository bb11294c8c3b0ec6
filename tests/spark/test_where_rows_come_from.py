"""Columns that say where a row came from, through steps, a dead letter and its replay; and folders read as they were written."""

from __future__ import annotations

import datetime as dt
import os
from typing import TYPE_CHECKING

from scribengin.local.dead_letter_repair import find_to_edit
from scribengin.local.dead_letter_replay import replay
from scribengin.local.dead_letters import Which
from scribengin.local.prepare import prepare

if TYPE_CHECKING:
    from tests.conftest import FlowFolder

FLOW = """\
version: 1
name: places
sources:
  rows:
    type: files
    path: data/**/*.jsonl
    format: json
    schema: {fields: "id BIGINT NOT NULL, n INT, day DATE", evolve: lenient}
    metadata: {src: file_name, at: file_time, line: line}
    partition_columns: [day]
steps:
  some: {from: rows, filter: id > 0}
  doubled: {from: some, python: "steps:double"}
  named: {from: doubled, sql: "SELECT id, n, day, concat(src, ':', line) AS src, at FROM doubled"}
sinks:
  kept: {from: named, type: files, path: out, format: parquet, partition_by: [src, day]}
"""
BACK = """\
version: 1
name: back
sources:
  rows: {type: files, path: "out/**/*.parquet", format: parquet, partition_columns: {src: STRING, day: DATE}, metadata: [row]}
sinks:
  kept: {from: rows, type: files, path: back, format: json}
"""
STEPS = "def double(row):\n    return row | {'id': row['id'] * 2}\n"


def test_places_hold_through_steps_letters_and_a_replay_and_what_is_written_is_read(folder: FlowFolder) -> None:
    folder.flow(FLOW).steps(STEPS)
    folder.data("data/day=2026-01-02/a.jsonl", [{"id": 1, "n": 1}, "", {"id": "bad", "n": 2}, {"id": -1}, {"id": 4, "n": "x"}])
    folder.data("data/day=__HIVE_DEFAULT_PARTITION__/b.jsonl", [{"id": 5}])
    time = dt.datetime(2026, 1, 2, 3, 4, 5, tzinfo=dt.UTC)
    for path in folder.path.glob("data/*/*"):
        os.utime(path, (time.timestamp(), time.timestamp()))
    assert folder.run().balanced

    (bad,) = find_to_edit(prepare(folder.path / "flow.yaml", state=None), Which(step="rows"), record=False)
    assert bad.keep(bad.with_columns({"id": "3"}))
    said = replay(prepare(folder.path / "flow.yaml", state=None), Which())
    assert (said.asked, said.repaired) == (1, 1)
    assert folder.run().balanced

    folder.flow(BACK)
    assert folder.run().balanced
    found = sorted(folder.read("back"), key=lambda row: row["id"])
    day, at = "2026-01-02", "2026-01-02T03:04:05.000000Z"
    assert found == [
        {"id": 2, "n": 1, "at": at, "src": "a.jsonl:1", "day": day, "row": 0},
        {"id": 6, "n": 2, "at": at, "src": "a.jsonl:3", "day": day, "row": 0},
        {"id": 8, "n": None, "at": at, "src": "a.jsonl:5", "day": day, "row": 0},
        {"id": 10, "n": None, "at": at, "src": "b.jsonl:1", "day": None, "row": 0},
    ]
