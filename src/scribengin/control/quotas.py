"""Quotas: which flows may start now by what they and others with their labels take, and how rows a second are divided. Pure.

A flow is admitted as a whole, with all its tiers, so that no two wait for each other half started. What it was admitted with it keeps as
long as it is wanted to run, also while its workers are lost and started again; what comes anew waits, the oldest wish first, and those
behind it wait with it. Nothing that runs is ended for a quota.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from scribengin.control.places import choose_node
from scribengin.control.runs import needs_worker
from scribengin.control.spares import waiting
from scribengin.control.wishes import has_drained
from scribengin.core.units import show_bytes
from scribengin.registry.kinds import Share, is_helper

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from scribengin.control.world import Allowance, FlowSeen, ObservedTier, World

_MANY = 40
"""under a quota of rows: so many flows have parts that are exact; among more a part is written anew only where it is much another"""
_KEPT, _GIVEN = 0.95, 0.975
"""of the exact part, among many: a flow keeps what it has from `_KEPT` of it up to the whole, else it is given `_GIVEN` of it"""
IDLE_PART = 0.1
"""of an equal part: what a flow keeps that reads nothing, so that it can begin at once when something comes"""


class Taken(NamedTuple):
    """What workers were given."""

    cores: int = 0
    memory_bytes: int = 0

    def plus(self, other: Taken) -> Taken:
        """Both together."""
        return Taken(self.cores + other.cores, self.memory_bytes + other.memory_bytes)


@dataclass(frozen=True, slots=True)
class QuotaWait:
    """Why a flow may not start now, in words, and what a person can do about it."""

    reason: str
    next: str


@dataclass(slots=True)
class _Pool:
    """A quota while it is given out: who has how much of it, and the first who waits for more."""

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
    """Who may start. `waits`: flow → why none of its tiers that have no worker gets one now."""

    waits: dict[str, QuotaWait] = field(default_factory=dict)
    _pools: list[_Pool] = field(default_factory=list)

    def takes_spare(self, flow: FlowSeen, tier: ObservedTier) -> bool:
        """Whether there is room for a spare of the tier, or for a helper, which it has then. Neither goes before a flow that waits."""
        pools = [pool for pool in self._pools if pool.allowed.covers(flow.labels)]
        more = given_to(tier)
        if any(pool.allowed.closed or pool.first or not pool.has_room(more) for pool in pools):
            return False
        for pool in pools:
            pool.give(flow.name, more)
        return True


def admit(world: World) -> QuotaAdmission:
    """Look at all flows of all quotas, those that have something first, then by the age of their wish."""
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
            # who asks for more than there ever is holds up nobody
            could = fits(pool.allowed, more.plus(pool.taken.get(flow.name, Taken())))
            if not pool.first and could and not pool.has_room(more):
                pool.first = flow.name
    return found


def is_at_work(flow: FlowSeen) -> bool:
    """True where a worker of it is there, or was for what is wanted of it now and is to be started again: what it takes it keeps."""
    return any(_runs(tier) or _comes_again(flow, tier) for tier in flow.tiers.values())


def taken_by(flow: FlowSeen) -> Taken:
    """What its workers have now, and its spares."""
    at_work = [tier for tier in flow.tiers.values() if _runs(tier)]
    return sum_of(given_to(tier) for tier in [*at_work, *(tier for tier in flow.tiers.values() if waiting(tier) is not None)])


def given_to(tier: ObservedTier) -> Taken:
    """What a worker of the tier gets, or its executors together."""
    return Taken(tier.executors * tier.cores, tier.executors * tier.memory_bytes)


def sum_of(parts: Iterable[Taken]) -> Taken:
    """All together."""
    total = Taken()
    for part in parts:
        total = total.plus(part)
    return total


def fits(allowed: Allowance, taken: Taken) -> bool:
    """Whether so much is allowed."""
    cores, memory_bytes = allowed.cores, allowed.memory_bytes
    return (cores is None or taken.cores <= cores) and (memory_bytes is None or taken.memory_bytes <= memory_bytes)


def divide(world: World, waits: Mapping[str, QuotaWait]) -> dict[str, Share]:
    """Flow → its part of the rows a second of its quotas; of several the least. Flows that none of them concerns are not in it.

    Flows that are at work have equal parts. One that reads nothing keeps a tenth of its own, and the others have the rest; it has its whole
    part again once it reads. What a flow that reads does not use is nobody else's: so parts change only when flows come, go, or fall idle.

    All parts together are never more than the rate. Where there are many flows, one that changes gives each other one a little: they keep
    what they have, so that not all are written, and all workers woken, for it. What flows have whose records say nothing is nobody else's,
    up to all but a tenth of the rate: the others are not to stand still for it.
    """
    found: dict[str, Share] = {}
    for name, allowed in sorted(world.quotas.items()):
        under = [flow for flow in world.flows.values() if allowed.covers(flow.labels)]
        members = {flow.name: _is_idle(world, flow) for flow in under if _reads(world, flow, waits)}
        if allowed.closed or allowed.rows_per_s is not None:
            # who does not read now keeps what it had, so that none goes unbounded while it comes to rest
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
    """What a flow is given, never more than `exact`."""
    if not many:
        return exact
    had = before.rows_per_s if before is not None and (before.quota, before.idle) == (quota, idle) else None
    return had if had is not None and _KEPT * exact <= had <= exact else _GIVEN * exact


def _left_alone(world: World) -> Iterator[FlowSeen]:
    """Flows whose records say nothing, as they were: their workers go on, with what they have."""
    return (held.last for held in world.held.values() if held.last is not None)


def _rows_left_alone(world: World, allowed: Allowance) -> float:
    """What of a quota's rows they may read."""
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
    """Its tiers that are to have a worker and have none, as far as a node could take it: what cannot start keeps nobody from anything. A
    helper is none of them: it comes where there is room, and no flow waits for it."""
    part = flow.under_way.operation.tiers if flow.under_way is not None else ()
    for name, tier in flow.tiers.items():
        # what is wanted of the flow comes to the tier in this very look
        asks = flow.wish.goal == "running" or (flow.wish.goal == "drained" and not has_drained(tier, flow.wish.generation))
        wanted = asks and (flow.wanted_tiers is None or name in flow.wanted_tiers)
        if is_helper(name) or _runs(tier) or not (wanted or name in part or needs_worker(tier)):
            continue
        run = tier.run
        for_a_person = run is not None and run.permanent and run.generation == flow.wish.generation
        if not for_a_person and choose_node(world.nodes, tier, {}) is not None:
            yield tier


