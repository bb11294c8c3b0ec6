"""Quotas: which flows may start now, given what they and others with their labels use, and how rows per second are divided. Pure functions.

A flow is admitted as a whole, with all its tiers, so that no two flows wait for each other half started. It keeps what it was admitted with
as long as its desired state is running, even while its workers are lost and restarted. Further flows wait, the oldest desired state first,
and later ones behind it.
No running worker is ended because of a quota.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from scribengin.control.desired_state import has_drained
from scribengin.control.placement import choose_node
from scribengin.control.standbys import waiting
from scribengin.control.worker_lifecycle import needs_worker
from scribengin.core.units import show_bytes
from scribengin.registry.records import Share, is_helper

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from scribengin.control.world import Allowance, FlowSeen, ObservedTier, World

_MANY = 40
"""up to this number of flows under a quota of rows, shares are exact; with more, a share is written again only if it differs much"""
_KEPT, _GIVEN = 0.95, 0.975
"""limits with many flows, as parts of the exact share: a flow keeps its share between `_KEPT` of it and all of it, else it gets `_GIVEN` of
it"""
IDLE_PART = 0.1
"""part of an equal share that a flow keeps while it reads nothing, so that it can start at once when data arrive"""


class Taken(NamedTuple):
    """The resources that workers use."""

    cores: int = 0
    memory_bytes: int = 0

    def plus(self, other: Taken) -> Taken:
        """The sum of both."""
        return Taken(self.cores + other.cores, self.memory_bytes + other.memory_bytes)


@dataclass(frozen=True, slots=True)
class QuotaWait:
    """Why a flow may not start now, and the next action for an operator, as texts."""

    reason: str
    next: str


@dataclass(slots=True)
class _Pool:
    """A quota while it is divided: its use by each flow, and the first flow that waits for it."""

    name: str
    allowed: Allowance
    taken: dict[str, Taken] = field(default_factory=dict)
    total: Taken = field(default_factory=Taken)
    first: str = ""

    def give(self, flow: str, more: Taken) -> None:
        self.taken[flow] = self.taken.get(flow, Taken()).plus(more)
        self.total = self.total.plus(more)

    def has_room(self, more: Taken) -> bool:
        return fits(self.allowed, self.total.plus(more))


@dataclass(slots=True)
class QuotaAdmission:
    """The flows that may not start. `waits`: flow → why none of its tiers without a worker gets one now."""

    waits: dict[str, QuotaWait] = field(default_factory=dict)
    _pools: list[_Pool] = field(default_factory=list)

    def takes_spare(self, flow: FlowSeen, tier: ObservedTier) -> bool:
        """True if there is room for a standby of the tier, or for a helper, which is then counted as used. Neither starts before a flow
        that waits."""
        pools = [pool for pool in self._pools if pool.allowed.covers(flow.labels)]
        more = given_to(tier)
        if any(pool.allowed.closed or pool.first or not pool.has_room(more) for pool in pools):
            return False
        for pool in pools:
            pool.give(flow.name, more)
        return True


def admit(world: World) -> QuotaAdmission:
    """Decide which flows may start, by all quotas: those at work first, then by the age of their desired state."""
    found = QuotaAdmission()
    if not world.quotas:
        return found
    found._pools = [_Pool(name, allowed) for name, allowed in sorted(world.quotas.items())]
    under = [flow for flow in world.flows.values() if any(pool.allowed.covers(flow.labels) for pool in found._pools)]
    for flow in under:
        for pool in _pools_of(found._pools, flow):
            if (now := taken_by(flow)) != Taken():
                pool.give(flow.name, now)
    for last in _left_alone(world):
        for pool in _pools_of(found._pools, last):
            pool.give(last.name, taken_by(last))
    for flow in sorted(under, key=lambda flow: (not is_at_work(flow), flow.wish.generation, flow.name)):
        more = sum_of(given_to(tier) for tier in _to_start(world, flow))
        if more == Taken():
            continue
        pools, keeps = _pools_of(found._pools, flow), is_at_work(flow)
        wait = next((wait for pool in pools if (wait := _why_not(pool, flow, more, keeps=keeps)) is not None), None)
        if wait is None:
            for pool in pools:
                pool.give(flow.name, more)
            continue
        found.waits[flow.name] = wait
        for pool in pools:
            # a flow that needs more than the whole quota does not block the others
            could = fits(pool.allowed, more.plus(pool.taken.get(flow.name, Taken())))
            if not pool.first and could and not pool.has_room(more):
                pool.first = flow.name
    return found


def is_at_work(flow: FlowSeen) -> bool:
    """True if one of the flow's workers exists, or existed for the present desired state and is to be restarted: it keeps what it uses."""
    return any(_runs(tier) or _comes_again(flow, tier) for tier in flow.tiers.values())


