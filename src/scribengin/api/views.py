"""The registry's records of flows as the models of the API: for the server, and for commands when no master runs."""

from __future__ import annotations

import time
from collections import defaultdict
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Protocol

import msgspec

from scribengin.client.models import (
    FLOW_NAME,
    AllEnds,
    Edge,
    EndLevels,
    EndPlace,
    FlowEnds,
    FlowNode,
    FlowRow,
    FlowView,
    FolderRow,
    IllRow,
    MasterRow,
    MeetingRow,
    NodeRow,
    SourceEnds,
    TaskRow,
    ThroughRow,
    TierNode,
    VersionRow,
    Waits,
    WorkflowOperation,
    WorkflowPart,
    WorkflowRow,
    WorkflowView,
)
from scribengin.control import flow_records, node_bindings
from scribengin.control.agents import describe_agent, list_agents, list_gateways
from scribengin.control.attempts import read_attempts
from scribengin.control.event_history import read_happened
from scribengin.control.operation_requests import read_operations
from scribengin.control.peers import read_remote, with_remote
from scribengin.control.workflow_progress import Reached, reached
from scribengin.control.workflows import Workflow, Workflows, is_ill
from scribengin.core.time_text import moment_text
from scribengin.registry.contract import RegistryEntry
from scribengin.registry.record_io import Stored, names, read_record
from scribengin.registry.tree import DESIRED, LEADER, MASTERS, SPEC

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping

    from scribengin.client.agent_models import AgentSummary, AgentView, GatewaySummary
    from scribengin.client.change_models import Happened
    from scribengin.registry.contract import Damaged, Registry
    from scribengin.registry.flow_ends import ExternalPlace
    from scribengin.registry.peers import RemoteFlow, RemoteSource

    class Reading(Protocol):
        """A reader of records: a registry, or a master's mirror of it."""

        def read(self, path: str) -> RegistryEntry | Damaged | None:
            """The record; None if it does not exist."""


_OPERATIONS = 5
"""number of operations over a workflow that are shown with it"""


