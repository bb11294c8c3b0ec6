"""What people ask of the control plane, as writes to the registry: submit a flow, say what is wanted of it, read how it stands."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, TypeVar

from scribengin.control.deleting import records_of
from scribengin.core.errors import Refused, StateError
from scribengin.core.problems import did_you_mean
from scribengin.registry.contract import Conflict, Damaged, Delete, Entry, Require, shown
from scribengin.registry.records import DAMAGED, Newer, Record, Stored, names, put, read_record, read_records
from scribengin.registry.tree import DESIRED, LEASE, REPORT, RUN, SPEC, STATUS, TASK, Desired, Spec, Task, TierSpec
from scribengin.registry.watched import AlertSpec, Watched
from scribengin.spec.alerts import show_condition

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from scribengin.plan.split import FlowPlan
    from scribengin.registry.contract import Registry
    from scribengin.registry.records import Spot
    from scribengin.registry.tree import Goal, Status
    from scribengin.spec.model import Flow

R = TypeVar("R", bound=Record)
T = TypeVar("T")
_TRIES = 10
NOT_WATCHED = Watched()


@dataclass(frozen=True, slots=True)
class Submission:
    """A flow as it was packed and planned: what a version of it will be. `package` is the sha256 of a package that masters and workers can
    have, `path` that of the flow file inside."""

    flow: str
    package: str
    path: str
    base: str
    tiers: Mapping[str, TierSpec]
    watched: Watched = NOT_WATCHED


@dataclass(frozen=True, slots=True)
class Applied:
    """What came of a submission. `changed` is false where the newest version is just this, and wanted to run."""

    flow: str
    version: int
    changed: bool


@dataclass(frozen=True, slots=True)
class FlowRow:
    """A flow: what is wanted of it, and how it stands; None where no master has looked at it yet."""

    flow: str
    desired: Desired
    status: Status | None


def tiers_of(plan: FlowPlan) -> dict[str, TierSpec]:
    """What masters must know of the tiers of a planned flow."""
    tiers = {}
    for tier in plan.tiers:
        declared = plan.flow.tiers.get(tier.tier)
        feeders = sorted({channel.feeding for channel in plan.channels if channel.reading == tier.tier})
        cores = 1 if declared is None else declared.resources.cores or 1
        memory_bytes = 0 if declared is None else declared.resources.memory or 0
        tiers[tier.tier] = TierSpec(feeders=tuple(feeders), cores=cores, memory_bytes=memory_bytes)
    return tiers


def watched_of(flow: Flow) -> Watched:
    """What masters must know of the flow's delay and alerts."""
    alerts = {
        alert.id: AlertSpec(when=show_condition(alert.when), webhook=alert.webhook, command=alert.command) for alert in flow.alerts.values()
    }
    return Watched(max_delay_s=flow.max_delay_s, alerts=alerts)


def apply(registry: Registry, submission: Submission, *, state: Callable[[str], str], by: str) -> Applied:
    """Make it the flow's next version, and want it to run; the same again changes nothing. `state`: flow → folder of its state.

    Both records are written, or none. Raises StateError where the flow's records are damaged, Unreachable.
    """
    flow = submission.flow

    def attempt() -> Applied:
        desired = _known(registry, DESIRED(flow))
        newest = max(versions_of(registry, flow), default=0)
        before = _known(registry, SPEC(flow, str(newest))) if newest else None
        runs = desired is not None and (desired.state, desired.version) == ("running", newest)
        if runs and before is not None and _same(before, submission):
            return Applied(flow, newest, changed=False)
        now = _now()
        spec = Spec(
            package=submission.package,
            path=submission.path,
            base=submission.base,
            state=before.state if before is not None else state(flow),
            tiers=dict(submission.tiers),
            by=by,
            at=now,
            watched=submission.watched,
        )
        version = newest + 1
        wanted = Desired(state="running", version=version, by=by, at=now)
        registry.commit(SPEC(flow, str(version)).create(spec), put(registry, DESIRED(flow), wanted))
        return Applied(flow, version, changed=True)

    return _again(attempt)


def want(registry: Registry, flow: str, goal: Goal, *, by: str) -> int:
    """Say what is wanted of a flow now; returns the revision, which a report that has reached it names as its generation. Asked again what
    failed is tried again. Raises Refused where there is no such flow."""

    def attempt() -> int:
        desired = read_flow(registry, flow).desired
        wanted = Desired(state=goal, version=desired.version, by=by, at=_now())
        return registry.commit(put(registry, DESIRED(flow), wanted), Require(SPEC(flow, str(desired.version)).path)).revision

    return _again(attempt)


