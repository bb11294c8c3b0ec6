"""From registry and launchers to a `World`: what a master sees in one look."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from scribengin.control.world import FlowSeen, LeaseHolder, Node, Process, RunId, TierSeen, UnderWay, Wish, World
from scribengin.core.errors import Unreachable
from scribengin.registry.contract import Damaged, Entry
from scribengin.registry.records import Newer, Record, Stored, stored_as
from scribengin.registry.tree import DESIRED, LEASE, OPERATION, REPORT, RUN, SPEC, STATUS, UNDER_WAY, WANTED

if TYPE_CHECKING:
    from collections.abc import Mapping

    from scribengin.control.mirror import Mirror
    from scribengin.launch.contract import Launcher
    from scribengin.registry.records import Spot
    from scribengin.registry.tree import Desired, Spec, TierWish

R = TypeVar("R", bound=Record)
_FLOWS, _HOSTS = "flows", "physicalnodes"


class Observer:
    """Looks at everything. Of the last look: `problems` says of records, by path, why they say nothing; `missing` is what launchers failed
    with."""

    def __init__(self, mirror: Mirror, launchers: Mapping[str, Launcher]) -> None:
        self._mirror = mirror
        self._launchers = launchers
        self._flows: frozenset[str] = frozenset()
        self.problems: dict[str, str] = {}
        self.missing: dict[str, Unreachable] = {}

    def look(self, now: float) -> World:
        """Raises Unreachable where the registry does not answer."""
        self._mirror.refresh()
        self.problems = {}
        flows: dict[str, FlowSeen] = {}
        unreadable: set[str] = set()
        names = frozenset(name for name in self._mirror.children(_FLOWS) if not name.startswith("."))
        for gone in self._flows - names:
            self._mirror.drop(f"{_FLOWS}/{gone}")
        self._flows = names
        bound = self._bound()
        for name in sorted(names):
            before = len(self.problems)
            flow = self._flow(name, bound)
            if len(self.problems) > before:
                unreadable.add(name)
            elif flow is not None:
                flows[name] = flow
        processes, nodes = self._launched()
        return World(now, flows, processes, nodes, frozenset(unreadable))

    def _bound(self) -> dict[str, str]:
        """Logical node → the physical one that it is bound to; of several the first."""
        hosts = [host for host in self._mirror.children(_HOSTS) if not host.startswith(".")]
        return {node: host for host in reversed(hosts) for node in self._mirror.children(f"{_HOSTS}/{host}/lns")}

    def _flow(self, name: str, bound: Mapping[str, str]) -> FlowSeen | None:
        """None where nobody wants anything of it (yet)."""
        desired, status = self._stored(DESIRED(name)), self._stored(STATUS(name))
        if desired is None:
            return None
        wish = Wish(desired.record.version, desired.record.state, desired.entry.changed)
        spec = self._stored(SPEC(name, str(wish.version)))
        if spec is None:
            path = SPEC(name, str(wish.version)).path
            self.problems.setdefault(path, "is not there, and is wanted")
            return None
        there = {*self._mirror.children(f"{_FLOWS}/{name}/wanted"), *self._mirror.children(f"{_FLOWS}/{name}/runs")}
        tiers = {
            tier: self._tier(name, tier, spec.record, bound.get(f"{name}.{tier}", ""))
            for tier in sorted(there | spec.record.tiers.keys())
            if not tier.startswith(".")
        }
        wanted = frozenset(spec.record.tiers)
        return FlowSeen(name, wish, tiers, None if status is None else status.record, wanted, self._under_way(name, desired.record))

    def _under_way(self, flow: str, desired: Desired) -> UnderWay | None:
        """The operation that the flow waits for. One that nobody's wish names any more, or that is forgotten, is none."""
        stored = self._stored(OPERATION(flow, desired.operation)) if desired.operation else None
        return UnderWay(desired.operation, stored.record) if stored is not None and stored.record.step in UNDER_WAY else None

    def _tier(self, flow: str, tier: str, spec: Spec, node: str) -> TierSeen:
        wish, run, report = self._stored(WANTED(flow, tier)), self._stored(RUN(flow, tier)), self._stored(REPORT(flow, tier))
        feeders = frozenset(
            spec.tiers[tier].feeders if tier in spec.tiers else self._old_feeders(flow, tier, None if wish is None else wish.record)
        )
        return TierSeen(
            tier,
            feeders,
            node,
            spec.tiers[tier].since if tier in spec.tiers else 0,
            spec.tiers[tier].process if tier in spec.tiers else 0,
            None if wish is None else wish.record,
            None if run is None else run.record,
            None if report is None else report.record,
            self._lease(LEASE(flow, tier).path),
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
        found = None if there is None else stored_as(there, spot)
        if isinstance(found, Damaged):
            self.problems[spot.path] = found.why
        elif isinstance(found, Newer):
            self.problems[spot.path] = "was written by a newer Scribengin"
        return found if isinstance(found, Stored) else None

    def _launched(self) -> tuple[dict[RunId, Process], dict[str, Node]]:
        processes: dict[RunId, Process] = {}
        nodes: dict[str, Node] = {}
        self.missing = {}
        for name, launcher in self._launchers.items():
            try:
                seen = launcher.look()
            except Unreachable as error:
                self.missing[name] = error
                continue
            nodes[name] = Node()
            for each in seen:
                if (id_ := RunId.parse(each.worker)) is not None:
                    # what is left of a worker is none that serves, and none that is over
                    processes[id_] = Process(name, "running" if each.strays and not each.is_over else each.state, each.status)
        return processes, nodes
