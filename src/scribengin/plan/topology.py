"""The tiers and channels of a plan, in the form in which they are stored."""

from __future__ import annotations

from typing import TYPE_CHECKING

from scribengin.plan.channel_text import property_texts
from scribengin.plan.tier_flows import source_id
from scribengin.state.topology import KnownChannel, StoredTopology

if TYPE_CHECKING:
    from scribengin.plan.channels import PlannedChannel
    from scribengin.plan.tier_flows import FlowPlan

_KEPT = ("kind", "channel", "topic", "path", "bootstrap", "partitions", "replication", "retention", "tier", "to")
"""options of a channel's sink that are needed to open the channel again for inspection; no keys, no passwords"""


def topology_of(plan: FlowPlan) -> StoredTopology:
    """The tiers and channels of the plan. A folder inside the state folder is stored without its path, since the state folder may be
    moved."""
    return StoredTopology(tuple(tier.tier for tier in plan.tiers), tuple(_known(plan, channel) for channel in plan.channels))


def _known(plan: FlowPlan, channel: PlannedChannel) -> KnownChannel:
    where = channel.channel
    options = plan.tier(channel.feeding).flow.sinks[channel.id].options
    named = where.path is not None or channel.edge.to is not None
    kept = {name: options[name] for name in _KEPT if name in options and (name != "path" or named)}
    place = ":".join(filter(None, [where.type, where.topic or where.path, channel.edge.to]))
    texts = property_texts(plan.flow, channel)
    return KnownChannel(channel.id, source_id(channel), channel.feeding, channel.reading, place, kept, texts)
