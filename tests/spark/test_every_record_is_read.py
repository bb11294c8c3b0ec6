"""Where Spark can tell that nothing comes of a Batch, its records are read all the same: they are counted, and bad ones become letters."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from scribengin.local.audit import audit_flow
from scribengin.local.prepare import prepare
from scribengin.state.dead_letters import read_letters

if TYPE_CHECKING:
    from tests.spark.conftest import FlowFolder

SOURCES = """
version: 1
name: nothing
sources:
  events: {type: files, path: data, format: json, schema: "user STRING, at TIMESTAMP, n BIGINT", watermark: {column: at, delay: 1h}}
  users: {type: files, path: users, format: csv, schema: "user STRING, country STRING", static: true}
"""
SINK = "sinks:\n  out: {from: last, type: files, path: out, format: json}\n"
STEPS = {
    "a table without rows": "last: {from: [events, users], join: {key: user}}",
    "a table without rows, and its columns asked for": """joined: {from: [events, users], join: {key: user, how: left}}
  last: {from: joined, filter: country = 'de'}""",
    "a Python step before": """seen: {from: events, python: "steps:seen"}
  last: {from: [seen, users], join: {key: user}}""",
    "a condition that holds for none": 'last: {from: events, sql: "SELECT * FROM events WHERE 1 = 0"}',
    "a condition that holds for none, and state": """none: {from: events, sql: "SELECT * FROM events WHERE 1 = 0"}
  last: {from: none, aggregate: {by: [user], window: {time: at, size: 1h}, columns: {n: count(*)}}}""",
    "a table without rows, and state": """joined: {from: [events, users], join: {key: user}}
  last: {from: joined, aggregate: {by: [user], window: {time: at, size: 1h}, columns: {n: count(*)}}}""",
}
EVENTS = [{"user": "u1", "at": "2026-01-01T00:00:00Z", "n": 1}, "{broken", {"user": "u2", "at": "2026-01-01T00:01:00Z", "n": 2}]


@pytest.fixture
def nothing(folder: FlowFolder) -> FlowFolder:
    """Two files of events, a broken line in each; a table without rows."""
    folder.steps("def seen(row):\n    return row\n")
    (folder.path / "users").mkdir()
    (folder.path / "users" / "users.csv").write_text("user,country\n")
    return folder.data("data/a.jsonl", EVENTS).data("data/b.jsonl", EVENTS)


def check(folder: FlowFolder) -> None:
    result = folder.run()
    assert (result.state, result.violations) == ("finished", ())
    (query,) = result.queries
    events = query.nodes["events"]
    assert (events.rows_in, events.out, events.dead) == (6, 4, 2)
    assert query.nodes["out"].rows_in == 0
    assert folder.read("out") == []
    letters = list(read_letters(prepare(folder.path / "flow.yaml", state=None).tiers[0].folder.query("out")))
    assert sorted(letter.line for letter in letters) == [2, 2]
    reports = audit_flow(prepare(folder.path / "flow.yaml", state=None)).reports
    assert [text for report in reports for text in report.violations] == []


@pytest.mark.parametrize("case", STEPS)
def test_records_of_which_nothing_comes_are_read(nothing: FlowFolder, case: str) -> None:
    nothing.flow(f"{SOURCES}steps:\n  {STEPS[case]}\n{SINK}")
    check(nothing)
