"""The number of executors that a tier with `autoscale` should have, from its lag and from how busy it is. Pure functions.

A tier grows as soon as its lag has been above the bound for a minute and is not about to fall below it: to the size that the measured rate
of an executor asks for, at most to twice the present one. It shrinks by one executor, if it was calm for five minutes and the rest would
still be far from busy. Each change replaces the worker of the tier, which reads nothing meanwhile; therefore nothing is decided for a while
after it, and from figures of the present worker only (docs/decisions/0087-a-tier-grows-by-its-lag-and-shrinks-by-its-load.md).
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from math import ceil, inf
from typing import TYPE_CHECKING, Literal, NamedTuple

from msgspec.structs import replace as replace_fields

from scribengin.control.flow_status import is_up
from scribengin.control.placement import able_nodes
from scribengin.control.quotas import fits, given_to, sum_of, taken_by
from scribengin.control.world import NoteSizes, ScaleTier
from scribengin.core.time_text import moment_text
from scribengin.core.units import show_duration
from scribengin.registry.records import TierSize, TierSizes, is_helper

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from scribengin.control.world import FlowSeen, ObservedTier, World
    from scribengin.local.contract import QueryView
    from scribengin.registry.records import AutoscaleSpec
    from scribengin.watching.progress import TierProgress

SizeVerdict = Literal["grow", "shrink", "stay", "falls", "most", "wait"]
"""as in `registry.records.TierSize`"""


@dataclass(frozen=True, slots=True)
class ScalingRules:
    """The constants of the decision. Another set than the default is for tests, which show what each of them is for."""

    window_s: float = 60.0
    """the lag must be above the bound for so long"""
    calm_s: float = 300.0
    """before a tier shrinks, it must be calm for so long"""
    cool_down_s: float = 300.0
    """the least time between two changes"""
    soon_s: float = 120.0
    """a lag that falls below the bound within this time needs no executors"""
    drain_s: float = 180.0
    """the time in which a grown tier should have read its backlog"""
    busy: float = 0.7
    """the least share of time in which a tier that grows works on Batches; else something other than its work delays it"""
    grow_load: float = 0.25
    """the least share of their time in which the executors of a tier that grows work; else it lacks something other than executors. Low,
    since not all of the work of a task is measured (`QueryView.tasks_s`)"""
    target_load: float = 0.75
    """the share of its rate to which an executor is planned"""
    shrink_load: float = 0.6
    """a tier shrinks only if the executors that stay would work less than this share of their time"""
    shrink_rate: float = 0.8
    """and only if they could read what arrives with this share of the rate that an executor had when the tier last grew"""
    calm_lag: float = 0.5
    """a tier is calm while its lag is below this share of the bound"""


RULES = ScalingRules()
SAMPLE_S = 5.0
"""the least time between two samples"""
GAP_S = 30.0
"""two samples farther apart do not belong together: the reports between them are missing"""


@dataclass(frozen=True, slots=True)
class LoadSample:
    """The figures of a tier at one time, from a report of its worker. Counts are since the start of the process."""

    at: float
    """seconds since the epoch, by the master's clock"""
    run: int
    """the number of the worker"""
    rows: int
    """rows read"""
    busy_s: Mapping[str, float] = field(default_factory=dict)
    """query → seconds in which it worked on a Batch, the current one included"""
    work_s: float = 0.0
    """seconds that tasks worked, summed over all that ran at the same time"""
    lag_rows: int | None = None
    """rows that wait; None if they cannot be counted"""
    lag_s: float | None = None
    """age of the oldest waiting row; None if it is not known"""
    state_partitions: int | None = None
    """the fewest partitions of the state of one of its queries; None if none keeps state that can be distributed"""


LoadHistory = tuple[LoadSample, ...]
"""samples of one worker, oldest first, without a gap"""


