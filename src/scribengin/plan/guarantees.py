"""The delivery guarantee from each source to each sink, with its reason. It depends on whether the source can be re-read, on the plan, and
on the abilities of the sink."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from scribengin.core.units import show_bytes
from scribengin.plan.describe import listed
from scribengin.plan.model import PathGuarantee

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping

    from scribengin.core.options import NodeType
    from scribengin.plan.channels import PlannedChannel
    from scribengin.plan.model import Plan
    from scribengin.spec.model import Flow, Sink, Source


# The guarantee from each source to each sink of a flow, over all tiers: that of its weakest edge or end.


Promise = Literal["exactly once", "at least once", "at most once", "nothing", "view"]
"""`nothing`: rows may be lost, and others duplicated"""


@dataclass(frozen=True, slots=True)
class FlowPath:
    """The guarantee from a source to a sink. `tiers` are those between them, in order; `channels` the ids of all channels on any path
    between them.

    `weakest` names the edges that determine the guarantee; empty if an end does. `strengthen` says what to write to get more; empty if no
    edge can give it.
    """

    source: str
    sink: str
    tiers: tuple[str, ...]
    channels: tuple[str, ...]
    guarantee: Promise
    reason: str
    weakest: tuple[str, ...] = ()
    strengthen: str = ""

    def as_json(self) -> dict[str, Any]:
        """The path as one JSON object."""
        return {
            "source": self.source,
            "sink": self.sink,
            "tiers": list(self.tiers),
            "channels": list(self.channels),
            "guarantee": self.guarantee,
            "reason": self.reason,
            "weakest": list(self.weakest),
            "strengthen": self.strengthen,
        }


def flow_paths(tiers: Iterable[Plan], channels: Iterable[PlannedChannel], arrivals: Mapping[str, str]) -> tuple[FlowPath, ...]:
    """The path from every source to every sink downstream of it, in the order of tiers.

    Args:
        tiers: The plans of the tiers, each after those upstream of it.
        channels: The channels between them.
        arrivals: Channel → the name of its source in the reading tier.
    """
    plans = {plan.tier: plan for plan in tiers}
    carriers = {channel.id: channel for channel in channels}
    return tuple(_paths(plans, carriers, arrivals))


_Hop = tuple[str, "PathGuarantee"]
"""(tier, the guarantee inside it)"""


def _paths(plans: Mapping[str, Plan], carriers: Mapping[str, PlannedChannel], arrivals: Mapping[str, str]) -> Iterator[FlowPath]:
    arriving = {(channel.reading, arrivals[channel.id]) for channel in carriers.values()}
    found: dict[tuple[str, str], dict[_Hop, None]] = {}
    for tier, plan in plans.items():
        for start in (each for query in plan.queries for each in query.guarantees):
            if (tier, start.source) not in arriving:
                for sink, hops in _ways(plans, carriers, arrivals, (tier, start)):
                    found.setdefault((start.source, sink), {}).update(dict.fromkeys(hops))
    order = list(plans)
    for (source, sink), taken in found.items():
        yield _weighed(source, sink, sorted(taken, key=lambda hop: order.index(hop[0])), carriers, arriving)


def _ways(
    plans: Mapping[str, Plan], carriers: Mapping[str, PlannedChannel], arrivals: Mapping[str, str], start: _Hop
) -> Iterator[tuple[str, list[_Hop]]]:
    """(sink, the hops on all paths to it) for each sink downstream of `start`."""
    behind: dict[_Hop, list[_Hop]] = {start: []}
    waiting = [start]
    while waiting:
        hop = waiting.pop()
        channel = carriers.get(hop[1].sink)
        if channel is None:
            continue
        for query in plans[channel.reading].queries:
            for further in query.guarantees:
                if further.source == arrivals[channel.id]:
                    following = (channel.reading, further)
                    if following not in behind:
                        behind[following] = []
                        waiting.append(following)
                    behind[following].append(hop)
    for end in behind:
        if end[1].sink not in carriers:
            above: dict[_Hop, None] = {end: None}
            climbing: list[_Hop] = [end]
            while climbing:
                for hop in behind[climbing.pop()]:
                    if hop not in above:
                        above[hop] = None
                        climbing.append(hop)
            yield end[1].sink, [*above]


def _weighed(
    source: str, sink: str, hops: list[_Hop], carriers: Mapping[str, PlannedChannel], arriving: Collection[tuple[str, str]]
) -> FlowPath:
    tiers = tuple(dict.fromkeys(tier for tier, _ in hops))
    crossed = [carriers[id_] for id_ in dict.fromkeys(hop.sink for _, hop in hops if hop.sink in carriers)]
    ends = [hop for tier, hop in hops if (tier, hop.source) not in arriving or hop.sink not in carriers]
    weak_end = next((end for rank in ("view", "at most once", "at least once") for end in ends if end.guarantee == rank), None)
    lossy = [channel for channel in crossed if channel.edge.durability == "best_effort"]
    spilling = [channel for channel in crossed if channel.edge.durability == "store_on_failure"]
    guarantee: Promise = "exactly once" if weak_end is None else weak_end.guarantee
    reasons = [] if weak_end is None else [weak_end.reason]
    if guarantee != "view" and lossy:
        names = _names(lossy)
        more = "" if weak_end is None else f"; a better guarantee than {weak_end.guarantee} also needs another source or sink"
        drops = f"{_quoted(names)} {'drops' if len(names) == 1 else 'drop'}, and {'counts' if len(names) == 1 else 'count'}"
        reasons.insert(0, f"{drops}, rows that cannot be written to the channel immediately")
        weakest, strengthen = names, f"`durability: end_to_end` on {_quoted(names)}{more}"
        guarantee = "at most once" if weak_end is None else "nothing"
    else:
        weakest, strengthen = (), ""
        if weak_end is None:
            reasons.append(
                "each tier writes each decided row to the channel once, and the next tier reads it once" if crossed else ends[0].reason
            )
    for channel in spilling:
        limit = show_bytes(channel.edge.spill or 0)
        reasons.append(
            f"{_quoted(channel.names)} stores up to {limit} of rows that cannot be written immediately; then the writing tier waits"
        )
    return FlowPath(source, sink, tiers, tuple(each.id for each in crossed), guarantee, "; ".join(reasons), weakest, strengthen)


def _names(channels: Iterable[PlannedChannel]) -> tuple[str, ...]:
    return tuple(name for channel in channels for name in channel.names)


def _quoted(names: Iterable[str]) -> str:
    return listed([f'"{name}"' for name in names])


def path_guarantee(
    flow: Flow, source: Source, sink: Sink, *, source_types: Mapping[str, NodeType], sink_types: Mapping[str, NodeType]
) -> PathGuarantee:
    """The guarantee of one path of a checked flow. A source or sink of an unknown type counts as without abilities."""
    gives = source_types[source.type].able(source.options) if source.type in source_types else frozenset[str]()
    takes = sink_types[sink.type].able(sink.options) if sink.type in sink_types else frozenset[str]()
    if "view" in takes:
        return PathGuarantee(source.id, sink.id, "view", f"{sink.type} shows rows and does not store them: no guarantee")
    if "exactly_once" not in takes:
        return PathGuarantee(source.id, sink.id, "at least once", f"{sink.type} may receive a Batch again after a failure")
    if "replayable" not in gives:
        told = source_types[source.type].without("replayable", source.options) if source.type in source_types else source.type
        return PathGuarantee(source.id, sink.id, "at least once", f"{told} cannot be re-read identically")
    if "may_lose" in gives:
        reason = f'agents drop, and count, records of "{source.id}" that no gateway takes (`durability: best_effort`)'
        return PathGuarantee(source.id, sink.id, "at most once", f"{reason}; `durability: end_to_end` keeps them")
    if "may_repeat" in gives:
        reason = f'an agent that is killed may send records of "{source.id}" again (`durability: store_on_failure`)'
        return PathGuarantee(source.id, sink.id, "at least once", f"{reason}; with `durability: end_to_end` it does not")
    if written_by_spark(flow, sink, sink_types):
        return PathGuarantee(source.id, sink.id, "at least once", "Spark's own sink writes; an interrupted Batch is written again")
    channel = sink.type in sink_types and sink_types[sink.type].internal  # only a flow's own sinks have `delivery`
    if not channel and (sink.delivery or flow.defaults.delivery) == "at_least_once":
        return PathGuarantee(source.id, sink.id, "at least once", "`delivery: at_least_once` is set")
    how = f"one decision per Batch; {sink.type} publishes each row once, from that decision"
    if "commits_units" in takes:
        how = (
            f"{sink.type} commits each task output of a Batch once; if task outputs may differ from run to run, it commits the "
            "whole Batch by one decision"
        )
    reason = f"{source.type} can be re-read as logged; {how}"
    return PathGuarantee(source.id, sink.id, "exactly once", reason)


def written_by_spark(flow: Flow, sink: Sink, sink_types: Mapping[str, NodeType]) -> bool:
    """True if, with `delivery: at_least_once`, Spark's own sink writes the rows."""
    takes = sink_types[sink.type].abilities if sink.type in sink_types else frozenset[str]()
    return "spark_writes" in takes and (sink.delivery or flow.defaults.delivery) == "at_least_once"


def guarantees(
    flow: Flow, sources: Iterable[str], sinks: Iterable[str], feeds: Mapping[str, frozenset[str]], **types: Mapping[str, NodeType]
) -> tuple[PathGuarantee, ...]:
    """The guarantees of every path from one of `sources` to one of `sinks`. `feeds`: sink → all nodes upstream of it."""
    return tuple(
        path_guarantee(flow, flow.sources[source], flow.sinks[sink], source_types=types["source_types"], sink_types=types["sink_types"])
        for sink in sinks
        for source in sources
        if source in feeds[sink]
    )
