"""Rules on the properties of edges and on the channels that result from them."""

from __future__ import annotations

from dataclasses import dataclass, fields
from pathlib import Path as FilePath
from typing import TYPE_CHECKING, Any

from scribengin.core.problems import did_you_mean, suggestion
from scribengin.formats.keyring import Keyring
from scribengin.plan.agent_lanes import is_collected
from scribengin.plan.channels import clusters, edge_properties
from scribengin.plan.checks.folders import folder_of
from scribengin.plan.checks.subject import Subject, called
from scribengin.plan.columns import find
from scribengin.plan.graph import base, inputs_of
from scribengin.plan.tiers import is_static
from scribengin.spec.model import Channel, EdgeProperties, Merge, Sink, Source, Step

if TYPE_CHECKING:
    from collections.abc import Iterator

    from scribengin.core.problems import Problem
    from scribengin.plan.channels import PlannedChannel
    from scribengin.spec.places import Path

_KEY_TYPES = ("STRING", "BINARY", "TINYINT", "SMALLINT", "INT", "BIGINT")
_WRITERS = ("compression", "encryption", "pack", "ordering", "key", "retention_s")
"""properties that must be equal for all writers of one channel"""


def edges_are_arrows(subject: Subject) -> Iterator[Problem]:
    """An edge goes from a node, or a branch, to a node that reads it."""
    nodes = subject.graph.nodes
    arrows = [f"{reference} -> {id_}" for id_, node in nodes.items() for reference in dict.fromkeys(inputs_of(node))]
    for name in subject.flow.edges:
        reference, _, reader = name.partition(" -> ")
        if name in arrows or {base(reference), reader} & subject.broken:
            continue
        if reader not in nodes:
            message = f'edge "{name}" goes to "{reader}", which the flow does not have'
        elif base(reference) not in nodes:
            message = f'edge "{name}" comes from "{reference}", which the flow does not have'
        else:
            message = f'edge "{name}" does not exist: {called(nodes[reader])} does not read "{reference}"'
        own = [arrow for arrow in arrows if arrow.endswith(f" -> {reader}")]
        into = f"its edges are {' and '.join(own)}" if own else f"edges of the flow are {', '.join(arrows)}"
        yield subject.problem_at_key(
            "edge-unknown", ("edges", name), message, did_you_mean(name, own) or did_you_mean(name, arrows) or into
        )


def edges_are_cut(subject: Subject) -> Iterator[Problem]:
    """In a flow with tiers, only an edge between two of them has a channel. Without tiers, edges have no effect."""
    if not subject.flow.tiers or "tiers" in subject.unread:
        return
    tier_of = subject.assignment.tier_of
    cut = {edge.name for edge in subject.assignment.cut}
    for name in subject.flow.edges:
        reference, _, reader = name.partition(" -> ")
        feeder = subject.graph.nodes.get(base(reference))
        if feeder is None or name in cut or reader not in tier_of or {base(reference), reader} & subject.shaken:
            continue
        if reference not in inputs_of(subject.graph.nodes[reader]):
            continue
        path = ("edges", name)
        if isinstance(feeder, Source) and is_collected(feeder):
            continue  # its channel lies behind the gateways
        if is_static(subject.graph, feeder.id):
            message = f'edge "{name}" has no channel: {called(feeder)} is static, so each tier reads it itself'
            yield subject.problem_at_key("edge-from-source", path, message, "take the edge out")
        elif isinstance(feeder, Source) and feeder.id not in tier_of:
            message = f'edge "{name}" has no channel: {called(feeder)} is read by each tier itself'
            remedy = f'take the edge out, or name "{feeder.id}" under the `steps` of the tier that is to read it'
            yield subject.problem_at_key("edge-from-source", path, message, remedy)
        elif feeder.id in tier_of:
            message = f'edge "{name}" has no channel: both of its ends are in tier "{tier_of[reader]}"'
            yield subject.problem_at_key("edge-uncut", path, message, "take the edge out, or move one of the two nodes to another tier")


def shared_channels_have_one_definition(subject: Subject) -> Iterator[Problem]:
    """Edges of one node into one tier share a channel, so they must have the same properties."""
    for channel in subject.channels:
        first, *others = [_Named.of(subject, name) for name in channel.names]
        for other in others:
            differing = first.differing(other, tuple(each.name for each in fields(EdgeProperties)))
            if differing:
                message = f'edges "{first.name}" and "{other.name}" share one channel, but differ in {", ".join(differing)}'
                told = other if other.name in subject.flow.edges else first
                yield subject.problem_at_key("edges-differ", ("edges", told.name), message, "write the same for both")