def taken_by(flow: FlowSeen) -> Taken:
    """The resources of the flow's workers and standbys."""
    at_work = [tier for tier in flow.tiers.values() if _runs(tier)]
    return sum_of(given_to(tier) for tier in [*at_work, *(tier for tier in flow.tiers.values() if waiting(tier) is not None)])


def given_to(tier: ObservedTier) -> Taken:
    """The resources of a worker of the tier, which are those of its executors together."""
    return Taken(tier.executors * tier.cores, tier.executors * tier.memory_bytes)


def sum_of(parts: Iterable[Taken]) -> Taken:
    """The sum of all parts."""
    total = Taken()
    for part in parts:
        total = total.plus(part)
    return total


def fits(allowed: Allowance, taken: Taken) -> bool:
    """True if the quota allows that much."""
    cores, memory_bytes = allowed.cores, allowed.memory_bytes
    return (cores is None or taken.cores <= cores) and (memory_bytes is None or taken.memory_bytes <= memory_bytes)


def divide(world: World, waits: Mapping[str, QuotaWait]) -> dict[str, Share]:
    """Divide the rows per second of quotas among flows.

    Flows that are at work have equal shares. A flow that reads nothing keeps a tenth of its share, and the others have the rest; it gets
    its whole share again once it reads. What a reading flow does not use is given to no other: so shares change only when flows are added,
    removed or become idle. All shares together never exceed the rate.

    With many flows, one that changes would change all others a little: they keep their shares, so that not all are written, and not all
    workers are notified. The shares of flows with invalid records are given to no other, up to all but a tenth of the rate, so that the
    others do not stop.

    Args:
        world: what was observed.
        waits: the flows that may not start.

    Returns:
        Flow → its share; of several quotas the smallest one. Flows without a quota of rows are left out.
    """
    found: dict[str, Share] = {}
    for name, allowed in sorted(world.quotas.items()):
        under = [flow for flow in world.flows.values() if allowed.covers(flow.labels)]
        members = {flow.name: _is_idle(world, flow) for flow in under if _reads(world, flow, waits)}
        if allowed.closed or allowed.rows_per_s is not None:
            # a flow that does not read now keeps its share, so that it is not unlimited while it stops
            kept_by = [flow for flow in under if allowed.closed or flow.name not in members]
            found |= {flow.name: flow.share for flow in kept_by if flow.share is not None and flow.share.quota == name}
        if allowed.closed or allowed.rows_per_s is None:
            continue
        idle = sum(members.values())
        whole = max(allowed.rows_per_s - _rows_left_alone(world, allowed), allowed.rows_per_s * IDLE_PART)
        equal = whole / max(1, len(members))
        kept = equal * IDLE_PART if idle < len(members) else equal
        rest = (whole - idle * kept) / max(1, len(members) - idle)
        for flow, rests in members.items():
            part = _part(world.flows[flow].share, name, kept if rests else rest, idle=rests, many=len(members) > _MANY)
            share = Share(rows_per_s=part, quota=name, idle=rests)
            before = found.get(flow)
            if before is None or (before.rows_per_s or 0.0) > (share.rows_per_s or 0.0):
                found[flow] = share
    return found


def _part(before: Share | None, quota: str, exact: float, *, idle: bool, many: bool) -> float:
    """The share that a flow is given, never more than `exact`, its exact share in rows per second."""
    if not many:
        return exact
    had = before.rows_per_s if before is not None and (before.quota, before.idle) == (quota, idle) else None
    return had if had is not None and _KEPT * exact <= had <= exact else _GIVEN * exact


def _left_alone(world: World) -> Iterator[FlowSeen]:
    """Flows with invalid records, as last observed: their workers continue, with their resources."""
    return (held.last for held in world.held.values() if held.last is not None)


def _rows_left_alone(world: World, allowed: Allowance) -> float:
    """The part of a quota's rows per second that flows with invalid records may read."""
    under = [last for last in _left_alone(world) if allowed.covers(last.labels) and is_at_work(last)]
    return sum(last.share.rows_per_s or 0.0 for last in under if last.share is not None)


def _pools_of(pools: list[_Pool], flow: FlowSeen) -> list[_Pool]:
    return [pool for pool in pools if pool.allowed.covers(flow.labels)]