def _reads(world: World, flow: FlowSeen, waits: Mapping[str, QuotaWait]) -> bool:
    """Whether it is to read now: it is at work, or starts in this very look. Of one that waits a tier may be at work all the same."""
    if flow.wish.goal not in ("running", "drained"):
        return False
    starts = flow.name not in waits and any(True for _ in _to_start(world, flow))
    return starts or is_at_work(flow)


def _is_idle(world: World, flow: FlowSeen) -> bool:
    """As it was, where nobody can say: a master that has just come to lead changes nothing."""
    return world.idle.get(flow.name, flow.share is not None and flow.share.idle)


def _why_not(pool: _Pool, flow: FlowSeen, more: Taken, *, keeps: bool) -> QuotaWait | None:
    """Why a quota does not let the flow have more; `keeps`: it has been admitted before."""
    quota = f"quota {pool.name}"
    if pool.allowed.closed:
        if keeps:
            return None
        return QuotaWait(
            f"nothing more starts under {quota}, whose record {pool.allowed.closed}",
            f"say it anew: scribengin quota set {pool.name} … (or remove it)",
        )
    if pool.has_room(more):
        if keeps or not pool.first:
            return None
        return QuotaWait(f"waits for {quota} behind {pool.first}, which was wanted before it", f"see: scribengin quota list {pool.name}")
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
            f"it takes {needed} in all, and {quota} allows {most}",
            f"scribengin quota set {pool.name} {said} {enough}, or give it less: scribengin scale {flow.name} {said} …",
        )
    # who has taken it is for `quota list`: named here, each taker that comes or goes would be a new status for all who wait
    return QuotaWait(
        f"waits for {quota}: it needs {needed}; taken: {taken} of {most}",
        f"it starts when others end (scribengin quota list {pool.name}); or: scribengin quota set {pool.name} {said} {figure}",
    )


def _in_words(more: Taken, there: Taken, limit: Allowance, *, cores: bool) -> tuple[str, str, str]:
    if cores:
        return f"{more.cores} core{'s' * (more.cores != 1)}", str(there.cores), str(limit.cores)
    return f"{show_bytes(more.memory_bytes)} of memory", show_bytes(there.memory_bytes), show_bytes(limit.memory_bytes or 0)


def _argument(taken: Taken, *, cores: bool) -> str:
    """As a command takes it."""
    return str(taken.cores) if cores else f"{-(-taken.memory_bytes // 2**20)}MiB"