def add_sample(history: LoadHistory, sample: LoadSample, rules: ScalingRules = RULES) -> LoadHistory:
    """The history with a further sample. It starts from the beginning with another worker, and after a gap. A sample that is too
    close to the one before, or does not know the lag, is left out."""
    if sample.lag_rows is None and sample.lag_s is None:
        return history
    if history:
        last = history[-1]
        if sample.run == last.run and 0 <= sample.at - last.at < SAMPLE_S:
            return history
        if sample.run != last.run or sample.rows < last.rows or not 0 <= sample.at - last.at <= GAP_S:
            history = ()
    since = sample.at - max(rules.calm_s, rules.window_s)
    # the newest sample before the span is kept, so that the history covers it
    first = max((at for at, each in enumerate(history) if each.at <= since), default=0)
    return (*history[first:], sample)


class TierLoad(NamedTuple):
    """What the samples of a tier's worker show."""

    span_s: float
    """the time that they cover"""
    lag_s: float
    """the time for which the oldest waiting row has waited, or will have waited when it is read"""
    least_lag_s: float
    """the smallest lag of the last minute"""
    falls_per_s: float
    """by how much the lag falls in a second; negative: it grows"""
    most_lag_s: float
    """the largest lag of the span"""
    busy: float
    """share of time in which it worked on Batches, of the query that worked most"""
    work: float
    """number of tasks that worked at the same time, on average"""
    rows_per_s: float
    """rows read"""
    late_rows_per_s: float
    """rows read since the tier was last calm, at the full speed of its executors"""
    arriving_per_s: float | None
    """rows that arrived; None if they cannot be counted"""
    lag_rows: int | None = None
    state_partitions: int | None = None


def tier_load(history: LoadHistory, now: float, bound_s: float, rules: ScalingRules = RULES) -> TierLoad | None:
    """Summarize the samples of a tier.

    Args:
        history: its samples.
        now: the time, in seconds since the epoch, by the master's clock.
        bound_s: the `lag` of its `autoscale`.
        rules: the constants.

    Returns:
        The summary; None if the samples are too few or too old, or if the lag is not known.
    """
    if len(history) < 2 or now - history[-1].at > GAP_S or history[-1].at - history[0].at < rules.window_s:
        return None
    first, last = history[0], history[-1]
    span_s = last.at - first.at
    rate = (last.rows - first.rows) / span_s
    lags = [lag for each in history if (lag := _lag_s(each, rate)) is not None]
    if len(lags) < len(history):
        return None
    begin = max(at for at, each in enumerate(history) if each.at <= last.at - rules.window_s)
    recent = history[begin]
    since_s = last.at - recent.at
    late = history[max((at for at, lag in enumerate(lags) if lag <= rules.calm_lag * bound_s), default=0)]
    arriving = None
    if recent.lag_rows is not None and last.lag_rows is not None and since_s:
        arriving = max(0.0, (last.rows + last.lag_rows - recent.rows - recent.lag_rows) / since_s)
    busy = max((spent_s - first.busy_s.get(name, 0.0) for name, spent_s in last.busy_s.items()), default=0.0) / span_s
    return TierLoad(
        span_s=span_s,
        lag_s=lags[-1],
        least_lag_s=min(lags[begin:]),
        falls_per_s=(lags[begin] - lags[-1]) / since_s if since_s else 0.0,
        most_lag_s=max(lags),
        busy=min(1.0, max(0.0, busy)),
        work=max(0.0, last.work_s - first.work_s) / span_s,
        rows_per_s=rate,
        late_rows_per_s=(last.rows - late.rows) / (last.at - late.at) if last.at - late.at >= rules.window_s else rate,
        arriving_per_s=arriving,
        lag_rows=last.lag_rows,
        state_partitions=last.state_partitions,
    )


def _lag_s(sample: LoadSample, rows_per_s: float) -> float | None:
    """The age of the oldest waiting row, else the time in which the waiting rows are read; None if neither is known."""
    if sample.lag_rows == 0:
        return 0.0
    if sample.lag_s is not None:
        return sample.lag_s
    return sample.lag_rows / rows_per_s if sample.lag_rows is not None and rows_per_s > 0 else None


class SizeDecision(NamedTuple):
    """The number of executors that a tier should have; the present one if nothing is to be changed. `why`: for people."""

    executors: int
    verdict: SizeVerdict
    why: str
    partitions: int = 0
    """the number of partitions over which the state of its queries must be distributed first; 0: it stays as it is"""
    each_rows_per_s: float = 0.0
    """the rate of an executor that did not suffice; 0 if the tier does not grow"""


