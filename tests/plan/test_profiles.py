"""`defaults: {profile: …}`: other defaults of what says only how much at once or how fast."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from scribengin.connectors.catalog import sink_types, source_types
from scribengin.plan.queries import build_plan
from scribengin.spec.dump import dump_flow
from scribengin.spec.parse import parse_flow

if TYPE_CHECKING:
    from scribengin.plan.model import Plan

FLOW = """
version: 1
name: f
DEFAULTS
sources:
  a: {type: kafka, bootstrap: "b:1", topics: [t], format: json, schema: id BIGINT}
sinks:
  out: {from: a, type: kafka, bootstrap: "b:1", format: json, SINK}
"""


def planned(defaults: str, *, sink: str = "") -> Plan:
    text = FLOW.replace("DEFAULTS", defaults).replace("SINK", sink if "topic" in sink else f"topic: o, {sink}".rstrip(", "))
    parsed = parse_flow(text, "flow.yaml", folder=Path(), environment={}, source_types=source_types(), sink_types=sink_types())
    assert parsed.flow is not None, parsed.problems
    return build_plan(parsed.flow)


@pytest.mark.parametrize(
    ("profile", "trigger_s", "max_rows", "linger_s", "compression"),
    [("throughput", 5.0, 4_000_000, 0.05, "lz4"), ("balanced", 0.0, 1_000_000, 0.005, "none"), ("latency", 0.0, 100_000, 0.0, "none")],
)
def test_a_profile_sets_trigger_limits_and_linger(profile: str, trigger_s: float, max_rows: int, linger_s: float, compression: str) -> None:
    plan = planned(f"defaults: {{profile: {profile}}}")
    assert plan.queries[0].trigger_s == trigger_s
    assert source_types()["kafka"].filled({}, profile)["max_rows"] == max_rows
    filled = sink_types()["kafka"].filled({}, profile)
    assert (filled["linger"], filled["compression"]) == (linger_s, compression)


def test_what_a_flow_says_itself_is_stronger_than_its_profile() -> None:
    assert planned("defaults: {profile: throughput, trigger: 1s}").queries[0].trigger_s == 1.0
    assert source_types()["kafka"].filled({"max_rows": 7}, "latency")["max_rows"] == 7


def test_another_profile_changes_no_fingerprint() -> None:
    assert planned("").queries[0].fingerprint == planned("defaults: {profile: latency}").queries[0].fingerprint


@pytest.mark.parametrize(
    ("option", "changes"), [("linger: 1s", False), ("compression: zstd", False), ("record_id: none", True), ("topic: other", True)]
)
def test_how_fast_a_sink_writes_is_no_change_of_the_flow_and_what_it_writes_is(option: str, changes: bool) -> None:
    before, after = planned(""), planned("", sink=option)
    assert (before.queries[0].fingerprint != after.queries[0].fingerprint) is changes


@pytest.mark.parametrize("defaults", ["{profile: latency}", "{profile: throughput}", "{profile: throughput, trigger: 0s}"])
def test_a_profile_is_dumped_as_it_was_written(defaults: str) -> None:
    flow = planned(f"defaults: {defaults}").flow
    text = dump_flow(flow, source_types=source_types(), sink_types=sink_types())
    again = parse_flow(text, "flow.yaml", folder=Path(), environment={}, source_types=source_types(), sink_types=sink_types())
    assert again.flow == flow
