"""What pictures say of the last run: out of the ledger, one run alone, nothing that the ledger does not know."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest

from scribengin.connectors.contract import BatchId
from scribengin.local.edge_counts import edge_counts
from scribengin.local.prepare import prepare
from scribengin.state.contract import Counts, Decision
from scribengin.state.decisions import Decisions
from scribengin.state.lineage import open_lineage

if TYPE_CHECKING:
    from pathlib import Path

    from scribengin.local.prepare import PreparedFlow

FLOW = """\
version: 1
name: small
sources:
  orders: {type: sequence, rows: 10}
steps:
  known: {from: orders, filter: id > 0}
  parts: {from: known, route: {big: id > 5, otherwise: small}}
  few: {from: parts.big, python: "steps:few"}
sinks:
  kept: {from: few, type: files, path: out/kept, format: json}
  rest: {from: parts.small, type: files, path: out/rest, format: json}
"""
CUT = """tiers:
  near: {steps: [known]}
  far: {steps: [parts, few, kept, rest]}
"""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    (tmp_path / "steps.py").write_text("def few(row): return True\n")
    (tmp_path / "flow.yaml").write_text(FLOW)
    return tmp_path / "flow.yaml"


def decides(prepared: PreparedFlow, tier: str, query: str, *batches: tuple[int, dict[str, Counts]]) -> None:
    """Batches of (Term, counts), one after the other."""
    folder = next(each.folder for each in prepared.tiers if each.plan.tier == tier)
    part = folder.query(query)
    lineage = open_lineage(part, owner=folder.read_owner(), fingerprint="f", state_fingerprint="", sources=["orders"])
    for number, (term, counts) in enumerate(batches):
        batch = BatchId("small", query, lineage.id, number, term)
        Decisions(part.decisions).decide(Decision(batch, "hash", "f", (), (), (), counts, f"2026-01-01T00:00:{number % 60:02}+00:00"))


def rows(found: dict[str, Any]) -> dict[str, str]:
    return {f"{each['reads']} -> {each['node']}": each["rows"] for each in found["edges"]}


def test_a_flow_that_has_not_run_has_no_counts(path: Path) -> None:
    found = edge_counts(prepare(path, state=None))
    assert (found["batches"], found["nodes"], found["edges"]) == (0, [], [])
    assert found["caption"] == "no counts: the flow has not run yet"
    assert not (path.parent / ".scribengin").exists()


def test_the_last_run_is_counted_alone_and_native_steps_as_one(path: Path) -> None:
    prepared = prepare(path, state=None)
    old = {"orders": Counts(900, 900), "known+parts": Counts(900, 900), "few": Counts(900, 900), "kept": Counts(900, 900)}
    one = {"orders": Counts(5, 5), "known+parts": Counts(5, 3, 2), "few": Counts(3, 2, 0, 1), "kept": Counts(2, 2)}
    two = {"orders": Counts(4, 4), "known+parts": Counts(4, 2, 1, 1), "few": Counts(2, 2), "kept": Counts(2, 2)}
    decides(prepared, "main", "kept", (3, old), (3, old), (5, one), (5, two))
    decides(prepared, "main", "rest", (3, {"orders": Counts(77, 77)}))
    found = edge_counts(prepared)
    assert (found["batches"], found["last"]) == (2, "2026-01-01T00:00:03+00:00")
    assert found["caption"] == "rows of the last run: 2 Batches, until 2026-01-01 00:00:03 UTC"
    assert rows(found) == {"orders -> known": "9", "parts.big -> few": "5", "few -> kept": "4"}
    assert {each["node"]: (each["run"], each["in"], each["dropped"], each["dead"]) for each in found["nodes"]} == {
        "orders": ("", 9, 0, 0),
        "known": ("known+parts", 9, None, 1),
        "few": ("", 5, 0, 1),
        "kept": ("", 4, 0, 0),
    }


def test_of_a_run_whose_first_batches_are_pruned_those_that_are_left_are_counted(path: Path) -> None:
    prepared = prepare(path, state=None)
    decides(prepared, "main", "kept", *[(1, {"few": Counts(1, 1), "kept": Counts(1, 1)})] * 2_000)
    log = Decisions(prepared.tiers[0].folder.query("kept").decisions)
    log.fold()
    pruned = log.prune(datetime.now(UTC) + timedelta(days=1))
    assert pruned
    found = edge_counts(prepared)
    assert found["batches"] == 2_000 - pruned
    assert found["caption"].endswith("; older Batches are kept only as sums")


def test_queries_that_came_to_different_rows_are_both_told(path: Path) -> None:
    prepared = prepare(path, state=None)
    decides(
        prepared, "main", "kept", (1, {"orders": Counts(9, 9), "known+parts": Counts(9, 4, 5), "few": Counts(4, 4), "kept": Counts(4, 4)})
    )
    decides(prepared, "main", "rest", (1, {"orders": Counts(7, 7), "known+parts": Counts(7, 3, 4), "rest": Counts(3, 3)}))
    found = rows(edge_counts(prepared))
    assert found == {"orders -> known": "7 / 9", "parts.big -> few": "4", "few -> kept": "4", "parts.small -> rest": "3"}


def test_of_a_cut_arrow_what_was_handed_over_is_told(path: Path) -> None:
    path.write_text(FLOW + CUT)
    prepared = prepare(path, state=None)
    (channel,) = prepared.plan.channels
    decides(prepared, "near", channel.id, (8, {"orders": Counts(9, 9), "known": Counts(9, 6, 3), channel.id: Counts(6, 6)}))
    decides(prepared, "far", "kept", (2, {"known": Counts(50, 50), "parts": Counts(50, 2, 48), "few": Counts(2, 2), "kept": Counts(2, 2)}))
    told = edge_counts(prepared)
    assert {each["node"]: each["in"] for each in told["nodes"]} == {"orders": 9, "known": 9, "parts": 50, "few": 2, "kept": 2}
    found = rows(told)
    assert found == {"orders -> known": "9", "known -> parts": "6", "parts.big -> few": "2", "few -> kept": "2"}


def test_where_rows_enter_or_leave_what_is_counted_as_one_in_several_places_nothing_is_guessed(path: Path) -> None:
    path.write_text(
        """\
version: 1
name: small
sources: {a: {type: sequence, rows: 10}, b: {type: sequence, rows: 10}}
steps:
  one: {from: a, filter: id > 1}
  two: {from: b, filter: id > 2}
  all: [one, two]
  odd: {from: all, filter: id % 2 = 1}
  few: {from: all, python: "steps:few"}
  less: {from: odd, python: "steps:few"}
sinks:
  kept: {from: [few, less], type: console}
""".replace("all: [one, two]", "all: {from: [one, two]}")
    )
    prepared = prepare(path, state=None)
    counts = {"a": Counts(9, 9), "b": Counts(5, 5), "one+two+all+odd": Counts(14, 12, 2), "few": Counts(8, 8), "less": Counts(4, 4)}
    decides(prepared, "main", "kept", (1, counts))
    assert rows(edge_counts(prepared)) == {
        "a -> one": "9",
        "b -> two": "5",
        "all -> few": "8",
        "odd -> less": "4",
        "few -> kept": "8",
        "less -> kept": "4",
    }
    del counts["few"], counts["less"]
    decides(prepare(path, state=path.parent / "other"), "main", "kept", (1, counts | {"kept": Counts(12, 12)}))
    assert rows(edge_counts(prepare(path, state=path.parent / "other"))) == {"a -> one": "9", "b -> two": "5"}
