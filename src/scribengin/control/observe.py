"""From registry and launchers to a `World`: what a master sees in one look."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

from scribengin.control.paths import FLOWS, FlowPaths, mapping
from scribengin.control.records import Bound, Spec, Unreadable, read_as
from scribengin.control.world import FlowSeen, FlowStatus, LeaseHolder, Node, Process, Report, Run, RunId, TierSeen, TierWish, Wish, World
from scribengin.core.errors import Unreachable
from scribengin.registry.contract import Entry

if TYPE_CHECKING:
    from collections.abc import Mapping

    from scribengin.control.mirror import Mirror
    from scribengin.launch.contract import Launcher

T = TypeVar("T")


class Observer:
    """Looks at everything. Of the last look: `problems` are records that say nothing, `missing` is what launchers failed with."""

    def __init__(self, mirror: Mirror, launchers: Mapping[str, Launcher]) -> None:
        self._mirror = mirror
        self._launchers = launchers
        self._flows: frozenset[str] = frozenset()
        self.problems: tuple[Unreadable, ...] = ()
        self.missing: dict[str, Unreachable] = {}

    def look(self, now: float) -> World:
        """Raises Unreachable where the registry does not answer."""
        self._mirror.refresh()
        found: list[Unreadable] = []
        flows: dict[str, FlowSeen] = {}
        unreadable: set[str] = set()
        names = frozenset(self._mirror.children(FLOWS))
        for gone in self._flows - names:
            self._mirror.drop(FlowPaths(gone).root)
        self._flows = names
        for name in sorted(names):
            before = len(found)
            flow = self._flow(FlowPaths(name), found)
            if len(found) > before:
                unreadable.add(name)
            elif flow is not None:
                flows[name] = flow
        self.problems = tuple(found)
        processes, nodes = self._launched()
        return World(now, flows, processes, nodes, frozenset(unreadable))

    def _flow(self, paths: FlowPaths, found: list[Unreadable]) -> FlowSeen | None:
        """None where nobody wants anything of it (yet)."""
        wish, status = self._value(paths.desired, Wish, found), self._value(paths.status, FlowStatus, found)
        if wish is None:
            return None
        spec = self._value(paths.spec(wish.version), Spec, found)
        if spec is None:
            found.append(Unreadable(paths.spec(wish.version), "is not there, and is wanted"))
            return None
        there = frozenset(self._mirror.children(paths.tiers))
        tiers = {tier: self._tier(paths, tier, spec, found) for tier in sorted(there | spec.tiers.keys())}
        return FlowSeen(paths.flow, wish, tiers, status, frozenset(spec.tiers))

    def _tier(self, flow: FlowPaths, tier: str, spec: Spec, found: list[Unreadable]) -> TierSeen:
        paths = flow.tier(tier)
        bound = self._value(mapping(flow.flow, tier), Bound, found)
        wish = self._value(paths.wanted, TierWish, found)
        feeders = frozenset(spec.tiers[tier].feeders) if tier in spec.tiers else self._old_feeders(flow, tier, wish, found)
        return TierSeen(
            tier,
            feeders,
            "" if bound is None else bound.node,
            wish,
            self._value(paths.run, Run, found),
            self._value(paths.status, Report, found),
            self._lease(paths.lease),
        )

    def _old_feeders(self, flow: FlowPaths, tier: str, wish: TierWish | None, found: list[Unreadable]) -> frozenset[str]:
        """Of a tier that the wanted version has no more: as in the version that it serves."""
        spec = None if wish is None else self._value(flow.spec(wish.version), Spec, found)
        return frozenset(spec.tiers[tier].feeders) if spec is not None and tier in spec.tiers else frozenset()

    def _lease(self, path: str) -> LeaseHolder | None:
        """Who holds it. A record that somebody wrote by hand is no lease; one that says nothing is a stranger's, run 0."""
        there = self._mirror.read(path)
        if there is None or not there.session:
            return None
        run = there.value.get("run", 0) if isinstance(there, Entry) else 0
        return LeaseHolder(run if isinstance(run, int) else 0, there.made if isinstance(there, Entry) else there.changed)

    def _value(self, path: str, kind: type[T], found: list[Unreadable]) -> T | None:
        value: Any = read_as(self._mirror.read(path), kind)
        if isinstance(value, Unreadable):
            found.append(value)
            return None
        return value  # type: ignore[no-any-return]

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
                    state = "running" if each.strays and each.is_over else each.state
                    processes[id_] = Process(name, state, each.status)
        return processes, nodes
