"""`decide`: from one observation of the world to the actions now. No I/O, no clock of its own; the same world gives the same actions."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from scribengin.control.autoscale import size_actions
from scribengin.control.backpressure import held_back, is_news
from scribengin.control.desired_state import tier_wishes
from scribengin.control.flow_status import held_standing, standing
from scribengin.control.operations import held_wishes, next_of, next_step, wanted_after
from scribengin.control.placement import apart, less_room, load_of
from scribengin.control.quotas import admit, divide
from scribengin.control.standbys import tend_spare
from scribengin.control.worker_lifecycle import back_off_s, orphans, serves, tend
from scribengin.control.world import (
    Allot,
    Ask,
    Hide,
    HoldBack,
    Kill,
    NameGroup,
    Note,
    OperationStep,
    RunId,
    SetAside,
    SetWorkerGoal,
    Show,
    Start,
    Tell,
    UnderWay,
)
from scribengin.core.time_text import moment_text
from scribengin.registry.records import UNDER_WAY, Hosted, Share, is_helper

if TYPE_CHECKING:
    from collections import Counter
    from collections.abc import Collection, Iterator, Mapping

    from scribengin.control.quotas import QuotaAdmission
    from scribengin.control.world import Action, BlockedFlow, FlowSeen, ObservedTier, World
    from scribengin.registry.records import Run


def decide(world: World, only: Collection[str] | None = None) -> list[Action]:
    """The actions that are due now, in the order in which to perform them. In one cycle, no action depends on the outcome of another: the
    next observation shows it.

    Args:
        world: what was observed.
        only: the flows to decide about (`Attention.select`); None: all.
    """
    load, nodes = load_of(world.processes), dict(world.nodes)
    world = replace(world, nodes=nodes)  # with less room after each start
    actions: list[Action] = list(orphans(world))
    left = {(action.run.flow, action.run.tier) for action in actions if isinstance(action, Kill)}
    admission = admit(world)
    shares = divide(world, admission.waits)
    for name, flow in sorted(world.flows.items()):
        share = shares.get(name, Share())
        if share != (flow.share or Share()) and not flow.damaged:
            actions.append(Allot(name, share))
    for name in sorted(world.flows if only is None else only):
        flow = world.flows[name]
        for action in _for_flow(world, flow, load, left, admission):
            actions.append(action)
            if isinstance(action, Start):
                load[action.run.node] += 1
                tier = flow.tiers[action.tier]
                if action.run.node in nodes and not action.spare and _is_new(action.run, tier.run):
                    nodes[action.run.node] = less_room(nodes[action.run.node], tier)
    for name, held in sorted(world.held.items()):
        actions += _for_held(world, name, held)
    for id_, operation in sorted(world.workflows.items()):
        actions += next_of(world, id_, operation)
    return actions


def _shown(world: World, flow: FlowSeen, tiers: Mapping[str, ObservedTier]) -> Iterator[Action]:
    """The actions that show at each node which workers of the flow run there. A node that has never registered has no records of its own
    yet."""
    serving: dict[tuple[str, str], Run] = {}
    for name, tier in tiers.items():
        if (run := tier.run) is not None and run.leased and run.ended_at is None:
            serving[run.node, str(RunId(flow.name, name, run.number))] = run
    for node, worker in sorted(serving.keys() - flow.hosted):
        if node in world.nodes and world.nodes[node].host:
            yield Show(flow.name, node, worker, Hosted(since=moment_text(serving[node, worker].asked_at)))
    for node, worker in sorted(flow.hosted - serving.keys()):
        yield Hide(flow.name, node, worker)


def _for_held(world: World, name: str, held: BlockedFlow) -> Iterator[Action]:
    if held.damaged:
        yield from (SetAside(name, spot) for spot in held.damaged)
    elif (status := held_standing(world, held)) != held.status:
        yield Tell(name, status)


def _for_flow(
    world: World, flow: FlowSeen, load: Counter[str], left: Collection[tuple[str, str]], admission: QuotaAdmission
) -> Iterator[Action]:
    if flow.damaged:  # its other records are read again in the next cycle, when the damaged ones have been moved
        yield from (SetAside(flow.name, spot) for spot in flow.damaged)
        return
    under_way = flow.under_way
    if under_way is not None and (step := next_step(flow, under_way, world.now)) is not None:
        yield OperationStep(flow.name, under_way.id, step)
        if (before := wanted_after(flow, step, world.now)) is not None:
            yield Ask(flow.name, under_way.id, before)
            return  # the next cycle reads the new desired state
        under_way = UnderWay(under_way.id, step) if step.step in UNDER_WAY else None
        flow = replace(flow, under_way=under_way)
    wishes = tier_wishes(flow, world.nodes) if under_way is None else held_wishes(flow, under_way)
    tiers = dict(flow.tiers)
    for name, wish in wishes.items():
        if wish != tiers[name].wish:
            tiers[name] = replace(tiers[name], wish=wish)
            yield SetWorkerGoal(flow.name, name, wish)
    for name in [*wishes, *(name for name in sorted(tiers) if name not in wishes)]:
        for action in tend(world, flow.name, tiers[name], apart(load, tiers, name)):
            # a worker that is being removed must be gone first: the next cycle shows it
            if isinstance(action, Start) and (flow.name, name) in left:
                continue
            if isinstance(action, Start) and _is_new(action.run, tiers[name].run) and not _may_start(flow, tiers[name], admission):
                continue
            yield action
            if isinstance(action, Note | Start):
                tiers[name] = replace(tiers[name], run=action.run)
        for action in tend_spare(world, flow.name, tiers[name], load, back_off_s, serves=serves(tiers[name])):
            if isinstance(action, Start) and (flow.name, name) in left:
                continue
            if isinstance(action, Start) and _is_new(action.run, tiers[name].spare) and not admission.takes_spare(flow, tiers[name]):
                continue
            yield action
    for name, tier in tiers.items():
        if tier.names is not None and tier.report is not None:  # by then, the worker has created its own folder, with its access rights
            yield NameGroup(flow.name, name, tier.names)
    yield from _shown(world, flow, tiers)
    if is_news(flow.held_back, now := held_back(world, flow)):
        flow = replace(flow, held_back=now)
        yield HoldBack(flow.name, now)
    yield from size_actions(world, replace(flow, tiers=tiers))
    # the status that results when this cycle's actions are done, so that it is shown without waiting for the next cycle
    status = standing(world, replace(flow, tiers=tiers), admission.waits.get(flow.name))
    if status != flow.status:
        yield Tell(flow.name, status)


def _may_start(flow: FlowSeen, tier: ObservedTier, admission: QuotaAdmission) -> bool:
    """True if quotas allow the start of a worker that was not ordered yet. For a helper, `admission` decides here."""
    return flow.name not in admission.waits and (not is_helper(tier.tier) or admission.takes_spare(flow, tier))


def _is_new(run: Run, known: Run | None) -> bool:
    """True if the start is of a process that was not ordered yet. A start that was ordered is ordered again, whatever a quota allows by
    now."""
    return known is None or run.number != known.number
