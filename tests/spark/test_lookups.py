"""Dead letters of lookup tables, which every Batch reads again."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from scribengin.local.audit import audit_flow
from scribengin.local.dead_letter_repair import find_to_edit, keep_all
from scribengin.local.dead_letter_replay import replay
from scribengin.local.dead_letters import Which
from scribengin.local.prepare import prepare
from scribengin.state.dead_letters import read_letters

if TYPE_CHECKING:
    from scribengin.local.contract import RunResult
    from scribengin.state.contract import DeadLetter
    from tests.spark.conftest import FlowFolder

FLOW = """
version: 1
name: looks
sources:
  events: {type: files, path: data, format: json, schema: "user STRING, n BIGINT", max_files: 1}
  users: {type: files, path: users, format: json, schema: "user STRING, country STRING", static: true}
steps:
  known: {from: users, python: "steps:known", schema: "user STRING, country STRING"}
  home: {from: known, select: {user: user, zone: country}, require: {number: zone <> 'x'}}
  joined: {from: [events, home], join: {key: user, how: left}}
sinks:
  out: {from: joined, type: files, path: out, format: json}
"""
STEPS = """
def known(row):
    if row["user"] == "u8":
        raise ValueError("not that one")
    return row
"""
USERS = [{"user": "u1", "country": "1"}, "{broken", {"user": "u8", "country": "8"}, {"user": "u9", "country": "x"}]


def ran(folder: FlowFolder) -> RunResult:
    result = folder.run()
    assert result.state == "finished"
    assert result.violations == ()
    reports = audit_flow(prepare(folder.path / "flow.yaml", state=None)).reports
    assert [text for report in reports for text in report.violations] == []
    return result


def letters(folder: FlowFolder) -> list[DeadLetter]:
    return list(read_letters(prepare(folder.path / "flow.yaml", state=None).tiers[0].folder.query("out")))


def told(folder: FlowFolder) -> list[tuple[int, str, str, int | None]]:
    return sorted((letter.batch, letter.step, Path(letter.file).name, letter.line) for letter in letters(folder))


@pytest.fixture
def looks(folder: FlowFolder) -> FlowFolder:
    folder.flow(FLOW).steps(STEPS).data("users/a.jsonl", USERS).data("users/b.jsonl", [{"user": "u2", "country": "2"}, "{too"])
    for number in range(3):
        folder.data(f"data/{number}.jsonl", [{"user": "u1", "n": number}, {"user": "u9", "n": number}])
    return folder


FIRST = [(0, "home", "a.jsonl", 4), (0, "known", "a.jsonl", 3), (0, "users", "a.jsonl", 2), (0, "users", "b.jsonl", 2)]


def test_a_record_of_a_lookup_table_dies_once_also_over_a_restart(looks: FlowFolder) -> None:
    result = ran(looks)

    assert told(looks) == FIRST
    assert result.queries[0].batches == 3
    assert result.queries[0].rows.dead == 4
    assert result.queries[0].nodes["users"].filtered == 4
    looks.data("data/3.jsonl", [{"user": "u2", "n": 3}])
    result = ran(looks)
    assert told(looks) == FIRST
    assert result.queries[0].this_run.dead == 0
    assert len(looks.read("out")) == 7


def test_of_a_table_that_changed_the_files_that_changed_have_letters_again(looks: FlowFolder) -> None:
    ran(looks)
    looks.data("users/b.jsonl", [{"user": "u2", "country": "2"}, "{too", "{many"])
    os.utime(looks.path / "users/b.jsonl", (1_900_000_000, 1_900_000_000))
    looks.data("data/3.jsonl", [{"user": "u2", "n": 3}]).data("data/4.jsonl", [{"user": "u2", "n": 4}])
    ran(looks)

    assert told(looks) == [*FIRST, (3, "users", "b.jsonl", 2), (3, "users", "b.jsonl", 3)]


def test_a_step_that_changed_has_letters_of_what_it_does_not_take(looks: FlowFolder) -> None:
    ran(looks)
    looks.steps(STEPS.replace("u8", "u9")).data("data/3.jsonl", [{"user": "u1", "n": 3}])
    ran(looks)

    found = told(looks)
    assert [each for each in found if each[0] == 0] == FIRST
    assert (3, "known", "a.jsonl", 4) in found, "a record that no Batch before has a letter of"


STATEFUL = """
version: 1
name: looks
sources:
  events:
    {type: files, path: data, format: json, schema: "user STRING, at TIMESTAMP", max_files: 1, watermark: {column: at, delay: 1h}}
  users: {type: files, path: users, format: json, schema: "user STRING, country STRING", static: true}
