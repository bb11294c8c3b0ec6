"""Workflows: connected flows, found from their desired versions, without a declaration and without a running master."""

from __future__ import annotations

import threading
from collections import defaultdict
from dataclasses import dataclass, field
from graphlib import TopologicalSorter
from typing import TYPE_CHECKING, Literal

from scribengin.core.errors import InputError
from scribengin.core.problems import Place, Problem
from scribengin.plan.flow_links import MeetingIndex, circle, way_text
from scribengin.registry.contract import RegistryEntry
from scribengin.registry.record_io import Stored, names, read_records
from scribengin.registry.tree import DESIRED, SPEC

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from scribengin.plan.flow_links import Meeting
    from scribengin.registry.contract import Registry
    from scribengin.registry.flow_ends import Outside
    from scribengin.registry.peers import RemoteFlow
    from scribengin.registry.records import Spec, StatusRecord

ILL = ("failed", "degraded", "stopped", "paused")
"""states of a flow that are shown with the other flows of its workflow"""
Relation = Literal["feeds this one", "is fed by this one", "is in the same workflow"]


@dataclass(frozen=True, slots=True)
class Workflow:
    """Connected flows, from the sources down, and their connections. It has the name of its first flow. A flow without connections is a
    workflow of its own."""

    flows: tuple[str, ...]
    meetings: tuple[Meeting, ...] = ()

    @property
    def name(self) -> str:
        """The name of its first flow."""
        return self.flows[0]

    def feeders(self, flow: str) -> tuple[str, ...]:
        """The flow's direct upstream flows, by name."""
        return tuple(sorted({each.feeding for each in self.meetings if each.reading == flow}))

    def fed(self, flow: str) -> tuple[str, ...]:
        """The flow's direct downstream flows, by name."""
        return tuple(sorted({each.reading for each in self.meetings if each.feeding == flow}))

    def relations(self, flow: str) -> dict[str, Relation]:
        """The relation of each other flow of the workflow to `flow`, direct or over other flows."""
        above = behind(flow, _joined((each.reading, each.feeding) for each in self.meetings))
        below = behind(flow, _joined((each.feeding, each.reading) for each in self.meetings))
        found: dict[str, Relation] = {}
        for other in self.flows:
            if other != flow:
                found[other] = "feeds this one" if other in above else "is fed by this one" if other in below else "is in the same workflow"
        return found

    def only(self, flows: Collection[str]) -> Workflow:
        """The workflow reduced to the flows that a caller may see."""
        met = tuple(each for each in self.meetings if each.feeding in flows and each.reading in flows)
        return Workflow(tuple(flow for flow in self.flows if flow in flows), met)


@dataclass
class Workflows:
    """Finds the workflows of all flows.

    Each call reads all desired states (one request for a thousand); versions never change, and are read once. Thread-safe.
    """

    registry: Registry
    _index: MeetingIndex = field(default_factory=MeetingIndex)
    _known: dict[str, tuple[int, int]] = field(default_factory=dict)
    """flow → (revision that created its desired state, version): a flow that was deleted and submitted again starts with version 1"""
    _specs: dict[str, Spec] = field(default_factory=dict)
    _all: tuple[Workflow, ...] | None = None
    """None: must be found again"""
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def of(self, flow: str) -> Workflow:
        """The workflow of a flow; only the flow itself if it has no connections, or was never submitted."""
        with self._lock:
            self._refresh()
            return workflow_of(flow, self._index)

    def all(self) -> tuple[Workflow, ...]:
        """The workflows of more than one flow, by name."""
        with self._lock:
            self._refresh()
            if self._all is None:
                self._all = workflows_of(self._index)
            return self._all

    def specs(self, flows: Iterable[str]) -> dict[str, Spec]:
        """The desired versions of these flows; flows without one are left out."""
        with self._lock:
            self._refresh()
            return {flow: self._specs[flow] for flow in flows if flow in self._specs}

    def meeting(self, coming: Mapping[str, Outside]) -> tuple[Meeting, ...]:
        """The connections of all flows, if the `coming` ones read and wrote there."""
        with self._lock:
            self._refresh()
            index = MeetingIndex()
            for name, spec in self._specs.items():
                index.put(name, coming.get(name, spec.outside))
            for name, outside in coming.items():
                index.put(name, outside)
            return index.meetings()

    def _refresh(self) -> None:
        there = [name for name in names(self.registry, "flows") if DESIRED.fits(name)]
        found = self.registry.read_many([DESIRED(name).path for name in there])
        now = {name: _version(entry) for name, entry in zip(there, found, strict=True) if isinstance(entry, RegistryEntry)}
        for gone in self._known.keys() - {name for name, entry in zip(there, found, strict=True) if entry is not None}:
            self._index.drop(gone)
            self._all = None
            self._known.pop(gone)
            self._specs.pop(gone, None)
        new = [name for name, key in now.items() if self._known.get(name) != key and SPEC.fits(name, str(key[1]))]
        specs = read_records(self.registry, [SPEC(name, str(now[name][1])) for name in new])
        for name, spec in zip(new, specs, strict=True):
            if isinstance(spec, Stored):
                self._specs[name] = spec.record
                self._known[name] = now[name]
                if self._index.put(name, spec.record.outside):
                    self._all = None


