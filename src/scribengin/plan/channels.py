"""The channels of a flow with tiers: which tier writes to which, with every property filled in."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any

from scribengin.plan.graph import flat_name
from scribengin.spec.model import Channel, Depth, EdgeProperties, Encryption, Pack, Rate

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping

    from scribengin.plan.graph import Graph
    from scribengin.plan.tiers import Assignment, CutEdge
    from scribengin.spec.model import Flow, Sink, Source

_LONGEST = 200
"""maximum length of a topic name: the name of its marker topic is longer, and Kafka's limit is 249"""
_LONGEST_ID = 63

BUILT_IN = EdgeProperties(
    compression="none",
    encryption=Encryption(none=True),
    pack=Pack(16_384, 768 * 1024, 0.0),
    ordering="none",
    retention_s=7 * 86_400.0,
    limit=Rate(),
    high_water=Depth(rows=10_000_000, bytes=4 * 2**30),
    capacity=Depth(rows=20_000_000, bytes=8 * 2**30),
    durability="end_to_end",
    spill=2**30,
)
"""the properties of an edge that neither `edges` nor `defaults.edge` sets"""


@dataclass(frozen=True, slots=True)
class PlannedChannel:
    """The rows of `reference` that tier `feeding` writes for the nodes `readers` of tier `reading`. `edge` has every property; its
    `channel` has the type, and the topic if the type is Kafka; a folder without a path is inside the state folder.

    `id` is the name of the channel's sink in the writing tier, and of the query that writes it.
    """

    id: str
    reference: str
    feeding: str
    reading: str
    readers: tuple[str, ...]
    edge: EdgeProperties

    @property
    def channel(self) -> Channel:
        """The channel's type and location."""
        assert self.edge.channel is not None
        return self.edge.channel

    @property
    def names(self) -> tuple[str, ...]:
        """The edges whose rows it carries, as written in a flow file."""
        return tuple(f"{self.reference} -> {reader}" for reader in self.readers)

    @property
    def place(self) -> str:
        """The topic or folder, for people."""
        return f"topic {self.channel.topic}" if self.channel.type == "kafka" else f"folder {self.channel.path or 'in the state'}"


def plan_channels(graph: Graph, assignment: Assignment) -> tuple[PlannedChannel, ...]:
    """The channels of a flow, in the order of its edges. Edges from one reference into one tier share a channel."""
    flow = graph.flow
    groups: dict[tuple[str, str], list[CutEdge]] = {}
    for edge in assignment.cut:
        groups.setdefault((edge.reference, edge.reading), []).append(edge)
    taken = set(graph.nodes)
    planned = []
    for (reference, reading), edges in groups.items():
        id_ = free(f"{flat_name(reference)}_to_{reading}", taken)
        taken.add(id_)
        readers = tuple(edge.reader for edge in edges)
        planned.append(PlannedChannel(id_, reference, edges[0].feeding, reading, readers, _filled(flow, reference, reading, edges[0].name)))
    return tuple(planned)


def edge_properties(flow: Flow, name: str) -> EdgeProperties:
    """The properties in force for an edge, without the channel: its own, else those of `defaults.edge`, else the built-in ones."""
    own, default = flow.edges.get(name, EdgeProperties()), flow.defaults.edge
    found = {}
    for each in fields(EdgeProperties):
        values = (getattr(own, each.name), getattr(default, each.name), getattr(BUILT_IN, each.name))
        if each.name in ("pack", "high_water", "low_water", "capacity", "limit"):
            found[each.name] = _merged(*values)
        else:
            found[each.name] = next((value for value in values if value not in (None, ())), values[-1])
    said = {level: _merged(getattr(own, level), getattr(default, level)) or Depth() for level in ("high_water", "capacity")}
    high, capacity = _levels(said["high_water"], said["capacity"])
    low = found["low_water"] or Depth()
    edge = EdgeProperties(**found | {"high_water": high, "capacity": capacity})
    return replace(edge, low_water=_merged(low, _scaled(high, 0.5)))


