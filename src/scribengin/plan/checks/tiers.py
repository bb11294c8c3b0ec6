"""Rules on where a flow is cut: its tiers, and what they hand to each other."""

from __future__ import annotations

from typing import TYPE_CHECKING

from scribengin.core.problems import did_you_mean
from scribengin.plan.checks.subject import Subject, called, path_of
from scribengin.plan.graph import base, query_sinks
from scribengin.plan.tiers import RESERVED, is_static
from scribengin.spec.tier_keys import MOST_WORKERS

if TYPE_CHECKING:
    from collections.abc import Iterator

    from scribengin.core.problems import Problem
    from scribengin.plan.tiers import CutEdge
    from scribengin.spec.model import Tier


_SAID_OTHERWISE = (
    *("spark.master", "spark.submit.", "spark.app.name", "spark.cores.max", "spark.local.dir"),
    *("spark.driver.memory", "spark.driver.host", "spark.driver.bindAddress"),
    *("spark.executor.memory", "spark.executor.cores", "spark.executor.instances"),
)
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
            message = f'tier "{tier.id}" names no step: it would run nothing'
            yield subject.problem("tier-empty", ("tiers", tier.id, "steps"), message, "name what runs in it, or take it out")
        for index, id_ in enumerate(tier.steps):
            path = ("tiers", tier.id, "steps", index)
            if id_ not in nodes:
                if base(id_) not in subject.broken:
                    near = f'name the whole node: "{base(id_)}"' if base(id_) in nodes else did_you_mean(id_, nodes)
                    remedy = near or f"there are {', '.join(nodes)}"
                    yield subject.problem(
                        "tier-node-unknown", path, f'tier "{tier.id}" names "{id_}", which the flow does not have', remedy
                    )
            elif id_ in named:
                message = f'tier "{tier.id}" names {called(nodes[id_])}, which tier "{named[id_].id}" has already'
                yield subject.problem("tier-twice", path, message, "a node runs in one tier: take it out of one of the two")
            else:
                named[id_] = tier


def tier_names_are_free(subject: Subject) -> Iterator[Problem]:
    """A tier's state lies in a folder of its name, beside those that every flow has."""
    for tier in subject.flow.tiers:
        if tier in RESERVED:
            message = f'a tier cannot be called "{tier}": {RESERVED[tier]}'
            yield subject.problem_at_key("tier-name", ("tiers", tier), message, "give it another name")


def settings_are_sparks(subject: Subject) -> Iterator[Problem]:
    """Settings of a tier's session are Spark's, and none that a flow's meaning, its state or its place hangs on."""
    for tier in subject.flow.tiers.values():
        for name in tier.resources.spark:
            path = ("tiers", tier.id, "resources", "spark", name)
            if not name.startswith("spark."):
                yield subject.problem_at_key("spark-setting", path, f'"{name}" is no setting of Spark', "their names begin with spark.")
            elif name.startswith(_SAID_OTHERWISE):
                yield subject.problem_at_key(
                    "spark-setting", path, f"{name} is said otherwise", "write cores, memory or executors; the launcher says where it runs"
                )
            elif any(word in name for word in _MEANT):
                yield subject.problem_at_key(
                    "spark-setting",
                    path,
                    f"{name} cannot be set: what flows mean, or that each row counts once, hangs on it",
                    "leave it out",
                )


def workers_have_work(subject: Subject) -> Iterator[Problem]:
    """Several workers share what a tier hands on: a Batch without state. Where all of it keeps state, or joins with a table, only one of
    them would ever work."""
    graph, tier_of = subject.graph, subject.assignment.tier_of
    for tier in subject.flow.tiers.values():
        path = ("tiers", tier.id, "workers")
        if tier.workers != "each" and tier.workers > MOST_WORKERS:
            message = f'tier "{tier.id}" has {tier.workers} workers; {MOST_WORKERS} are the most'
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
            reasons += [f'step "{stateful[0]}" keeps state'] if stateful else [f'source "{table[0]}" is a table'] if table else [""]
        if reasons and all(reasons):
            workers = "a worker on each host" if tier.workers == "each" else f"{tier.workers} workers"
            message = f'tier "{tier.id}" has {workers}, and nothing that they could share: {reasons[0]}'
            remedy = "put the steps without state into a tier of their own, or take workers out"
            yield subject.problem("workers-alone", path, message, remedy)


