"""What the registry says of flows, as the models of the API: for the server, and for commands where no master is alive."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

import msgspec

from scribengin.client.models import FLOW_NAME, FlowRow, FlowView, MasterRow, NodeRow, TaskRow, VersionRow
from scribengin.client.verb_models import Happened
from scribengin.control import bindings, reading
from scribengin.control.happened import read_happened
from scribengin.registry.contract import Entry
from scribengin.registry.records import Stored, names, read_record
from scribengin.registry.tree import DESIRED, LEADER, MASTERS, SPEC

if TYPE_CHECKING:
    from collections.abc import Mapping

    from scribengin.registry.contract import Damaged, Registry

    class Reading(Protocol):
        """What reads records: a registry, or a master's mirror of it."""

        def read(self, path: str) -> Entry | Damaged | None:
            """What is there; None where nothing is."""


class RegistryView:
    """Reads of `client.Client`, made of the registry itself; of flows with all these labels only."""

    def __init__(self, registry: Registry, labels: Mapping[str, str] | None = None) -> None:
        self._registry = registry
        self._labels = labels or {}

    def flows(self, labels: Mapping[str, str] | None = None) -> list[FlowRow]:
        """As `Client.flows`."""
        rows = reading.read_flows(self._registry)
        if self._labels or labels:
            wanted = {**self._labels, **(labels or {})}.items()
            rows = tuple(row for row in rows if wanted <= labels_of(self._registry, row.flow).items())
        return [row_of(row) for row in rows]

    def flow(self, name: str) -> FlowView:
        """As `Client.flow`."""
        check_flow(self._registry, name)
        revision = wanted_revision(self._registry, name)  # before the rest: a wish that comes meanwhile makes it stale, not wrong
        found = reading.describe(self._registry, name)
        return msgspec.convert({**found, "wanted": {**found["wanted"], "revision": revision}}, FlowView)

    def tasks(self, name: str) -> list[TaskRow]:
        """As `Client.tasks`."""
        check_flow(self._registry, name)
        reading.read_flow(self._registry, name)
        return msgspec.convert(reading.read_tasks(self._registry, name), list[TaskRow])

    def happened(self, name: str) -> list[Happened]:
        """As `Client.happened`."""
        check_flow(self._registry, name)
        return msgspec.convert([each.as_json() for each in read_happened(self._registry, name)], list[Happened])

    def versions(self, name: str) -> list[VersionRow]:
        """As `Client.versions`."""
        check_flow(self._registry, name)
        return msgspec.convert(reading.history(self._registry, name), list[VersionRow])

    def nodes(self) -> list[NodeRow]:
        """As `Client.nodes`."""
        return msgspec.convert(bindings.nodes(self._registry), list[NodeRow])

    def node(self, name: str) -> NodeRow:
        """One of them. Raises Refused where there is none of that name."""
        found = self.nodes()
        for row in found:
            if row.node == name:
                return row
        raise bindings.unknown_node(name, [row.node for row in found])


def check_flow(registry: Registry, name: str) -> None:
    """Raise Refused for a name that no flow can have."""
    if not FLOW_NAME.fullmatch(name):
        raise reading.unknown_flow(name, names(registry, "flows"))


def labels_of(registry: Reading, flow: str) -> Mapping[str, str]:
    """The labels of a flow, as the version that is wanted has them; none of a flow that nobody has submitted."""
    desired = registry.read(DESIRED(flow).path)
    version = desired.value.get("version") if isinstance(desired, Entry) else None
    spec = registry.read(SPEC(flow, str(version)).path) if isinstance(version, int) and version > 0 else None
    labels = spec.value.get("labels") if isinstance(spec, Entry) else None
    return {str(label): str(value) for label, value in labels.items()} if isinstance(labels, dict) else {}


def masters_of(registry: Registry) -> list[MasterRow]:
    """The masters that are up, by id."""
    leader = read_record(registry, LEADER())
    found = {}
    for name in names(registry, "masters"):
        record = read_record(registry, MASTERS(name))
        if isinstance(record, Stored):
            found[name] = MasterRow(name, record.record.http, leads=False, since=record.record.since)
    if isinstance(leader, Stored):
        name = leader.record.id
        found[name] = MasterRow(name, leader.record.http, leads=True, since=leader.record.since)
    return [found[name] for name in sorted(found)]


def wanted_revision(registry: Registry, flow: str) -> int:
    """Which revision wrote what is wanted of the flow; 0 where nothing is."""
    found = registry.read(DESIRED(flow).path)
    return found.changed if isinstance(found, Entry) else 0


def row_of(row: reading.FlowRow) -> FlowRow:
    """A flow in the list."""
    desired, status = row.desired, row.status
    if status is None:
        return FlowRow(row.flow, desired.version, desired.state, "created", desired.at, "", "")
    return FlowRow(row.flow, desired.version, desired.state, status.state, status.since, status.reason, status.next, status.refused)