steps:
  known: {from: users, python: "steps:known", schema: "user STRING, country STRING"}
  joined: {from: [events, known], join: {key: user, how: left}}
  per: {from: joined, aggregate: {by: [country], window: {time: at, size: 1h}, columns: {n: count(*)}}}
sinks:
  out: {from: per, type: files, path: out, format: json}
"""


def test_a_query_that_keeps_state_does_the_same(looks: FlowFolder) -> None:
    looks.flow(STATEFUL)
    for number in range(3):
        looks.data(f"data/{number}.jsonl", [{"user": "u1", "at": f"2026-01-01T0{number}:00:00Z"}])
    ran(looks)
    looks.data("data/3.jsonl", [{"user": "u1", "at": "2026-01-01T07:00:00Z"}])
    ran(looks)

    assert told(looks) == [(0, "known", "a.jsonl", 3), (0, "users", "a.jsonl", 2), (0, "users", "b.jsonl", 2)]


def test_a_record_of_a_lookup_table_that_a_native_step_cannot_take_is_looked_for_in_that_table(looks: FlowFolder) -> None:
    looks.flow(FLOW.replace("zone: country}, require: {number: zone <> 'x'}", "zone: CAST(country AS INT)}"))
    result = looks.run()

    assert result.state == "failed"
    (query,) = result.queries
    assert 'The records of the static source "users" were not tested' in query.error
    assert "value 'x'" in query.error
    assert query.remedy.startswith('repair the record in "users", or use try_ functions')
    assert looks.read("out") == []


LATE = """
version: 1
name: looks
sources:
  events: {type: files, path: data, format: json, schema: "user STRING, at TIMESTAMP", max_files: 1, watermark: {column: at, delay: 1h}}
  users: {type: files, path: users, format: json, schema: "user STRING, country STRING", static: true}
steps:
  joined: {from: [events, users], join: {key: user, how: left}}
  named: {from: joined, select: {at: at, country: "coalesce(country, '-')"}}
  per: {from: named, aggregate: {by: [country], window: {time: at, size: 1h}, columns: {n: count(*)}}}
sinks:
  out: {from: per, type: files, path: out, format: json}
"""


def test_a_late_row_behind_a_lookup_table_says_which_record_it_is_and_may_be_replayed_by_it(folder: FlowFolder) -> None:
    folder.flow(LATE).data("users/a.jsonl", [{"user": "u1", "country": "de"}])
    early = {"user": "u1", "at": "2026-01-01T01:00:00Z"}
    for number, hour in enumerate((9, 10)):
        folder.data(f"data/{number}.jsonl", [{"user": "u1", "at": f"2026-01-01T{hour:02}:00:00Z"}])
    folder.data("data/2.jsonl", [{"user": "u9", "at": "2026-01-01T12:00:00Z"}, early])
    ran(folder)

    late = next(letter for letter in letters(folder) if letter.reason == "late")
    assert (late.source, Path(late.file).name, late.line, late.step) == ("events", "2.jsonl", 2, "per")
    assert json.loads(late.payload) == early
    prepared = prepare(folder.path / "flow.yaml", state=None)
    which = Which(prefix=late.id)
    said = replay(prepared, which)
    assert (said.asked, said.refusals) == (0, 1), "the table may hold its key twice, and the other row is counted"
    assert 'join "joined" may have made several rows from it' in str(said)
    (found,) = find_to_edit(prepared, which, record=True)
    keep_all([found], found.with_columns({"at": "2026-01-01T12:30:00Z"}))
    assert replay(prepared, which, from_start=True).asked == 1
    result = ran(folder)
    assert result.queries[0].nodes["per"].late_dead == 1
    ran(folder.data("data/3.jsonl", [{"user": "u9", "at": "2026-01-02T12:00:00Z"}]))
    assert {row["window_start"]: row["n"] for row in folder.read("out") if row["country"] == "de"}["2026-01-01T12:00:00.000000Z"] == 1