def every_node_has_a_tier(subject: Subject) -> Iterator[Problem]:
    """A node that no tier names goes where what it reads goes; where that is in several tiers, or in none, somebody must say it."""
    if "tiers" in subject.unread or subject.graph.cycles:
        return
    torn = subject.assignment.torn
    for id_, tiers in torn.items():
        if any(parent in torn for parent in subject.graph.parents[id_]):
            continue  # is told by what is told of the parent
        node = subject.graph.nodes[id_]
        above, below = (_tiers_of(subject, near[id_]) for near in (subject.graph.parents, subject.graph.readers))
        why = f"reads from tiers {above}" if above else f"is read by tiers {below}" if below else "has no neighbour that a tier names"
        remedy = f"name it under the `steps` of {' or '.join(tiers)}"
        yield subject.problem_at_key("tier-unclear", path_of(node), f"where {called(node)} runs cannot be told: it {why}", remedy)


def _tiers_of(subject: Subject, ids: tuple[str, ...]) -> str:
    tiers = dict.fromkeys(subject.assignment.tier_of[id_] for id_ in ids if id_ in subject.assignment.tier_of)
    return " and ".join(f'"{tier}"' for tier in tiers)


def every_tier_has_work(subject: Subject) -> Iterator[Problem]:
    """A tier has a sink, or hands rows to another tier; a table is read by each tier that joins with it."""
    if not _is_placed(subject):
        return
    tier_of, feeding = subject.assignment.tier_of, {edge.feeding for edge in subject.assignment.cut}
    working = feeding | {tier_of[id_] for id_ in subject.flow.sinks if id_ in tier_of}
    for tier in subject.flow.tiers.values():
        own = [id_ for id_ in tier.steps if tier_of.get(id_) == tier.id]
        if tier.id not in working and own and all(is_static(subject.graph, id_) for id_ in own):
            message = f'tier "{tier.id}" would run nothing: {", ".join(own)} {"is a table" if len(own) == 1 else "are tables"}'
            yield subject.problem("tier-empty", ("tiers", tier.id), message, "a table is read by each tier that uses it: take the tier out")


def tiers_feed_one_way(subject: Subject) -> Iterator[Problem]:
    """Tiers that feed each other in a circle would wait for each other, and nothing could say which came first."""
    if not _is_placed(subject):
        return
    for way in _circles(subject):
        tiers = [edge.feeding for edge in way]
        arrows = ", ".join(f'"{edge.name}"' for edge in way)
        message = f"tiers feed each other in a circle, {' -> '.join((*tiers, tiers[0]))}, by {arrows}"
        remedy = "put what lies on the way back into a tier of its own, or both ends of one arrow into one tier"
        yield subject.problem_at_key("tier-cycle", ("tiers", tiers[0]), message, remedy)


def together_is_not_cut(subject: Subject) -> Iterator[Problem]:
    """Sinks that commit together are one Query, which one tier runs."""
    if not _is_placed(subject):
        return
    for name, sinks in query_sinks(subject.flow).items():
        tiers = {sink.id: subject.assignment.tier_of[sink.id] for sink in sinks if sink.id in subject.assignment.tier_of}
        first = next(iter(tiers), "")
        for sink in sinks:
            if sink.id in tiers and tiers[sink.id] != tiers[first]:
                message = (
                    f'{called(sink)} is in tier "{tiers[sink.id]}", and sink "{first}", which commits with it as "{name}", '
                    f'in "{tiers[first]}"'
                )
                remedy = "put them into one tier, or let them commit by themselves"
                yield subject.problem("together-cut", path_of(sink, "together"), message, remedy)


def _is_placed(subject: Subject) -> bool:
    """Whether every node that is there has its tier: what follows from places can be told then."""
    return bool(subject.flow.tiers) and "tiers" not in subject.unread and not subject.shaken and not subject.graph.cycles


def _circles(subject: Subject) -> list[tuple[CutEdge, ...]]:
    """Each circle of tiers once, as the shortest way along the stream from its first tier back to it."""
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