def clusters(flow: Flow) -> dict[str, Mapping[str, object]]:
    """`bootstrap` → the further settings, for each Kafka cluster that a node of the flow names."""
    nodes: list[Source | Sink] = [*flow.sources.values(), *flow.sinks.values()]
    return {str(node.options["bootstrap"]): node.options.get("config", {}) for node in nodes if "bootstrap" in node.options}


def _filled(flow: Flow, reference: str, reading: str, name: str) -> EdgeProperties:
    edge = edge_properties(flow, name)
    own, default = flow.edges.get(name, EdgeProperties()).channel or Channel(), flow.defaults.edge.channel or Channel()
    channel = _merged(own, default)
    known = clusters(flow)
    if channel.type is None:
        kafka = channel.bootstrap or channel.topic or (len(known) == 1 and not channel.path)
        channel = replace(channel, type="kafka" if kafka else "folder")
    if channel.type == "kafka":
        bootstrap = channel.bootstrap or next(iter(known), None)
        config = channel.config or known.get(bootstrap or "", {})
        cores = flow.tiers[reading].resources.cores if reading in flow.tiers else None
        topic = channel.topic or topic_name(flow.name, reference, reading)
        channel = replace(channel, topic=topic, bootstrap=bootstrap, config=config, partitions=channel.partitions or cores or 4)
    return replace(edge, channel=channel)


def topic_name(flow: str, reference: str, reading: str) -> str:
    """`scribengin-<flow>-<from>-<to>`, shortened with a hash if it is too long.

    >>> topic_name("tweets", "hot", "core")
    'scribengin-tweets-hot-core'
    """
    name = f"scribengin-{flow}-{reference}-{reading}"
    return name if len(name) <= _LONGEST else _shortened(name, _LONGEST)


def free(id_: str, taken: Collection[str]) -> str:
    """The name, with a number appended if it is in `taken`."""
    for name in _names(id_):
        if name not in taken:
            return name
    raise AssertionError("there is always another number")


def _names(id_: str) -> Iterator[str]:
    short = id_ if len(id_) <= _LONGEST_ID - 3 else _shortened(id_, _LONGEST_ID - 3)
    yield short
    number = 1
    while True:
        number += 1
        yield f"{short}_{number}"


def _shortened(name: str, longest: int) -> str:
    end = hashlib.sha256(name.encode()).hexdigest()[:10]
    return f"{name[: longest - len(end) - 1]}_{end}"


def _merged(*values: Any) -> Any:
    """For each field the first value that is set; None if none is set."""
    given = [value for value in values if value is not None]
    if not given:
        return None
    found: dict[str, Any] = {}
    for each in fields(given[0]):
        said = [value for one in given if (value := getattr(one, each.name)) not in (None, {})]
        found |= {each.name: said[0]} if said else {}
    return type(given[0])(**found)


def _levels(high: Depth, capacity: Depth) -> tuple[Depth, Depth]:
    """(high_water, capacity). A value that is not set is half or twice the other one, or built-in if neither is set."""
    assert BUILT_IN.high_water is not None
    assert BUILT_IN.capacity is not None
    over, half = _scaled(high, 2), _scaled(capacity, 0.5)
    limits = {each.name: getattr(BUILT_IN.capacity, each.name) for each in fields(Depth) if getattr(high, each.name) is None}
    waters = {each.name: getattr(BUILT_IN.high_water, each.name) for each in fields(Depth) if getattr(capacity, each.name) is None}
    return _merged(high, half, Depth(**waters)), _merged(capacity, over, Depth(**limits))


def _scaled(depth: Depth, factor: float) -> Depth:
    rows, size, age_s = depth.rows, depth.bytes, depth.age_s
    return Depth(
        None if rows is None else max(1, round(rows * factor)),
        None if size is None else max(1, round(size * factor)),
        None if age_s is None else age_s * factor,
    )
