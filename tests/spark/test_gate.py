"""The gate before a step that keeps state: late rows, rows ahead of the clock, rows without a time. Without Spark."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from scribengin.connectors.catalog import sink_types, source_types
from scribengin.core.errors import StepError
from scribengin.core.types import parse_schema
from scribengin.formats.contract import RecordPlace
from scribengin.plan.queries import build_plan
from scribengin.plan.resolve import Inherited
from scribengin.spark.chunk import Chunk, Origin
from scribengin.spark.dead_letter_writer import DeadLetterWriter, LetterRules
from scribengin.spark.late_rows import GateNode, LateRowCounter, LateRule, WindowGrid, late_rule
from scribengin.spark.node_schema import NodeLayout
from scribengin.spec.model import Aggregate, Dedupe, Join, Merge, Sql, Step, WindowSpec
from scribengin.spec.parse import parse_flow
from scribengin.state.contract import Counts

if TYPE_CHECKING:
    from scribengin.spec.model import Late

_MIN = 60 * 10**6
_HOUR = 60 * _MIN
SCHEMA = parse_schema("id BIGINT, ts TIMESTAMP")
PLANNED = datetime(2026, 1, 1, 12, tzinfo=UTC)


class _Lines(Origin):
    source = "rows"
    first_at = 1000

    def place(self, ordinal: int) -> RecordPlace:
        return RecordPlace("a.jsonl", line=ordinal + 1)

    def payload(self, ordinal: int) -> bytes | None:
        return b"record %d" % ordinal


def at(hour: float) -> datetime:
    return datetime(2026, 1, 1, tzinfo=UTC).replace(hour=int(hour), minute=int(hour % 1 * 60))


def chunk(*times: datetime | None) -> Chunk:
    rows = pa.record_batch({"id": pa.array(range(len(times)), pa.int64()), "ts": pa.array(times, pa.timestamp("us", tz="UTC"))})
    return Chunk(_Lines(), list(range(len(times))), batch=rows)


class Trial:
    """One gate in Batch 7, whose Batch before ran under a watermark at 10:00, and which was planned at 12:00."""

    def __init__(self, folder: Path, rule: LateRule, late: Late = "dead_letter", ahead_s: float | None = None, on_error: str = "") -> None:
        offsets = folder / "checkpoint" / "offsets"
        offsets.mkdir(parents=True, exist_ok=True)
        for batch, mark, planned in ((6, at(10), at(11)), (7, at(11.5), PLANNED)):
            said = {"batchWatermarkMs": int(mark.timestamp() * 1000), "batchTimestampMs": int(planned.timestamp() * 1000), "conf": {}}
            (offsets / str(batch)).write_text(f"v1\n{json.dumps(said)}\n-\n")
        self._dead = folder / "dead"
        rules = LetterRules(self._dead, "q", {"hours": on_error} if on_error else {})  # type: ignore[dict-item]
        self.letters = DeadLetterWriter(rules, 7, "attempt")
        self.counts = Counts()
        mark = Inherited("ts", 600.0, "rows", ahead_s)
        node = GateNode("rows~hours", "hours", ("rows",), SCHEMA, mark, rule, late, 0, 0, offsets)
        self.gate = LateRowCounter(node, 7, self.counts, self.letters)

    def passed(self, *times: datetime | None) -> list[int]:
        return [int(row["id"]) for row in self.gate(chunk(*times)).rows]

    def buried(self) -> list[dict[str, Any]]:
        segment = self.letters.close()
        assert segment is not None
        return [json.loads(line) for line in (self._dead / segment.name).read_text().splitlines()]


HOURS = LateRule(grid=WindowGrid(_HOUR, _HOUR), timed=True)


def test_late_rows_are_letters_with_record_place_and_watermark(tmp_path: Path) -> None:
    trial = Trial(tmp_path, HOURS)
    assert trial.passed(at(8.5), at(9.99), at(10), at(11), at(9)) == [2, 3]
    assert (trial.counts.dead, trial.counts.late_dead, trial.counts.late) == (3, 3, 0)
    first, *_ = letters = trial.buried()
    assert [(letter["reason"], letter["step"], letter["line"]) for letter in letters] == [("late", "hours", line) for line in (1, 2, 5)]
    assert first["message"] == '"ts" is 2026-01-01T08:30:00Z, which is before the watermark of the query: 2026-01-01T10:00:00Z'
    assert first["payload"] == "record 0"
    assert trial.gate.newest_us == int(at(10.0).timestamp() * 1e6) + 50 * _MIN
    assert trial.gate.newest_at == 1003


@pytest.mark.parametrize("on_error", ["drop", "fail"])
def test_what_a_step_does_with_errors_says_nothing_of_late_rows(tmp_path: Path, on_error: str) -> None:
    trial = Trial(tmp_path, HOURS, on_error=on_error)
    assert trial.passed(at(8.5), at(11)) == [1]
    assert [letter["reason"] for letter in trial.buried()] == ["late"]


def test_late_rows_that_are_dropped_are_counted_and_left_to_spark(tmp_path: Path) -> None:
    trial = Trial(tmp_path, HOURS, "drop")
    assert trial.passed(at(8.5), at(11)) == [0, 1]
    assert (trial.counts.dead, trial.counts.late_dead, trial.counts.late) == (0, 0, 1)
    assert trial.letters.close() is None


def test_a_late_row_that_is_an_error_stops_the_query_and_is_named(tmp_path: Path) -> None:
    trial = Trial(tmp_path, HOURS, "error")
    with pytest.raises(StepError, match=r'"hours" failed on a record at a\.jsonl:2: "ts" is 2026-01-01T08:30:00Z') as raised:
        trial.passed(at(11), at(8.5))
    assert "late: dead_letter" in raised.value.remedy


def test_windows_that_nobody_can_read_leave_their_late_rows_to_spark(tmp_path: Path) -> None:
    trial = Trial(tmp_path, LateRule(known=False))
    assert trial.passed(at(8.5), at(11)) == [0, 1]
    assert trial.counts.late == 1


def test_a_row_ahead_of_the_clock_of_its_batch_is_a_letter_and_moves_nothing(tmp_path: Path) -> None:
    trial = Trial(tmp_path, HOURS, ahead_s=3600.0)
    far = datetime(2099, 1, 1, tzinfo=UTC)
    assert trial.passed(at(11), far, at(13), at(13.1), None) == [0, 2]
    assert trial.counts.dead == 3
    assert trial.gate.newest_us == int(at(13).timestamp() * 1e6) - 10 * _MIN
    assert trial.gate.leaves_us == int(at(14).timestamp() * 1e6)
    letters = {letter["line"]: (letter["reason"], letter["message"]) for letter in trial.buried()}
    assert {line: reason for line, (reason, _) in letters.items()} == {2: "ahead", 4: "ahead", 5: "null-time"}
    assert letters[2][1] == (
        '"ts" is 2099-01-01T00:00:00Z; expected at most 2026-01-01T13:00:00Z (the Batch was planned at 2026-01-01T12:00:00Z)'
    )


def test_without_a_bound_any_time_moves_the_watermark(tmp_path: Path) -> None:
    far = datetime(2099, 1, 1, tzinfo=UTC)
    trial = Trial(tmp_path, HOURS)
    assert trial.passed(at(11), far) == [0, 1]
    assert trial.gate.newest_us == int(far.timestamp() * 1e6) - 10 * _MIN


@pytest.mark.parametrize(("timed", "left"), [(True, [1]), (False, [0, 1])])
def test_a_row_without_a_time_is_a_letter_where_it_would_be_in_no_result(tmp_path: Path, timed: bool, left: list[int]) -> None:
    trial = Trial(tmp_path, LateRule(timed=timed))
    assert trial.passed(None, at(11)) == left


def _aggregate(time: str = "ts", by: tuple[str, ...] = ()) -> Aggregate:
    return Aggregate(by, (("n", "count(*)"),), WindowSpec(time, 3600.0, 3600.0) if time else None)


@pytest.mark.parametrize(
    ("action", "emit", "rule"),
    [
        (_aggregate(), "append", HOURS),
        (_aggregate("TS"), "update", HOURS),
        (_aggregate(), "complete", LateRule(drops=False, grid=WindowGrid(_HOUR, _HOUR), timed=True)),
        (_aggregate("other"), "update", LateRule(drops=False)),
        (_aggregate("", ("id",)), "update", LateRule(drops=False)),
        (_aggregate("", ("id", "ts")), "append", LateRule(timed=True)),
        (Dedupe(("id",), "ts", 60.0), "append", LateRule()),
        (Join(("id",), "inner", (("a", "ts"), ("b", "ts")), 60.0), "append", LateRule(timed=True)),
        (Merge("intersect", ("id",), "ts", 60.0), "append", LateRule(timed=True)),
        (Sql("SELECT window(ts, '1 hour').start AS s, count(*) AS n FROM a GROUP BY window(ts, '1 hour')"), "append", HOURS),
        (
            Sql("SELECT count(*) AS n FROM a GROUP BY session_window(ts, '5 minutes')"),
            "append",
            LateRule(grid=WindowGrid(5 * _MIN, 5 * _MIN, session=True), timed=True),
        ),
        (
            Sql("SELECT count(*) AS n FROM a GROUP BY session_window(ts, CASE WHEN id > 1 THEN '1 minute' ELSE '2 minutes' END)"),
            "append",
            LateRule(known=False),
        ),
        (Sql("SELECT id, count(*) AS n FROM a GROUP BY id"), "update", LateRule(drops=False, known=False)),
        (Sql("SELECT id, count(*) AS n FROM a GROUP BY id"), "complete", LateRule(drops=False)),
        (Sql("SELECT DISTINCT id, ts FROM a"), "append", LateRule()),
        (Sql("SELECT ts, count(*) AS n FROM a GROUP BY ts"), "append", LateRule(timed=True)),
    ],
)
def test_each_step_that_keeps_state_says_what_it_does_not_take(action: Any, emit: Any, rule: LateRule) -> None:
    assert late_rule(Step("s", ("a",), action, emit=emit), "ts") == rule


_JOINED = """version: 1
name: f
sources:
  a: {type: files, path: a, format: json, schema: "id BIGINT, ts TIMESTAMP", watermark: ts 10m}
  b: {type: files, path: b, format: json, schema: "id BIGINT, at TIMESTAMP", watermark: at 10m}
steps:
  both: {from: [a, b], BOTH}
  hours: {from: both, aggregate: {window: {time: ts, size: 1h}, columns: {n: count(*)}}}
sinks:
  kept: {from: hours, type: files, path: out, format: json}
"""


@pytest.mark.parametrize(
    ("both", "known"),
    [
        ("join: {key: [id], time: {a: ts, b: at}, within: 5m}", True),
        ('sql: "SELECT a.id, a.ts FROM a JOIN b ON a.id = b.id AND a.ts BETWEEN b.at AND b.at + INTERVAL 5 MINUTES"', False),
    ],
)
def test_how_far_a_step_trails_is_known_but_behind_a_join_in_sql(both: str, known: bool) -> None:
    text = _JOINED.replace("BOTH", both)
    parsed = parse_flow(text, "f.yaml", folder=Path(), environment={}, source_types=source_types(), sink_types=sink_types())
    assert parsed.flow is not None, parsed.problems
    plan = build_plan(parsed.flow)
    layout = NodeLayout(plan, plan.queries[0])
    assert layout.has_known_lag("hours") is known
    assert layout.has_known_lag("both") is True
    assert layout.lag_us("hours") == (5 * _MIN + 1_000 if known else 0)