def rollback(registry: Registry, flow: str, version: int, *, by: str) -> int:
    """Want another version that there was, code and flow together, in the state that is wanted now; returns the revision.

    Raises Refused where there is no such flow or version, or it is wanted already.
    """

    def attempt() -> int:
        desired = read_flow(registry, flow).desired
        there = versions_of(registry, flow)
        if version not in there:
            known = ", ".join(str(number) for number in there)
            raise Refused(
                f"flow {flow} has no version {version}", remedy=f"it has {known}: scribengin history {flow}", code="version-unknown"
            )
        if version == desired.version:
            raise Refused(
                f"version {version} of flow {flow} is wanted already", remedy=f"see: scribengin history {flow}", code="version-same"
            )
        wanted = Desired(state=desired.state, version=version, by=by, at=_now())
        return registry.commit(put(registry, DESIRED(flow), wanted), Require(SPEC(flow, str(version)).path)).revision

    return _again(attempt)


def delete(registry: Registry, flow: str) -> None:
    """Forget a flow that is stopped: its versions, what is wanted, how it stood, its limits. The numbers of its runs and the Terms of its
    leases stay, so that a flow that gets its name later never gives one out twice, and so does what nobody here knows. Its state and its
    packages stay too, and to which nodes its tiers are bound.

    Raises Refused where there is no such flow, or it is not stopped.
    """

    def attempt() -> None:
        desired, status = registry.read(DESIRED(flow).path), read_flow(registry, flow).status
        at_rest = status is not None and status.state == "stopped" and isinstance(desired, Entry) and status.generation == desired.changed
        if not at_rest or not isinstance(desired, Entry):
            now = "not looked at yet" if status is None else status.state
            raise Refused(f"flow {flow} is {now}, not stopped", remedy=f"scribengin stop {flow} --wait", code="flow-not-stopped")
        registry.commit(Delete(DESIRED(flow).path, desired.version), *map(Delete, records_of(registry, flow)))

    _again(attempt)


def versions_of(registry: Registry, flow: str) -> list[int]:
    """The numbers of its versions, the oldest first."""
    return sorted(int(name) for name in names(registry, f"flows/{flow}/spec") if name.isdigit())


def history(registry: Registry, flow: str) -> list[dict[str, Any]]:
    """The versions of a flow, the newest first, as JSON. Raises as `read_flow`."""
    desired = read_flow(registry, flow).desired
    found = []
    for version in reversed(versions_of(registry, flow)):
        spec = _known(registry, SPEC(flow, str(version)))
        if spec is not None:
            about = {"package": spec.package, "tiers": sorted(spec.tiers), "by": spec.by, "at": spec.at}
            found.append({"version": version, "wanted": version == desired.version, **about})
    return found


def state_of(registry: Registry, flow: str) -> str:
    """The folder in which the flow's state lies. Raises as `read_flow`."""
    spec = _known(registry, SPEC(flow, str(read_flow(registry, flow).desired.version)))
    return "" if spec is None else spec.state


def read_flow(registry: Registry, flow: str) -> FlowRow:
    """Where what is wanted is damaged, it is what was wanted before, and the status says why. Raises Refused where there is no such flow,
    StateError where not even that is known."""
    found, status = read_record(registry, DESIRED(flow)), _record(read_record(registry, STATUS(flow)))
    desired = _last_wish(found, status)
    if desired is None:
        desired = _known(registry, DESIRED(flow))
    if desired is None:
        raise unknown_flow(flow, names(registry, "flows"))
    return FlowRow(flow, desired, status)


def read_flows(registry: Registry) -> tuple[FlowRow, ...]:
    """All flows, by name. Where what is wanted is damaged it is what was wanted before; a flow of which not even that is known is left out
    (a master reports it)."""
    rows = []
    flows = [name for name in names(registry, "flows") if DESIRED.fits(name)]
    wanted = read_records(registry, [DESIRED(name) for name in flows])
    for name, desired, status in zip(flows, wanted, read_records(registry, [STATUS(name) for name in flows]), strict=True):
        now = _record(status)
        wish = desired.record if isinstance(desired, Stored) else _last_wish(desired, now)
        if wish is not None:
            rows.append(FlowRow(name, wish, now))
    return tuple(rows)


def describe(registry: Registry, flow: str) -> dict[str, Any]:
    """All that the registry says of a flow and its tiers, as JSON. Works with no master alive. Raises as `read_flow`."""
    row = read_flow(registry, flow)
    spec = _record(read_record(registry, SPEC(flow, str(row.desired.version))))
    found = {*names(registry, f"flows/{flow}/runs"), *(spec.tiers if spec is not None else ())}
    tiers = sorted(tier for tier in found if RUN.fits(flow, tier))
    return {
        "flow": flow,
        "wanted": {"state": row.desired.state, "version": row.desired.version, "by": row.desired.by, "at": row.desired.at},
        "status": None if row.status is None else row.status.dump(),
        "tiers": [_described_tier(registry, flow, tier) for tier in tiers],
        "set_aside": read_set_aside(registry, flow),
    }