def _runs(tier: ObservedTier) -> bool:
    return tier.run is not None and tier.run.ended_at is None


def _comes_again(flow: FlowSeen, tier: ObservedTier) -> bool:
    run = tier.run
    if run is None or run.ended_at is None or run.generation != flow.wish.generation or run.permanent:
        return False
    return flow.wish.goal == "running" or needs_worker(tier)


def _to_start(world: World, flow: FlowSeen) -> Iterator[ObservedTier]:
    """The flow's tiers that need a worker and have none, if a node could take it: a tier that cannot start blocks nothing. Helpers are left
    out: they start if there is room, and no flow waits for them."""
    part = flow.under_way.operation.tiers if flow.under_way is not None else ()
    for name, tier in flow.tiers.items():
        # the flow's desired state reaches the tier in this same cycle
        asks = flow.wish.goal == "running" or (flow.wish.goal == "drained" and not has_drained(tier, flow.wish.generation))
        wanted = asks and (flow.wanted_tiers is None or name in flow.wanted_tiers)
        if is_helper(name) or _runs(tier) or not (wanted or name in part or needs_worker(tier)):
            continue
        run = tier.run
        for_a_person = run is not None and run.permanent and run.generation == flow.wish.generation
        if not for_a_person and choose_node(world.nodes, tier, {}) is not None:
            yield tier


def _reads(world: World, flow: FlowSeen, waits: Mapping[str, QuotaWait]) -> bool:
    """True if the flow reads now: it is at work, or starts in this cycle. A tier of a waiting flow may still be at work."""
    if flow.wish.goal not in ("running", "drained"):
        return False
    starts = flow.name not in waits and any(True for _ in _to_start(world, flow))
    return starts or is_at_work(flow)


def _is_idle(world: World, flow: FlowSeen) -> bool:
    """True if the flow reads nothing. If unknown, as recorded in its share: a master that has just become the leader changes nothing."""
    return world.idle.get(flow.name, flow.share is not None and flow.share.idle)


def _why_not(pool: _Pool, flow: FlowSeen, more: Taken, *, keeps: bool) -> QuotaWait | None:
    """Why a quota does not let the flow have more; None if it does. `keeps`: the flow was admitted before."""
    quota = f"quota {pool.name}"
    if pool.allowed.closed:
        if keeps:
            return None
        return QuotaWait(
            f"no further flow starts under {quota}: its record {pool.allowed.closed}",
            f"write it again: scribengin quota set {pool.name} … (or remove it)",
        )
    if pool.has_room(more):
        if keeps or not pool.first:
            return None
        return QuotaWait(f"waits for {quota} behind {pool.first}, which is ahead in the queue", f"see: scribengin quota list {pool.name}")
    there, limit = pool.total, pool.allowed
    mine = pool.taken.get(flow.name, Taken())
    over_cores = limit.cores is not None and there.cores + more.cores > limit.cores
    needed, taken, most = _in_words(more, there, limit, cores=over_cores)
    said = "--cores" if over_cores else "--memory"
    figure = _argument(there.plus(more), cores=over_cores)
    if not fits(limit, more.plus(mine)):
        whole = more.plus(mine)
        needed, _, most = _in_words(whole, there, limit, cores=over_cores)
        enough = _argument(whole, cores=over_cores)
        return QuotaWait(
            f"it needs {needed} in total, but {quota} allows {most}",
            f"scribengin quota set {pool.name} {said} {enough}, or reduce its needs: scribengin scale {flow.name} {said} …",
        )
    # only `quota list` names the users: in the status, each of them that starts or ends would change the status of all waiting flows
    return QuotaWait(
        f"waits for {quota}: it needs {needed}; in use: {taken} of {most}",
        f"it starts when others end (scribengin quota list {pool.name}); or: scribengin quota set {pool.name} {said} {figure}",
    )


def _in_words(more: Taken, there: Taken, limit: Allowance, *, cores: bool) -> tuple[str, str, str]:
    if cores:
        return f"{more.cores} core{'s' * (more.cores != 1)}", str(there.cores), str(limit.cores)
    return f"{show_bytes(more.memory_bytes)} of memory", show_bytes(there.memory_bytes), show_bytes(limit.memory_bytes or 0)


def _argument(taken: Taken, *, cores: bool) -> str:
    """The resources in the form of a command's option."""
    return str(taken.cores) if cores else f"{-(-taken.memory_bytes // 2**20)}MiB"
