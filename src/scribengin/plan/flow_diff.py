"""The changes that running a plan would make, over all tiers and channels of its flow."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from scribengin.core.remedies import start_over
from scribengin.plan.describe import listed
from scribengin.plan.diff import ChannelChange, PlanChanges, QueryChange, diff_plans, label_of
from scribengin.plan.query_moves import DRAIN, Moves, channels_read_by, plan_moves, undelivered
from scribengin.plan.tier_flows import source_id
from scribengin.plan.topology import topology_of

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence

    from scribengin.plan.diff import StoredQuery
    from scribengin.plan.query_moves import Key, MovedQuery
    from scribengin.plan.tier_flows import FlowPlan
    from scribengin.state.topology import KnownChannel, StoredTopology


def flow_changes(
    plan: FlowPlan,
    known: StoredTopology | None,
    live: Sequence[StoredQuery],
    past: Sequence[StoredQuery],
    reached: Callable[[StoredQuery, str], Hashable],
    *,
    drained: bool = False,
) -> tuple[PlanChanges, Moves]:
    """Compare a plan with the stored state; for the arguments see `plan_moves`. The moves may be carried out only if nothing is refused."""
    moves = plan_moves(plan, known, live, past, reached, drained=drained)
    queries = tuple(_queries(plan, live, moves))
    return PlanChanges(queries, tuple(_channels(plan, known, [*live, *past], live, drained=drained))), moves


def _queries(plan: FlowPlan, live: Sequence[StoredQuery], moves: Moves) -> Iterator[QueryChange]:
    arrivals = {arrival.key: arrival for arrival in moves.arrivals}
    refusals = {refusal.key: refusal for refusal in moves.refusals}
    gone: list[QueryChange] = []
    for tier in plan.tiers:
        stored = {query.name: query for query in live if query.tier == tier.tier}
        for change in diff_plans(stored, tier).queries:
            key = (change.tier, change.name)
            if key in refusals:
                remedy = refusals[key].remedy or f"undo the change; or {start_over()}"
                yield replace(change, fate="refused", says=refusals[key].why, remedy=remedy)
            elif key in arrivals and arrivals[key].after:
                yield replace(change, fate="kept", says=_moved(arrivals[key]), remedy="")
            elif key in arrivals:
                yield replace(change, fate="new", says=_anew(arrivals[key]), remedy="")
            elif change.fate == "gone":
                gone.append(_left(change, key, moves))
            elif change.fate == "new" and (late := _late(plan, key, arrivals)):
                yield replace(change, says=f"{change.says}; {listed(late)} does not contain the rows that its writer read before")
            else:
                yield change
    planned = {tier.tier for tier in plan.tiers}
    elsewhere = [QueryChange(query.name, "gone", query.gone, tier=query.tier) for query in live if query.tier not in planned]
    yield from (*gone, *(_left(change, (change.tier, change.name), moves) for change in elsewhere))


def _late(plan: FlowPlan, key: Key, arrivals: Mapping[Key, MovedQuery]) -> list[str]:
    """Channels that a new query reads and whose writer continues in the middle of its sources."""
    query = next(query for query in plan.tier(key[0]).queries if query.name == key[1])
    feeders = {sink: arrival for arrival in arrivals.values() if arrival.after for sink in arrival.query.sinks}
    return [each.id for each in plan.channels if each.reading == key[0] and source_id(each) in query.sources and each.id in feeders]


def _left(change: QueryChange, key: Key, moves: Moves) -> QueryChange:
    to = moves.leaving.get(key, ())
    if not to or moves.refusals:
        return change
    names = listed([label_of(*each) for each in to])
    return replace(change, says=f"{names} {'replaces' if len(to) == 1 else 'replace'} it; its state is kept for `audit`")


def _moved(arrival: MovedQuery) -> str:
    state = arrival.state
    others = [query for query in arrival.after if query is not state]
    who = listed([f"{query.label} ({query.progress})" for query in ([state] if state is not None else others)])
    where = [f"{source} from position {donor.position}" for source, donor in arrival.donors.items()]
    fresh = [f"{source} from its start" for source in arrival.query.sources if source not in arrival.donors]
    how = "with the state of" if state is not None else "in place of"
    return f"continues {how} {who}, in a new lineage: reads {listed([*where, *fresh])}; rows already written stay"


def _anew(arrival: MovedQuery) -> str:
    where = [f"{source} from position {donor.position}" for source, donor in arrival.donors.items()]
    fresh = [f"{source} from the start" for source in arrival.query.sources if source not in arrival.donors]
    return f"starts at Batch 0, in a new lineage, and reads {listed([*where, *fresh])}"


def _channels(
    plan: FlowPlan, known: StoredTopology | None, stored: Sequence[StoredQuery], live: Sequence[StoredQuery], *, drained: bool
) -> Iterator[ChannelChange]:
    if not live:
        return
    before = {channel.id: channel for channel in known.channels if not channel.gone} if known is not None else {}
    now = {channel.id: channel for channel in topology_of(plan).channels}
    for channel in now.values():
        old = before.get(channel.id)
        if old is None:
            yield ChannelChange(channel.id, "new", f"carries rows from {channel.feeding} to {channel.reading}")
        elif old.place != channel.place:
            says = f"has a new location; the old one is kept, with {_waiting(old, known, stored, live)}"
            yield ChannelChange(channel.id, "kept", says, changed=("channel",), drains=True)
        elif old.properties and old.properties != channel.properties:
            yield _edited(channel, old, known, stored, live, drained=drained)
    for old in before.values():
        if old.id not in now:
            says = f"is no longer used; its content is kept, with {_waiting(old, known, stored, live)}"
            yield ChannelChange(old.id, "gone", says, drains=True)


def _edited(
    channel: KnownChannel,
    old: KnownChannel,
    known: StoredTopology | None,
    stored: Sequence[StoredQuery],
    live: Sequence[StoredQuery],
    *,
    drained: bool,
) -> ChannelChange:
    names = [*channel.properties, *(name for name in old.properties if name not in channel.properties)]
    changed = tuple(name for name in names if channel.properties.get(name) != old.properties.get(name))
    needs = [name for name in changed if _needs_drained(name, old, channel)]
    waiting = _rows_waiting(old, known, stored, live)
    if needs and waiting != 0 and not drained:
        says = f"{listed(needs)} can change only when the channel has no unread rows; it has {_waiting(old, known, stored, live)}"
        return ChannelChange(channel.id, "refused", says, DRAIN, changed, drains=True)
    says = f"{listed(changed)} {'applies' if len(changed) == 1 else 'apply'} from the next Batch"
    if "channel" in changed and channel.place.startswith("kafka"):
        says += "; an existing topic keeps its partitions and replication"
    return ChannelChange(channel.id, "kept", says, changed=changed, drains=bool(needs))


def _needs_drained(name: str, old: KnownChannel, new: KnownChannel) -> bool:
    """True if a change needs an empty channel: unread rows would break the order by key, and unencrypted packs would be rejected."""
    if name == "encryption":
        return "none" in (old.properties.get(name), new.properties.get(name))
    return name == "ordering"


def _rows_waiting(
    channel: KnownChannel, known: StoredTopology | None, stored: Sequence[StoredQuery], live: Sequence[StoredQuery]
) -> int | None:
    """The unread rows of the slowest reader; None if the counts do not determine it."""
    readers = [query for query in live if channel.source in channels_read_by(query, known) and query.tier == channel.reading]
    rows = [undelivered(channel, reader, stored) for reader in readers]
    if not rows:
        return sum(query.written.get(channel.id, 0) for query in stored)
    return None if min(rows) < 0 else max(rows)


def _waiting(channel: KnownChannel, known: StoredTopology | None, stored: Sequence[StoredQuery], live: Sequence[StoredQuery]) -> str:
    rows = _rows_waiting(channel, known, stored, live)
    if rows is None:
        return "an unknown number of unread rows"
    return f"{rows:,} unread row{'s' * (rows != 1)}" if rows else "no unread rows"
