"""The relative paths of a flow, which depend on the folder of its data."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import PurePath
from typing import TYPE_CHECKING

from scribengin.connectors import catalog
from scribengin.core.secret import Secret
from scribengin.plan.groups import placed
from scribengin.plan.tier_flows import plan_flow, source_id

if TYPE_CHECKING:
    from collections.abc import Iterator

    from scribengin.spec.model import Flow, Sink, Source

_SECRET_FILE = re.compile(r"\$\{secret:file/([^}]+)\}")


@dataclass(frozen=True, slots=True)
class RelativePlace:
    """A relative path in an option. `node` is the node with the option `option`; for a channel it is the edge (`a -> b`)."""

    node: str
    option: str
    path: str

    def __str__(self) -> str:
        return f"{self.option} of {self.node} ({self.path})"


def relative_places(flow: Flow) -> tuple[RelativePlace, ...]:
    """The relative paths of a checked flow: of sources, sinks and channels, members of groups, keyrings, files of secrets; each once, tier
    by tier.

    Paths of schema files are not included: they are relative to the code. Nor are paths that only a connector understands, such as a
    certificate in Kafka's `config`.
    """
    plan = plan_flow(flow)
    names: dict[str, str] = {end: channel.names[0] for channel in plan.channels for end in (channel.id, source_id(channel))}
    found: dict[RelativePlace, None] = {}
    for flow_of_tier in (tier.flow for tier in plan.tiers):
        nodes: list[Source | Sink] = [*flow_of_tier.sources.values(), *flow_of_tier.sinks.values()]
        for node in nodes:
            places = (RelativePlace(names.get(node.id, node.id), option, path) for option, path in _paths(flow_of_tier, node))
            found |= dict.fromkeys(place for place in places if _is_relative(place.path))
    return tuple(found)


def _paths(flow: Flow, node: Source | Sink) -> Iterator[tuple[str, str]]:
    types = catalog.sink_types(internal=True) if node.id in flow.sinks else catalog.source_types(internal=True)
    options = types[node.type].filled(node.options, flow.defaults.profile)
    members = placed(flow, node, options)
    for option in types[node.type].options:
        value = options[option.name]
        if option.kind == "path" and not option.travels:
            given = [member[option.name] for _, _, member in members] or [value]
            yield from ((option.name, str(each)) for each in given if each is not None)
        for each in value.values() if isinstance(value, dict) else [value]:
            if isinstance(each, Secret):
                yield from ((option.name, path) for path in _SECRET_FILE.findall(each.reference))


def _is_relative(path: str) -> bool:
    return not (PurePath(path).is_absolute() or path.startswith("~") or "://" in path)