def _version(entry: RegistryEntry) -> tuple[int, int]:
    version = entry.value.get("version")
    return entry.made, version if isinstance(version, int) else 0


def workflow_of(flow: str, index: MeetingIndex) -> Workflow:
    """The workflow that the flow belongs to."""
    found, coming = {flow}, [flow]
    met: set[Meeting] = set()
    while coming:
        here = index.of(coming.pop())
        met.update(here)
        new = {name for each in here for name in (each.feeding, each.reading)} - found
        found |= new
        coming += new
    ordered = tuple(sorted(met, key=lambda each: (each.feeding, each.sink, each.reading, each.source)))
    return Workflow(from_the_sources(found, ordered), ordered)


def workflows_of(index: MeetingIndex) -> tuple[Workflow, ...]:
    """All workflows of more than one flow, by name."""
    seen: set[str] = set()
    found = []
    for flow in index.flows():
        if flow not in seen and index.of(flow):
            found.append(workflow_of(flow, index))
            seen.update(found[-1].flows)
    return tuple(sorted(found, key=lambda each: each.name))


def feeders_in(flows: Collection[str], met: Sequence[Meeting]) -> dict[str, tuple[str, ...]]:
    """Flow → its direct upstream flows, without those that are also downstream of it: so that there is an order."""
    fed = _joined((each.feeding, each.reading) for each in met)
    feeding, known = _joined((each.reading, each.feeding) for each in met), set(flows)
    return {flow: tuple(sorted((feeding.get(flow, set()) & known) - behind(flow, fed))) for flow in sorted(known)}


def behind(flow: str, fed: Mapping[str, Collection[str]]) -> set[str]:
    """All flows downstream of a flow; the flow too, if they form a cycle. `fed`: flow → its direct downstream flows."""
    found, coming = set[str](), [flow]
    while coming:
        new = set(fed.get(coming.pop(), ())) - found
        found |= new
        coming += new
    return found


def _joined(pairs: Iterable[tuple[str, str]]) -> dict[str, set[str]]:
    found: dict[str, set[str]] = defaultdict(set)
    for first, last in pairs:
        found[first].add(last)
    return found


def from_the_sources(flows: Collection[str], met: Sequence[Meeting]) -> tuple[str, ...]:
    """The flows, each after its upstream flows; independent ones by name."""
    return tuple(TopologicalSorter(feeders_in(flows, met)).static_order())


def refuse_circle(workflows: Workflows, coming: Mapping[str, tuple[str, Outside]]) -> None:
    """Raise InputError if flows would feed each other in a cycle, new and existing ones.

    Two submissions at the same moment that close a cycle together are not detected.

    Args:
        workflows: the existing flows.
        coming: flow → its place, for messages, and where it reads and writes.
    """
    if not any(outside.reads and outside.writes for _, outside in coming.values()):
        return
    met = workflows.meeting({name: outside for name, (_, outside) in coming.items()})
    way = circle(coming, met)
    if not way:
        return
    there = [each.feeding for each in way if each.feeding not in coming]
    told = f"; {' and '.join(there)} {'exist' if len(there) > 1 else 'exists'} already" if there else ""
    at = next(coming[each.reading][0] for each in reversed(way) if each.reading in coming)
    remedy = "make one of them write elsewhere" + (f", or first: scribengin delete {there[0]}" if there else "")
    message = f"flows feed each other in a cycle: {way_text(way)}{told}"
    raise InputError([Problem("flows-circle", Place(at), message, remedy)])


def is_ill(status: StatusRecord | RemoteFlow | None) -> bool:
    """True if a flow's state is shown with the other flows of its workflow."""
    return status is not None and status.state in ILL
