"""A query that is stopped, killed or started again between two Batches."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.errors import StreamingQueryException

from scribengin.core.process import within
from scribengin.local.prepare import prepare
from scribengin.spark.query import QueryRun
from scribengin.state.decisions import Decisions

if TYPE_CHECKING:
    from tests.conftest import FlowFolder

FLOW = """\
version: 1
name: spread
sources:
  rows: {type: files, path: data, format: json, schema: "id BIGINT, ts TIMESTAMP", watermark: ts 1s}
steps:
  all: {from: rows, filter: id >= 0}
  per: {from: all, aggregate: {by: [id], window: {time: ts, size: 1h}, columns: {n: count(*)}}}
sinks:
  counts: {from: per, type: files, path: out, format: json}
"""
TIERS = "tiers: {edge: {steps: [all]}, core: {steps: [per]}}\n"


@pytest.mark.timeout(300)
@pytest.mark.parametrize("ends", [True, False], ids=["its end", "upkeep"])
def test_a_batch_that_opens_in_another_hand_costs_the_query_nothing(
    folder: FlowFolder, monkeypatch: pytest.MonkeyPatch, ends: bool
) -> None:
    folder.flow(FLOW + (TIERS if ends else ""))
    folder.data("data/a.jsonl", [{"id": id_, "ts": f"2026-01-01T{hour}:00:00Z"} for id_ in range(5) for hour in (10, 12)])
    start, held = QueryRun._start, []

    def starts_held(self: QueryRun) -> Any:
        if not self.context.parts.query.stateful or held or (ends and self._ends_by_itself):
            return start(self)
        if ends:  # as a Query that is fed to the end: its first Batch opens when it is being stopped, to be started for the last time
            assert within(120, self.fed)
        self._busy.acquire()
        self._ending = ends
        query = start(self)
        held.append(query)

        def let_go() -> None:
            within(120 if ends else 3, lambda: self._raised is not None)
            self._busy.release()

        threading.Thread(target=let_go).start()
        return query

    monkeypatch.setattr(QueryRun, "_start", starts_held)
    result = folder.run()
    assert len(held) == 1, "the Query has met it"
    assert (result.state, result.balanced, result.problems) == ("finished", True, ())
    assert sorted(row["id"] for row in folder.read("out")) == [0, 1, 2, 3, 4]


def test_a_query_that_was_ended_as_spark_wrote_its_first_offsets_starts_again(folder: FlowFolder) -> None:
    """Spark leaves the temporary file of the entry. A stateful query that is stopped to be started for the last time can end so, without
    a kill."""
    folder.flow(FLOW + TIERS)
    folder.data("data/a.jsonl", [{"id": id_, "ts": f"2026-01-01T{hour}:00:00Z"} for id_ in range(5) for hour in (10, 12)])
    tiers = prepare(folder.path / "flow.yaml", state=None).tiers
    for offsets in (tier.folder.query(query.name).checkpoint / "offsets" for tier in tiers for query in tier.plan.queries):
        offsets.mkdir(parents=True)
        (offsets / ".0.0b1f7d0e-6a52-4c7e-9a55-3f1b8d2c6e90.tmp").write_bytes(b"")
    result = folder.run()
    assert (result.state, result.balanced, result.problems) == ("finished", True, ())
    assert sorted(row["id"] for row in folder.read("out")) == [0, 1, 2, 3, 4]


class _Interrupted:
    """A query whose write into HDFS is interrupted when it is stopped: Hadoop's client reports that as a failure of its own."""

    def __init__(self, query: Any) -> None:
        self._query, self._stopped = query, False

    def __getattr__(self, name: str) -> Any:
        return getattr(self._query, name)

    def stop(self) -> None:
        self._query.stop()
        self._stopped = True

    def awaitTermination(self, timeout_s: float) -> bool:  # noqa: N802 (Spark's name)
        ended: bool = self._query.awaitTermination(timeout_s)
        if ended and self._stopped:
            raise StreamingQueryException("[STREAM_FAILED] java.io.IOException: Failed to shutdown streamer")
        return ended


def test_a_write_of_spark_that_is_interrupted_by_the_stop_is_no_failure(folder: FlowFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    folder.flow(FLOW + TIERS)
    folder.data("data/a.jsonl", [{"id": id_, "ts": f"2026-01-01T{hour}:00:00Z"} for id_ in range(5) for hour in (10, 12)])
    start, interrupted = QueryRun._start, []

    def starts(self: QueryRun) -> Any:
        query = _Interrupted(start(self))
        interrupted.append(query)
        return query

    monkeypatch.setattr(QueryRun, "_start", starts)
    result = folder.run()
    assert (result.state, result.balanced, result.problems) == ("finished", True, ())
    assert any(query._stopped for query in interrupted), "a stateful query was stopped, to be started for the last time"
    assert sorted(row["id"] for row in folder.read("out")) == [0, 1, 2, 3, 4]


@pytest.mark.parametrize("trigger", ["", ", trigger: 1h"], ids=["at once", "an hour"])
def test_a_run_that_ends_closes_the_windows_of_its_last_batch_in_tiers_too(
    folder: FlowFolder, monkeypatch: pytest.MonkeyPatch, trigger: str
) -> None:
    """The Batch with the last input runs before the preceding tier has ended: Spark moves the watermark in a Batch without input."""
    folder.flow(FLOW + f"tiers: {{edge: {{steps: [all]}}, core: {{steps: [per]{trigger}}}}}\n")
    folder.data("data/a.jsonl", [{"id": id_, "ts": f"2026-01-01T{hour}:00:00Z"} for id_ in range(5) for hour in (10, 12)])
    folder.run(tier="edge")
    final = QueryRun._final

    def fed_after_a_batch(self: QueryRun) -> bool:
        stateful = self.context.parts.query.stateful
        return final(self) and (not stateful or Decisions(self.context.folder.decisions).newest() is not None)

    monkeypatch.setattr(QueryRun, "_final", fed_after_a_batch)
    assert folder.run().state == "finished"
    assert sorted(row["id"] for row in folder.read("out")) == [0, 1, 2, 3, 4]