def channel_places_are_unique(subject: Subject) -> Iterator[Problem]:
    """A topic or folder has the rows of one reference, for one tier or several, or the rows of the inputs of one union."""
    named = [(channel, place) for channel in subject.channels if (place := _place(subject, channel)) is not None]
    for index, (channel, place) in enumerate(named):
        name, says = channel.names[0], _written_location(subject, channel.names[0])
        path: Path = ("edges", name, "channel", "topic" if channel.channel.type == "kafka" else "path")
        user = _used_by(subject, channel)
        if user is not None:
            message = f'the channel of edge "{name}" is {says}, which {called(user)} also uses'
            yield subject.problem("channel-shared", path, message, "give the channel a folder or topic of its own")
            continue
        for other, taken in named[:index]:
            if not _meet(place, taken):
                continue
            if place != taken or not _may_share(subject, channel, other):
                location = _written_location(subject, other.names[0])
                message = f'the channel of edge "{name}" is {says}, which edge "{other.names[0]}" ({location}) also uses'
                remedy = "give each its own folder or topic; only edges from one node, or into one union, can share one"
                yield subject.problem("channel-shared", path, message, remedy)
                break
            differing = _Named.of(subject, other.names[0]).differing(_Named.of(subject, name), _WRITERS)
            if differing:
                message = f'edges "{other.names[0]}" and "{name}" write to {says}, but differ in {", ".join(differing)}'
                yield subject.problem_at_key("edges-differ", ("edges", name), message, "write the same for both")
                break


def keys_order_rows(subject: Subject) -> Iterator[Problem]:
    """The key of `ordering: key` is made of columns that the edge's rows have, of types with exact equality."""
    flow = subject.flow
    names = dict.fromkeys((*flow.edges, *(name for channel in subject.channels for name in channel.names)))
    for name in names:
        reference = name.partition(" -> ")[0]
        edge, columns = edge_properties(flow, name), subject.resolved.of(reference)
        if edge.ordering != "key" or columns is None or base(reference) in subject.shaken:
            continue
        own = bool(name in flow.edges and flow.edges[name].key)
        for index, key in enumerate(edge.key):
            path: Path = ("edges", name, "key", index) if own else ("defaults", "edge", "key", index)
            column = find(columns, key)
            if column is None:
                known = [each.name for each in columns]
                remedy = suggestion(key, known, "it has")
                message = f'edge "{name}" is ordered by "{key}", which "{reference}" does not have'
                yield subject.problem("column-unknown", path, message, remedy)
            elif column.type is not None and column.type.name not in _KEY_TYPES:
                message = f'edge "{name}" is ordered by "{key}", which is {column.type}'
                yield subject.problem(
                    "edge-key-type", path, message, "order by a STRING, BINARY or whole-number column; a select step can compute one"
                )


def clusters_are_known(subject: Subject) -> Iterator[Problem]:
    """A channel over Kafka names its brokers, or the flow's own nodes name those of one cluster, or a group's members do."""
    known = clusters(subject.flow)
    told = set()
    for channel in subject.channels:
        name = channel.names[0]
        own = subject.flow.edges.get(name, EdgeProperties()).channel
        given = [one for one in (own, subject.flow.defaults.edge.channel) if one is not None]
        if channel.channel.type != "kafka" or channel.edge.to or any(one.bootstrap for one in given) or len(known) == 1:
            continue
        path: Path = ("edges", name, "channel") if own is not None else ("defaults", "edge", "channel")
        if path in told:
            continue
        told.add(path)
        what = f"the flow's nodes have {' and '.join(sorted(known))}" if known else "no node of the flow has `bootstrap`"
        broker = next(iter(sorted(known)), "broker1:9092")
        remedy = f'add the brokers: channel: {{type: kafka, bootstrap: "{broker}"}}' + ("" if known else ", or write channel: folder")
        yield subject.problem(
            "channel-cluster", path, f'edge "{name}" has a channel in Kafka, but its brokers are not known: {what}', remedy
        )


