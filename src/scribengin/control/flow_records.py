"""Reads flows from the registry: their status, versions, tiers, tasks. Works without a running master."""

from __future__ import annotations

from collections import Counter
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from scribengin.client.models import AcceptedRow, NoticedRow, TaskRow, VersionRow
from scribengin.control.record_validation import read_known, read_stored, worker_counts
from scribengin.control.standbys import waiting
from scribengin.control.worker_lifecycle import needs_worker, next_start_at
from scribengin.control.world import ObservedTier
from scribengin.core.errors import Refused
from scribengin.core.problems import did_you_mean
from scribengin.core.time_text import moment_text
from scribengin.registry.contract import Damaged, RegistryEntry, shown
from scribengin.registry.record_io import DAMAGED, Newer, Record, Stored, names, read_record, read_records
from scribengin.registry.records import Desired, MaintenanceOwner, MaintenanceReport, QueryAck, Spec, Task, Workers, id_of_folder, tier_of
from scribengin.registry.tree import (
    ACK,
    AUTOSCALE,
    COLUMNS,
    DESIRED,
    FILE,
    KEEPING,
    LEASE,
    REPORT,
    RUN,
    SPARE,
    SPARE_REPORT,
    SPEC,
    STATUS,
    TAKEN,
    TASK,
    UPKEEP_LEASE,
    UPKEPT,
    WANTED,
    WORKERS,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from scribengin.registry.contract import Registry
    from scribengin.registry.record_io import Spot
    from scribengin.registry.records import ColumnsRecord, HolderRecord, Report, Run, Spec, StatusRecord, TierWish


# The registry's records of the folders that a flow's sinks write into: their maintenance owners, and the results. Works without a running
# master.


def read_folders(registry: Registry, spec: Spec) -> list[dict[str, Any]]:
    """The folders of a version, by path, as JSON; in few requests."""
    tiers: dict[str, list[str]] = {}
    for name, tier in sorted(spec.tiers.items()):
        for path in tier.folders:
            tiers.setdefault(path, []).append(name)
    paths = sorted(tiers)
    spots: list[Spot[Any]] = [branch(id_of_folder(path)) for path in paths for branch in (KEEPING, UPKEEP_LEASE, UPKEPT)]
    found = [each.record if isinstance(each, Stored) else None for each in read_records(registry, spots)] if spots else []
    return [_described(path, tiers[path], *found[3 * at : 3 * at + 3]) for at, path in enumerate(paths)]


def _described(
    path: str, tiers: list[str], keeping: MaintenanceOwner | None, holder: HolderRecord | None, done: MaintenanceReport | None
) -> dict[str, Any]:
    keeping = keeping or MaintenanceOwner(path=path, node="", number=0)
    done = done or MaintenanceReport(node="")
    return {
        "path": path,
        "tiers": tiers,
        "writers": list(keeping.writers),
        "node": keeping.node,
        "since": keeping.since,
        "keeper": None if holder is None else {"pid": holder.pid, "host": holder.host},
        "looked_at": done.at,
        "did_at": done.did_at,
        "folded": done.folded,
        "files": done.files,
        "bytes": done.bytes,
        "error": done.error,
    }


# What happens when a tier's worker is lost, as JSON: when the next one starts, and which standby can take over.


def described_spare(flow: str, tier: str, spare: Run, report: Report | None) -> dict[str, Any]:
    """The standby of a tier as JSON: its worker, its node, its state and its address.

    Args:
        flow: the flow.
        tier: the tier.
        spare: the run of the standby.
        report: the report of the tier's standby; one of another run is ignored.
    """
    mine = report if report is not None and report.run == spare.number else None
    return {
        "worker": f"{flow}.{tier}-{spare.number}",
        "node": spare.node,
        "state": "starting" if mine is None else mine.state,
        "http": "" if mine is None else mine.http,
    }


def next_start(run: Run | None, wish: TierWish | None, report: Report | None) -> str | None:
    """The time at which the successor of a worker that has ended starts, ISO 8601; None if none starts automatically. A time in the past
    means that it starts immediately."""
    tier = ObservedTier("", wish=wish, run=run, report=report)
    if run is None or wish is None or run.ended_at is None or not needs_worker(tier):
        return None
    at = next_start_at(tier, wish)
    return None if at is None else moment_text(at or run.ended_at)


R = TypeVar("R", bound=Record)


@dataclass(frozen=True, slots=True)
class ObservedFlow:
    """A flow: its desired state, and its status; None if no master has reconciled it yet."""

    flow: str
    desired: Desired
    status: StatusRecord | None


def version_of(registry: Registry, flow: str, version: int) -> Spec:
    """One of its versions. Raises Refused if there is no such version, StateError if it is damaged."""
    spec = read_known(registry, SPEC(flow, str(version)))
    if spec is None:
        raise Refused(f"flow {flow} has no version {version}", remedy=f"see: scribengin history {flow}", code="version-unknown")
    return spec


def wanted(registry: Registry, flow: str) -> tuple[Desired | None, Spec | None]:
    """The desired state of a flow, and its desired version; None for each that does not exist. Raises StateError if a record is damaged."""
    desired = read_known(registry, DESIRED(flow))
    return desired, None if desired is None else read_known(registry, SPEC(flow, str(desired.version)))


def versions_of(registry: Registry, flow: str) -> list[int]:
    """The numbers of its versions, oldest first."""
    return sorted(int(name) for name in names(registry, f"flows/{flow}/spec") if name.isdigit())


def history(registry: Registry, flow: str) -> list[VersionRow]:
    """The versions of a flow, newest first. Raises as `read_flow`."""
    desired = read_flow(registry, flow).desired
    found = []
    for version in reversed(versions_of(registry, flow)):
        spec = read_known(registry, SPEC(flow, str(version)))
        if spec is not None:
            found.append(VersionRow(version, version == desired.version, spec.package, tuple(sorted(spec.tiers)), spec.by, spec.at))
    return found


def state_of(registry: Registry, flow: str) -> str:
    """The path of the folder of the flow's state. Raises as `read_flow`."""
    spec = read_known(registry, SPEC(flow, str(read_flow(registry, flow).desired.version)))
    return "" if spec is None else spec.state


def read_flow(registry: Registry, flow: str) -> ObservedFlow:
    """A flow. If its desired state is damaged, the last valid one is used, and the status says why. Raises Refused if there is no such
    flow, StateError if not even that is known."""
    found, status = read_record(registry, DESIRED(flow)), _record(read_record(registry, STATUS(flow)))
    desired = _last_wish(found, status)
    if desired is None:
        desired = read_known(registry, DESIRED(flow))
    if desired is None:
        raise _no_version(registry, flow)
    return ObservedFlow(flow, desired, status)


def check_stopped(registry: Registry, flow: str) -> None:
    """Raise Refused if the flow is not stopped, or its desired state is running; and as `read_flow`."""
    row = read_flow(registry, flow)
    if row.status is None or row.status.state != "stopped" or row.desired.state not in ("stopped", "drained"):
        raise not_stopped(row)


def not_stopped(row: ObservedFlow) -> Refused:
    """The error for a flow that is not stopped, or will not stay so. A status may be of an earlier desired state."""
    now, wanted = "not reconciled yet" if row.status is None else row.status.state, row.desired.state
    said = f"flow {row.flow} is {now}, not stopped"
    if now == "stopped" and wanted in ("stopped", "drained"):
        said = f"the stop of flow {row.flow} is not carried out yet"
    elif now == "stopped":
        said = f"flow {row.flow} is stopped, but its desired state is {wanted}"
    return Refused(said, remedy=f"scribengin stop {row.flow} --wait", code="flow-not-stopped")


def read_status(registry: Registry, flow: str) -> StatusRecord | None:
    """The status that the last leader wrote; None if there is none, or it is invalid."""
    return _record(read_record(registry, STATUS(flow)))


def read_flows(registry: Registry) -> tuple[ObservedFlow, ...]:
    """All flows, by name. For a damaged desired state the last valid one is used; a flow without that is left out (a master reports it)."""
    rows = []
    flows = [name for name in names(registry, "flows") if DESIRED.fits(name)]
    wanted = read_records(registry, [DESIRED(name) for name in flows])
    for name, desired, status in zip(flows, wanted, read_records(registry, [STATUS(name) for name in flows]), strict=True):
        now = _record(status)
        wish = desired.record if isinstance(desired, Stored) else _last_wish(desired, now)
        if wish is not None:
            rows.append(ObservedFlow(name, wish, now))
    return tuple(rows)


def read_refused_files(registry: Registry) -> tuple[ObservedFlow, ...]:
    """The flows that have no version, only a text in the registry that was refused; by name. Their version is 0."""
    flows = [name for name in names(registry, "flows") if DESIRED.fits(name)]
    files = registry.read_many([FILE(name).path for name in flows])
    flows = [name for name, file in zip(flows, files, strict=True) if file is not None and registry.read(DESIRED(name).path) is None]
    found = {name: _record(status) for name, status in zip(flows, read_records(registry, [STATUS(name) for name in flows]), strict=True)}
    none = Desired(state="running", version=0)
    return tuple(
        ObservedFlow(name, none, status) for name, status in found.items() if status is not None and FILE(name).path in status.refused
    )


def describe(registry: Registry, flow: str) -> dict[str, Any]:
    """All that the registry has of a flow and its tiers, as JSON. Works without a running master. Raises as `read_flow`."""
    row = read_flow(registry, flow)
    spec = _record(read_record(registry, SPEC(flow, str(row.desired.version))))
    found = {*names(registry, f"flows/{flow}/runs"), *(spec.tiers if spec is not None else ())}
    tiers = sorted(tier for tier in found if RUN.fits(flow, tier))
    current = frozenset(found if spec is None else spec.tiers)
    workers = {} if spec is None else _workers(registry, flow, spec)
    sizes = {} if spec is None else _sizes(registry, flow, spec)
    return {
        "flow": flow,
        "wanted": {"state": row.desired.state, "version": row.desired.version, "by": row.desired.by, "at": row.desired.at},
        "status": None if row.status is None else row.status.dump(),
        "tiers": [
            {
                **_described_tier(registry, flow, tier, current=tier in current),
                **workers.get(tier, _NO_WORKERS),
                "autoscale": sizes.get(tier),
            }
            for tier in tiers
        ],
        "noticed": read_noticed(registry, flow),
        "accepted": read_accepted(registry, flow),
        "acknowledged": read_acks(registry, flow, sorted(current)),
        "set_aside": read_set_aside(registry, flow),
        "folders": [] if spec is None else read_folders(registry, spec),
    }


def _described_tier(registry: Registry, flow: str, tier: str, *, current: bool) -> dict[str, Any]:
    """`current`: the desired version has it."""
    wish, run = _record(read_record(registry, WANTED(flow, tier))), _record(read_record(registry, RUN(flow, tier)))
    report, lease = _record(read_record(registry, REPORT(flow, tier))), registry.read(LEASE(flow, tier).path)
    spare = waiting(ObservedTier(tier, run=run, spare=_record(read_record(registry, SPARE(flow, tier)))))
    mine = report if run is not None and report is not None and report.run == run.number else None
    holder = lease.value if isinstance(lease, RegistryEntry) else {}
    return {
        "tier": tier,
        "worker": None if run is None else f"{flow}.{tier}-{run.number}",
        "node": None if run is None else run.node,
        "state": "created" if run is None else "ended" if run.ended_at is not None else "starting" if mine is None else mine.state,
        "process": {"pid": holder.get("pid"), "host": holder.get("host")} if holder else None,
        "failures": 0 if run is None else run.failures,
        "http": "" if mine is None else mine.http,
        "ready": None if not current else False if mine is None else mine.ready,
        "starts_again": next_start(run, wish, report),
        "standby": None if spare is None else described_spare(flow, tier, spare, read_known(registry, SPARE_REPORT(flow, tier))),
        "cause": (run.cause if run is not None else "") or (mine.cause if mine is not None else ""),
        "remedy": (run.remedy if run is not None else "") or (mine.remedy if mine is not None else ""),
    }


def _workers(registry: Registry, flow: str, spec: Spec) -> dict[str, dict[str, Any]]:
    """Tier of that version → its number of workers, and for how many of these the desired state is not stopped, as JSON."""
    counts, _ = worker_counts(flow, spec, _record(read_record(registry, WORKERS(flow))) or Workers())
    there = [name for name in names(registry, f"flows/{flow}/wanted") if WANTED.fits(flow, name)]
    wishes = zip(there, read_records(registry, [WANTED(flow, name) for name in there]), strict=True)
    now = Counter(tier_of(name) for name, wish in wishes if isinstance(wish, Stored) and wish.record.goal != "stopped")
    return {tier: {"workers": count, "wanted_workers": now[tier]} for tier, count in counts.items()}


def _sizes(registry: Registry, flow: str, spec: Spec) -> dict[str, dict[str, Any]]:
    """Tier of that version with `autoscale` → its bounds, its executors and what the leader thinks of their number, as JSON."""
    settings = {name: (tier, tier.autoscale) for name, tier in spec.tiers.items() if tier.autoscale is not None}
    known = _record(read_record(registry, AUTOSCALE(flow))) if settings else None
    found = {}
    for name, (tier, scale) in settings.items():
        size = None if known is None else known.tiers.get(name)
        found[name] = {
            **{key: getattr(scale, key) for key in ("lag_s", "min", "max", "mode")},
            "executors": tier.executors,
            "advised": tier.executors if size is None else size.executors,
            "verdict": "wait" if size is None else size.verdict,
            "why": "" if size is None else size.why,
            "since": "" if size is None else size.since,
            "change": "" if size is None else size.change,
            "changed_at": moment_text(size.changed_at) if size is not None and size.changed_at is not None else "",
        }
    return found


_NO_WORKERS = {"workers": None, "wanted_workers": 0}
"""for a helper, and for a tier that the desired version does not have"""


def read_tasks(registry: Registry, flow: str) -> list[TaskRow]:
    """The tasks of a flow's tiers as their workers last wrote them."""
    found: list[TaskRow] = []
    tiers = [tier for tier in names(registry, f"flows/{flow}/tiers") if RUN.fits(flow, tier)]
    numbers = registry.children_many([f"flows/{flow}/tiers/{tier}/tasks" for tier in tiers])
    for tier, there in zip(tiers, numbers, strict=True):
        tasks = sorted((number for number in there if TASK.fits(flow, tier, number)), key=int)
        for number, stored in zip(tasks, read_records(registry, [TASK(flow, tier, number) for number in tasks]), strict=True):
            if isinstance(stored, Stored):
                said = {name: getattr(stored.record, name) for name in Task.__struct_fields__}
                found.append(TaskRow(tier, int(number), **said))
    return found


def read_acks(registry: Registry, flow: str, tiers: Sequence[str]) -> list[dict[str, Any]]:
    """How far each query of these tiers is acknowledged by downstream tiers, as their workers last wrote it, as JSON."""
    return [
        {"tier": tier, "query": query, **{name: getattr(said, name) for name in QueryAck.__struct_fields__}}
        for (tier, query), said in acks_of(registry, flow, tiers).items()
    ]


def acks_of(registry: Registry, flow: str, tiers: Sequence[str]) -> dict[tuple[str, str], QueryAck]:
    """How far each (tier, query) is acknowledged; see `read_acks`."""
    there = [tier for tier in tiers if ACK.fits(flow, tier)]
    found = zip(there, read_records(registry, [ACK(flow, tier) for tier in there]), strict=True)
    return {(tier, query): said for tier, stored in found if isinstance(stored, Stored) for query, said in stored.record.queries.items()}


def read_noticed(registry: Registry, flow: str) -> list[dict[str, Any]]:
    """The columns in the data of a flow's sources that their schemas lack, as its workers last wrote them; by time."""
    return _columns(registry, flow, NoticedRow, lambda record: record.noticed)


def read_accepted(registry: Registry, flow: str) -> list[dict[str, Any]]:
    """The columns of a flow's sinks that an operator accepted, in the form of `read_noticed`."""
    return _columns(registry, flow, AcceptedRow, lambda record: record.accepted)


def _columns(
    registry: Registry,
    flow: str,
    kind: type[NoticedRow | AcceptedRow],
    rows_of: Callable[[ColumnsRecord], Sequence[Mapping[str, Any]]],
) -> list[dict[str, Any]]:
    desired = _last_wish(read_record(registry, DESIRED(flow)), read_status(registry, flow))
    spec = None if desired is None else _record(read_record(registry, SPEC(flow, str(desired.version))))
    there = [tier for tier in names(registry, f"flows/{flow}/tiers") if COLUMNS.fits(flow, tier)]
    # the record of a removed tier stays; the tier that now has its nodes reports the same
    tiers = [tier for tier in there if spec is None or tier in spec.tiers]
    found = read_records(registry, [COLUMNS(flow, tier) for tier in tiers])
    rows: list[NoticedRow | AcceptedRow] = []
    for tier, stored in zip(tiers, found, strict=True):
        for row in rows_of(stored.record) if isinstance(stored, Stored) else ():
            with suppress(msgspec.ValidationError):  # written by a worker of another version, or by hand
                rows.append(msgspec.convert({**row, "tier": tier}, kind))
    return [msgspec.to_builtins(row) for row in sorted(rows, key=lambda row: row.at)]


def read_set_aside(registry: Registry, flow: str) -> list[dict[str, Any]]:
    """The flow's damaged records that were moved aside: `path`, `why`, and where each is `kept`."""
    root = f"flows/{flow}"
    folders = [root, f"{root}/wanted", f"{root}/runs", *(f"{root}/tiers/{tier}" for tier in names(registry, f"{root}/tiers"))]
    aside = [f"{folder}/{DAMAGED}" for folder in folders]
    paths = [f"{folder}/{name}" for folder, found in zip(aside, registry.children_many(aside), strict=True) for name in found]
    kept = [entry for entry in registry.read_many(paths) if isinstance(entry, RegistryEntry)]
    return [{"path": entry.value.get("path", ""), "why": entry.value.get("why", ""), "kept": entry.path} for entry in kept]


def _record(found: Stored[R] | Newer | Damaged | None) -> R | None:
    return found.record if isinstance(found, Stored) else None


def _last_wish(found: Stored[Desired] | Newer | Damaged | None, status: StatusRecord | None) -> Desired | None:
    """The last valid desired state, with which a master continues if the present one is damaged, removed or invalid."""
    if status is None or status.goal is None:
        return found.record if isinstance(found, Stored) else None
    if isinstance(found, Stored):
        said = status.refused.get(found.entry.path)
        if said is None or said.get("version") != found.entry.version:
            return found.record
    return Desired(state=status.goal, version=status.version, operation=status.operation)


def unknown_flow(flow: str, known: Sequence[str]) -> Refused:
    """The error for a name of a flow that was never submitted."""
    near = did_you_mean(flow, known) or "submit it: scribengin apply FILE"
    return Refused(f'there is no flow "{flow}"', remedy=near, code="flow-unknown")


def _no_version(registry: Registry, flow: str) -> Refused:
    """The error for a name that was never submitted, or that only has a text in the registry."""
    file, taken = registry.read(FILE(flow).path), _record(read_record(registry, TAKEN(flow)))
    if file is None:
        return unknown_flow(flow, [name for name in names(registry, "flows") if name != flow])
    why, remedy = "has not been read yet", f"try again in a moment: scribengin status {flow}"
    if taken is not None and taken.revision == file.changed and not taken.version:
        why, remedy = taken.why, taken.remedy
    return Refused(f"flow {flow} has no version yet: {shown(file.path)} {why}", remedy=remedy, code="flow-file-refused")


def known_flow(registry: Registry, flow: str) -> Stored[Desired]:
    """The desired state of a flow, to be replaced. Raises as `read_flow`."""
    stored = read_stored(registry, DESIRED(flow))
    if stored is None:
        raise _no_version(registry, flow)
    return stored
