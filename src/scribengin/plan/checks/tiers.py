"""Rules on tiers and the channels between them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from scribengin.core.problems import did_you_mean
from scribengin.plan.agent_lanes import is_collected
from scribengin.plan.checks.subject import Subject, called, path_of
from scribengin.plan.graph import base, query_sinks
from scribengin.plan.tiers import RESERVED, is_static
from scribengin.spec.tier_keys import MOST_WORKERS

if TYPE_CHECKING:
    from collections.abc import Iterator

    from scribengin.core.problems import Problem
    from scribengin.plan.tiers import CutEdge
    from scribengin.spec.model import Tier


_SAID_OTHERWISE = {
    *("spark.master", "spark.app.name", "spark.cores.max", "spark.local.dir"),
    *("spark.driver.memory", "spark.driver.host", "spark.driver.bindAddress"),
    *("spark.executor.memory", "spark.executor.cores", "spark.executor.instances"),
}
_MEANT = (
    *("asyncProgressTracking", "realTimeMode", "checkpointFileManagerClass", "stopActiveRunOnRestart", "stateStore.providerClass"),
    *(
        "spark.sql.ansi.",
        "spark.sql.caseSensitive",
        "spark.sql.session.timeZone",
        "spark.scheduler.mode",
        "spark.python.daemon.",
        "redaction",
    ),
)


def tiers_name_nodes(subject: Subject) -> Iterator[Problem]:
    """A tier names nodes of the flow, at least one, and no node is named in two tiers."""
    named: dict[str, Tier] = {}
    nodes = subject.graph.nodes
    for tier in subject.flow.tiers.values():
        if not tier.steps:
            message = f'tier "{tier.id}" has no steps, so it would not run anything'
            yield subject.problem("tier-empty", ("tiers", tier.id, "steps"), message, "add node ids to its `steps`, or take the tier out")
        for index, id_ in enumerate(tier.steps):
            path = ("tiers", tier.id, "steps", index)
            if id_ not in nodes:
                if base(id_) not in subject.broken:
                    near = f'write the whole step, not a branch: "{base(id_)}"' if base(id_) in nodes else did_you_mean(id_, nodes)
                    remedy = near or f"nodes are {', '.join(nodes)}"
                    yield subject.problem(
                        "tier-node-unknown", path, f'tier "{tier.id}" names "{id_}", which the flow does not have', remedy
                    )
            elif id_ in named:
                message = f'tier "{tier.id}" names {called(nodes[id_])}, which is already in tier "{named[id_].id}"'
                yield subject.problem("tier-twice", path, message, "take it out of one of the two tiers")
            else:
                named[id_] = tier


def agent_tiers_have_sources(subject: Subject) -> Iterator[Problem]:
    """A tier with `agents` has sources that agents collect, at least one, each in one such tier."""
    sources = subject.flow.sources
    collected = [id_ for id_, source in sources.items() if is_collected(source)]
    named: dict[str, str] = {}
    for tier in subject.flow.agent_tiers.values():
        for index, id_ in enumerate(tier.steps):
            path = ("tiers", tier.id, "steps", index)
            if id_ in named:
                message = f'tier "{tier.id}" names source "{id_}", which is already in tier "{named[id_]}"'
                yield subject.problem("tier-twice", path, message, "take it out of one of the two tiers")
            elif id_ not in collected and id_ not in subject.broken:
                what = "is not a source with `type: agents`" if id_ in subject.graph.nodes else "does not exist in the flow"
                near = did_you_mean(id_, collected) or f"its sources with `type: agents` are {', '.join(collected) or 'none'}"
                yield subject.problem("tier-agents", path, f'tier "{tier.id}" is run by agents and names "{id_}", which {what}', near)
            named.setdefault(id_, tier.id)
        if not tier.steps and not collected and subject.knows_nodes and not subject.broken:
            message = f'tier "{tier.id}" is run by agents, but no source of the flow has `type: agents`'
            remedy = "write type: agents with input: tail at the source that agents are to read, or take the tier out"
            yield subject.problem_at_key("tier-agents", ("tiers", tier.id, "agents"), message, remedy)
    whole = [tier.id for tier in subject.flow.agent_tiers.values() if not tier.steps]
    if len(whole) > 1:
        message = f"tiers {whole[0]} and {whole[1]} would both have all sources with `type: agents`"
        yield subject.problem_at_key("tier-twice", ("tiers", whole[1]), message, "add `steps` to one of them")


def tier_names_are_free(subject: Subject) -> Iterator[Problem]:
    """The state of a tier is in a folder of its name, beside folders that every flow has."""
    for tier in (*subject.flow.tiers, *subject.flow.agent_tiers):
        if tier in RESERVED:
            message = f'"{tier}" is a reserved name: {RESERVED[tier]}'
            yield subject.problem_at_key("tier-name", ("tiers", tier), message, "give the tier another name")


def settings_are_sparks(subject: Subject) -> Iterator[Problem]:
    """Settings of a tier are Spark settings, except those on which results, state or location depend."""
    for tier in subject.flow.tiers.values():
        for name in tier.resources.spark:
            path = ("tiers", tier.id, "resources", "spark", name)
            if not name.startswith("spark."):
                yield subject.problem_at_key(
                    "spark-setting", path, f'"{name}" is not a Spark setting', "write a name that begins with spark."
                )
            elif name == "spark.driver.memory" and (tier.resources.executors is not None or tier.autoscale is not None):
                continue  # `memory` is that of each executor then
            elif name in _SAID_OTHERWISE or name.startswith("spark.submit."):
                yield subject.problem_at_key(
                    "spark-setting",
                    path,
                    f"{name} cannot be set here",
                    "use cores, memory or executors instead; the launcher sets where the tier runs",
                )
            elif any(word in name for word in _MEANT):
                yield subject.problem_at_key(
                    "spark-setting",
                    path,
                    f"{name} cannot be set: the results, or exactly-once delivery, depend on it",
                    "take it out",
                )


def workers_have_work(subject: Subject) -> Iterator[Problem]:
    """Several workers share a Batch without state. If all queries of a tier keep state, or join with a static source, only one worker would
    do anything."""
    graph, tier_of = subject.graph, subject.assignment.tier_of
    for tier in subject.flow.tiers.values():
        path = ("tiers", tier.id, "workers")
        if tier.workers != "each" and tier.workers > MOST_WORKERS:
            message = f'tier "{tier.id}" has {tier.workers} workers; the maximum is {MOST_WORKERS}'
            yield subject.problem("workers-most", path, message, "give each of them more cores (resources: {cores: 4})")
        if tier.workers == 1 or not _is_placed(subject):
            continue
        ends = [id_ for id_ in subject.flow.sinks if tier_of.get(id_) == tier.id]
        ends += [base(edge.reference) for edge in subject.assignment.cut if edge.feeding == tier.id]
        reasons = []
        for end in ends:
            own = {id_ for id_ in graph.upstream([end]) if tier_of.get(id_, tier.id) == tier.id}
            stateful = sorted(subject.resolved.stateful & own)
            table = sorted(id_ for id_ in own if id_ in subject.flow.sources and is_static(graph, id_))
            reasons += [f'step "{stateful[0]}" keeps state'] if stateful else [f'source "{table[0]}" is static'] if table else [""]
        if reasons and all(reasons):
            workers = "a worker on each host" if tier.workers == "each" else f"{tier.workers} workers"
            message = f'tier "{tier.id}" has {workers}, but its work cannot be shared: {reasons[0]}'
            remedy = "move the steps without state to a tier of their own, or take `workers` out"
            yield subject.problem("workers-alone", path, message, remedy)


def every_node_has_a_tier(subject: Subject) -> Iterator[Problem]:
    """A node that no tier names belongs to the tier of its inputs; if these are in several tiers or none, the flow must name its tier."""
    if "tiers" in subject.unread or subject.graph.cycles:
        return
    if any(base(id_) not in subject.graph.nodes for tier in subject.flow.tiers.values() for id_ in tier.steps):
        return  # the cause is a misspelt id, which is reported
    torn = subject.assignment.torn
    for id_, tiers in torn.items():
        if any(parent in torn for parent in subject.graph.parents[id_]):
            continue  # the problem of the parent covers it
        node = subject.graph.nodes[id_]
        above, below = (_tiers_of(subject, near[id_]) for near in (subject.graph.parents, subject.graph.readers))
        why = (
            f"reads from tiers {above}" if above else f"is read by tiers {below}" if below else "has no neighbour that is listed in a tier"
        )
        remedy = f"add it to the `steps` of {' or '.join(tiers)}"
        yield subject.problem_at_key("tier-unclear", path_of(node), f"the tier of {called(node)} is ambiguous: it {why}", remedy)


def _tiers_of(subject: Subject, ids: tuple[str, ...]) -> str:
    tiers = dict.fromkeys(subject.assignment.tier_of[id_] for id_ in ids if id_ in subject.assignment.tier_of)
    return " and ".join(f'"{tier}"' for tier in tiers)


def every_tier_has_work(subject: Subject) -> Iterator[Problem]:
    """A tier has a sink or writes rows for another tier; each tier that uses a static source reads it itself."""
    if not _is_placed(subject):
        return
    tier_of, feeding = subject.assignment.tier_of, {edge.feeding for edge in subject.assignment.cut}
    working = feeding | {tier_of[id_] for id_ in subject.flow.sinks if id_ in tier_of}
    for tier in subject.flow.tiers.values():
        own = [id_ for id_ in tier.steps if tier_of.get(id_) == tier.id]
        if tier.id not in working and own and all(is_static(subject.graph, id_) for id_ in own):
            message = f'tier "{tier.id}" would not run anything: {", ".join(own)} {"is static" if len(own) == 1 else "are static"}'
            yield subject.problem(
                "tier-empty", ("tiers", tier.id), message, "take the tier out; each tier that uses a static source reads it itself"
            )


def tiers_feed_one_way(subject: Subject) -> Iterator[Problem]:
    """Tiers in a cycle would wait for each other, and would have no start order."""
    if not _is_placed(subject):
        return
    for way in _circles(subject):
        tiers = [edge.feeding for edge in way]
        arrows = ", ".join(f'"{edge.name}"' for edge in way)
        message = f"circular dependency of tiers: {' -> '.join((*tiers, tiers[0]))}, by {arrows}"
        remedy = "move the nodes on the way back to a tier of their own, or both ends of one of these edges to the same tier"
        yield subject.problem_at_key("tier-cycle", ("tiers", tiers[0]), message, remedy)


def together_is_not_cut(subject: Subject) -> Iterator[Problem]:
    """Sinks that commit together are one query, which one tier runs."""
    if not _is_placed(subject):
        return
    for name, sinks in query_sinks(subject.flow).items():
        tiers = {sink.id: subject.assignment.tier_of[sink.id] for sink in sinks if sink.id in subject.assignment.tier_of}
        first = next(iter(tiers), "")
        for sink in sinks:
            if sink.id in tiers and tiers[sink.id] != tiers[first]:
                message = (
                    f'{called(sink)} is in tier "{tiers[sink.id]}", but sink "{first}", which commits with it as "{name}", '
                    f'is in "{tiers[first]}"'
                )
                remedy = "move them to one tier, or take `together` out"
                yield subject.problem("together-cut", path_of(sink, "together"), message, remedy)


def _is_placed(subject: Subject) -> bool:
    """True if every node has a tier, so that rules that depend on tiers can be checked."""
    return bool(subject.flow.tiers) and "tiers" not in subject.unread and not subject.shaken and not subject.graph.cycles


def _circles(subject: Subject) -> list[tuple[CutEdge, ...]]:
    """Each cycle of tiers once, as the shortest path from its first tier back to it."""
    found: list[tuple[CutEdge, ...]] = []
    for start in subject.flow.tiers:
        way = _way_back(subject.assignment.cut, start)
        if way and not any(start in {edge.feeding for edge in known} for known in found):
            found.append(way)
    return found


def _way_back(cut: tuple[CutEdge, ...], start: str) -> tuple[CutEdge, ...]:
    ways: list[tuple[CutEdge, ...]] = [(edge,) for edge in cut if edge.feeding == start]
    seen = {start}
    while ways:
        way = ways.pop(0)
        if way[-1].reading == start:
            return way
        if way[-1].reading not in seen:
            seen.add(way[-1].reading)
            ways += [(*way, edge) for edge in cut if edge.feeding == way[-1].reading]
    return ()
