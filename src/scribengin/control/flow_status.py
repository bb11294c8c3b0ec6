"""The status of a flow: its state, the reason and the next action."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from scribengin.control.backpressure import held_text
from scribengin.control.desired_state import at_rest, is_old
from scribengin.control.operations import standing_of
from scribengin.control.placement import choose_node, no_node_reason, where_it_may
from scribengin.control.worker_lifecycle import back_off_s, needs_worker
from scribengin.control.world import AWAY, TAKEN_BACK, RunId
from scribengin.core.remedies import flow_command, for_flow
from scribengin.core.time_text import moment_text
from scribengin.core.units import show_duration
from scribengin.registry.records import StatusRecord, is_helper, tier_of
from scribengin.watching.producer_signal import BEHIND

if TYPE_CHECKING:
    from scribengin.control.quotas import QuotaWait
    from scribengin.control.world import BlockedFlow, FlowSeen, ObservedTier, World
    from scribengin.registry.records import FlowState


CAUGHT_UP_SHARE = 0.9
"""share of `max_delay`: a flow that is behind stays so until its delay is below this, so that its state does not flicker"""
_UNDER_WAY: dict[str, FlowState] = {"paused": "pausing", "drained": "draining", "stopped": "stopping"}


def standing(world: World, flow: FlowSeen, wait: QuotaWait | None = None) -> StatusRecord:
    """The flow's status now. `since` is now if its state is new, else unchanged. `wait`: why quotas do not let it start; None if they
    do."""
    state, reason, next_action = _state(world, flow, wait)
    before = flow.status
    since = before.since if before is not None and before.state == state else moment_text(world.now)
    return StatusRecord(
        state=state,
        since=since,
        reason=reason,
        next=next_action,
        version=flow.wish.version,
        generation=flow.wish.generation,
        goal=flow.wish.goal,
        operation=flow.wish.operation,
        refused=flow.refused,
    )


def held_standing(world: World, held: BlockedFlow) -> StatusRecord:
    """The status of a flow with unreadable records. Its last desired state stays in force."""
    before = held.status or StatusRecord(state="created")
    if held.is_new:
        since = before.since or moment_text(world.now)
        return StatusRecord(state="created", since=since, reason=held.why, next=held.next, refused=held.refused)
    since = before.since if before.state == "degraded" else moment_text(world.now)
    reason = f"the flow is left unchanged: {held.why}"
    return replace(before, state="degraded", since=since, reason=reason, next=held.next, refused=held.refused)


def _state(world: World, flow: FlowSeen, wait: QuotaWait | None) -> tuple[FlowState, str, str]:
    if flow.under_way is not None:
        state, how, then = standing_of(flow, flow.under_way)
        return (state, how, then) if wait is None else (state, f"{how}; {wait.reason}", wait.next)
    wanted = [flow.tiers[name] for name in sorted(flow.tiers) if flow.wanted_tiers is None or name in flow.wanted_tiers]
    tiers = [tier for tier in wanted if not is_helper(tier.tier)]
    failed = [tier for tier in tiers if _waits_for_a_person(tier)]
    if failed:
        what, remedy = _failure(failed[0]), _remedy(flow, failed[0])
        return ("failed" if len(failed) == len(tiers) else "degraded"), what, remedy
    if flow.wish.goal == "running":
        if wait is not None:
            return "starting", wait.reason, wait.next
        return _running(world, flow, tiers, [tier for tier in wanted if is_helper(tier.tier)])
    if all(_reached(tier, flow) for tier in flow.tiers.values()):
        done: FlowState = "paused" if flow.wish.goal == "paused" else "stopped"
        return done, "drained" if flow.wish.goal == "drained" else "", f"scribengin resume {flow.name}"
    lost = _lost(world, flow, tiers)
    if lost is not None and flow.wish.goal == "drained":
        return "recovering", *lost
    waiting = [name for name, tier in sorted(flow.tiers.items()) if not _reached(tier, flow)]
    return _UNDER_WAY[flow.wish.goal], f"waits for {', '.join(waiting)}", ""


def _running(world: World, flow: FlowSeen, tiers: list[ObservedTier], helpers: list[ObservedTier]) -> tuple[FlowState, str, str]:
    if (lost := _lost(world, flow, tiers)) is not None:
        return "recovering", *lost
    old = [name for name, tier in sorted(flow.tiers.items()) if is_old(flow, name) and not at_rest(tier)]
    if old:
        return "starting", f"version {flow.wish.version} starts when {', '.join(old)} of the old version has ended", ""
    coming = [tier for tier in tiers if not is_up(tier, flow)]
    if coming:
        nowhere = [tier for tier in coming if _is_down(tier) and choose_node(world.nodes, tier, {}) is None]
        for tier in nowhere:
            if (bound := no_node_reason(world.nodes, flow.name, tier)) is not None:
                return "starting", *bound
        if nowhere:
            names = ", ".join(tier.tier for tier in nowhere)
            return "starting", f"no available node has room for {names}", "start one: scribengin server node --registry ADDRESS"
        again = flow.status is not None and flow.status.state in ("recovering", "degraded")
        again = again or any(tier.run is not None and tier.run.failures and _is_of(tier, flow) for tier in coming)
        names = " and ".join(tier.tier for tier in coming)
        hindrance, remedy = next(filter(None, (_hindrance(world, flow, tier) for tier in coming)), ("", ""))
        text = f"{names} {'is' if len(coming) == 1 else 'are'} starting" + (f"; {hindrance}" if hindrance else "")
        return ("recovering" if again else "starting"), text, remedy
    for tier in tiers:
        if tier.report is not None and tier.report.state == "degraded":
            return "degraded", f"tier {tier.tier}: {tier.report.cause}", f"fix the cause; then: scribengin resume {flow.name}"
    for tier in tiers:
        if tier.report is not None and tier.report.state == "recovering":
            return "recovering", f"tier {tier.tier}: {tier.report.cause}", "it continues automatically"
    if (lacking := _agents(world, flow)) is not None:
        return "degraded", *lacking
    if (reason := _behind(world, flow)) is not None:
        return "degraded", reason, f"the flow continues; intake asks producers to wait; see: scribengin top {flow.name}"
    if causes := [f"tier {tier.tier}: {tier.report.cause}" for tier in tiers if tier.report is not None and tier.report.cause]:
        return "running", causes[0], for_flow(f"see: {flow_command('dead-letter list')}", flow.name)
    if flow.held_back is not None and (why := held_text(world, flow.held_back)):
        return "running", why, f"it continues automatically; see: scribengin graph {flow.name}"
    return ("running", *_lacking(world, flow, helpers)) if helpers else ("running", "", "")


def _lacking(world: World, flow: FlowSeen, helpers: list[ObservedTier]) -> tuple[str, str]:
    """(reason, next action) if a tier has fewer workers than it should; the running ones do all the work."""
    away = [helper for helper in helpers if not is_up(helper, flow)]
    if not away:
        return "", ""
    first, tier = away[0], tier_of(away[0].tier)
    of_tier = [helper for helper in helpers if tier_of(helper.tier) == tier]
    there = 1 + sum(is_up(helper, flow) for helper in of_tier)
    said = f"tier {tier}: {there} of {1 + len(of_tier)} workers are running"
    if _waits_for_a_person(first):
        return f"{said}; {first.tier}: {first.run.cause if first.run else ''}", _remedy(flow, first)
    nowhere = _is_down(first) and choose_node(world.nodes, first, {}) is None
    if nowhere and first.node in world.nodes:
        fewer = f"scribengin scale {flow.name}.{tier} --workers N"
        return f"{said}; node {first.node} has no room for {first.tier}", f"free resources there, or reduce the workers: {fewer}"
    if nowhere and not first.node:
        return (
            f"{said}; no node has room for {first.tier}",
            f"start a node, or reduce the workers: scribengin scale {flow.name}.{tier} --workers N",
        )
    if first.run is not None and first.run.cause:
        return f"{said}; {first.tier}: {first.run.cause}", "it restarts automatically"
    return f"{said}; {first.tier} is not running yet", ""


def _agents(world: World, flow: FlowSeen) -> tuple[str, str] | None:
    """(reason, next action) if agents do not report, or could not run the version; None if nothing is wrong. A new leader keeps what was
    said until it knows better."""
    standing, before = world.agents.get(flow.name), flow.status
    if standing is not None:
        return (standing.reason, standing.next) if standing.reason else None
    if flow.agents and before is not None and before.state == "degraded" and before.reason.startswith((AWAY, TAKEN_BACK)):
        return before.reason, before.next
    return None


def _behind(world: World, flow: FlowSeen) -> str | None:
    """Why the flow is beyond its `max_delay`; None if it is not. The reason stays as it was when the flow fell behind, and missing reports
    change nothing: a status is written when a state changes."""
    most_s, delay = flow.watched.max_delay_s, world.delays.get(flow.name)
    if most_s is None:
        return None
    before = flow.status
    was = before.reason if before is not None and before.state == "degraded" and before.reason.startswith(BEHIND) else None
    if delay is None:
        return was
    if was is not None:
        return was if delay.seconds > CAUGHT_UP_SHARE * most_s else None
    if delay.seconds <= most_s:
        return None
    cause = f"; {delay.cause}" if delay.cause else ""
    return f"{BEHIND}the oldest waiting entry is {show_duration(delay.seconds)} old, max_delay is {show_duration(most_s)}{cause}"


def _lost(world: World, flow: FlowSeen, tiers: list[ObservedTier]) -> tuple[str, str] | None:
    """(reason, next action) of the first tier whose worker was lost and is not replaced yet."""
    for tier in tiers:
        wish, run = tier.wish, tier.run
        if run is None or wish is None or not needs_worker(tier):
            continue
        if run.ended_at is not None and run.failures and run.generation == wish.generation:
            again = f" ({run.failures} failures in a row without progress)" if run.failures > 1 else ""
            if choose_node(world.nodes, tier, {}) is None:
                return f"tier {tier.tier}: {run.cause}", f"restarts when {where_it_may(flow.name, tier)}"
            wait_s = back_off_s(run.failures)
            at = f"restarts at {moment_text(run.ended_at + wait_s)}, {wait_s:.0f} s after its end"
            return f"tier {tier.tier}: {run.cause}{again}", at if wait_s else "restarts immediately"
        if run.ended_at is None and run.leased and run.unleased_since is not None:
            return f"tier {tier.tier}: its worker does not hold its lease", "it must regain the lease, or it is replaced"
    return None


def _waits_for_a_person(tier: ObservedTier) -> bool:
    run, wish = tier.run, tier.wish
    return run is not None and run.ended_at is not None and run.permanent and wish is not None and run.generation == wish.generation


def _failure(tier: ObservedTier) -> str:
    return f"tier {tier.tier}: {tier.run.cause if tier.run else ''}"


def _remedy(flow: FlowSeen, tier: ObservedTier) -> str:
    said = f"{tier.run.remedy}; then: " if tier.run is not None and tier.run.remedy else ""
    return f"{said}scribengin resume {flow.name}"


def _is_of(tier: ObservedTier, flow: FlowSeen) -> bool:
    """True if the tier's run is of the flow's present desired state, not of an earlier one."""
    return tier.run is not None and tier.run.generation == flow.wish.generation


def _hindrance(world: World, flow: FlowSeen, tier: ObservedTier) -> tuple[str, str] | None:
    """(reason, next action) if the launcher of a tier's worker reports why it does not start yet."""
    if tier.run is None:
        return None
    id_ = RunId(flow.name, tier.tier, tier.run.number)
    process = world.processes.get(id_)
    if process is None or process.ended or not process.reason:
        return None
    reason, _, remedy = process.reason.partition("; ")
    return f"worker {id_}: {reason}", remedy


def _is_down(tier: ObservedTier) -> bool:
    return tier.run is None or tier.run.ended_at is not None


def is_up(tier: ObservedTier, flow: FlowSeen) -> bool:
    """True if the tier's worker holds the lease and reports that it runs in the desired state."""
    run, report = tier.run, tier.report
    return (
        run is not None
        and report is not None
        and run.ended_at is None
        and tier.lease is not None
        and (tier.lease.run, report.run, report.generation) == (run.number, run.number, flow.wish.generation)
        and report.state in ("running", "recovering", "degraded")
    )


def _reached(tier: ObservedTier, flow: FlowSeen) -> bool:
    """True if the tier has reached the flow's goal, which is not `running`."""
    if flow.wish.goal == "paused" and not _is_down(tier):
        report = tier.report
        return report is not None and report.state == "paused" and report.generation == flow.wish.generation
    return _is_down(tier) and tier.lease is None and not needs_worker(tier)
