"""Builds a `World` from the registry and the launchers: one observation of a master."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from scribengin.control.flow_files import file_standing
from scribengin.control.node_bindings import Bindings, read_bindings
from scribengin.control.peers import PeersSeen, read_peers_seen
from scribengin.control.placement import load_of, on_each_host
from scribengin.control.quota_records import Quotas, read_quotas
from scribengin.control.record_validation import group_of, read_spec, read_wish, refusal, refused_limits, shown_refusals, workers_of
from scribengin.control.world import (
    BlockedFlow,
    DownstreamReader,
    FlowSeen,
    LeaseHolder,
    ObservedTier,
    RunId,
    UnderWay,
    WorkerNode,
    WorkerProcess,
    World,
)
from scribengin.core.errors import Unreachable
from scribengin.plan.flow_links import MeetingIndex
from scribengin.registry.contract import Damaged, RegistryEntry
from scribengin.registry.record_io import Newer, Record, Stored
from scribengin.registry.records import UNDER_WAY, TierSpec, helper_name, is_helper, spec_of, tier_of
from scribengin.registry.tree import (
    AUTOSCALE,
    DECOMMISSIONED,
    DESIRED,
    FILE,
    GROUP,
    HELD_BACK,
    HOST,
    LEASE,
    LEASE_TERM,
    LIMIT,
    MAPPED,
    NODE_GROUP,
    OPERATION,
    QUOTA,
    REPORT,
    RUN,
    SHARE,
    SPARE,
    SPARE_REPORT,
    SPEC,
    STATUS,
    TAKEN,
    WANTED,
    WORKERS,
    WORKFLOW_OPERATION,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence, Set

    from scribengin.control.registry_cache import Mirror
    from scribengin.launch.contract import Launcher, ObservedWorker
    from scribengin.registry.flow_ends import Outside
    from scribengin.registry.record_io import Spot
    from scribengin.registry.records import GroupName, HolderRecord, Report, Run, Spec, TierWish, WorkerCount, WorkflowOperationRecord


R = TypeVar("R", bound=Record)
_FLOWS = "flows"
_BINDINGS, _GROUPS, _LAUNCHED, _WORKFLOWS, _QUOTAS, _PEERS = "/bindings", "/groups", "/launched", "/workflows", "/quotas", "/peers"
"""names of readers for records that many flows depend on; no flow has such a name"""


class _TierSpots(NamedTuple):
    """The paths of a tier's records."""

    wanted: Spot[TierWish]
    run: Spot[Run]
    report: Spot[Report]
    lease: Spot[HolderRecord]
    spare: Spot[Run]
    spare_report: Spot[Report]
    lease_term: Spot[HolderRecord]
    """read only if no run is recorded"""


@lru_cache(maxsize=50_000)
def _spots_of(flow: str, tier: str) -> _TierSpots:
    names = (flow, tier)
    return _TierSpots(WANTED(*names), RUN(*names), REPORT(*names), LEASE(*names), SPARE(*names), SPARE_REPORT(*names), LEASE_TERM(*names))


