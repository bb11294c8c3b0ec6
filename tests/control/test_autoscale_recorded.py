"""The policy of `autoscale` against a load that was recorded: tweets that a real flow read on a real machine (`record_load.py`)."""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from scribengin.control.autoscale import RULES, LoadSample, add_sample, decide_size, tier_load
from scribengin.registry.records import AutoscaleSpec
from tests.control.queue_model import KINDS, QueueModel, most_in_a_cool_down

if TYPE_CHECKING:
    from scribengin.control.autoscale import LoadHistory, ScalingRules, SizeDecision
    from tests.control.queue_model import Load

RECORDED = [json.loads(line) for line in Path(__file__).with_name("recorded_load.jsonl").read_text().splitlines()]
ARRIVING = [(after["added"] - before["added"]) / (after["at"] - before["at"]) for before, after in pairwise(RECORDED)]
"""rows that arrived in a second, for each five seconds"""
LENGTH_S = RECORDED[-1]["at"]
LAG_S = 60.0


def recorded(stretch: float, peak: float) -> Load:
    """The recorded load, again and again, so many times slower and with this peak in rows a second."""
    most = max(ARRIVING)
    return lambda at: ARRIVING[int(at / stretch / LENGTH_S * len(ARRIVING)) % len(ARRIVING)] * peak / most


def ran(stretch: float, peak: float, rounds: int, rules: ScalingRules = RULES, **model: Any) -> QueueModel:
    bounds = AutoscaleSpec(lag_s=LAG_S, min=1, max=8, mode="act")
    return QueueModel(recorded(stretch, peak), bounds, rules=rules, **model).run(LENGTH_S * stretch * rounds)


def flaps(model: QueueModel) -> list[tuple[float, float]]:
    """When it shrank and grew again within half an hour, although no minute of the load between needed more than it then had."""
    sizes = [model.first, *(size for _, size, _ in model.changes)]
    found = []
    for ((shrunk_at, size, _), (grown_at, larger, _)), before in zip(pairwise(model.changes), sizes, strict=False):
        if size < before and larger > size and grown_at - shrunk_at <= 1800:
            minutes = range(int(shrunk_at), int(grown_at), 60)
            heaviest = max(sum(model.load(at + second) for second in range(60)) / 60 for at in minutes)
            if heaviest < RULES.shrink_rate * size * model.rate:
                found.append((shrunk_at, grown_at))
    return found


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("stretch", "peak", "rounds"), [(1, 3_000, 6), (1, 5_500, 6), (6, 5_500, 3), (24, 5_500, 1)])
def test_a_recorded_load_is_followed_without_flapping(stretch: float, peak: float, rounds: int, kind: str) -> None:
    model = ran(stretch, peak, rounds, **KINDS[kind])
    assert model.changes, "the load is more than one executor can read"
    assert all(1 <= size <= 8 for size in model.sizes)
    assert most_in_a_cool_down(model) <= 2, model.changes
    assert flaps(model) == [], model.changes


@pytest.mark.parametrize("kind", KINDS)
def test_bursts_of_minutes_do_not_make_it_shrink_and_grow(kind: str) -> None:
    """As it was recorded, a burst comes every two to five minutes: it keeps what the next one needs."""
    for peak in (3_000, 5_500):
        model = ran(1, peak, 6, **KINDS[kind])
        steps = [after - before for before, after in pairwise([model.first, *(size for _, size, _ in model.changes)])]
        turns = [at for (at, *_), before, step in zip(model.changes[1:], steps, steps[1:], strict=False) if before < 0 < step]
        assert turns == [], model.changes
        assert len(model.changes) <= 8, "in an hour"


@pytest.mark.parametrize(
    ("name", "value"), [("cool_down_s", 0.0), ("calm_s", 60.0)], ids=["without a cool-down", "with a calm time of a minute"]
)
def test_without_a_rule_it_breaks_the_bars(name: str, value: float) -> None:
    from dataclasses import replace

    eager = replace(RULES, **{name: value}, shrink_load=1.5, shrink_rate=10.0, calm_lag=1.0)  # type: ignore[arg-type]
    model = ran(1, 5_500, 6, eager)
    steps = [after - before for before, after in pairwise([model.first, *(size for _, size, _ in model.changes)])]
    assert most_in_a_cool_down(model) > 2 or any(before < 0 < after for before, after in pairwise(steps)), model.changes


def reports() -> list[LoadSample]:
    """What the worker of the recorded run has reported, with the rows and the age of what waited then."""
    samples = []
    for line in RECORDED:
        first = next((each["at"] for each in RECORDED if each["added"] > line["rows"]), line["at"])
        lag_s, waiting = max(0.0, line["at"] - first), line["added"] - line["rows"]
        samples.append(
            LoadSample(line["at"], 1, line["rows"], {"kept": line["busy_s"]}, line["work_s"], waiting, lag_s if waiting else 0.0)
        )
    return samples


def decisions(lag_s: float) -> list[tuple[float, SizeDecision]]:
    history: LoadHistory = ()
    found = []
    for sample in reports():
        history = add_sample(history, sample)
        bounds = AutoscaleSpec(lag_s=lag_s, min=1, max=4, mode="act")
        found.append((sample.at, decide_size(bounds, 1, 1, tier_load(history, sample.at, lag_s))))
    return found


def test_the_reports_of_the_recorded_run_ask_for_more_executors_while_it_is_late_and_only_then() -> None:
    lags = {sample.at: sample.lag_s or 0.0 for sample in reports()}
    grows = [at for at, decision in decisions(15.0) if decision.verdict == "grow"]
    assert grows, "it was late for minutes"
    assert all(min(lag for then, lag in lags.items() if at - 60 <= then <= at) > 15.0 for at in grows)
    assert [decision for _, decision in decisions(600.0) if decision.executors != 1] == [], "its lag was never ten minutes"
