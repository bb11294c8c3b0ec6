"""What is checked at every pass of the simulated master: no action is undone by the next pass, and a lost host's workers start elsewhere.

A pass observes, decides and acts once. Two passes are compared only if nothing happened between them that no master has caused: a crash, a
loss, a wish of a person. What hosts and workers do because they were told to is no such event. But a record that only shows what workers
do follows the workers: it is undone only if they did nothing in between, and no other one was started.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from scribengin.control.worker_lifecycle import REGAIN_S
from scribengin.control.world import (
    Action,
    Allot,
    Ask,
    Hide,
    HoldBack,
    Kill,
    Note,
    OperationStep,
    RunId,
    SetWorkerGoal,
    Show,
    Start,
    Tell,
    World,
    flow_of,
    said_of,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Hashable, Mapping, Sequence

    from scribengin.registry.records import Run

LOST_HOST_PASSES = 3
"""the most passes after which all workers of a lost host are started elsewhere: the first sees the loss, the second is the first one after
the time in which a worker may regain its lease (`REGAIN_S`), the third follows it"""


@dataclass(frozen=True, slots=True)
class Missed:
    """A bar that was missed: when, by the simulation's clock, and what happened."""

    at_s: float
    bar: str
    what: str


@dataclass(frozen=True, slots=True)
class _Change:
    """What a pass changed under one key."""

    action: Action
    before: Hashable
    after: Hashable


class UndoneActions:
    """Finds actions that the next pass undoes.

    An action is undone if the next pass writes the value back that it has replaced, kills a worker that it has started, gives it up, or
    starts another one in its place.
    """

    def __init__(self) -> None:
        self.followed = 0
        """how often a shown value came back because a worker had done something in between, or another one was started"""
        self._world = World(0.0)
        self._changes: dict[Hashable, _Change] = {}
        self._starts: dict[RunId, Start] = {}

    def see(self, world: World, actions: Sequence[Action], disturbed: Callable[[str], bool]) -> list[Missed]:
        """Compare a pass with the one before.

        Args:
            world: what it observed.
            actions: what it decided.
            disturbed: True for a flow to which something has happened since the pass before that no master has caused.
        """
        changes: dict[Hashable, _Change] = {}
        starts: dict[RunId, Start] = {}
        found: list[Missed] = []
        begun = {action.flow for action in actions if isinstance(action, Start)}

        def undone(first: Action, then: Action) -> None:
            if not disturbed(flow_of(then)):
                what = f"{flow_of(then)}: {said_of(first)}; in the next pass {said_of(then)}"
                found.append(Missed(world.now, "no action is undone by the next pass", what))

        for action in actions:
            if (run := _removed(action, world)) is not None and run in self._starts:
                undone(self._starts[run], action)
            if isinstance(action, Start):
                id_ = RunId(action.flow, action.tier, action.run.number)
                starts[id_] = action
                for other, first in self._starts.items():
                    if other[:2] == id_[:2] and other != id_ and first.spare == action.spare:
                        undone(first, action)
            if (change := _change(world, action)) is None:
                continue
            key, before, after = change
            first_here = changes.get(key)
            changes[key] = _Change(action, before if first_here is None else first_here.before, after)
            last = self._changes.get(key)
            if last is not None and after == last.before != last.after:
                flow = flow_of(action)
                shows = isinstance(action, Tell | Note | Show | Hide)
                if shows and (flow in begun or not _same_workers(self._world, world, flow)):
                    self.followed += 1
                else:
                    undone(last.action, action)
        self._changes, self._starts, self._world = changes, starts, world
        return found


def _same_workers(before: World, now: World, flow: str) -> bool:
    """True if the workers of a flow have reported nothing, and neither their leases nor their processes have changed."""
    tiers, others = (
        {name: (tier.report, tier.lease, tier.run) for name, tier in world.flows[flow].tiers.items()} for world in (before, now)
    )
    if {name: tier[:2] for name, tier in tiers.items()} != {name: tier[:2] for name, tier in others.items()}:
        return False
    runs = {RunId(flow, name, run.number) for each in (tiers, others) for name, (_, _, run) in each.items() if run is not None}
    return all(before.processes.get(id_) == now.processes.get(id_) for id_ in runs)


def _removed(action: Action, world: World) -> RunId | None:
    """The run that an action ends although its process is not known to have ended."""
    if isinstance(action, Kill):
        return action.run
    if not isinstance(action, Note) or action.run.ended_at is None:
        return None
    id_ = RunId(action.flow, action.tier, action.run.number)
    process = world.processes.get(id_)
    return None if process is not None and process.ended else id_