class Observer:
    """Observes everything. After each observation, `problems` has the invalid or refused records, by path, and why; `missing` the errors of
    launchers."""

    def __init__(self, mirror: Mirror, launchers: Mapping[str, Launcher]) -> None:
        self._mirror = mirror
        self._launchers = launchers
        self._flows: dict[str, FlowSeen | BlockedFlow | None] = {}
        """flow → as last observed; None for a flow without a desired state"""
        self._files: dict[str, int] = {}
        """flow → the revision of its text that is to be applied"""
        self._bindings = Bindings()
        self._quotas = Quotas()
        self._groups: dict[str, str] = {}
        self._ill_workflows: dict[str, str] = {}
        """the part of `problems` that belongs to no flow"""
        self._ill: dict[str, dict[str, str]] = {}
        """flow → its part of `problems`"""
        self._meetings = MeetingIndex()
        self._readers: dict[str, tuple[DownstreamReader, ...]] | None = None
        """None: must be found again"""
        self._workflows: dict[str, WorkflowOperationRecord] = {}
        self._peers = PeersSeen()
        self._reports: dict[str, tuple[Sequence[ObservedWorker], dict[RunId, WorkerProcess]]] = {}
        """launcher → its last report, and the processes in it"""
        self._spread: dict[str, FlowSeen] = {}
        """the flows with tiers that have a worker on each host, as last observed"""
        self._dirty: set[str] = {_BINDINGS, _GROUPS, _WORKFLOWS, _QUOTAS, _PEERS}
        """the flows and shared records to observe again; kept if an observation is aborted"""
        # of the flow that is being observed
        self._damaged: dict[Spot[Any], str] = {}
        self._newer: dict[str, str] = {}
        self.missing: dict[str, Unreachable] = {}

    @property
    def problems(self) -> dict[str, str]:
        """Invalid and refused records: path → why."""
        of_flows = {path: why for _, problems in sorted(self._ill.items()) for path, why in problems.items()}
        unknown = {flow: refused for flow, refused in self._bindings.refused.items() if self._flows.get(flow) is None}
        of_bindings = {path: said["why"] for refused in unknown.values() for path, said in refused.items()}
        of_quotas = {QUOTA(name).path: said["why"] for name, said in self._quotas.refused.items()}
        return {**of_flows, **of_bindings, **of_quotas, **self._groups, **self._ill_workflows, **self._peers.problems}

    def observe(self, now: float) -> World:
        """Observe the flows that may have changed. Raises Unreachable if the registry does not answer."""
        self._dirty |= self._mirror.refresh()
        names = {name for name in self._mirror.children(_FLOWS) if DESIRED.fits(name)}
        for gone in self._flows.keys() - names:
            self._mirror.drop(f"{_FLOWS}/{gone}")
            del self._flows[gone]
            self._ill.pop(gone, None)
            self._files.pop(gone, None)
            self._meetings.drop(gone)
            self._readers = None
        self._look_at_shared()
        again = sorted(names & self._dirty | names - self._flows.keys())
        self._fetch(again)
        for name in again:
            self._damaged, self._newer = {}, {}
            with self._mirror.reading(name):
                seen = self._flow(name)
            if isinstance(seen, BlockedFlow):
                was = self._flows.get(name)
                seen = replace(seen, last=was.last if isinstance(was, BlockedFlow) else was)
            self._flows[name] = seen
            refused = {} if seen is None else {path: said["why"] for path, said in seen.refused.items()}
            self._ill[name] = {**refused, **{spot.path: why for spot, why in self._damaged.items()}}
            if isinstance(seen, BlockedFlow) and not self._ill[name]:
                self._ill[name] = {f"{_FLOWS}/{name}": seen.why}
        self._dirty.clear()
        flows = {name: seen for name, seen in sorted(self._flows.items()) if isinstance(seen, FlowSeen)}
        held = {name: seen for name, seen in sorted(self._flows.items()) if isinstance(seen, BlockedFlow)}
        processes, nodes = self._launched([*flows.values(), *(each.last for each in held.values() if each.last is not None)])
        flows |= self._with_helpers(flows, processes, nodes)
        return World(
            now,
            flows,
            processes,
            nodes,
            held,
            workflows=self._workflows,
            readers=self._pressing(),
            peers=self._peers.peers,
            peer_states=self._peers.states,
            remote=self._peers.flows,
            quotas=self._quotas.allowed,
            files=dict(self._files),
        )

    def _with_helpers(
        self, flows: Mapping[str, FlowSeen], processes: Mapping[RunId, WorkerProcess], nodes: Mapping[str, WorkerNode]
    ) -> dict[str, FlowSeen]:
        """The flows with tiers that have a worker on each host, with their helpers; the same objects as last time if equal."""
        load = load_of(processes)
        found = {name: on_each_host(flow, nodes, load) for name, flow in flows.items() if flow.each}
        self._spread = {name: was if (was := self._spread.get(name)) == flow else flow for name, flow in found.items()}
        return self._spread

    def _place(self, flow: str, outside: Outside) -> None:
        """Record where the flow reads and writes now."""
        if self._meetings.put(flow, outside):
            self._readers = None

    def _pressing(self) -> dict[str, tuple[DownstreamReader, ...]]:
        """Flow → the sources of other flows that may throttle it. Computed again only if a flow reads or writes elsewhere."""
        if self._readers is None:
            found: dict[str, list[DownstreamReader]] = {}
            for each in self._meetings.meetings():
                if each.feeding not in self._peers.flows and each.source in self._meetings.outside(each.reading).waters:
                    found.setdefault(each.feeding, []).append(DownstreamReader(each.sink, each.reading, each.source))
            self._readers = {name: tuple(readers) for name, readers in found.items()}
        return self._readers

    def _look_at_shared(self) -> None:
        """Read the records that many flows depend on."""
        if _BINDINGS in self._dirty:
            with self._mirror.reading(_BINDINGS):
                before, self._bindings = self._bindings, read_bindings(self._mirror, list(self._launchers))
            self._dirty |= self._bindings.differ(before)
        if _QUOTAS in self._dirty:
            with self._mirror.reading(_QUOTAS):
                was, self._quotas = self._quotas, read_quotas(self._mirror)
            if was.refused != self._quotas.refused:
                flows = (flow for flow in self._flows.values() if isinstance(flow, FlowSeen))
                self._dirty |= {flow.name for flow in flows if was.refused_of(flow.labels) != self._quotas.refused_of(flow.labels)}
        if _GROUPS in self._dirty:
            with self._mirror.reading(_GROUPS):
                found = {name: self._mirror.stored(GROUP(name)) for name in self._mirror.children("groups") if GROUP.fits(name)}
            self._groups = {GROUP(name).path: said.why for name, said in found.items() if isinstance(said, Damaged)}
        if _PEERS in self._dirty:
            with self._mirror.reading(_PEERS):
                known, self._peers = self._peers, read_peers_seen(self._mirror)
            for name in known.flows.keys() - self._peers.flows.keys():
                self._meetings.drop(name)
                self._readers = None
            for name, flow in self._peers.flows.items():
                self._place(name, flow.outside)
        if _WORKFLOWS in self._dirty:
            with self._mirror.reading(_WORKFLOWS):
                ids = [id_ for id_ in self._mirror.children("workflows") if WORKFLOW_OPERATION.fits(id_)]
                operations = {id_: self._mirror.stored(WORKFLOW_OPERATION(id_)) for id_ in ids}
            self._ill_workflows = {WORKFLOW_OPERATION(id_).path: said.why for id_, said in operations.items() if isinstance(said, Damaged)}
            self._workflows = {
                id_: said.record for id_, said in operations.items() if isinstance(said, Stored) and said.record.step == "ask"
            }

    def _fetch(self, names: Sequence[str]) -> None:
        """Read the records that `_flow` reads for these flows, in a few requests for all of them."""
        folders = [f"{_FLOWS}/{name}/{folder}" for name in names for folder in ("wanted", "runs")]
        spots_of_flow = (DESIRED, STATUS, FILE, LIMIT, WORKERS, SHARE, HELD_BACK)
        self._mirror.fetch([spot(name).path for name in names for spot in spots_of_flow], folders)
        self._mirror.fetch([TAKEN(name).path for name in names if self._mirror.read(FILE(name).path) is not None])
        wanted = {name: self._mirror.stored(DESIRED(name)) for name in names}
        versions = {name: str(found.record.version) for name, found in wanted.items() if isinstance(found, Stored)}
        specs = {name: SPEC(name, version) for name, version in versions.items() if SPEC.fits(name, version)}
        self._mirror.fetch([spec.path for spec in specs.values()])
        tiers, autoscaled = [], []
        for name, spot_of_spec in specs.items():
            spec = self._mirror.stored(spot_of_spec)
            if isinstance(spec, Stored) and _is_autoscaled(spec.record):
                autoscaled.append(AUTOSCALE(name).path)
            wanted_tiers = _wanted(workers_of(self._mirror, name, spec.record)[0]) if isinstance(spec, Stored) else set[str]()
            tiers += [(name, tier) for tier in self._tiers(name, wanted_tiers)]
        spots = [_spots_of(*tier) for tier in tiers]
        groups = [NODE_GROUP(f"{name}.{tier}").path for name, tier in tiers if not is_helper(tier)]
        self._mirror.fetch([*(spot.path for each in spots for spot in each[:-1]), *groups, *autoscaled])
        self._mirror.fetch([each.lease_term.path for each in spots if self._mirror.read(each.run.path) is None])

    def _tiers(self, flow: str, wanted: Set[str]) -> list[str]:
        """The names of the flow's tiers, and of their helpers, in all versions that have, or may still have, a worker. `wanted`: those of
        the desired version."""
        there = {*self._mirror.children(f"{_FLOWS}/{flow}/wanted"), *self._mirror.children(f"{_FLOWS}/{flow}/runs")}
        return sorted(tier for tier in there | wanted if WANTED.fits(flow, tier))

    def _flow(self, name: str) -> FlowSeen | BlockedFlow | None:
        """Observe one flow; None if it has no desired state (yet)."""
        status = self._made(STATUS(name))
        wish, spec, refused = read_wish(self._mirror, name, status)
        file = file_standing(self._mirror, name, wanted=wish is not None or bool(refused))
        self._files.pop(name, None)
        if file.revision is not None:
            self._files[name] = file.revision
        if wish is None and not refused:
            self._meetings.drop(name)
            self._readers = None
            for path, said in file.refused.items():
                return BlockedFlow(status, f"{path} {said['why']}", said["remedy"], file.refused, tuple(self._damaged), is_new=True)
            return None
        bindings = self._bindings.refused.get(name, {})
        if spec is not None and spec.agents:
            bindings = {path: said for path, said in bindings.items() if path.rpartition(".")[2] not in spec.agents}
        refused = {**refused, **file.refused, **refused_limits(self._mirror, name), **bindings}
        if wish is None or spec is None:
            why, remedy = next(iter((said["why"], said["remedy"]) for said in refused.values()))
            return BlockedFlow(status, f"{DESIRED(name).path} {why}", remedy, shown_refusals(refused), tuple(self._damaged))
        refused |= self._quotas.refused_of(spec.labels)
        counts, wrong = workers_of(self._mirror, name, spec)
        refused |= wrong
        groups = {tier: group_of(self._mirror, name, tier, spec) for tier in spec.tiers if WANTED.fits(name, tier)}
        for _, _, wrong in groups.values():
            refused |= wrong
        wanted = _wanted(counts)
        names = self._tiers(name, wanted)
        bound = self._bindings.bound.get(name, {})
        for tier in bound.keys() - {*names} - spec.agents.keys():
            spot = MAPPED(bound[tier], f"{name}.{tier}")
            why = f"binds a tier that flow {name} does not have; it has {', '.join(names)}"
            refused[spot.path] = refusal(self._mirror.read(spot.path), why, "remove it, or bind one of these")
        on = {tier: found[:2] for tier, found in groups.items()}
        tiers = {
            tier: self._tier(name, tier, spec, bound.get(tier, ""), on.get(tier_of(tier), ("", None)), left=tier not in wanted)
            for tier in names
        }
        for path, why in self._newer.items():
            return BlockedFlow(status, f"{path} {why}", "run the newer version", refused, tuple(self._damaged))
        self._place(name, spec.outside)
        return FlowSeen(
            name,
            wish,
            tiers,
            status,
            wanted_tiers=frozenset(wanted),
            each=frozenset(tier for tier, workers in counts.items() if workers == "each"),
            refused=shown_refusals(refused),
            damaged=tuple(self._damaged),
            watched=spec.watched,
            under_way=self._under_way(name, wish.operation),
            labels=spec.labels,
            share=self._made(SHARE(name)),
            held_back=self._made(HELD_BACK(name)),
            waters=spec.outside.waters,
            hosted=frozenset(self._bindings.hosted.get(name, ())),
            sizes=self._made(AUTOSCALE(name)) if _is_autoscaled(spec) else None,
            limited=isinstance(self._mirror.stored(LIMIT(name)), Stored),
            agents=spec.agents,
        )

    def _under_way(self, flow: str, id_: str) -> UnderWay | None:
        """The operation that the flow waits for; None if it was removed or is invalid."""
        operation = self._made(OPERATION(flow, id_)) if id_ and OPERATION.fits(flow, id_) else None
        return UnderWay(id_, operation) if operation is not None and operation.step in UNDER_WAY else None

    def _tier(self, flow: str, tier: str, spec: Spec, node: str, on: tuple[str, GroupName | None], *, left: bool) -> ObservedTier:
        """Observe one tier.

        Args:
            flow: the flow.
            tier: the tier.
            spec: the desired version.
            node: the node that the tier is bound to; empty: none.
            on: (the tier's group, the record of it that is to be written).
            left: the desired version does not have the tier.
        """
        spots = _spots_of(flow, tier)
        wish, run, report = self._made(spots.wanted), self._made(spots.run), self._made(spots.report)
        spare, waits = self._made(spots.spare), self._made(spots.spare_report)
        there = spec_of(spec, tier)
        said = there or TierSpec()
        feeders = said.feeders if there is not None else self._old_feeders(flow, tier, wish)
        if left and is_helper(tier):  # the tier that it helped continues without it
            feeders = ()
        lease, before = self._lease(spots.lease.path), 0
        if run is None and (term := self._mirror.read(spots.lease_term.path)) is not None:
            before = _run_of(term)
        group, names = on
        use, warm = (said.cores, said.memory_bytes, said.since, said.process), said.standby == "warm"
        return ObservedTier(
            tier,
            frozenset(feeders),
            node,
            *use,
            wish,
            run,
            report,
            lease,
            before,
            warm,
            spare,
            waits,
            said.folders,
            said.executors,
            group,
            said.hosts if group == said.group else spec.groups[group],
            None if is_helper(tier) else names,
            None if is_helper(tier) else said.autoscale,
        )

    def _old_feeders(self, flow: str, tier: str, wish: TierWish | None) -> tuple[str, ...]:
        """The upstream tiers of a tier that the desired version no longer has: those of the version that it serves."""
        spec = None if wish is None else read_spec(self._mirror, flow, wish.version)[0]
        there = None if spec is None else spec_of(spec, tier)
        return () if there is None else there.feeders

    def _lease(self, path: str) -> LeaseHolder | None:
        """The holder of a lease; None if there is none. A record that an operator wrote is not a lease. A lease that names no run belongs
        to an unknown process, run 0."""
        there = self._mirror.read(path)
        if there is None or not there.session:
            return None
        return LeaseHolder(_run_of(there), there.made if isinstance(there, RegistryEntry) else there.changed)

    def _made(self, spot: Spot[R]) -> R | None:
        """A record that masters or workers write; None if it does not exist, or is only a folder. A damaged one is noted in `_damaged`."""
        found = self._mirror.stored(spot)
        if isinstance(found, Stored) and found.entry.value:
            return found.record
        if isinstance(found, Damaged) and found.raw.strip(b"{} \n"):
            self._damaged[spot] = found.why
        elif isinstance(found, Newer):
            self._newer[spot.path] = "was written by a newer Scribengin"
        return None

    def _node(self, name: str, cores: int, memory_bytes: int) -> WorkerNode:
        """The node. Its free resources are those that it registered minus `cores` and `memory_bytes`, which its workers use."""
        host = self._made(HOST(name))
        limit = (0, 0) if host is None else (host.cores, host.memory_bytes)
        free = [most - used if most else None for most, used in zip(limit, (cores, memory_bytes), strict=True)]
        return WorkerNode(
            isinstance(self._mirror.stored(DECOMMISSIONED(name)), Stored),
            free[0],
            free[1],
            "" if host is None else host.host,
            executors=host is not None and bool(host.spark),
        )

    def _launched(self, flows: Sequence[FlowSeen]) -> tuple[dict[RunId, WorkerProcess], dict[str, WorkerNode]]:
        processes: dict[RunId, WorkerProcess] = {}
        nodes: dict[str, WorkerNode] = {}
        cores, memory_bytes = Counter[str](), Counter[str]()
        for tier in (tier for flow in flows for tier in flow.tiers.values()):
            if tier.run is not None and tier.run.ended_at is None:
                cores[tier.run.node] += tier.cores
                memory_bytes[tier.run.node] += tier.memory_bytes
        self.missing = {}
        reports, self._reports = self._reports, {}
        self._damaged, self._newer = {}, {}
        for name, launcher in self._launchers.items():
            try:
                seen = launcher.observe()
            except Unreachable as error:
                self.missing[name] = error
                continue
            nodes[name] = self._node(name, cores[name], memory_bytes[name])
            known = reports.get(name)
            self._reports[name] = known = known if known is not None and known[0] is seen else (seen, _processes(name, seen))
            processes |= known[1]
        self._ill[_LAUNCHED] = {**self._newer, **{spot.path: why for spot, why in self._damaged.items()}}
        return processes, nodes


def _processes(node: str, seen: Sequence[ObservedWorker]) -> dict[RunId, WorkerProcess]:
    """The workers in a launcher's report, without those whose names are not valid."""
    return {
        # strays of a worker neither serve nor count as ended
        id_: WorkerProcess(node, "running" if each.strays and not each.is_over else each.state, each.status, each.reason)
        for each in seen
        if (id_ := RunId.parse(each.worker)) is not None
    }


def _run_of(holder: RegistryEntry | Damaged) -> int:
    """The run that a lease's record names; 0 if none."""
    run = holder.value.get("run", 0) if isinstance(holder, RegistryEntry) else 0
    return run if isinstance(run, int) else 0


def _is_autoscaled(spec: Spec) -> bool:
    return any(tier.autoscale is not None for tier in spec.tiers.values())


def _wanted(counts: Mapping[str, WorkerCount]) -> set[str]:
    """The names of the tiers and helpers of a flow with these numbers of workers; without helpers of `workers: each`, which depend on the
    hosts."""
    said = {tier: count for tier, count in counts.items() if count != "each"}
    return counts.keys() | {helper_name(tier, number) for tier, count in said.items() for number in range(2, count + 1)}
