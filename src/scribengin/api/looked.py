"""Collects the records for the planner's process, and chooses where it runs: here, or on a node that has the state."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from scribengin.api.elsewhere import node_with_state
from scribengin.api.node_pages import NodeQuestion
from scribengin.control import reading
from scribengin.core.errors import Refused
from scribengin.registry.contract import RegistryEntry
from scribengin.registry.tree import DESIRED, SPEC, STATUS

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from scribengin.api.plane import Plane
    from scribengin.client.models import Submit
    from scribengin.registry.contract import Registry


def ask_planner(
    plane: Plane,
    what: str,
    flow: str,
    flows: Sequence[str],
    *,
    arguments: Mapping[str, Any] | None = None,
    versions: Mapping[str, int] | None = None,
    submits: tuple[Submit, ...] = (),
) -> Any:
    """The result of `Planner.ask`, here or on a node that has the state of the first of `flows` whose state is not here. Raises the same
    errors, and Refused `state-elsewhere` if a node may have it and does not answer. In that case submissions are planned without the state,
    and workers refuse a version that does not fit it."""
    said = arguments or {}
    for name in flows:
        if what == "limit" or plane.registry.read(DESIRED(name).path) is None:
            continue
        try:
            node = node_with_state(plane.registry, name, plane.nodes.has_state)
        except Refused as error:
            if error.code != "state-elsewhere" or what not in ("topology", "rollback"):
                raise
            continue
        if node:
            looking = NodeQuestion(what, flow, tuple(flows), plane.revision(), plane.state, versions or {}, said, submits)
            return plane.nodes.look_into(node, looking)
    records = records_of(plane.registry, flows, versions)
    return plane.planner.ask(what, records, flow=flow, arguments=said, submits=submits)


def records_of(registry: Registry, flows: Sequence[str], versions: Mapping[str, int] | None = None) -> dict[str, Mapping[str, Any]]:
    """The desired states, versions and statuses of flows; with the additional `versions` of theirs. Records that cannot be read are left
    out."""
    found: dict[str, Mapping[str, Any]] = {}
    for flow in dict.fromkeys(flows):
        desired = registry.read(DESIRED(flow).path)
        version = str(desired.value.get("version", "")) if isinstance(desired, RegistryEntry) else ""
        paths = [DESIRED(flow).path, STATUS(flow).path]
        newest = max(reading.versions_of(registry, flow), default=0)
        also = [str(versions[flow])] if versions is not None and flow in versions else []
        paths += [SPEC(flow, number).path for number in {version, str(newest), *also} if SPEC.fits(flow, number)]
        entries = {path: registry.read(path) for path in paths}
        found |= {path: entry.value for path, entry in entries.items() if isinstance(entry, RegistryEntry) and entry.value}
    return found
