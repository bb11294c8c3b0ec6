"""Peers: other control planes, whose flows are connected to those here by topics, tables and objects. Each has its own registry, states and
clock.

The leading master polls a peer's API for the state of its flows, and records those that are connected to flows here (`control.peering`).
From then on they are upstream and downstream flows like others: their backlog throttles upstream flows, acknowledgements pass through them,
and `graph` shows them, as PEER/FLOW.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from scribengin.control.record_validation import again
from scribengin.control.workflows import Workflow, Workflows, from_the_sources
from scribengin.core.errors import Refused
from scribengin.plan.flow_links import MeetingIndex
from scribengin.registry.contract import Damaged, Delete
from scribengin.registry.peers import Peer, PeerState, RemoteFlow, remote_name
from scribengin.registry.record_io import Newer, Stored, names, read_record, read_records
from scribengin.registry.tree import PEER, PEER_STATE, REMOTE_FLOW

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from scribengin.control.registry_cache import Mirror
    from scribengin.plan.flow_links import Meeting
    from scribengin.registry.contract import Registry

_FOLDER = "peers"


@dataclass(frozen=True, slots=True)
class PeersSeen:
    """The peers, and their flows by their names here, from records. `problems`: path of an invalid record → why."""

    peers: Mapping[str, Peer] = field(default_factory=dict)
    states: Mapping[str, PeerState] = field(default_factory=dict)
    flows: Mapping[str, RemoteFlow] = field(default_factory=dict)
    problems: Mapping[str, str] = field(default_factory=dict)


def read_peers_seen(mirror: Mirror) -> PeersSeen:
    """Read the present records of peers. A flow that a newer master recorded is left out."""
    peers: dict[str, Peer] = {}
    states: dict[str, PeerState] = {}
    flows: dict[str, RemoteFlow] = {}
    problems: dict[str, str] = {}
    for name in mirror.children(_FOLDER):
        if not PEER.fits(name):
            continue
        there = mirror.stored(PEER(name))
        if isinstance(there, Damaged):
            problems[PEER(name).path] = there.why
        if not isinstance(there, Stored):
            continue
        peers[name] = there.record
        if isinstance(state := mirror.stored(PEER_STATE(name)), Stored):
            states[name] = state.record
        own = [flow for flow in mirror.children(f"{_FOLDER}/{name}/flows") if REMOTE_FLOW.fits(name, flow)]
        mirror.fetch([REMOTE_FLOW(name, flow).path for flow in own])
        for flow in own:
            if isinstance(found := mirror.stored(REMOTE_FLOW(name, flow)), Stored):
                flows[remote_name(name, flow)] = found.record
    return PeersSeen(peers, states, flows, problems)


def with_remote(workflow: Workflow, workflows: Workflows, remote: Mapping[str, RemoteFlow]) -> Workflow:
    """Returns a workflow with the connected flows of peers.

    Args:
        workflow: of flows here.
        workflows: those of all flows here.
        remote: flow of a peer, by its name here → its record.
    """
    if not remote:
        return workflow
    index = MeetingIndex()
    for name, spec in workflows.specs(workflow.flows).items():
        index.put(name, spec.outside)
    for name, flow in remote.items():
        index.put(name, flow.outside)
    met = tuple(each for each in index.meetings() if len({each.feeding, each.reading} & remote.keys()) == 1)
    if not met:
        return workflow
    flows = {name for each in met for name in (each.feeding, each.reading)} | {*workflow.flows}
    together = (*workflow.meetings, *met)
    return Workflow(from_the_sources(flows, together), together)


def read_peers(registry: Registry) -> dict[str, Stored[Peer] | Newer | Damaged]:
    """The peers of this control plane, by name."""
    there = [name for name in names(registry, _FOLDER) if PEER.fits(name)]
    found = zip(there, read_records(registry, [PEER(name) for name in there]), strict=True)
    return {name: record for name, record in found if record is not None}


def read_remote(registry: Registry) -> dict[str, RemoteFlow]:
    """The flows of all peers, by their names here."""
    peers = [name for name, record in read_peers(registry).items() if isinstance(record, Stored)]
    flows = {name: stored_flows(registry, name) for name in peers}
    return {remote_name(name, flow): found.record for name, there in flows.items() for flow, found in there.items()}


def remove_peer(registry: Registry, name: str) -> None:
    """Remove a peer. From then on its flows throttle no flow here. Raises Refused if there is no peer of that name."""

    def attempt() -> None:
        there = registry.read(PEER(name).path) if PEER.fits(name) else None
        if there is None:
            known = ", ".join(read_peers(registry)) or "none"
            raise Refused(f'there is no peer "{name}"', remedy=f"there are: {known}", code="peer-unknown")
        left = [PEER_STATE(name).path, *(REMOTE_FLOW(name, flow).path for flow in stored_flows(registry, name))]
        registry.commit(Delete(there.path, there.version), *deletes(registry, left))

    again(attempt)


def list_peers(registry: Registry, workflows: Workflows) -> list[dict[str, Any]]:
    """All peers as JSON, each with its flows that are connected to flows here. Works without a running master."""
    rows: list[dict[str, Any]] = []
    for name, record in sorted(read_peers(registry).items()):
        if not isinstance(record, Stored):
            why = record.why if isinstance(record, Damaged) else "was written by a newer Scribengin"
            rows.append({"peer": name, "refused": why})
            continue
        state = peer_state(registry, name)
        flows = {remote_name(name, flow): found.record for flow, found in stored_flows(registry, name).items()}
        met = workflows.meeting({flow: found.outside for flow, found in flows.items()})
        rows.append(
            {
                "peer": name,
                "masters": record.record.masters,
                "aliases": record.record.aliases,
                "answered_at": state.answered_at,
                "silent_since": state.silent_since,
                "why": state.why,
                "flows": [_flow_row(flow, found, met) for flow, found in sorted(flows.items())],
            }
        )
    return rows


def _flow_row(name: str, flow: RemoteFlow, met: Sequence[Meeting]) -> dict[str, Any]:
    meetings = [
        {"feeding": each.feeding, "sink": each.sink, "reading": each.reading, "source": each.source, "place": each.place}
        for each in met
        if name in (each.feeding, each.reading)
    ]
    return {"flow": name, "state": flow.state, "since": flow.since, "reason": flow.reason, "meetings": meetings}


def peer_state(registry: Registry, name: str) -> PeerState:
    """Whether the peer's masters answer, as last recorded."""
    found = read_record(registry, PEER_STATE(name))
    return found.record if isinstance(found, Stored) else PeerState()


def stored_flows(registry: Registry, name: str) -> dict[str, Stored[RemoteFlow]]:
    """The recorded flows of a peer, by the peer's own names."""
    there = [flow for flow in names(registry, f"{_FOLDER}/{name}/flows") if REMOTE_FLOW.fits(name, flow)]
    found = zip(there, read_records(registry, [REMOTE_FLOW(name, flow) for flow in there]), strict=True)
    return {flow: record for flow, record in found if isinstance(record, Stored)}


def deletes(registry: Registry, paths: Sequence[str]) -> list[Delete]:
    """The writes that remove these records."""
    return [Delete(each.path, each.version) for each in registry.read_many(list(paths)) if each is not None]