def decide_size(
    settings: AutoscaleSpec,
    executors: int,
    cores: int,
    load: TierLoad | None,
    *,
    changed_s: float | None = None,
    each_rows_per_s: float = 0.0,
    rules: ScalingRules = RULES,
) -> SizeDecision:
    """Decide the size of a tier that runs and that nothing holds back.

    Args:
        settings: its `autoscale`.
        executors: the present number of executors.
        cores: cores of each.
        load: what its worker has reported; None if that is too little.
        changed_s: seconds since autoscale last changed the size; None if it never did.
        each_rows_per_s: the rate of an executor when the tier last grew; 0: unknown.
        rules: the constants.
    """
    if changed_s is not None and changed_s < rules.cool_down_s:
        return _stays(executors, "wait", f"cool-down: its size was changed less than {show_duration(rules.cool_down_s)} ago")
    if executors < settings.min:
        return SizeDecision(settings.min, "grow", f"min is {settings.min}")
    if executors > settings.max:
        return SizeDecision(settings.max, "shrink", f"max is {settings.max}")
    if load is None:
        return _stays(executors, "wait", f"its worker has not worked and reported its lag for {show_duration(rules.window_s)}")
    # a worker of an earlier release does not report the work of its tasks
    used = load.work / (executors * cores) if load.work else load.busy
    if load.least_lag_s > settings.lag_s:
        return _grown(settings, executors, used, load, rules)
    # executors that would have to be as fast as they were when they did not suffice are kept
    most = executors - 1 if not each_rows_per_s else ceil(load.rows_per_s / (rules.shrink_rate * each_rows_per_s))
    return _stays(executors, "stay", "its size is right") if most >= executors else _shrunk(settings, executors, used, load, rules)


def _stays(executors: int, verdict: SizeVerdict, why: str) -> SizeDecision:
    return SizeDecision(executors, verdict, why)


def _grown(settings: AutoscaleSpec, executors: int, used: float, load: TierLoad, rules: ScalingRules) -> SizeDecision:
    """The decision for a tier whose lag is above the bound."""
    over_s = load.lag_s - settings.lag_s
    lag = f"the lag is {show_duration(load.lag_s)}, above {show_duration(settings.lag_s)}"
    if load.falls_per_s > 0 and over_s / load.falls_per_s <= rules.soon_s:
        return _stays(executors, "falls", f"{lag}, and falls below it in {show_duration(max(1.0, over_s / load.falls_per_s))}")
    if load.busy < rules.busy:
        return _stays(executors, "most", f"{lag}, but the tier works only {load.busy:.0%} of the time: a trigger or a limit delays it")
    if used < rules.grow_load:
        return _stays(executors, "most", f"{lag}, but its executors work only {used:.0%} of the time: its Batches have too few tasks")
    if executors >= settings.max:
        return _stays(executors, "most", f"{lag}; max is {settings.max}")
    wanted = min(settings.max, max(executors + 1, ceil(min(2.0 * executors, _needed(settings, executors, load, rules)))))
    each = load.late_rows_per_s / executors
    return SizeDecision(wanted, "grow", f"{lag}; an executor reads {each:,.0f} rows/s", each_rows_per_s=each)


def _needed(settings: AutoscaleSpec, executors: int, load: TierLoad, rules: ScalingRules) -> float:
    """The number of executors that read what arrives, and the backlog beyond the bound within `drain_s`. Infinite if the rows that wait
    cannot be counted: then it doubles."""
    if load.arriving_per_s is None or load.lag_rows is None or not load.late_rows_per_s:
        return inf
    each = load.late_rows_per_s / executors
    late_rows = max(0.0, load.lag_rows - load.arriving_per_s * settings.lag_s)
    return (load.arriving_per_s / rules.target_load + late_rows / rules.drain_s) / each


def _shrunk(settings: AutoscaleSpec, executors: int, used: float, load: TierLoad, rules: ScalingRules) -> SizeDecision:
    """The decision for a tier whose lag is not above the bound."""
    fewer = executors - 1
    calm = load.span_s >= rules.calm_s and load.most_lag_s <= rules.calm_lag * settings.lag_s
    if fewer < settings.min or not calm or used * executors >= rules.shrink_load * fewer:
        return _stays(executors, "stay", "its size is right")
    then = f"{fewer} executor{'s' * (fewer > 1)} would work {used * executors / fewer:.0%} of the time"
    return SizeDecision(fewer, "shrink", f"the lag was at most {show_duration(load.most_lag_s)} in {show_duration(rules.calm_s)}; {then}")


