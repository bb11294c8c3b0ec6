"""The last Batches of a flow: newest first, of all Queries together, with what is known of each."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from scribengin.connectors.contract import BatchId, Receipt
from scribengin.core.errors import Refused
from scribengin.local.batches import last_batches
from scribengin.local.prepare import prepare
from scribengin.state.contract import Counts, Decision, LineSegment, RefusedRows
from scribengin.state.decisions import Decisions
from scribengin.state.lineage import open_lineage

if TYPE_CHECKING:
    from pathlib import Path

    from scribengin.local.prepare import PreparedFlow
    from scribengin.state.folder import QueryFolder

FLOW = """\
version: 1
name: small
sources:
  orders: {type: sequence, rows: 10}
steps:
  known: {from: orders, filter: id > 0}
sinks:
  kept: {from: known, type: files, path: out/kept, format: json}
  rest: {from: known, type: files, path: out/rest, format: json}
"""
CUT = """\
tiers:
  near: {steps: [known]}
  far: {steps: [kept, rest]}
"""


@pytest.fixture
def prepared(tmp_path: Path) -> PreparedFlow:
    (tmp_path / "flow.yaml").write_text(FLOW)
    return prepare(tmp_path / "flow.yaml", state=None)


def decides(prepared: PreparedFlow, query: str, number: int, second: int, **more: Any) -> QueryFolder:
    """Batch `number`, decided in that second: 5 rows came in, and one of them is a dead letter."""
    folder = next(tier.folder for tier in prepared.tiers if query in {each.name for each in tier.plan.queries})
    part = folder.query(query)
    lineage = open_lineage(part, owner=folder.read_owner(), fingerprint="f", state_fingerprint="", sources=["orders"])
    counts = {"orders": Counts(rows_in=5, out=4, dead=1), query: Counts(rows_in=4, out=4)}
    dead = (LineSegment(f"{number}/a.jsonl", 1, 10, 0),)
    receipts = (Receipt(query, 0, 4, 40, ()),)
    at = f"2026-01-01T00:00:{second:02}+00:00"
    batch = BatchId("small", query, lineage.id, number, 1)
    Decisions(part.decisions).decide(Decision(batch, "hash", "f", (), receipts, dead, counts, at, **more))
    return part


def numbers(found: dict[str, Any]) -> list[tuple[str, int]]:
    return [(row["query"], row["batch"]) for row in found["batches"]]


def test_a_flow_that_has_not_run_has_none(prepared: PreparedFlow, tmp_path: Path) -> None:
    assert last_batches(prepared) == {"flow": "small", "batches": []}
    assert not (tmp_path / ".scribengin").exists()


def test_the_newest_of_all_queries_come_first(prepared: PreparedFlow) -> None:
    for number in range(12):
        decides(prepared, "kept", number, 10 + 2 * number)
    decides(prepared, "rest", 0, 5)
    decides(prepared, "rest", 1, 31)
    found = numbers(last_batches(prepared))
    assert found == [("kept", 11), ("rest", 1), *[("kept", number) for number in range(10, 2, -1)]]
    assert numbers(last_batches(prepared, limit=3)) == found[:3]
    assert numbers(last_batches(prepared, "rest")) == [("rest", 1), ("rest", 0)]
    assert len(last_batches(prepared, limit=100)["batches"]) == 14
    with pytest.raises(Refused, match='flow "small" has no query "other"') as refused:
        last_batches(prepared, "other")
    assert (refused.value.code, refused.value.remedy) == ("query-unknown", "it has the queries kept, rest")


def test_the_rows_of_a_batch_are_those_of_its_ends(prepared: PreparedFlow) -> None:
    decides(prepared, "kept", 0, 7)
    (row,) = last_batches(prepared)["batches"]
    assert row == {
        "tier": "main",
        "query": "kept",
        "batch": 0,
        "decided_at": "2026-01-01T00:00:07+00:00",
        "rows_in": 5,
        "rows_out": 4,
        "dead": 1,
        "published": False,
        "phases_s": None,
        "state_rows": None,
        "state_bytes": None,
        "watermark": None,
    }


def test_what_was_measured_of_a_batch_is_in_the_next_one(prepared: PreparedFlow) -> None:
    before = {"phases_s": {"decide": 0.1, "plan": 0.2, "process": 3.0, "publish": 0.4}, "state_rows": 7, "state_bytes": 640}
    decides(prepared, "kept", 0, 0)
    decides(prepared, "kept", 1, 1, before=before, times={"watermark_us": 1_769_860_800_000_000})
    newest, first = last_batches(prepared)["batches"]
    assert (newest["phases_s"], newest["state_rows"], newest["watermark"]) == (None, None, "2026-01-31T12:00:00.000Z")
    assert list(first["phases_s"].items()) == [("plan", 0.2), ("process", 3.0), ("decide", 0.1), ("publish", 0.4)]
    assert (first["state_rows"], first["state_bytes"], first["watermark"]) == (7, 640, None)
    (alone,) = last_batches(prepared, limit=1)["batches"]
    assert alone["batch"] == 1


def test_the_newest_batch_is_published_when_that_is_known(prepared: PreparedFlow) -> None:
    decides(prepared, "kept", 0, 0)
    part = decides(prepared, "kept", 1, 1)
    assert [row["published"] for row in last_batches(prepared)["batches"]] == [False, True]
    commits = part.checkpoint / "commits"
    commits.mkdir(parents=True)
    (commits / "1").touch()
    assert [row["published"] for row in last_batches(prepared)["batches"]] == [True, True]


def test_dead_letters_are_unknown_while_a_store_may_refuse_rows(prepared: PreparedFlow) -> None:
    part = decides(prepared, "kept", 0, 0, offers=("kept",))
    (row,) = last_batches(prepared)["batches"]
    assert (row["rows_out"], row["dead"]) == (4, None)
    Decisions(part.decisions).settle(0, {"kept": RefusedRows(2, LineSegment("0/b.jsonl", 2, 20, 0))})
    (row,) = last_batches(prepared)["batches"]
    assert (row["rows_out"], row["dead"]) == (2, 3)


def test_the_queries_of_all_tiers_are_listed(tmp_path: Path) -> None:
    (tmp_path / "flow.yaml").write_text(FLOW + CUT)
    prepared = prepare(tmp_path / "flow.yaml", state=None)
    decides(prepared, "kept", 0, 2)
    decides(prepared, "known_to_far", 0, 1)
    assert [(row["tier"], row["query"]) for row in last_batches(prepared)["batches"]] == [("far", "kept"), ("near", "known_to_far")]
