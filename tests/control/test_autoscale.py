"""The size of a tier follows its lag and its load, in a model of a queue: no flapping under any load, and what each rule is for."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from math import cos, pi
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scribengin.control.autoscale import GAP_S, RULES, LoadSample, TierLoad, add_sample, decide_size, sample_of, tier_load
from scribengin.local.contract import QueryView
from scribengin.registry.records import AutoscaleSpec
from scribengin.watching.progress import TierProgress
from tests.control.queue_model import KINDS, QueueModel, most_in_a_cool_down

if TYPE_CHECKING:
    from scribengin.control.autoscale import LoadHistory, ScalingRules
    from tests.control.queue_model import Load

LAG_S = 60.0
TO_8 = AutoscaleSpec(lag_s=LAG_S, min=1, max=8, mode="act")


def step(at_s: float) -> float:
    return 800 if at_s < 1800 else 4500 if at_s < 7200 else 300


def ramp(at_s: float) -> float:
    return 500 + 5000 * max(0.0, min(1.0, (at_s - 600) / 7200)) if at_s < 12_000 else 200


def spike(at_s: float) -> float:
    return 9000 if 3600 <= at_s < 3720 else 700


def day_curve(at_s: float) -> float:
    return 3000 - 2700 * cos(2 * pi * at_s / 86_400)


LOADS: dict[str, tuple[Load, float, int]] = {
    "step": (step, 14_400, 1),
    "ramp": (ramp, 18_000, 1),
    "spike": (spike, 10_800, 2),
    "day curve": (day_curve, 86_400, 1),
}
"""name → (load, seconds, the number of executors that is enough at its end)"""


def check_bounds(model: QueueModel) -> None:
    assert all(model.settings.min <= size <= model.settings.max for size in model.sizes)


def check_cool_down(model: QueueModel) -> None:
    """At most two changes in any time of a cool-down."""
    assert most_in_a_cool_down(model) <= 2, model.changes


def check_no_flapping(model: QueueModel) -> None:
    """It does not grow within half an hour after it has shrunk: what it gave up was not needed."""
    steps = [
        (at, after - before)
        for (at, after, _), before in zip(model.changes, [model.first, *(size for _, size, _ in model.changes)], strict=False)
    ]
    for (before, first), (then, second) in pairwise(steps):
        assert then - before > 1800 or not (first < 0 < second), model.changes


def ran(load: Load, seconds: float, rules: ScalingRules = RULES, **model: float) -> QueueModel:
    return QueueModel(load, TO_8, rules=rules, **model).run(seconds)  # type: ignore[arg-type]


CASES = [
    pytest.param(name, kind, marks=[pytest.mark.slow] if name == "day curve" and kind != "rows and ages" else [])
    for name in LOADS
    for kind in KINDS
]
"""a day is long: `make test` has it once"""


@pytest.mark.parametrize(("name", "kind"), CASES)
def test_the_lag_comes_back_under_the_bound_without_flapping(name: str, kind: str) -> None:
    load, seconds, enough = LOADS[name]
    model = ran(load, seconds, **KINDS[kind])
    check_bounds(model)
    check_cool_down(model)
    check_no_flapping(model)
    late = [at for at, lag_s in enumerate(model.lags) if lag_s > LAG_S]
    assert late, "the load is more than the first size can read"
    assert len(late) < 0.15 * len(model.lags), "it is late only while it grows"
    assert max(model.lags[-1800:]) <= LAG_S
    assert model.executors <= enough, "it shrinks when the load has ended"


def test_a_steady_load_settles() -> None:
    model = ran(lambda _: 2500, 20_000)
    assert max(model.lags[3600:]) <= LAG_S
    assert len([at for at, *_ in model.changes if at > 3600]) <= 1


def test_a_load_that_one_executor_reads_changes_nothing() -> None:
    assert ran(lambda _: 50, 7200).changes == []


def test_a_load_beyond_the_most_stays_at_the_most() -> None:
    model = ran(lambda _: 20_000, 7200)
    assert [size for _, size, _ in model.changes] == [2, 4, 8]


EAGER = {"shrink_load": 1.5, "shrink_rate": 10.0, "calm_lag": 1.0}
"""it shrinks as soon as its lag is below the bound"""


@pytest.mark.parametrize(
    ("rules", "check", "measured"),
    [
        (replace(RULES, cool_down_s=0.0), check_cool_down, 1.0),
        (replace(RULES, **EAGER, calm_s=RULES.window_s), check_no_flapping, 1.0),
        (replace(RULES, **EAGER, cool_down_s=0.0, window_s=10.0, calm_s=10.0), check_cool_down, 1.0),
        (replace(RULES, shrink_rate=10.0), check_no_flapping, 0.35),
    ],
    ids=["no cool-down", "no hysteresis", "neither", "no measured rate"],
)
def test_without_a_rule_it_flaps(rules: ScalingRules, check: object, measured: float) -> None:
    found = 0
    for load, seconds, _ in LOADS.values():
        model = ran(load, min(seconds, 40_000), rules, measured=measured)
        try:
            check(model)  # type: ignore[operator]
        except AssertionError:
            found += 1
    assert found, "the check does not find what the rule prevents"


@settings(max_examples=25, deadline=None)
@given(
    parts=st.lists(st.tuples(st.integers(60, 1800), st.integers(0, 12_000)), min_size=1, max_size=5),
    least=st.integers(1, 3),
    more=st.integers(0, 6),
    begin=st.integers(1, 10),
    restart_s=st.sampled_from([5.0, 30.0, 120.0, 400.0]),
    noise=st.sampled_from([0.0, 0.1, 0.5]),
    seed=st.integers(0, 5),
    counts_rows=st.booleans(),
)
def test_under_any_load_it_changes_at_most_twice_in_a_cool_down_and_stays_in_its_bounds(
    *, parts: list[tuple[int, int]], least: int, more: int, begin: int, restart_s: float, noise: float, seed: int, counts_rows: bool
) -> None:
    def load(at_s: float) -> float:
        for seconds, rows in parts:
            if at_s < seconds:
                return rows
            at_s -= seconds
        return 0.0

    bounds = AutoscaleSpec(lag_s=LAG_S, min=least, max=least + more, mode="act")
    model = QueueModel(load, bounds, begin, restart_s=restart_s, noise=noise, seed=seed, counts_rows=counts_rows)
    model.run(sum(seconds for seconds, _ in parts) + 600)
    check_cool_down(model)
    assert all(least <= size <= least + more for _, size, _ in model.changes)
    check_bounds(model)


LATE = TierLoad(
    span_s=300.0,
    lag_s=90.0,
    least_lag_s=80.0,
    falls_per_s=-0.2,
    most_lag_s=90.0,
    busy=1.0,
    work=3.6,
    rows_per_s=1500.0,
    late_rows_per_s=2000.0,
    arriving_per_s=2500.0,
    lag_rows=200_000,
)
"""of two executors with two cores each"""
CALM = TierLoad(300.0, 4.0, 1.0, 0.0, 10.0, 1.0, 1.0, 500.0, 500.0, 500.0, 0)


def decided(load: TierLoad | None, executors: int = 2, changed_s: float | None = None) -> tuple[int, str, str]:
    return decide_size(TO_8, executors, 2, load, changed_s=changed_s)


@pytest.mark.parametrize(
    ("load", "executors", "changed_s", "wanted", "verdict", "why"),
    [
        (LATE, 2, None, 4, "grow", "the lag is 1m30s, above 1m00s; an executor reads 1,000 rows/s"),
        (LATE._replace(lag_rows=None), 2, None, 4, "grow", "the lag is 1m30s"),
        (LATE._replace(work=8.0, late_rows_per_s=4000.0, lag_rows=150_000, arriving_per_s=3100.0), 4, None, 5, "grow", "the lag is 1m30s"),
        (LATE._replace(work=15.0), 8, None, 8, "most", "max is 8"),
        (LATE._replace(least_lag_s=59.0), 2, None, 2, "stay", "its size is right"),
        (LATE._replace(falls_per_s=0.5), 2, None, 2, "falls", "and falls below it in 1m00s"),
        (LATE._replace(falls_per_s=0.2), 2, None, 4, "grow", "the lag is 1m30s"),
        (LATE._replace(busy=0.3, work=1.0), 2, None, 2, "most", "the tier works only 30% of the time: a trigger or a limit delays it"),
        (LATE._replace(work=0.9), 2, None, 2, "most", "its executors work only 22% of the time: its Batches have too few tasks"),
        (LATE._replace(work=0.0), 2, None, 4, "grow", "the lag is 1m30s"),
        (LATE, 2, 299.0, 2, "wait", "cool-down: its size was changed less than 5m00s ago"),
        (LATE, 2, 300.0, 4, "grow", "the lag is 1m30s"),
        (CALM, 4, None, 3, "shrink", "the lag was at most 10s in 5m00s; 3 executors would work 17% of the time"),
        (CALM, 2, None, 1, "shrink", "1 executor would work 50% of the time"),
        (CALM, 1, None, 1, "stay", "its size is right"),
        (CALM._replace(work=1.3), 2, None, 2, "stay", "its size is right"),
        (CALM._replace(most_lag_s=31.0), 4, None, 4, "stay", "its size is right"),
        (CALM._replace(span_s=200.0), 4, None, 4, "stay", "its size is right"),
        (CALM, 9, None, 8, "shrink", "max is 8"),
        (None, 9, None, 8, "shrink", "max is 8"),
        (None, 9, 10.0, 9, "wait", "cool-down"),
        (None, 2, None, 2, "wait", "its worker has not worked and reported its lag for 1m00s"),
    ],
)
def test_what_is_decided_and_why(
    load: TierLoad | None, executors: int, changed_s: float | None, wanted: int, verdict: str, why: str
) -> None:
    found = decided(load, executors, changed_s)
    assert found[:2] == (wanted, verdict)
    assert why in found[2]


def sampled(*, run: int = 1, since: float = 0.0, seconds: float = 100.0, lag_s: float | None = 10.0, rows: int = 100) -> LoadHistory:
    history: LoadHistory = ()
    for at in range(int(seconds) + 1):
        sample = LoadSample(since + at, run, rows * at, {"a": 0.5 * at, "b": 0.2 * at}, 3.0 * at, 50, lag_s)
        history = add_sample(history, sample)
    return history


def test_samples_are_summarized() -> None:
    load = tier_load(sampled(), 101.0, LAG_S)
    assert load is not None
    assert (load.span_s, load.lag_s, load.busy, load.work, load.rows_per_s, load.arriving_per_s) == (100.0, 10.0, 0.5, 3.0, 100.0, 100.0)
    by_rows = tier_load(sampled(lag_s=None), 101.0, LAG_S)
    assert by_rows is not None
    assert by_rows.lag_s == 0.5, "50 rows at 100 rows/s"


def test_the_rate_while_it_is_late_is_that_of_its_executors() -> None:
    history: LoadHistory = ()
    for at in range(0, 301, 5):
        late = at > 200
        history = add_sample(history, LoadSample(at, 1, 100 * min(at, 200) + 900 * max(0, at - 200), lag_s=90.0 if late else 1.0))
    load = tier_load(history, 301.0, LAG_S)
    assert load is not None
    assert (round(load.rows_per_s), load.late_rows_per_s) == (367, 900.0)


def test_a_tier_does_not_shrink_to_what_did_not_suffice() -> None:
    for each, wanted in ((0.0, 3), (150.0, 4), (220.0, 3)):
        assert decide_size(TO_8, 4, 2, CALM, each_rows_per_s=each).executors == wanted, "it reads 500 rows/s"


def test_a_history_keeps_what_the_rules_ask_for() -> None:
    history = sampled(seconds=5000)
    assert history[0].at <= history[-1].at - RULES.calm_s < history[1].at
    assert len(history) <= 62


def view(name: str = "a", state: str = "running", **figures: object) -> QueryView:
    return QueryView(name, state, rows_in=10, phases_total_s={"plan": 1.0, "process": 2.0}, batch_s=0.5, tasks_s=4.0, **figures)  # type: ignore[arg-type]


def progress(*queries: QueryView, phase: str = "running") -> TierProgress:
    return TierProgress(flow="f", tier="t", run=3, version=1, at=0.0, phase=phase, queries=queries)


def test_a_report_becomes_a_sample() -> None:
    both = progress(view(lag_rows=5, lag_s=2.0, state_partitions=8), view("b", "waiting", lag_rows=7, lag_s=4.0, state_partitions=4))
    spent = {"a": 3.5, "b": 3.5}
    assert sample_of(both, 9.0) == LoadSample(9.0, 3, 20, spent, 8.0, lag_rows=12, lag_s=4.0, state_partitions=4)
    alone = sample_of(progress(view(state_partitions=1)), 9.0)
    assert alone is not None
    assert (alone.lag_rows, alone.lag_s, alone.state_partitions) == (None, None, None), "a state without keys has one partition"


@pytest.mark.parametrize(
    ("figures", "lag_s"),
    [
        ({"lag_files": 0, "lag_bytes": 0}, 0.0),
        ({"lag_files": 3, "lag_s": 7.0}, 7.0),
        ({"lag_files": 3}, None),
        ({"lag_rows": 0}, 0.0),
        ({}, None),
    ],
)
def test_a_source_without_anything_to_read_has_no_lag(figures: dict[str, float], lag_s: float | None) -> None:
    sample = sample_of(progress(view(**figures)), 0.0)
    assert sample is not None
    assert sample.lag_s == lag_s


@pytest.mark.parametrize("state", ["starting", "paused", "recovering", "stopping", "failed"])
def test_a_tier_that_is_not_at_work_gives_no_sample(state: str) -> None:
    assert sample_of(progress(view(lag_rows=1), view("b", state, lag_rows=1)), 0.0) is None
    assert sample_of(progress(view(lag_rows=1), phase="ended"), 0.0) is None
    assert sample_of(progress(), 0.0) is None


def test_nothing_is_known_of_few_old_or_interrupted_reports() -> None:
    history = sampled()
    assert tier_load((), 0.0, LAG_S) is None
    assert tier_load(sampled(seconds=59), 60.0, LAG_S) is None
    assert tier_load(history, history[-1].at + GAP_S + 1, LAG_S) is None
    assert tier_load(sampled(lag_s=None, rows=0), 101.0, LAG_S) is None, "rows wait, and none is read"
    last = history[-1]
    for sample in (
        replace(last, at=last.at + 5, run=2),
        replace(last, at=last.at + GAP_S + 1),
        replace(last, at=last.at + 5, rows=0),
        replace(last, at=last.at - 5),
    ):
        assert add_sample(history, sample) == (sample,)
    assert add_sample(history, replace(last, at=last.at + 5, lag_s=None, lag_rows=None)) == history