class RegistryView:
    """The reads of `client.Client`, implemented on the registry itself."""

    def __init__(self, registry: Registry, labels: Mapping[str, str] | None = None, workflows: Workflows | None = None) -> None:
        """Read from this registry.

        Args:
            registry: the registry.
            labels: only flows with all of these are visible; None: all flows.
            workflows: a cache of workflows; None: nothing is cached.
        """
        self._registry = registry
        self._labels = labels or {}
        self._workflows = workflows or Workflows(registry)

    def flows(self, labels: Mapping[str, str] | None = None) -> list[FlowRow]:
        """The flows that match the labels, read from the registry; see `Client.flows`."""
        rows = flow_records.read_flows(self._registry)
        if self._labels or labels:
            wanted = {**self._labels, **(labels or {})}.items()
            rows = tuple(row for row in rows if wanted <= labels_of(self._registry, row.flow).items())
        met = {name: workflow for workflow in self._workflows.all() for name in workflow.flows}
        if self._labels:
            there = self.seen(met.keys())
            met = {name: workflow.only(there) for name, workflow in met.items() if name in there}
        if not self._labels and not labels:  # the labels of a text that was refused are unknown
            rows = tuple(sorted((*rows, *flow_records.read_refused_files(self._registry)), key=lambda row: row.flow))
        shown = [_met(row_of(row), met[row.flow]) if row.flow in met else row_of(row) for row in rows]
        return self._met_by_peers(shown)

    def _met_by_peers(self, rows: list[FlowRow]) -> list[FlowRow]:
        """The rows with the upstream and downstream flows of peers added."""
        remote = self._remote()
        if not remote:
            return rows
        met = self._workflows.meeting({name: flow.outside for name, flow in remote.items()})
        fed_by, feeds = defaultdict[str, set[str]](set), defaultdict[str, set[str]](set)
        for each in met:
            if each.feeding in remote:
                fed_by[each.reading].add(each.feeding)
            if each.reading in remote:
                feeds[each.feeding].add(each.reading)
        return [
            replace(row, fed_by=(*row.fed_by, *sorted(fed_by[row.flow])), feeds=(*row.feeds, *sorted(feeds[row.flow])))
            if row.flow in fed_by or row.flow in feeds
            else row
            for row in rows
        ]

    def seen(self, flows: Iterable[str]) -> set[str]:
        """Returns the flows that the caller may see."""
        if not self._labels:
            return set(flows)
        return {flow for flow in flows if self._labels.items() <= labels_of(self._registry, flow).items()}

    def workflow_of(self, name: str) -> Workflow:
        """The part of a flow's workflow that the caller may see."""
        found = self._workflows.of(name)
        return found.only(self.seen(found.flows))

    def whole_workflow(self, name: str) -> Workflow:
        """The workflow of a flow, with flows that the caller may not see, and with the connected flows of peers."""
        return self._with_remote(self._workflows.of(name), self._remote())

    def workflows(self) -> list[WorkflowRow]:
        """All workflows, read from the registry; see `Client.workflows`."""
        found = [workflow.only(self.seen(workflow.flows)) for workflow in self._workflows.all()]
        states = {row.flow: row_of(row).state for row in flow_records.read_flows(self._registry)} if found else {}
        return [
            WorkflowRow(each.name, {flow: states.get(flow, "created") for flow in each.flows}, len(each.meetings))
            for each in found
            if len(each.flows) > 1
        ]

    def workflow(self, name: str, waits: Callable[[str], Mapping[str, Waits]] = lambda _flow: {}) -> WorkflowView:
        """One workflow, read from the registry; see `Client.workflow`. `waits`: flow → source → its backlog."""
        check_flow(self._registry, name)
        flow_records.read_flow(self._registry, name)
        remote = self._remote()
        found = self._with_remote(self.workflow_of(name), remote)
        specs, nodes = self._workflows.specs(found.flows), list[FlowNode]()
        for flow in found.flows:
            if flow in remote:
                there = remote[flow]
                nodes.append(FlowNode(flow, there.state, there.wanted, there.version, there.since, there.reason, there.next, ()))
                continue
            row, spec = row_of(flow_records.read_flow(self._registry, flow)), specs.get(flow)
            tiers = tuple(TierNode(tier, said.feeders) for tier, said in spec.tiers.items()) if spec is not None else ()
            nodes.append(FlowNode(flow, row.state, row.wanted, row.version, row.since, row.reason, row.next, tiers))
        waiting = {flow: waits(flow) for flow in {each.reading for each in found.meetings}}
        edges = [
            Edge(each.feeding, each.sink, each.reading, each.source, each.place, waiting[each.reading].get(each.source))
            for each in found.meetings
        ]
        operations = (self._shown(each) for each in read_operations(self._registry, name)[:_OPERATIONS])
        return WorkflowView(found.name, tuple(nodes), tuple(edges), tuple(each for each in operations if each is not None))

    def ends(self, flows: Collection[str] = (), looks: Callable[[str], Mapping[str, tuple[float, Waits]]] = lambda _flow: {}) -> AllEnds:
        """Where flows read and write, and their states; see `Client.ends`. `looks`: flow → source → (age of the measurement in seconds,
        backlog)."""
        rows = {row.flow: row_of(row) for row in flow_records.read_flows(self._registry)}
        specs = self._workflows.specs(self.seen([name for name in rows if not flows or name in flows]))
        found, remote = [], self._remote() if flows else {}
        for name, spec in sorted(specs.items()):
            row, known, through = rows[name], looks(name) if flows else {}, self._through(name, remote) if flows else {}
            sources = {}
            for source, places in spec.outside.reads.items():
                age_s, waits = known.get(source, (None, None))
                waters = spec.outside.waters.get(source)
                levels = None if waters is None else msgspec.convert(msgspec.to_builtins(waters), EndLevels)
                sources[source] = SourceEnds(_places(places), levels, waits, age_s, through.get(source))
            sinks = {sink: _places(places) for sink, places in spec.outside.writes.items()}
            stands = (row.state, row.wanted, row.version, row.since, row.reason, row.next)
            if any(source.reads for source in sources.values()) or any(sinks.values()):
                found.append(FlowEnds(name, *stands, sources, sinks))
        return AllEnds(time.time(), tuple(found))

    def _part(self, name: str) -> WorkflowPart | None:
        remote = self._remote()
        found = self._with_remote(self.workflow_of(name), remote)
        if len(found.flows) < 2:
            return None
        rows = [MeetingRow(each.feeding, each.sink, each.reading, each.source, each.place) for each in found.meetings]
        ill = []
        for other, relation in found.relations(name).items():
            status = remote.get(other) or flow_records.read_status(self._registry, other)
            if status is not None and is_ill(status):
                ill.append(IllRow(other, relation, status.state, status.since, status.reason, status.next))
        feeders, fed = (tuple(row for row in rows if getattr(row, side) == name) for side in ("reading", "feeding"))
        under_way = next((each for each in read_operations(self._registry, name) if each.step == "ask"), None)
        return WorkflowPart(found.name, found.flows, feeders, fed, tuple(ill), self._shown(under_way), self._through(name, remote))

    def _through(self, name: str, remote: Mapping[str, RemoteFlow]) -> dict[str, ThroughRow]:
        """How far the sources of a flow are acknowledged by all downstream flows, including those that the caller may not see."""
        whole = self._with_remote(self._workflows.of(name), remote)
        specs = self._workflows.specs(whole.flows)
        told = {
            flow: {id_: _reported_by_peer(source, f"{flow}.{id_}") for id_, source in there.sources.items()}
            for flow, there in remote.items()
        }
        acks = {flow: tuple(flow_records.acks_of(self._registry, flow, tuple(spec.tiers)).values()) for flow, spec in specs.items()}
        return {source: self._through_row(there) for source, there in reached(name, acks, whole.meetings, told).items()}

    def _remote(self) -> Mapping[str, RemoteFlow]:
        """The flows of peers by their names here; none for a caller that may see only some flows."""
        return {} if self._labels else read_remote(self._registry)

    def _with_remote(self, workflow: Workflow, remote: Mapping[str, RemoteFlow]) -> Workflow:
        return with_remote(workflow, self._workflows, remote)

    def _through_row(self, there: Reached) -> ThroughRow:
        if there.moment is not None:
            return ThroughRow(moment_text(there.moment))
        return ThroughRow("", there.unknown if self.seen([there.unknown.partition(".")[0]]) else "another flow")

    def _shown(self, operation: WorkflowOperation | None) -> WorkflowOperation | None:
        """The operation without what the caller may not see."""
        if operation is None or not self._labels or self.seen(operation.flows) == set(operation.flows):
            return operation
        seen = self.seen(operation.flows)
        return replace(operation, flows=tuple(flow for flow in operation.flows if flow in seen), error="", waits_for=(), stuck=())

    def flow(self, name: str) -> FlowView:
        """One flow, read from the registry; see `Client.flow`."""
        check_flow(self._registry, name)
        # read first: a change of the desired state meanwhile makes the revision outdated, not wrong
        revision = wanted_revision(self._registry, name)
        found = flow_records.describe(self._registry, name)
        view = msgspec.convert({**found, "wanted": {**found["wanted"], "revision": revision}}, FlowView)
        return replace(view, folders=self._kept(view.folders), workflow=self._part(name))

    def _kept(self, folders: tuple[FolderRow, ...]) -> tuple[FolderRow, ...]:
        """The folders without the writers that the caller may not see."""
        seen = self.seen({writer.partition(".")[0] for folder in folders for writer in folder.writers})
        return tuple(replace(each, writers=tuple(tier for tier in each.writers if tier.partition(".")[0] in seen)) for each in folders)

    def tasks(self, name: str) -> list[TaskRow]:
        """The tasks of a flow, read from the registry; see `Client.tasks`."""
        check_flow(self._registry, name)
        flow_records.read_flow(self._registry, name)
        return flow_records.read_tasks(self._registry, name)

    def attempts(self, name: str) -> list[dict[str, Any]]:
        """The attempts of a flow, read from the registry; see `Client.attempts`. The workers' reports to a master are left out."""
        check_flow(self._registry, name)
        return read_attempts(self._registry, name)

    def happened(self, name: str) -> list[Happened]:
        """The events of a flow, read from the registry; see `Client.happened`."""
        check_flow(self._registry, name)
        return list(read_happened(self._registry, name))

    def versions(self, name: str) -> list[VersionRow]:
        """The versions of a flow, read from the registry; see `Client.versions`."""
        check_flow(self._registry, name)
        return flow_records.history(self._registry, name)

    def nodes(self) -> list[NodeRow]:
        """The registered hosts, read from the registry; see `Client.nodes`."""
        return msgspec.convert(node_bindings.nodes(self._registry), list[NodeRow])

    def agents(self, group: str | None = None) -> list[AgentSummary]:
        """The agents, read from the registry; see `Client.agents`."""
        return list_agents(self._registry, group)

    def agent(self, name: str) -> AgentView:
        """One agent, read from the registry; see `Client.agent`."""
        return describe_agent(self._registry, name)

    def gateways(self) -> list[GatewaySummary]:
        """The gateways, read from the registry; see `Client.gateways`."""
        return list_gateways(self._registry)

    def node(self, name: str) -> NodeRow:
        """One node, read from the registry. Raises Refused if there is no node of that name."""
        found = self.nodes()
        for row in found:
            if row.node == name:
                return row
        raise node_bindings.unknown_node(name, [row.node for row in found])


