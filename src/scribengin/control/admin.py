"""What people ask of the control plane, as writes to the registry: submit a flow, say what is wanted of it, read how it stands."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, TypeVar

from msgspec.structs import replace

from scribengin.control.deleting import records_of
from scribengin.control.known import again, now_text, read_known, read_stored
from scribengin.control.operation_records import new_operation, refuse_while_under_way
from scribengin.control.runs import needs_worker, next_start_at
from scribengin.control.spares import waiting
from scribengin.control.submission import Applied, Submission, next_tiers, same_as
from scribengin.control.world import TierSeen
from scribengin.core.errors import Refused
from scribengin.core.problems import did_you_mean
from scribengin.registry.contract import Damaged, Delete, Entry, Replace, Require
from scribengin.registry.records import DAMAGED, Newer, Record, Stored, names, read_record, read_records
from scribengin.registry.tree import (
    DESIRED,
    LEASE,
    REPORT,
    RUN,
    SPARE,
    SPARE_REPORT,
    SPEC,
    STATUS,
    TASK,
    WANTED,
    Desired,
    Operation,
    Spec,
    Task,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from scribengin.registry.contract import Registry, Write
    from scribengin.registry.tree import Goal, Report, Run, Status, TierWish

R = TypeVar("R", bound=Record)


@dataclass(frozen=True, slots=True)
class FlowRow:
    """A flow: what is wanted of it, and how it stands; None where no master has looked at it yet."""

    flow: str
    desired: Desired
    status: Status | None


def apply(registry: Registry, submission: Submission, *, state: Callable[[str], str], by: str) -> Applied:
    """`apply_all` of one flow, whatever is wanted of it now."""
    return apply_all(registry, [submission], None, state=state, by=by)[0]


def apply_all(
    registry: Registry,
    submissions: Sequence[Submission],
    versions: Mapping[str, int] | None,
    *,
    state: Callable[[str], str],
    by: str,
    renew: Mapping[str, Sequence[tuple[str, str]]] | None = None,
    how: str = "again",
    effects: Mapping[str, str | None] | None = None,
) -> tuple[Applied, ...]:
    """Make each the next version of its flow, and want it to run; what is wanted just so is left alone. All records are written, or none.

    `state`: flow → folder of its state, where it has none. `versions`: flow → the version that it is to follow, 0 for a new flow. `renew`:
    flow → (tier, Query) of those that begin with a new checkpoint, `how` they do (`Accept`). `effects`: flow → how its changes take effect
    (`changes.Effect`), by which workers stay; else they are all replaced. Raises Refused `plan-stale` where another
    version is wanted by now, `operation-under-way`; StateError where a flow's records are damaged; Unreachable.
    """

    def attempt() -> tuple[Applied, ...]:
        now = now_text()
        found: list[tuple[Submission, Stored[Desired] | None, Spec | None, int]] = []
        for submission in submissions:
            stored = read_stored(registry, DESIRED(submission.flow))
            version = 0 if stored is None else stored.record.version
            if versions is not None and versions[submission.flow] != version:
                raise _stale(submission.flow, versions[submission.flow], version)
            newest = max(versions_of(registry, submission.flow), default=0)
            spec = read_known(registry, SPEC(submission.flow, str(version or newest))) if newest else None
            found.append((submission, stored, spec, newest))
        applied = tuple(_applied(*each) for each in found)
        together = {each.flow: each.version for each in applied} if len(applied) > 1 else {}
        writes: list[Write] = []
        for each, (submission, stored, before, _) in zip(applied, found, strict=True):
            if not each.changed:
                continue
            refuse_while_under_way(registry, each.flow, stored)
            spec = Spec(
                package=submission.package,
                path=submission.path,
                base=submission.base,
                state=before.state if before is not None else state(each.flow),
                tiers=next_tiers(submission, before, 0 if stored is None else stored.record.version, (effects or {}).get(each.flow)),
                by=by,
                at=now,
                together=together,
                scaled={} if before is None else before.scaled,
                watched=submission.watched,
                labels=dict(submission.labels),
            )
            desired = Desired(state="running", version=each.version, by=by, at=now)
            if anew := (renew or {}).get(each.flow, ()):
                old = each.version if stored is None else stored.record.version
                begun = _renewal(anew, old, how, by, now)
                id_, more = new_operation(registry, each.flow, begun)
                desired = replace(desired, operation=id_)
                writes += more
            if stored is None or each.version != stored.record.version:
                writes.append(SPEC(each.flow, str(each.version)).create(spec))
            writes.append(DESIRED(each.flow).create(desired) if stored is None else stored.replace(desired))
        if writes:
            registry.commit(*writes)
        return applied

    return again(attempt)


def _applied(submission: Submission, stored: Stored[Desired] | None, spec: Spec | None, newest: int) -> Applied:
    if stored is not None and spec is not None and same_as(spec, submission):
        return Applied(submission.flow, stored.record.version, changed=stored.record.state != "running")
    return Applied(submission.flow, newest + 1, changed=True)


def _stale(flow: str, planned: int, version: int) -> Refused:
    now = f"version {version} is wanted" if version else "nothing is wanted of it"
    was = f"version {planned}" if planned else "nothing"
    return Refused(
        f"the plan is stale: of flow {flow} it knew {was}, and by now {now}",
        remedy="look at what would change now: scribengin apply … --dry-run",
        code="plan-stale",
    )


def version_of(registry: Registry, flow: str, version: int) -> Spec:
    """One of its versions. Raises Refused where there is none of that number, StateError where it is damaged."""
    spec = read_known(registry, SPEC(flow, str(version)))
    if spec is None:
        raise Refused(f"flow {flow} has no version {version}", remedy=f"see: scribengin history {flow}", code="version-unknown")
    return spec


def wanted(registry: Registry, flow: str) -> tuple[Desired | None, Spec | None]:
    """What is wanted of a flow, and the version that is. Raises StateError where that is damaged."""
    desired = read_known(registry, DESIRED(flow))
    return desired, None if desired is None else read_known(registry, SPEC(flow, str(desired.version)))


def want(registry: Registry, flow: str, goal: Goal, *, by: str) -> int:
    """Say what is wanted of a flow now; returns the revision, which a report that has reached it names as its generation. Asked again what
    failed is tried again. Raises Refused where there is no such flow."""

    def attempt() -> int:
        there = registry.read(DESIRED(flow).path)
        desired = read_flow(registry, flow).desired
        wish = replace(desired, state=goal, by=by, at=now_text())
        write = (
            DESIRED(flow).create(wish) if there is None else Replace(there, wish.dump(there.value if isinstance(there, Entry) else None))
        )
        return registry.commit(write, Require(SPEC(flow, str(wish.version)).path)).revision

    return again(attempt)


def going_back(registry: Registry, flow: str, version: int, *, only: bool = False) -> dict[str, int]:
    """Flow → version that `rollback` would want: of the flow, and unless `only` of those that were submitted as one with that version.
    Those that are wanted just so are left out. Raises as `rollback`."""
    desired = read_flow(registry, flow).desired
    there = versions_of(registry, flow)
    if version not in there:
        known = ", ".join(str(number) for number in there)
        raise Refused(f"flow {flow} has no version {version}", remedy=f"it has {known}: scribengin history {flow}", code="version-unknown")
    spec = read_known(registry, SPEC(flow, str(version)))
    together = {} if only or spec is None else {**spec.together}
    back = {name: number for name, number in {**together, flow: version}.items() if number in versions_of(registry, name)}
    wanted_now = {name: desired.version if name == flow else read_flow(registry, name).desired.version for name in back}
    changed = {name: number for name, number in back.items() if wanted_now[name] != number}
    if not changed:
        raise Refused(f"version {version} of flow {flow} is wanted already", remedy=f"see: scribengin history {flow}", code="version-same")
    return changed


def rollback(
    registry: Registry,
    flow: str,
    version: int,
    *,
    by: str,
    only: bool = False,
    renew: Mapping[str, Sequence[tuple[str, str]]] | None = None,
    how: str = "again",
) -> dict[str, int]:
    """Want another version that there was, code and flow together, in the state that is wanted now. Flows that were submitted as one with
    that version go back with it, unless `only`. Returns flow → version of those that changed: all of them, or none. `renew` and `how` as in
    `apply_all`.

    Raises Refused where there is no such flow or version, it is wanted already, or an operation is under way.
    """

    def attempt() -> dict[str, int]:
        changed = going_back(registry, flow, version, only=only)
        writes: list[Write] = []
        for name, number in changed.items():
            there = registry.read(DESIRED(name).path)
            desired = read_flow(registry, name).desired
            stored = read_stored(registry, DESIRED(name)) if isinstance(there, Entry) else None
            refuse_while_under_way(registry, name, stored)
            now = now_text()
            wish = replace(desired, version=number, by=by, at=now)
            if anew := (renew or {}).get(name, ()):
                begun = _renewal(anew, desired.version, how, by, now)
                id_, more = new_operation(registry, name, begun)
                wish = replace(wish, operation=id_)
                writes += more
            over = wish.dump(there.value if isinstance(there, Entry) else None)
            writes.append(DESIRED(name).create(wish) if there is None else Replace(there, over))
            writes.append(Require(SPEC(name, str(number)).path))
        registry.commit(*writes)
        return changed

    return again(attempt)


def _renewal(anew: Sequence[tuple[str, str]], version: int, how: str, by: str, now: str) -> Operation:
    """The operation by which Queries begin with a new checkpoint, done as `version`, which knows the old one."""
    tiers = tuple(dict.fromkeys(tier for tier, _ in anew))
    arguments: dict[str, Any] = {"how": how, "queries": [list(query) for query in anew]}
    return Operation(kind="renew", step="stop", tiers=tiers, version=version, arguments=arguments, by=by, at=now, since=now)


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

    again(attempt)


def versions_of(registry: Registry, flow: str) -> list[int]:
    """The numbers of its versions, the oldest first."""
    return sorted(int(name) for name in names(registry, f"flows/{flow}/spec") if name.isdigit())


def history(registry: Registry, flow: str) -> list[dict[str, Any]]:
    """The versions of a flow, the newest first, as JSON. Raises as `read_flow`."""
    desired = read_flow(registry, flow).desired
    found = []
    for version in reversed(versions_of(registry, flow)):
        spec = read_known(registry, SPEC(flow, str(version)))
        if spec is not None:
            about = {"package": spec.package, "tiers": sorted(spec.tiers), "by": spec.by, "at": spec.at}
            found.append({"version": version, "wanted": version == desired.version, **about})
    return found


def state_of(registry: Registry, flow: str) -> str:
    """The folder in which the flow's state lies. Raises as `read_flow`."""
    spec = read_known(registry, SPEC(flow, str(read_flow(registry, flow).desired.version)))
    return "" if spec is None else spec.state