def keyrings_are_kept(subject: Subject) -> Iterator[Problem]:
    """If an edge's keyring is on this machine, only its owner can read it, and its last line is complete."""
    told = set()
    for channel in subject.channels:
        ring = channel.edge.encryption.keyring if channel.edge.encryption is not None else None
        if ring is None or ring in told:
            continue
        told.add(ring)
        name = channel.names[0]
        own = subject.flow.edges.get(name, EdgeProperties()).encryption is not None
        path: Path = ("edges", name, "encryption") if own else ("defaults", "edge", "encryption")
        for notice in Keyring(subject.flow.folder / ring).notices():
            yield subject.problem("keyring", path, notice, severity="warning")


def groups_wait_for_their_members(subject: Subject) -> Iterator[Problem]:
    """Rows for a group wait for their member, so an edge to a group cannot drop rows or store them elsewhere."""
    for channel in subject.channels:
        if not channel.edge.to or channel.edge.durability == "end_to_end":
            continue
        name = channel.names[0]
        own = subject.flow.edges.get(name, EdgeProperties())
        path: Path = ("edges", name, "durability") if own.durability is not None else ("defaults", "edge", "durability")
        message = f'edge "{name}" goes to group {channel.edge.to} with durability: {channel.edge.durability}; a group needs end_to_end'
        remedy = "write durability: end_to_end for that edge, or take `to` out"
        yield subject.problem("group-durability", path, message, remedy)


@dataclass(frozen=True, slots=True)
class _Named:
    """An edge with all properties in force, including its channel."""

    name: str
    edge: EdgeProperties
    channel: Channel

    @staticmethod
    def of(subject: Subject, name: str) -> _Named:
        own = subject.flow.edges.get(name, EdgeProperties()).channel
        default = subject.flow.defaults.edge.channel
        return _Named(name, edge_properties(subject.flow, name), own or default or Channel())

    def differing(self, other: _Named, properties: tuple[str, ...]) -> list[str]:
        """The names of the properties that differ, as in a flow file."""

        def value(one: _Named, name: str) -> Any:
            return one.channel if name == "channel" else getattr(one.edge, name)

        return [name.removesuffix("_s") for name in properties if value(self, name) != value(other, name)]


def _place(subject: Subject, channel: PlannedChannel) -> tuple[str, str] | None:
    """The location of a channel if its edge sets it: (folder, its path) or (brokers, topic)."""
    own = subject.flow.edges.get(channel.names[0], EdgeProperties()).channel
    if own is None or not (own.topic or own.path):
        return None
    if channel.channel.type == "kafka":
        return channel.channel.bootstrap or "", str(channel.channel.topic)
    return "folder", str((subject.flow.folder / str(own.path)).resolve())


def _written_location(subject: Subject, name: str) -> str:
    """The location of a channel as written at its edge."""
    channel = subject.flow.edges[name].channel
    assert channel is not None
    return f"topic {channel.topic}" if channel.topic else f"folder {channel.path}"


def _meet(one: tuple[str, str], other: tuple[str, str]) -> bool:
    """True if two places are the same, or one folder is inside the other."""
    if one[0] == other[0] == "folder":
        left, right = FilePath(one[1]), FilePath(other[1])
        return left.is_relative_to(right) or right.is_relative_to(left)
    return one == other


def _may_share(subject: Subject, one: PlannedChannel, other: PlannedChannel) -> bool:
    if one.reference == other.reference:
        return True
    if len({*one.readers, *other.readers}) > 1:
        return False
    reader = subject.graph.nodes[one.readers[0]]
    return isinstance(reader, Sink) or (isinstance(reader, Step) and isinstance(reader.action, Merge) and reader.action.how == "union")


def _used_by(subject: Subject, channel: PlannedChannel) -> Source | Sink | None:
    """The node of the flow that reads or writes at the location of the channel."""
    flow, where = subject.flow, channel.channel
    nodes: list[tuple[Source | Sink, Any]] = [
        *((source, subject.source_types) for source in flow.sources.values()),
        *((sink, subject.sink_types) for sink in flow.sinks.values()),
    ]
    for node, types in nodes:
        options = node.options
        if where.type == "folder":
            folder = folder_of(subject, node, types)
            if folder is not None and _meet(("folder", str(folder)), ("folder", str((flow.folder / str(where.path)).resolve()))):
                return node
        elif options.get("bootstrap") == where.bootstrap and where.topic in (options.get("topic"), *(options.get("topics") or ())):
            return node
    return None