def _reported_by_peer(source: RemoteSource, name: str) -> Reached:
    """How far the source is acknowledged, as its peer reports. If the peer has reported nothing, the source itself, `name`, is the
    reason."""
    return Reached(source.through) if source.through is not None else Reached(None, source.unknown or name)


def _places(places: Iterable[ExternalPlace]) -> tuple[EndPlace, ...]:
    """The places as models of the API; without folders, which have no meaning on another host."""
    return tuple(EndPlace(place.kind, place.at, place.topic, place.many) for place in places if place.kind != "folder")


def check_flow(registry: Registry, name: str) -> None:
    """Raise Refused if the text is not a valid name of a flow."""
    if not FLOW_NAME.fullmatch(name):
        raise flow_records.unknown_flow(name, names(registry, "flows"))


def _met(row: FlowRow, workflow: Workflow) -> FlowRow:
    if len(workflow.flows) < 2:
        return row
    return replace(row, workflow=workflow.name, fed_by=workflow.feeders(row.flow), feeds=workflow.fed(row.flow))


def labels_of(registry: Reading, flow: str) -> Mapping[str, str]:
    """The labels of a flow in its desired version; none for a flow that was never submitted."""
    desired = registry.read(DESIRED(flow).path)
    version = desired.value.get("version") if isinstance(desired, RegistryEntry) else None
    spec = registry.read(SPEC(flow, str(version)).path) if isinstance(version, int) and version > 0 else None
    labels = spec.value.get("labels") if isinstance(spec, RegistryEntry) else None
    return {str(label): str(value) for label, value in labels.items()} if isinstance(labels, dict) else {}


def masters_of(registry: Registry) -> list[MasterRow]:
    """The running masters, by id."""
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
    """The revision that wrote the flow's desired state; 0 if there is none."""
    found = registry.read(DESIRED(flow).path)
    return found.changed if isinstance(found, RegistryEntry) else 0


def row_of(row: flow_records.ObservedFlow, labels: Mapping[str, str] | None = None) -> FlowRow:
    """A flow as a row of the list; with its labels, of an event."""
    desired, status = row.desired, row.status
    if status is None:
        return FlowRow(row.flow, desired.version, desired.state, "created", desired.at, "", "", labels=labels or {})
    said = (status.state, status.since, status.reason, status.next, status.refused)
    return FlowRow(row.flow, desired.version, desired.state, *said, labels=labels or {})
