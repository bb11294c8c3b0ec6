"""What the registry says of flows, as the models of the API: for the server, and for commands where no master is alive."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from scribengin.client.models import FLOW_NAME, FlowRow, FlowView, VersionRow
from scribengin.control import admin
from scribengin.registry.contract import Entry
from scribengin.registry.records import names
from scribengin.registry.tree import DESIRED

if TYPE_CHECKING:
    from scribengin.registry.contract import Registry


class RegistryView:
    """Reads of `client.Client`, made of the registry itself."""

    def __init__(self, registry: Registry) -> None:
        self._registry = registry

    def flows(self) -> list[FlowRow]:
        """As `Client.flows`."""
        return [_row(row) for row in admin.read_flows(self._registry)]

    def flow(self, name: str) -> FlowView:
        """As `Client.flow`."""
        check_flow(self._registry, name)
        revision = wanted_revision(self._registry, name)  # before the rest: a wish that comes meanwhile makes it stale, not wrong
        found = admin.describe(self._registry, name)
        return msgspec.convert({**found, "wanted": {**found["wanted"], "revision": revision}}, FlowView)

    def versions(self, name: str) -> list[VersionRow]:
        """As `Client.versions`."""
        check_flow(self._registry, name)
        return msgspec.convert(admin.history(self._registry, name), list[VersionRow])


def check_flow(registry: Registry, name: str) -> None:
    """Raise Refused for a name that no flow can have."""
    if not FLOW_NAME.fullmatch(name):
        raise admin.unknown_flow(name, names(registry, "flows"))


def wanted_revision(registry: Registry, flow: str) -> int:
    """Which revision wrote what is wanted of the flow; 0 where nothing is."""
    found = registry.read(DESIRED(flow).path)
    return found.changed if isinstance(found, Entry) else 0


def _row(row: admin.FlowRow) -> FlowRow:
    desired, status = row.desired, row.status
    if status is None:
        return FlowRow(row.flow, desired.version, desired.state, "created", desired.at, "", "")
    return FlowRow(row.flow, desired.version, desired.state, status.state, status.since, status.reason, status.next)
