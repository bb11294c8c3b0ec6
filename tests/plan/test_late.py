"""`late` and the bounds of a watermark: what they change of a flow's identity, and where they are refused."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from scribengin.connectors.catalog import sink_types, source_types
from scribengin.plan.queries import build_plan
from scribengin.spec.dump import dump_flow
from scribengin.spec.model import Watermark
from scribengin.spec.parse import parse_flow

if TYPE_CHECKING:
    from scribengin.plan.model import QueryPlan
    from scribengin.spec.parse import Parsed

FLOW = """version: 1
name: f
DEFAULTS
sources:
  a: {type: files, path: a, format: json, schema: "id BIGINT, ts TIMESTAMP", watermark: MARK}
steps:
  hours: {from: a, aggregate: {window: {time: ts, size: 1h}, columns: {n: count(*)}}OWN}
sinks:
  kept: {from: hours, type: files, path: out, format: json}
"""


def parsed(mark: str = "ts 10m", own: str = "", defaults: str = "") -> Parsed:
    text = FLOW.replace("MARK", mark).replace("OWN", own).replace("DEFAULTS", defaults)
    return parse_flow(text, "f.yaml", folder=Path(), environment={}, source_types=source_types(), sink_types=sink_types())


def query(mark: str = "ts 10m", own: str = "", defaults: str = "") -> QueryPlan:
    flow = parsed(mark, own, defaults).flow
    assert flow is not None
    return build_plan(flow).queries[0]


def test_a_flow_that_says_nothing_of_it_is_the_one_that_older_states_know() -> None:
    assert query().fingerprint == "d29d0cef066edf70ea6b6eb00d5cd4f8bf1a44e8e051893b67b5d789d93bb30a"
    assert query().state_fingerprint == "65f48d9050a132f6982fe2c6ac6fa3e713ff37606dd751b4ebe04eca94786572"


@pytest.mark.parametrize(
    ("mark", "own", "defaults"),
    [
        ("{column: ts, delay: 10m, ahead: 1h}", "", ""),
        ("{column: ts, delay: 10m, idle: 10m}", "", ""),
        ("ts 10m", ", late: drop", ""),
        ("ts 10m", "", "defaults: {late: error}"),
    ],
)
def test_which_rows_come_is_a_change_of_the_flow_and_none_of_its_state(mark: str, own: str, defaults: str) -> None:
    changed = query(mark, own, defaults)
    assert changed.fingerprint != query().fingerprint
    assert changed.state_fingerprint == query().state_fingerprint


def test_the_long_form_is_the_short_one_where_it_says_no_more() -> None:
    short, long = parsed().flow, parsed("{column: ts, delay: 10m}").flow
    assert short is not None
    assert short == long
    assert "ts 10m" in dump_flow(short, source_types=source_types(), sink_types=sink_types())
    bounded = parsed("{column: ts, delay: 10m, ahead: 1h, idle: 90s}").flow
    assert bounded is not None
    assert bounded.sources["a"].watermark == Watermark("ts", 600.0, 3600.0, 90.0)
    text = dump_flow(bounded, source_types=source_types(), sink_types=sink_types())
    assert parse_flow(text, "f.yaml", folder=Path(), environment={}, source_types=source_types(), sink_types=sink_types()).flow == bounded


@pytest.mark.parametrize(
    ("mark", "own", "code", "remedy"),
    [
        ("{column: ts}", "", "missing-key", "add delay: 10m"),
        ("{column: ts, delay: 10m, ahead: soon}", "", "bad-unit", ""),
        ("{column: ts, delay: 10m, late: drop}", "", "unknown-key", ""),
        ("ts 10m", ", late: fail", "bad-choice", ""),
    ],
)
def test_what_is_wrong_with_them_is_told_at_its_place(mark: str, own: str, code: str, remedy: str) -> None:
    (problem,) = parsed(mark, own).problems
    assert problem.code == code
    assert remedy in problem.remedy


def test_late_is_refused_at_a_step_that_keeps_no_state() -> None:
    text = FLOW.replace("MARK", "ts 10m").replace("OWN", "").replace("DEFAULTS", "")
    text = text.replace("sinks:", "  some: {from: hours, filter: n > 1, late: drop}\nsinks:")
    found = parse_flow(text, "f.yaml", folder=Path(), environment={}, source_types=source_types(), sink_types=sink_types())
    assert [problem.code for problem in found.problems] == ["key-misplaced"]
