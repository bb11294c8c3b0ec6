"""From registry and launchers to a `World`: what a master sees in one look."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, TypeVar

from scribengin.control.world import FlowSeen, LeaseHolder, Node, Process, RunId, TierSeen, Wish, World
from scribengin.core.errors import Unreachable
from scribengin.registry.contract import Damaged, Entry
from scribengin.registry.records import Newer, Record, Stored
from scribengin.registry.tree import DECOMMISSIONED, DESIRED, HOST, LEASE, REPORT, RUN, SPARE, SPARE_REPORT, SPEC, STATUS, WANTED

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from scribengin.control.mirror import Mirror
    from scribengin.launch.contract import Launcher
    from scribengin.registry.records import Spot
    from scribengin.registry.tree import Spec, TierWish

R = TypeVar("R", bound=Record)
_FLOWS, _HOSTS = "flows", "physicalnodes"
_BINDINGS, _LAUNCHED = "/bindings", "/launched"
"""who reads what of which all flows know a part; no flow is called so"""


class Observer:
    """Looks at everything. Of the last look: `problems` says of records, by path, why they say nothing; `missing` is what launchers failed
    with."""

    def __init__(self, mirror: Mirror, launchers: Mapping[str, Launcher]) -> None:
        self._mirror = mirror
        self._launchers = launchers
        self._flows: dict[str, FlowSeen | None] = {}
        """as they were seen at the last look at each; None where nobody wants anything of it, or its records are damaged"""
        self._ill: dict[str, dict[str, str]] = {}
        """flow → its part of `problems`"""
        self._bound: dict[str, str] = {}
        self._dirty: set[str] = {_BINDINGS}
        """whom to look at again; kept where a look is broken off"""
        self._found: dict[str, str] = {}
        self.missing: dict[str, Unreachable] = {}

    @property
    def problems(self) -> dict[str, str]:
        """Records that say nothing, by path, and why."""
        return {path: why for _, problems in sorted(self._ill.items()) for path, why in problems.items()}

    def look(self, now: float) -> World:
        """Only at flows of which something may have changed. Raises Unreachable where the registry does not answer."""
        self._dirty |= self._mirror.refresh()
        names = {name for name in self._mirror.children(_FLOWS) if DESIRED.fits(name)}
        for gone in self._flows.keys() - names:
            self._mirror.drop(f"{_FLOWS}/{gone}")
            del self._flows[gone]
            self._ill.pop(gone, None)
        if _BINDINGS in self._dirty:
            self._look_at_bindings()
        again = sorted(names & self._dirty | names - self._flows.keys())
        self._fetch(again)
        for name in again:
            self._found = {}
            with self._mirror.reading(name):
                flow = self._flow(name)
            self._flows[name] = None if self._found else flow
            self._ill.pop(name, None)
            if self._found:
                self._ill[name] = self._found
        self._dirty.clear()
        flows = {name: flow for name, flow in sorted(self._flows.items()) if flow is not None}
        processes, nodes = self._launched(flows)
        return World(now, flows, processes, nodes, frozenset(self._ill))

    def _look_at_bindings(self) -> None:
        """Logical node → the physical one that it is bound to; of several the first."""
        with self._mirror.reading(_BINDINGS):
            hosts = [host for host in self._mirror.children(_HOSTS) if HOST.fits(host)]
            bound = {node: host for host in reversed(hosts) for node in self._mirror.children(f"{_HOSTS}/{host}/lns")}
        before, self._bound = self._bound, bound
        moved = {node for node in before.keys() | bound.keys() if before.get(node) != bound.get(node)}
        self._dirty |= {node.partition(".")[0] for node in moved}

    def _fetch(self, names: Sequence[str]) -> None:
        """What `_flow` reads of these, in a few requests for all of them."""
        folders = [f"{_FLOWS}/{name}/{folder}" for name in names for folder in ("wanted", "runs")]
        self._mirror.fetch([spot(name).path for name in names for spot in (DESIRED, STATUS)], folders)
        wanted = {name: self._mirror.stored(DESIRED(name)) for name in names}
        specs = {name: SPEC(name, str(found.record.version)) for name, found in wanted.items() if isinstance(found, Stored)}
        self._mirror.fetch([spec.path for spec in specs.values()])
        tiers = []
        for name, spot_of_spec in specs.items():
            spec = self._mirror.stored(spot_of_spec)
            tiers += [(name, tier) for tier in self._tiers(name, spec.record if isinstance(spec, Stored) else None)]
        self._mirror.fetch([spot(*tier).path for tier in tiers for spot in (WANTED, RUN, REPORT, LEASE, SPARE, SPARE_REPORT)])

    def _tiers(self, flow: str, spec: Spec | None) -> list[str]:
        """The names of its tiers in all versions that have, or may still have, a worker."""
        there = {*self._mirror.children(f"{_FLOWS}/{flow}/wanted"), *self._mirror.children(f"{_FLOWS}/{flow}/runs")}
        return sorted(tier for tier in there | (spec.tiers.keys() if spec is not None else set()) if WANTED.fits(flow, tier))

    def _flow(self, name: str) -> FlowSeen | None:
        """None where nobody wants anything of it (yet)."""
        desired, status = self._stored(DESIRED(name)), self._stored(STATUS(name))
        if desired is None:
            return None
        wish = Wish(desired.record.version, desired.record.state, desired.entry.changed)
        spec = self._stored(SPEC(name, str(wish.version)))
        if spec is None:
            path = SPEC(name, str(wish.version)).path
            self._found.setdefault(path, "is not there, and is wanted")
            return None
        tiers = {
            tier: self._tier(name, tier, spec.record, self._bound.get(f"{name}.{tier}", "")) for tier in self._tiers(name, spec.record)
        }
        return FlowSeen(name, wish, tiers, None if status is None else status.record, frozenset(spec.record.tiers))

    def _tier(self, flow: str, tier: str, spec: Spec, node: str) -> TierSeen:
        wish, run, report = self._stored(WANTED(flow, tier)), self._stored(RUN(flow, tier)), self._stored(REPORT(flow, tier))
        spare, waits = self._stored(SPARE(flow, tier)), self._stored(SPARE_REPORT(flow, tier))
        feeders = frozenset(
            spec.tiers[tier].feeders if tier in spec.tiers else self._old_feeders(flow, tier, None if wish is None else wish.record)
        )
        return TierSeen(
            tier,
            feeders,
            node,
            *((spec.tiers[tier].cores, spec.tiers[tier].memory_bytes) if tier in spec.tiers else (1, 0)),
            None if wish is None else wish.record,
            None if run is None else run.record,
            None if report is None else report.record,
            self._lease(LEASE(flow, tier).path),
            tier in spec.tiers and spec.tiers[tier].standby == "warm",
            None if spare is None else spare.record,
            None if waits is None else waits.record,
        )

    def _old_feeders(self, flow: str, tier: str, wish: TierWish | None) -> tuple[str, ...]:
        """Of a tier that the wanted version has no more: as in the version that it serves."""
        spec = None if wish is None else self._stored(SPEC(flow, str(wish.version)))
        return spec.record.tiers[tier].feeders if spec is not None and tier in spec.record.tiers else ()

    def _lease(self, path: str) -> LeaseHolder | None:
        """Who holds it. A record that somebody wrote by hand is no lease; one that names no run is a stranger's, run 0."""
        there = self._mirror.read(path)
        if there is None or not there.session:
            return None
        run = there.value.get("run", 0) if isinstance(there, Entry) else 0
        return LeaseHolder(run if isinstance(run, int) else 0, there.made if isinstance(there, Entry) else there.changed)

    def _stored(self, spot: Spot[R]) -> Stored[R] | None:
        """None where nothing is there, or only a folder; also where it says nothing, which is then a problem."""
        there = self._mirror.read(spot.path)
        if isinstance(there, Entry) and not there.value:
            return None
        found = self._mirror.stored(spot)
        if isinstance(found, Damaged):
            self._found[spot.path] = found.why
        elif isinstance(found, Newer):
            self._found[spot.path] = "was written by a newer Scribengin"
        return found if isinstance(found, Stored) else None

    def _node(self, name: str, cores: int, memory_bytes: int) -> Node:
        """What it has left is what it has registered without what its workers were given."""
        host = self._stored(HOST(name))
        limit = (0, 0) if host is None else (host.record.cores, host.record.memory_bytes)
        free = (most - used if most else None for most, used in zip(limit, (cores, memory_bytes), strict=True))
        return Node(self._stored(DECOMMISSIONED(name)) is not None, *free)

    def _launched(self, flows: Mapping[str, FlowSeen]) -> tuple[dict[RunId, Process], dict[str, Node]]:
        processes: dict[RunId, Process] = {}
        nodes: dict[str, Node] = {}
        cores, memory_bytes = Counter[str](), Counter[str]()
        for tier in (tier for flow in flows.values() for tier in flow.tiers.values()):
            if tier.run is not None and tier.run.ended_at is None:
                cores[tier.run.node] += tier.cores
                memory_bytes[tier.run.node] += tier.memory_bytes
        self.missing = {}
        self._found = {}
        for name, launcher in self._launchers.items():
            try:
                seen = launcher.look()
            except Unreachable as error:
                self.missing[name] = error
                continue
            nodes[name] = self._node(name, cores[name], memory_bytes[name])
            for each in seen:
                if (id_ := RunId.parse(each.worker)) is not None:
                    # what is left of a worker is none that serves, and none that is over
                    processes[id_] = Process(name, "running" if each.strays and not each.is_over else each.state, each.status, each.reason)
        self._ill.pop(_LAUNCHED, None)
        if self._found:
            self._ill[_LAUNCHED] = self._found
        return processes, nodes
