"""The ledger as people add it up: each line is a sum, and a table that is looked up is no input."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from scribengin.local.ledger import LedgerLine, ledger_lines, plain_lines
from scribengin.local.prepare import prepare
from scribengin.state.contract import Counts

if TYPE_CHECKING:
    from pathlib import Path

    from scribengin.plan.model import Plan

FLOW = """\
version: 1
name: clicks
sources:
  events: {type: files, path: data, format: json, schema: "ts TIMESTAMP, country STRING", watermark: ts 10m}
  countries: {type: files, path: ref, format: csv, schema: "country STRING, region STRING", static: true}
steps:
  named: {from: countries, filter: "region <> ''"}
  enriched: {from: [events, named], join: {key: [country], how: left}}
  hourly: {from: enriched, aggregate: {by: [region], window: {time: ts, size: 1h}, columns: {n: count(*)}}}
sinks:
  table: {from: hourly, type: files, path: out, format: json}
"""


@pytest.fixture
def plan(tmp_path: Path) -> Plan:
    (tmp_path / "data").mkdir()
    (tmp_path / "ref").mkdir()
    (tmp_path / "flow.yaml").write_text(FLOW)
    (tier,) = prepare(tmp_path / "flow.yaml", state=None).tiers
    return tier.plan


def adds_up(line: LedgerLine) -> bool:
    return line.rows_in + line.made == line.out + line.filtered + line.folded + line.dead + line.late


def lines_of(plan: Plan, counts: dict[str, Counts]) -> dict[str, LedgerLine]:
    lines = ledger_lines(counts, plan.queries[0], plan.flow)
    assert all(adds_up(line) for line in lines), lines
    return {line.node: line for line in lines}


def test_rows_of_a_lookup_are_neither_taken_in_nor_filtered(plan: Plan) -> None:
    counts = {"events": Counts(318, 318), "countries": Counts(6, 6), "named+enriched": Counts(324, 318, 6), "table": Counts(318, 318)}
    found = lines_of(plan, counts)
    assert found["named+enriched"] == LedgerLine("named+enriched", 318, 318)
    assert (found["countries"].lookup, found["events"].lookup) == (True, False)


def test_rows_that_a_join_makes_are_counted_without_the_table(plan: Plan) -> None:
    counts = {"events": Counts(10, 10), "countries": Counts(6, 6), "named+enriched": Counts(16, 25, made=9)}
    assert lines_of(plan, counts)["named+enriched"] == LedgerLine("named+enriched", 10, 25, made=15)


def test_rows_of_a_group_are_folded_and_late_and_dead_ones_came_in(plan: Plan) -> None:
    counts = {"events": Counts(318, 318), "hourly": Counts(310, 155, late=5, dead=3, late_dead=3, held=3)}
    assert lines_of(plan, counts)["hourly"] == LedgerLine("hourly", 318, 155, folded=155, dead=3, late=5, held=3)


def test_a_state_that_gives_more_than_it_takes_has_made_rows(plan: Plan) -> None:
    assert lines_of(plan, {"hourly": Counts(10, 14)})["hourly"] == LedgerLine("hourly", 10, 14, made=4)


def test_utilities_stand_below_their_step_and_without_a_plan_all_is_as_it_was_counted() -> None:
    counts = {"clean": Counts(10, 7, 3, parts={"near": Counts(10, 8, 2), "far": Counts(8, 7, 1)})}
    lines = plain_lines(counts)
    assert [(line.node, line.part_of, line.rows_in, line.out, line.filtered) for line in lines] == [
        ("clean", "", 10, 7, 3),
        ("near", "clean", 10, 8, 2),
        ("far", "clean", 8, 7, 1),
    ]
