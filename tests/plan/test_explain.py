from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING

import pytest
from flows import flow, sink, source, step, tweets

from scribengin.connectors import catalog
from scribengin.core.options import NodeType, Option
from scribengin.plan.describe import describe, span
from scribengin.plan.diff import diff_plans
from scribengin.plan.explain_tiers import as_json, as_mermaid, explain
from scribengin.plan.tier_flows import FlowPlan, plan_flow
from scribengin.spec.model import Source, Sql

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def plan(tmp_path: Path) -> FlowPlan:
    return plan_flow(tweets(tmp_path))


def test_the_text_tells_stages_guarantee_unit_hints_and_changes(plan: FlowPlan) -> None:
    text = explain(plan, diff_plans({}, plan.tiers[0]))
    assert "query counts: a Batch as soon as the previous one is done, keeps state" in text
    assert "[state; watermark ts 10m of tweets]" in text
    assert "tweets -> kept: exactly once" in text
    assert text.index("hints") < text.index("changes since the stored state")
    headings = [line.strip() for line in text.splitlines() if re.match(r"  (decoded|Spark|Python stage|Python worker)", line)]
    assert [heading.split()[0] for heading in headings] == ["Python", "decoded", "Spark", "Python", "Spark", "Python"]


def test_the_text_fits_a_hundred_columns(plan: FlowPlan) -> None:
    assert max(len(line) for line in explain(plan, diff_plans({}, plan.tiers[0])).splitlines()) <= 100


@pytest.mark.parametrize("columns", [60, 80, 120])
def test_on_a_terminal_the_text_is_as_wide_as_that(plan: FlowPlan, monkeypatch: pytest.MonkeyPatch, columns: int) -> None:
    whole = explain(plan)
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    monkeypatch.setenv("COLUMNS", str(columns))
    text = explain(plan)
    assert text.split() == whole.split(), "no word is lost"
    assert max(map(len, text.splitlines())) <= max(columns, 76), "names of nodes and the least text beside them"


def test_no_line_ends_in_a_blank(plan: FlowPlan) -> None:
    assert [line for line in explain(plan).splitlines() if line != line.rstrip()] == []


def test_the_json_can_be_written_and_holds_every_node(plan: FlowPlan) -> None:
    found = json.loads(json.dumps(as_json(plan, diff_plans({}, plan.tiers[0]))))
    (tier,) = found["tiers"]
    assert [node["id"] for node in tier["queries"][0]["nodes"]] == ["tweets", "known", "hot", "tagged", "kept"]
    assert [change["fate"] for change in found["changes"]] == ["new", "new"]
    assert as_json(plan)["changes"] is None


def test_the_picture_has_each_query_as_a_box_and_every_arrow(plan: FlowPlan) -> None:
    picture = as_mermaid(plan)
    assert picture.count("subgraph") == picture.count(" end\n") == 2 + 1 + 5
    assert "kept__hot --> kept__tagged" in picture


def test_a_secret_is_never_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    types = {"db": NodeType("db", "source", "", (Option("password", "text", "", secret=True), Option("path", "text", "")))}
    told = describe(Source("s", "db", {"password": "hunter2", "path": "x"}), types)
    assert told == "db x, password (secret)"


def test_a_long_query_is_wrapped_under_itself() -> None:
    text = "SELECT " + ", ".join(f"id AS id_{number}" for number in range(60)) + " FROM tweets"
    lines = explain(plan_flow(flow(source(), step("a", "tweets", Sql(text)), sink("k", "a")))).splitlines()
    assert max(map(len, lines)) <= 100


@pytest.mark.parametrize(
    ("seconds", "shown"), [(600.0, "10m"), (3600.0, "1h"), (86400.0, "1d"), (90.0, "1m30s"), (0.5, "0.5s"), (1.0, "1s"), (0.0, "0s")]
)
def test_spans_are_short(seconds: float, shown: str) -> None:
    assert span(seconds) == shown


def test_options_are_shown_as_people_write_them() -> None:
    read = source(options={"path": "d", "format": "json", "max_bytes": 2**20, "settle": 60.0, "growing": True})
    assert describe(read, catalog.source_types()) == "files d, json, max_bytes 1.0 MiB, settle 1m, growing true, watermark ts 10m"