def _described_tier(registry: Registry, flow: str, tier: str) -> dict[str, Any]:
    run, report = _record(read_record(registry, RUN(flow, tier))), _record(read_record(registry, REPORT(flow, tier)))
    lease = registry.read(LEASE(flow, tier).path)
    mine = report if run is not None and report is not None and report.run == run.number else None
    holder = lease.value if isinstance(lease, Entry) else {}
    return {
        "tier": tier,
        "worker": None if run is None else f"{flow}.{tier}-{run.number}",
        "node": None if run is None else run.node,
        "state": "created" if run is None else "ended" if run.ended_at is not None else "starting" if mine is None else mine.state,
        "process": {"pid": holder.get("pid"), "host": holder.get("host")} if holder else None,
        "failures": 0 if run is None else run.failures,
        "cause": (run.cause if run is not None else "") or (mine.cause if mine is not None else ""),
        "remedy": (run.remedy if run is not None else "") or (mine.remedy if mine is not None else ""),
    }


def read_tasks(registry: Registry, flow: str) -> list[dict[str, Any]]:
    """The tasks of a flow's tiers as their workers wrote them last, as JSON: `tier`, `task`, and what the record says."""
    found: list[dict[str, Any]] = []
    tiers = [tier for tier in names(registry, f"flows/{flow}/tiers") if RUN.fits(flow, tier)]
    numbers = registry.children_many([f"flows/{flow}/tiers/{tier}/tasks" for tier in tiers])
    for tier, there in zip(tiers, numbers, strict=True):
        tasks = sorted((number for number in there if TASK.fits(flow, tier, number)), key=int)
        for number, stored in zip(tasks, read_records(registry, [TASK(flow, tier, number) for number in tasks]), strict=True):
            if isinstance(stored, Stored):
                said = {name: getattr(stored.record, name) for name in Task.__struct_fields__}
                found.append({"tier": tier, "task": int(number), **said})
    return found


def read_set_aside(registry: Registry, flow: str) -> list[dict[str, Any]]:
    """What was damaged among the flow's records and moved out of the way: `path`, `why`, and where it is `kept`."""
    root = f"flows/{flow}"
    folders = [root, f"{root}/wanted", f"{root}/runs", *(f"{root}/tiers/{tier}" for tier in names(registry, f"{root}/tiers"))]
    aside = [f"{folder}/{DAMAGED}" for folder in folders]
    paths = [f"{folder}/{name}" for folder, found in zip(aside, registry.children_many(aside), strict=True) for name in found]
    kept = [entry for entry in registry.read_many(paths) if isinstance(entry, Entry)]
    return [{"path": entry.value.get("path", ""), "why": entry.value.get("why", ""), "kept": entry.path} for entry in kept]


def _record(found: Stored[R] | Newer | Damaged | None) -> R | None:
    return found.record if isinstance(found, Stored) else None


def _last_wish(found: Stored[Desired] | Newer | Damaged | None, status: Status | None) -> Desired | None:
    """What a master goes on with where what is wanted of a flow is damaged or was removed, or cannot be."""
    if status is None or status.goal is None:
        return found.record if isinstance(found, Stored) else None
    if isinstance(found, Stored):
        said = status.refused.get(found.entry.path)
        if said is None or said.get("version") != found.entry.version:
            return found.record
    return Desired(state=status.goal, version=status.version)


def unknown_flow(flow: str, known: Sequence[str]) -> Refused:
    """The error for a name that nobody has submitted."""
    near = did_you_mean(flow, known) or "submit it: scribengin apply FILE"
    return Refused(f'there is no flow "{flow}"', remedy=near, code="flow-unknown")


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")


def _same(spec: Spec, submission: Submission) -> bool:
    mine = (submission.package, submission.path, submission.base, dict(submission.tiers))
    return (spec.package, spec.path, spec.base, dict(spec.tiers)) == mine


def _known(registry: Registry, spot: Spot[R]) -> R | None:
    """The record; None where there is none, or a folder only. Raises StateError where it says nothing."""
    found = read_record(registry, spot)
    if isinstance(found, Stored):
        return found.record
    if found is None or (isinstance(found, Damaged) and not found.raw.strip(b"{}")):
        return None
    why = "was written by a newer Scribengin" if isinstance(found, Newer) else found.why
    remedy = "run the newer version" if isinstance(found, Newer) else "mend or delete it with ZooKeeper's shell, then apply the flow again"
    raise StateError(f"{shown(spot.path)} {why}", remedy=remedy, code="registry-damaged")


def _again(attempt: Callable[[], T]) -> T:
    """Somebody else may write at the same time: look again, and decide again."""
    for _ in range(_TRIES - 1):
        try:
            return attempt()
        except Conflict:
            continue
    return attempt()
