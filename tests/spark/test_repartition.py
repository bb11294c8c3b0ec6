"""The state of a Query is spread over other partitions: no count by key is lost or doubled, wherever it is cut short."""

from __future__ import annotations

import pytest

from scribengin.core.errors import Refused
from scribengin.local.audit import audit_flow
from scribengin.local.prepare import prepare
from scribengin.local.summaries import read_summaries
from scribengin.spark.offset_log import state_partitions
from scribengin.spark.repartition import repartition
from scribengin.state.decisions import Decisions
from scribengin.state.lease import take_lease

FLOW = """\
version: 1
name: spread
sources:
  rows: {type: files, path: data, format: json, schema: "id BIGINT, ts TIMESTAMP", watermark: ts 1s, max_files: 1}
steps:
  all: {from: rows, filter: id >= 0}
  per: {from: all, aggregate: {by: [id], window: {time: ts, size: 1h}, columns: {n: count(*)}}}
sinks:
  counts: {from: per, type: files, path: out, format: json}
"""
TIERS = "tiers: {edge: {steps: [all]}, core: {steps: [per]}}\n"
FEEDING = FLOW.replace("{from: per, type", "{from: big, type").replace("sinks:", "  big: {from: per, filter: n > 0}\nsinks:")
KEYS, ROWS = 40, 200
SUMMED = FLOW[: FLOW.index("  counts:")] + '  hours: {from: per, type: summary, sql: "SELECT sum(n) AS n FROM rows"}\n'


def adds(folder, *numbers):
    for number in numbers:
        rows = [{"id": n % KEYS, "ts": f"2026-01-01T10:{number:02d}:{n % 60:02d}Z"} for n in range(ROWS)]
        folder.data(f"data/{number}.jsonl", rows)


def closes(folder, *hours):
    """Rows of later hours, so that the window of all others is through: in the Batch behind the first of them."""
    for hour in hours:
        folder.data(f"data/close{hour}.jsonl", [{"id": 0, "ts": f"2026-01-01T{hour}:00:00Z"}])


def counted(folder):
    return {row["id"]: row["n"] for row in folder.read("out") if row["window_start"].startswith("2026-01-01T10")}


def stateful_of(folder):
    for tier in prepare(folder.path / "flow.yaml", state=None).tiers:
        for query in tier.folder.queries():
            if state_partitions(query) is not None:
                return tier, query
    raise AssertionError("no Query keeps state")


def spread(folder, partitions):
    tier, query = stateful_of(folder)
    with take_lease(tier.folder) as lease:
        return repartition(folder.spark, query, partitions, lease)


def ends_well(folder, files):
    closes(folder, 12)
    if "tiers:" in (folder.path / "flow.yaml").read_text():
        folder.run()  # what one tier sends in several Batches the next one may take in one
    closes(folder, 13)
    result = folder.run()
    assert (result.state, result.balanced) == ("finished", True)
    assert counted(folder) == dict.fromkeys(range(KEYS), files * ROWS // KEYS)
    assert len([row for row in folder.read("out") if row["window_start"].startswith("2026-01-01T10")]) == KEYS, "each key once"
    assert audit_flow(prepare(folder.path / "flow.yaml", state=None)).balanced


@pytest.mark.parametrize(
    "text",
    [
        pytest.param(FLOW, marks=pytest.mark.long),
        pytest.param(FLOW + TIERS, marks=pytest.mark.long),
        FEEDING + TIERS.replace("core: {steps: [per]}", "core: {steps: [per]}, end: {steps: [big]}"),
    ],
)
def test_counts_by_key_are_the_same_over_more_and_over_fewer_partitions(folder, text):
    folder.flow(text)
    adds(folder, 0, 1)
    assert folder.run().balanced
    _, query = stateful_of(folder)
    before = state_partitions(query)
    assert spread(folder, 7) is True
    assert state_partitions(query) == 7 != before
    assert spread(folder, 7) is False, "it is so already"
    adds(folder, 2)
    assert folder.run().balanced
    assert spread(folder, 1) is True
    adds(folder, 3)
    ends_well(folder, 4)
    assert state_partitions(query) == 1


def test_a_summary_goes_on_behind_it(folder):
    folder.flow(SUMMED)
    adds(folder, 0)
    closes(folder, 12, 13)
    assert folder.run().balanced

    def summed():
        (found,) = read_summaries(prepare(folder.path / "flow.yaml", state=None))["summaries"]
        return found["rows"], found["since_batch"], found["since"]

    first = ([{"n": ROWS}], 0, None)
    assert summed() == first
    assert spread(folder, 7) is True
    assert summed() == first
    folder.data("data/later.jsonl", [{"id": 0, "ts": "2026-01-01T15:00:00Z"}])
    result = folder.run()
    assert result.balanced
    (view,) = [query.view for query in result.queries]
    assert (view.state_partitions, view.tasks_s > 0) == (7, True)
    assert summed() == ([{"n": ROWS + 2}], 0, None), "the hours of 12 and 13 o'clock were closed by it"


@pytest.mark.long
def test_it_may_be_cut_short_before_the_decision_and_is_completed(folder, monkeypatch):
    folder.flow(FLOW)
    adds(folder, 0, 1)
    folder.run()
    newest = Decisions(stateful_of(folder)[1].decisions).newest().batch.number

    class Killed(Exception):
        pass

    def dies(*_):
        raise Killed

    with monkeypatch.context() as patched:
        patched.setattr(Decisions, "decide", dies)
        with pytest.raises(Killed):
            spread(folder, 5)
    assert Decisions(stateful_of(folder)[1].decisions).newest().batch.number == newest
    assert spread(folder, 5) is True
    assert Decisions(stateful_of(folder)[1].decisions).newest().batch.number == newest + 1
    adds(folder, 2)
    ends_well(folder, 3)


@pytest.mark.long
def test_a_batch_that_had_begun_is_read_again(folder):
    folder.flow(FLOW)
    adds(folder, 0, 1, 2)
    folder.run()
    _, query = stateful_of(folder)
    # as if the process had been killed in the last Batch that read something: its state is written, it is not decided
    decisions = Decisions(query.decisions)
    newest = decisions.newest().batch.number
    last = max(n for n in range(newest + 1) if (taken := decisions.read(n).sources[0]).end > taken.start)
    for number in range(last, newest + 1):
        for path in [*query.decisions.rglob(f"*{number}.json"), *(folder.path / "out" / "_scribengin").rglob(f"batches/*{number}.json")]:
            path.unlink()
        for name in (f"{number}", f".{number}.crc"):
            (query.checkpoint / "commits" / name).unlink()
            if number > last:
                (query.checkpoint / "offsets" / name).unlink()
    for part in (folder.path / "out").glob("part-*"):
        part.unlink()
    assert spread(folder, 3) is True
    adds(folder, 3)
    closes(folder, 12, 13)
    assert folder.run().state == "finished"
    assert counted(folder) == dict.fromkeys(range(KEYS), 4 * ROWS // KEYS)


def test_what_is_decided_and_not_committed_comes_first(folder):
    folder.flow(FLOW)
    adds(folder, 0, 1)
    folder.run()
    _, query = stateful_of(folder)
    newest = Decisions(query.decisions).newest().batch.number
    for name in (f"{newest}", f".{newest}.crc"):
        (query.checkpoint / "commits" / name).unlink()
    with pytest.raises(Refused) as refused:
        spread(folder, 5)
    assert refused.value.code == "repartition-pending"
    adds(folder, 2)
    assert folder.run().balanced
    assert spread(folder, 5) is True
    ends_well(folder, 3)