def _change(world: World, action: Action) -> tuple[Hashable, Hashable, Hashable] | None:
    """(what it changes, its value before, its value after), as far as they have a meaning: without times and texts. None for an action that
    changes no record."""
    flow = world.flows.get(flow_of(action))
    if flow is None:
        return None
    kind = type(action).__name__
    match action:
        case SetWorkerGoal(_, tier, wish):
            was = flow.tiers[tier].wish
            return (kind, flow.name, tier), None if was is None else (was.version, was.goal, was.task), (wish.version, wish.goal, wish.task)
        case Start(_, tier, run, spare) | Note(_, tier, run, spare):
            there = flow.tiers[tier].spare if spare else flow.tiers[tier].run
            return ("run", flow.name, tier, spare), _run(there), _run(run)
        case Tell(_, status):
            told = flow.status
            before = None if told is None else (told.state, told.reason, told.version)
            return (kind, flow.name), before, (status.state, status.reason, status.version)
        case OperationStep(_, id_, operation):
            return (kind, flow.name, id_), None if flow.under_way is None else flow.under_way.operation.step, operation.step
        case Ask(_, _, wanted):
            return (kind, flow.name), (flow.wish.goal, flow.wish.version), (wanted.state, wanted.version)
        case HoldBack(_, held_back):
            return (kind, flow.name), frozenset(() if flow.held_back is None else flow.held_back.sinks), frozenset(held_back.sinks)
        case Allot(_, share):
            return (
                (kind, flow.name),
                None if flow.share is None else (flow.share.quota, flow.share.rows_per_s),
                (share.quota, share.rows_per_s),
            )
        case Show(_, node, worker):
            return ("shown", node, worker), False, True
        case Hide(_, node, worker):
            return ("shown", node, worker), True, False
        case _:
            return None


def _run(run: Run | None) -> Hashable:
    return None if run is None else (run.number, run.node, run.leased, run.unleased_since is None, run.ended_at is None)


@dataclass(slots=True)
class LostHost:
    """A lost host whose workers are to be started elsewhere."""

    host: str
    workers: int
    missing: set[tuple[str, str]]
    """the (flow, tier) of those that are not started elsewhere"""
    first_at_s: float | None = None
    """the first pass that sees the loss"""
    passes: int = 0


@dataclass(slots=True)
class LostHosts:
    """Checks that all workers of a lost host are started on other hosts within `LOST_HOST_PASSES` passes.

    Only workers that held their lease count, of flows to which nothing else happens meanwhile. Passes in which only the time passes that
    a worker has to regain its lease are not counted.
    """

    waiting: list[LostHost] = field(default_factory=list)
    met: list[LostHost] = field(default_factory=list)

    def add(self, host: str, workers: Collection[tuple[str, str]]) -> None:
        """All sessions of the host and its workers have ended: from the next pass on, the loss is visible."""
        self.waiting.append(LostHost(host, len(workers), {*workers}))

    def excuse(self, flow: str) -> None:
        """Something else has happened to the flow."""
        for lost in self.waiting:
            lost.missing = {worker for worker in lost.missing if worker[0] != flow}

    def see(self, world: World, actions: Sequence[Action]) -> list[Missed]:
        """Count a pass. Returns the hosts whose workers have not all been started in time."""
        started: Mapping[tuple[str, str], str] = {
            (action.flow, action.tier): action.run.node for action in actions if isinstance(action, Start) and not action.spare
        }
        found = []
        for lost in self.waiting:
            if lost.first_at_s is None:
                lost.first_at_s = world.now
            if world.now in (lost.first_at_s,) or world.now >= lost.first_at_s + REGAIN_S:
                lost.passes += 1
            lost.missing -= {worker for worker in lost.missing if worker in started and started[worker] != lost.host}
            if lost.missing and lost.passes >= LOST_HOST_PASSES:
                some = ", ".join(".".join(worker) for worker in sorted(lost.missing)[:3])
                what = f"host {lost.host}: {len(lost.missing)} of {lost.workers} workers are not started elsewhere, such as {some}"
                found.append(Missed(world.now, f"a lost host's workers are elsewhere within {LOST_HOST_PASSES} passes", what))
        self.met += [lost for lost in self.waiting if not lost.missing]
        self.waiting = [lost for lost in self.waiting if lost.missing and lost.passes < LOST_HOST_PASSES]
        return found
