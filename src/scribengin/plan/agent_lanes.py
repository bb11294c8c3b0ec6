"""Sources whose records agents collect: where gateways store them, and what each agent is to do."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from scribengin.connectors import catalog
from scribengin.connectors.agents.channel import channel_of
from scribengin.connectors.agents.options import CHANNEL, INPUT_OPTIONS, SOURCE
from scribengin.core.units import show_bytes
from scribengin.plan.channels import clusters, topic_name
from scribengin.plan.graph import base
from scribengin.spec.model import Channel, EdgeProperties
from scribengin.wire.protocol import LaneConfig

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from scribengin.plan.tier_flows import FlowPlan
    from scribengin.spec.model import AgentTier, Flow, Source

AGENT_TIER = "edge"
"""the tier of agents in a flow that names none"""
_BUILT_IN: Mapping[str, Any] = {"durability": "end_to_end", "compression": "zstd", "spill": 2**30}
"""what neither the source, nor its edge, nor `defaults.edge` says"""


@dataclass(frozen=True, slots=True)
class AgentLane:
    """What agents and gateways do for one source of a flow. `channel` is as `connectors.agents.contract.channel_of` returns it."""

    config: LaneConfig
    group: str
    """the group of agents; empty: those that name no group"""
    gateways: str
    """the group of gateways; empty: all"""
    channel: Mapping[str, Any]
    readers: tuple[str, ...]
    """the tiers that read it, as `FLOW.TIER`"""
    capacity_bytes: int

    @property
    def name(self) -> str:
        """The lane, `FLOW.SOURCE`."""
        return f"{self.config.flow}.{self.config.source}"


def is_collected(source: Source) -> bool:
    """True if agents collect the records of the source."""
    declared = catalog.source_types(internal=True).get(source.type)
    return declared is not None and "collected" in declared.abilities


def with_channels(flow: Flow, folder_of: Callable[[str], str | None] = lambda _: None) -> Flow:
    """The flow, with complete options of the sources that agents feed: what they do not say is taken from their edge and `defaults.edge`.

    Args:
        flow: A checked flow.
        folder_of: Source → the folder of its channel, if the flow names none.
    """
    if not any(map(is_collected, flow.sources.values())):
        return flow
    sources = {id_: _filled(flow, source, folder_of) if is_collected(source) else source for id_, source in flow.sources.items()}
    return replace(flow, sources=sources)


def _filled(flow: Flow, source: Source, folder_of: Callable[[str], str | None]) -> Source:
    own, default = _edge_of(flow, source.id), flow.defaults.edge
    options = dict(source.options)
    for name, built_in in _BUILT_IN.items():
        if options.get(name) is None:
            options[name] = next((value for edge in (own, default) if (value := getattr(edge, name)) is not None), built_in)
    if options["compression"] == "snappy":  # of channels between tiers only
        options["compression"] = "lz4"
    options["channel"] = _channel(flow, source.id, options.get("channel") or {}, (own, default), folder_of)
    config = next((edge.channel.config for edge in (own, default) if edge.channel is not None and edge.channel.config), None)
    if not options.get("config") and (given := config or clusters(flow).get(options["channel"].get("bootstrap", ""))):
        options["config"] = given
    return replace(source, options=options)


def _edge_of(flow: Flow, source: str) -> EdgeProperties:
    """The properties that `edges` gives the way from the source to its reader."""
    return next((edge for name, edge in flow.edges.items() if base(name.partition(" -> ")[0]) == source), EdgeProperties())


def _channel(
    flow: Flow, source: str, given: Mapping[str, Any], edges: tuple[EdgeProperties, ...], folder_of: Callable[[str], str | None]
) -> dict[str, Any]:
    found = dict(given)
    for edge in edges:
        channel = edge.channel or Channel()
        more = {key.name: getattr(channel, key.name, None) for key in CHANNEL.keys} | {"retention": edge.retention_s}
        found = {name: value for name, value in more.items() if value} | found
    known = clusters(flow)
    if not found.get("type"):
        kafka = found.get("bootstrap") or found.get("topic") or (len(known) == 1 and not found.get("path"))
        found["type"] = "kafka" if kafka else "folder"
    if found["type"] == "kafka":
        found.setdefault("topic", topic_name(flow.name, source, "agents"))
        found.setdefault("bootstrap", next(iter(known), ""))
    elif not found.get("path") and (folder := folder_of(f"{source}_agents")) is not None:
        found["path"] = folder
    return found


_HOPS = {
    "end_to_end": "kept by the agent until the last tier has committed it: exactly once",
    "store_on_failure": "kept in memory, and on disk while no gateway takes it: at least once",
    "best_effort": "kept in memory, dropped and counted when no gateway takes it: at most once",
}


def describe_agents(flow: Flow) -> Iterator[tuple[str, str]]:
    """(tier, text) for each source that agents feed: what they read, and how it travels."""
    for source in flow.sources.values():
        if not is_collected(source):
            continue
        tier, options = tier_of_agents(flow, source.id), SOURCE.filled(source.options, flow.defaults.profile)
        group = tier.agents if tier is not None else options["group"]
        agents = f"agents {group}" if group else "agents without a group"
        reads = next((options[name] for name in ("path", "command", "listen", "units") if options[name]), "")
        what = reads if isinstance(reads, str) else " ".join(map(str, reads))
        gateways = f"gateways {tier.gateways}" if tier is not None and tier.gateways else "any gateway"
        channel = options["channel"] or {}
        place = f"topic {channel.get('topic')}" if channel.get("type") == "kafka" else f"folder {channel.get('path', '')}"
        text = (
            f"{source.id}: {agents} read {options['input']} {what}".rstrip()
            + f"; {options['durability']}: a record is {_HOPS[options['durability']]}; log synced: {options['sync']}, at most "
            f"{show_bytes(options['spill'])}; {options['compression']} over {gateways} to {place}"
        )
        yield (tier.id if tier is not None else AGENT_TIER), text


def tier_of_agents(flow: Flow, source: str) -> AgentTier | None:
    """The tier with `agents` that the source belongs to; None if the flow has none for it."""
    named = {id_: tier for tier in flow.agent_tiers.values() for id_ in tier.steps}
    return named.get(source) or next((tier for tier in flow.agent_tiers.values() if not tier.steps), None)


def lanes_of(plan: FlowPlan, *, version: int = 0) -> dict[str, AgentLane]:
    """Lane → what agents and gateways do for it.

    Args:
        plan: The plan of the flow.
        version: The version of the flow.
    """
    lanes = {}
    for source in plan.flow.sources.values():
        if is_collected(source):
            readers = tuple(f"{plan.flow.name}.{tier.tier}" for tier in plan.tiers if source.id in tier.flow.sources)
            lane = _lane(plan.flow, source, readers, version)
            lanes[lane.name] = lane
    return lanes


def _lane(flow: Flow, source: Source, readers: tuple[str, ...], version: int) -> AgentLane:
    options = SOURCE.filled(source.options, flow.defaults.profile)
    tier = tier_of_agents(flow, source.id)
    limit = options["limit"] or {}
    pack = SOURCE.option("pack")
    assert pack is not None
    size = pack.filled(options["pack"] or {})
    travelling = {name: list(value) if isinstance(value := options[name], tuple) else value for name in sorted(INPUT_OPTIONS)}
    for name in ("path", "exclude"):
        if isinstance(travelling[name], str):
            travelling[name] = [travelling[name]]
    multiline = SOURCE.option("multiline")
    assert multiline is not None
    travelling["multiline"] = multiline.filled(options["multiline"]) if options["multiline"] else ""
    config = LaneConfig(
        flow=flow.name,
        source=source.id,
        input=options["input"],
        version=version,
        tier=tier.id if tier is not None else AGENT_TIER,
        options=travelling,
        durability=options["durability"],
        compression=options["compression"],
        sync=options["sync"],
        frame_rows=size["rows"],
        frame_bytes=size["bytes"],
        linger_s=options["linger"],
        spill_bytes=options["spill"],
        on_full=options["when_full"],
        limit_rows=float(limit.get("rows", 0)),
        limit_bytes=float(limit.get("bytes", 0)),
        max_record=options["max_record"],
        tags=dict(options["tags"]),
    )
    group = tier.agents if tier is not None else options["group"]
    gateways = tier.gateways or "" if tier is not None else ""
    return AgentLane(config, group, gateways, channel_of(options, flow.folder, source.id), readers, options["capacity"])