# What a master does about it.


_AT_WORK = ("running", "waiting")
"""states of a query whose figures say how much work there is"""
_RATE_S = 86_400.0
"""seconds after the last change of the size for which the rate of an executor is remembered"""
_KEPT_S = 60.0
"""seconds for which a proposed number of executors stays as it was written: the rates behind it always change a little"""


def sample_of(progress: TierProgress, at: float) -> LoadSample | None:
    """The sample in a worker's report; None if one of its queries is not at work, for example because a channel is full.

    Args:
        progress: the report.
        at: the time, in seconds since the epoch, by the master's clock.
    """
    queries = progress.queries
    if progress.phase != "running" or not queries or any(query.state not in _AT_WORK for query in queries):
        return None
    rows = [query.lag_rows for query in queries]
    ages = [age_s for query in queries if (age_s := _oldest_s(query)) is not None]
    return LoadSample(
        at=at,
        run=progress.run,
        rows=sum(query.rows_in for query in queries),
        busy_s={query.name: sum(query.phases_total_s.values()) + query.batch_s for query in queries},
        work_s=sum(query.tasks_s for query in queries),
        lag_rows=sum(each for each in rows if each is not None) if None not in rows else None,
        lag_s=max(ages, default=None),
        # a single partition may be that of an aggregate without keys, of which no more can be made
        state_partitions=min((parts for query in queries if (parts := query.state_partitions or 0) > 1), default=None),
    )


def _oldest_s(query: QueryView) -> float | None:
    """The age of the oldest row that waits; 0 if none waits, None if it is not known."""
    if query.lag_s is not None:
        return query.lag_s
    return 0.0 if 0 in (query.lag_rows, query.lag_files, query.lag_bytes) else None


def size_actions(world: World, flow: FlowSeen) -> Iterator[NoteSizes | ScaleTier]:
    """The actions about the sizes of a flow's tiers with `autoscale`: at most one tier gets another number of executors, and what is
    thought of the sizes is written if it has changed."""
    sizes = {}
    scaled: ScaleTier | None = None
    for name, tier in sorted(flow.tiers.items()):
        settings = tier.autoscale
        if settings is None or is_helper(name) or (flow.wanted_tiers is not None and name not in flow.wanted_tiers):
            continue
        before = None if flow.sizes is None else flow.sizes.tiers.get(name)
        decision = _decision(world, flow, tier, settings, before)
        if settings.mode == "act" and scaled is None and decision.executors != tier.executors:
            sizes[name] = _changed(world.now, tier, decision, before)
            scaled = ScaleTier(flow.name, name, flow.wish.version, decision.executors, sizes[name].change, TierSizes(), decision.partitions)
        else:
            sizes[name] = _noted(world.now, tier, decision, before)
    if scaled is not None:
        yield replace(scaled, sizes=TierSizes(tiers=sizes))
    elif sizes and (flow.sizes is None or sizes != flow.sizes.tiers):
        yield NoteSizes(flow.name, TierSizes(tiers=sizes))


def _changed(now: float, tier: ObservedTier, decision: SizeDecision, before: TierSize | None) -> TierSize:
    """The record with which a change is made."""
    return replace_fields(
        _size(now, tier, decision, before),
        changed_at=now,
        change=f"from {tier.executors} to {decision.executors}: {decision.why}",
        each_rows_per_s=decision.each_rows_per_s or _known_rate(before, now),
    )


def _known_rate(before: TierSize | None, now: float) -> float:
    """The rate of an executor when the tier last grew; 0 if it is not known, or if the size has not changed for so long that the rows or
    the code may be others now."""
    if before is None or before.changed_at is None or now - before.changed_at > _RATE_S:
        return 0.0
    return before.each_rows_per_s