def read_flow(registry: Registry, flow: str) -> FlowRow:
    """Where what is wanted is damaged, it is what was wanted before, and the status says why. Raises Refused where there is no such flow,
    StateError where not even that is known."""
    found, status = read_record(registry, DESIRED(flow)), _record(read_record(registry, STATUS(flow)))
    desired = _last_wish(found, status)
    if desired is None:
        desired = read_known(registry, DESIRED(flow))
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
    wish, run = _record(read_record(registry, WANTED(flow, tier))), _record(read_record(registry, RUN(flow, tier)))
    report, lease = _record(read_record(registry, REPORT(flow, tier))), registry.read(LEASE(flow, tier).path)
    spare = waiting(TierSeen(tier, run=run, spare=_record(read_record(registry, SPARE(flow, tier)))))
    mine = report if run is not None and report is not None and report.run == run.number else None
    holder = lease.value if isinstance(lease, Entry) else {}
    return {
        "tier": tier,
        "worker": None if run is None else f"{flow}.{tier}-{run.number}",
        "node": None if run is None else run.node,
        "state": "created" if run is None else "ended" if run.ended_at is not None else "starting" if mine is None else mine.state,
        "process": {"pid": holder.get("pid"), "host": holder.get("host")} if holder else None,
        "failures": 0 if run is None else run.failures,
        "http": "" if mine is None else mine.http,
        "starts_again": _next_start(run, wish, report),
        "standby": None if spare is None else _described_spare(flow, tier, spare, read_known(registry, SPARE_REPORT(flow, tier))),
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
    return Desired(state=status.goal, version=status.version, operation=status.operation)


def _described_spare(flow: str, tier: str, spare: Run, report: Report | None) -> dict[str, Any]:
    mine = report if report is not None and report.run == spare.number else None
    return {
        "worker": f"{flow}.{tier}-{spare.number}",
        "node": spare.node,
        "state": "starting" if mine is None else mine.state,
        "http": "" if mine is None else mine.http,
    }


def _next_start(run: Run | None, wish: TierWish | None, report: Report | None) -> str | None:
    """When the successor of a worker that has ended starts, ISO 8601; None where none does by itself."""
    tier = TierSeen("", wish=wish, run=run, report=report)
    if run is None or wish is None or run.ended_at is None or not needs_worker(tier):
        return None
    at = next_start_at(tier, wish)
    return None if at is None else datetime.fromtimestamp(at or run.ended_at, UTC).isoformat(timespec="seconds")


def unknown_flow(flow: str, known: Sequence[str]) -> Refused:
    """The error for a name that nobody has submitted."""
    near = did_you_mean(flow, known) or "submit it: scribengin apply FILE"
    return Refused(f'there is no flow "{flow}"', remedy=near, code="flow-unknown")


def known_flow(registry: Registry, flow: str) -> Stored[Desired]:
    """What is wanted of a flow, to be replaced. Raises as `read_flow`."""
    stored = read_stored(registry, DESIRED(flow))
    if stored is None:
        raise unknown_flow(flow, names(registry, "flows"))
    return stored
