"""What Prometheus reads, and the files that are made for it: every name they use is one that a master tells."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families
from watched_flow import Tier, a_tier

from scribengin.core.units import parse_duration_s
from scribengin.local.contract import EndView, GateView
from scribengin.watching.exposition import METRICS, RegistryFlow, expose
from scribengin.watching.telemetry import STALE_S, Board

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).parents[2]
MONITORING = ROOT / "examples/monitoring"
LABELS = {metric.shown: set(metric.labels) for metric in METRICS}
WORDS = {"sum", "by", "rate", "increase", "avg_over_time", "absent", "and", "or", "max", "Inf", "label_values"}
_NAME = r"[a-zA-Z_:][\w:]*"
_TOKEN = re.compile(
    rf'\s+|(?P<name>{_NAME})|(?P<number>\d+(?:\.\d+)?)(?![\w.])|(?P<range>\[\d+[smhd]\])|(?P<text>"[^"]*")'
    r"|(?P<sign>==|!=|=~|!~|>=|<=|[-+*/<>=(){},])"
)


def full() -> tuple[Tier, dict[str, RegistryFlow]]:
    """A flow of which everything is known that can be."""
    tier = a_tier()
    tier.gates = (GateView("c", "hot -> core", "kept", "main", "core", 5, 50, 2.0, 3.0, 4.0, paused=True),)
    end = EndView(5, 1.0, 2, 3, 4, 5.0)
    tier.query = replace(
        tier.query,
        sources={"a": end},
        sinks={"kept": end},
        phases_s={"plan": 0.5},
        lag_rows=1,
        lag_bytes=2,
        lag_s=3.0,
        catch_up_s=4.0,
        state_rows=5,
        state_bytes=6,
        held_back_by="a",
        behind_s=7.0,
        silent_s=8.0,
    )
    tier.tells()
    return tier, {"tweets": RegistryFlow("running", "slow", (("stuck", True), ("late", False)))}


def families(tier: Tier, states: dict[str, RegistryFlow], *, leads: bool = True) -> dict[str, Any]:
    text = expose(tier.board, states, leads=leads).decode()
    return {family.name: family for family in text_string_to_metric_families(text)}


def test_each_declared_metric_is_told_with_its_labels_and_no_other() -> None:
    found = families(*full())
    assert list(found) == [metric.name for metric in METRICS]
    for metric in METRICS:
        family = found[metric.name]
        assert family.type == metric.kind
        assert {frozenset(sample.labels) for sample in family.samples} == {frozenset(metric.labels)}
        assert {sample.name for sample in family.samples} == {metric.shown}
    assert {(sample.labels["alert"], sample.value) for sample in found["scribengin_alert_firing"].samples} == {
        ("stuck", 1.0),
        ("late", 0.0),
    }


def test_what_nobody_knows_is_left_out_and_what_falls_behind_never_catches_up() -> None:
    tier = a_tier()
    tier.tells()
    assert "scribengin_flow_lag_rows" not in families(tier, {})
    tier.query = replace(tier.query, falls_behind=True)
    tier.tells()
    assert families(tier, {})["scribengin_flow_catch_up_seconds"].samples[0].value == float("inf")


def test_a_silent_worker_is_not_shown_as_if_it_moved() -> None:
    tier, states = full()
    tier.clock.advance(seconds=STALE_S + 1)
    found = families(tier, states)
    assert "scribengin_query_rows_per_second" not in found
    assert found["scribengin_tier_heard_seconds"].samples[0].value == STALE_S + 1
    assert found["scribengin_flow_rows_in_per_second"].samples[0].value == 0


def test_a_standby_tells_only_that() -> None:
    tier, states = full()
    assert list(families(tier, states, leads=False)) == ["scribengin_master_leads"]
    assert list(families(Tier(Board(), tier.clock), {})) == ["scribengin_master_leads"]


def dashboard() -> dict[str, Any]:
    found: dict[str, Any] = json.loads((MONITORING / "grafana-dashboard.json").read_text())
    return found


def rules() -> list[dict[str, Any]]:
    groups = yaml.safe_load((MONITORING / "prometheus-rules.yaml").read_text())["groups"]
    assert len({group["name"] for group in groups}) == len(groups)
    return [rule for group in groups for rule in group["rules"]]


def expressions() -> Iterator[tuple[str, str]]:
    for panel in dashboard()["panels"]:
        for target in panel["targets"]:
            yield panel["title"], target["expr"]
    for variable in dashboard()["templating"]["list"]:
        if variable["type"] == "query":
            yield variable["name"], variable["query"]["query"]
    for rule in rules():
        yield rule["alert"], rule["expr"]


def problems(expression: str) -> list[str]:
    """What is wrong with an expression: signs that are none, brackets that do not close, names and labels that nobody tells."""
    wrong, open_, at, metrics = [], list[str](), 0, set[str]()
    tokens = []
    while at < len(expression):
        found = _TOKEN.match(expression, at)
        if found is None:
            return [f"at {expression[at:]!r}"]
        at = found.end()
        if found.lastgroup:
            tokens.append((found.lastgroup, found[0]))
    told = {label for labels in LABELS.values() for label in labels}
    for number, (kind, text) in enumerate(tokens):
        if text in ("(", "{"):
            open_.append(text)
        elif text in (")", "}") and (not open_ or open_.pop() != {")": "(", "}": "{"}[text]):
            wrong.append(f"{text} closes nothing")
        elif kind == "name" and text.startswith("scribengin_"):
            metrics.add(text)
            if text not in LABELS:
                wrong.append(f"no metric {text}")
        elif kind == "name" and text not in WORDS and text not in told:
            wrong.append(f"no word {text}")
        elif kind == "range" and tokens[number - 1][1] not in ("}", *LABELS):
            wrong.append(f"{text} is behind no metric")
    grouped = " ".join(re.findall(r"by \(([^)]*)\)", expression))
    named = re.findall(r"(\w+)\s*(?:=~|!~|!=|=)\s*\"", expression) + re.findall(r"\w+", grouped)
    wrong += [f"no label {label}" for label in named if any(label not in LABELS.get(metric, ()) for metric in metrics)]
    return wrong + ["a bracket is open"] * bool(open_) + ["no metric at all"] * (not metrics)


@pytest.mark.parametrize(("where", "expression"), list(expressions()))
def test_an_expression_of_the_files_reads_what_masters_tell(where: str, expression: str) -> None:
    assert problems(expression) == [], where


@pytest.mark.parametrize(
    "expression",
    [
        'scribengin_flow_state{moon="full"}',
        "sum by (moon) (scribengin_flow_state)",
        "scribengin_flow_sate == 1",
        "sum(scribengin_flow_state",
        "rate(scribengin_tier_dead_total[5])",
        "scribengin_tier_dead > 1",
        "summe(scribengin_flow_state)",
        "1 > 0",
    ],
)
def test_an_expression_that_is_wrong_would_be_told(expression: str) -> None:
    assert problems(expression)


def test_each_rule_says_how_bad_it_is_what_is_wrong_and_what_to_do() -> None:
    names = [rule["alert"] for rule in rules()]
    assert len(set(names)) == len(names)
    for rule in rules():
        assert set(rule) <= {"alert", "expr", "for", "labels", "annotations"}, rule["alert"]
        assert rule["labels"]["severity"] in ("warning", "critical")
        assert rule["annotations"]["summary"]
        assert rule["annotations"]["action"]
        assert 0 < parse_duration_s(rule.get("for", "1m")) < 3600
        known = set.union(*(LABELS[name] for name in re.findall(r"scribengin_\w+", rule["expr"])))
        assert set(re.findall(r"\$labels\.(\w+)", str(rule["annotations"]))) <= known, rule["alert"]


def test_the_dashboard_can_be_imported() -> None:
    found = dashboard()
    assert {"title", "uid", "panels", "schemaVersion", "templating"} <= found.keys()
    ids = [panel["id"] for panel in found["panels"]]
    assert len(set(ids)) == len(ids)
    for panel in found["panels"]:
        place = panel["gridPos"]
        assert place["x"] + place["w"] <= 24, panel["title"]
        for target in panel["targets"]:
            labels = set.union(*(LABELS[name] for name in re.findall(r"scribengin_\w+", target["expr"])))
            assert set(re.findall(r"{{(\w+)}}", target["legendFormat"])) <= labels, panel["title"]