def _noted(now: float, tier: ObservedTier, decision: SizeDecision, before: TierSize | None) -> TierSize:
    """The record of what is thought now; the one before if that is nearly the same."""
    if before is not None and (before.verdict, before.present) == (decision.verdict, tier.executors):
        kept = before.why == decision.why if decision.verdict == "wait" else before.executors == decision.executors
        if kept or (decision.verdict != "wait" and moment_text(now - _KEPT_S) < before.since):
            return before
    return _size(now, tier, decision, before)


def _size(now: float, tier: ObservedTier, decision: SizeDecision, before: TierSize | None) -> TierSize:
    """The record of a decision, with the last change of the record before."""
    return TierSize(
        executors=decision.executors,
        present=tier.executors,
        verdict=decision.verdict,
        why=decision.why,
        since=moment_text(now),
        changed_at=None if before is None else before.changed_at,
        change="" if before is None else before.change,
        each_rows_per_s=0.0 if before is None else before.each_rows_per_s,
    )


def _decision(world: World, flow: FlowSeen, tier: ObservedTier, settings: AutoscaleSpec, before: TierSize | None) -> SizeDecision:
    if why := _why_undecided(world, flow, tier):
        return _stays(tier.executors, "wait", why)
    changed_s = None if before is None or before.changed_at is None else max(0.0, world.now - before.changed_at)
    load = world.loads.get((flow.name, tier.tier))
    each = _known_rate(before, world.now)
    decision = decide_size(settings, tier.executors, tier.cores, load, changed_s=changed_s, each_rows_per_s=each)
    return _with_partitions(_within_quotas(world, flow, tier, decision), settings, tier.cores, load)


def _why_undecided(world: World, flow: FlowSeen, tier: ObservedTier) -> str:
    """Why no size is decided for the tier now, for people; empty if there is no reason."""
    nodes = [world.nodes[name] for name in able_nodes(world.nodes, tier)]
    if nodes and all(node.host and not node.executors for node in nodes):
        return "Spark runs inside the worker on every node that may take it, so it cannot have executors"
    if flow.under_way is not None:
        return f"operation {flow.under_way.id} is under way"
    if flow.wish.goal != "running":
        return f"the flow is wanted {flow.wish.goal}"
    if not is_up(tier, flow):
        return "its worker is not running"
    if tier.report is not None and tier.report.state != "running":
        return f"its worker is {tier.report.state}"
    if flow.limited:
        return f"the rate of the flow is limited; see: scribengin limit {flow.name}"
    if flow.held_back is not None and flow.held_back.sinks:
        return "downstream flows throttle the flow"
    return ""


def _with_partitions(decision: SizeDecision, settings: AutoscaleSpec, cores: int, load: TierLoad | None) -> SizeDecision:
    """The decision with the number of partitions of the state, if there are fewer than the tier could then run tasks. They suffice for the
    most executors, so that this is needed once."""
    partitions = None if load is None else load.state_partitions
    if decision.verdict != "grow" or partitions is None or partitions >= decision.executors * cores:
        return decision
    enough = settings.max * cores
    why = f"{decision.why}; its state is distributed over {enough} partitions instead of {partitions}"
    return decision._replace(partitions=enough, why=why)


def _within_quotas(world: World, flow: FlowSeen, tier: ObservedTier, decision: SizeDecision) -> SizeDecision:
    """The decision with as many executors as the quotas of the flow allow: a worker that needs more would wait for them."""
    quotas = {name: each for name, each in world.quotas.items() if each.covers(flow.labels)}
    if decision.verdict != "grow" or not quotas:
        return decision
    for name, quota in quotas.items():
        others = [other for other in world.flows.values() if other.name != flow.name and quota.covers(other.labels)]
        own = [each for each in flow.tiers.values() if each.tier != tier.tier]
        used = sum_of([*(taken_by(other) for other in others), taken_by(replace(flow, tiers={each.tier: each for each in own}))])
        allowed = [
            executors
            for executors in range(decision.executors, tier.executors, -1)
            if not quota.closed and fits(quota, used.plus(given_to(replace(tier, executors=executors))))
        ]
        if not allowed:
            return _stays(tier.executors, "most", f"{decision.why}; quota {name} allows no more executors")
        decision = decision._replace(executors=allowed[0])
    return decision
