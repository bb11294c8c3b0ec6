"""Invalid records that operators wrote into the registry: reported in the flow's status until they are fixed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, TypeVar

from scribengin.control.placement import is_on_group
from scribengin.control.world import Wish
from scribengin.core.errors import StateError
from scribengin.registry.contract import Conflict, Damaged, RegistryEntry, shown
from scribengin.registry.record_io import Newer, Record, Stored, names, read_record
from scribengin.registry.records import GroupName, Workers
from scribengin.registry.tree import DESIRED, HOST, HOSTS, LIMIT, MAPPED, NODE_GROUP, SPEC, STATUS, WORKERS
from scribengin.spec.tier_keys import MOST_WORKERS

if TYPE_CHECKING:
    from collections.abc import Callable

    from scribengin.control.registry_cache import Mirror
    from scribengin.registry.contract import Registry
    from scribengin.registry.record_io import Spot
    from scribengin.registry.records import Limit, Spec, StatusRecord, TierSpec, WorkerCount


# Reads records that are to be replaced: an invalid record is an error, and a write that conflicts is repeated.


R = TypeVar("R", bound=Record)
T = TypeVar("T")
_TRIES = 10


def read_known(registry: Registry, spot: Spot[R]) -> R | None:
    """The record; None if it does not exist, or is only a folder. Raises StateError if it is invalid."""
    found = read_stored(registry, spot)
    return None if found is None else found.record


def read_stored(registry: Registry, spot: Spot[R]) -> Stored[R] | None:
    """The record with its revision, so that it can be replaced; None and errors as in `read_known`."""
    found = read_record(registry, spot)
    if isinstance(found, Stored):
        return found
    if found is None or (isinstance(found, Damaged) and not found.raw.strip(b"{}")):
        return None
    why = "was written by a newer Scribengin" if isinstance(found, Newer) else found.why
    remedy = (
        "run the newer version"
        if isinstance(found, Newer)
        else "fix it with ZooKeeper's shell, or replace it: scribengin resume NAME (or stop)"
    )
    raise StateError(f"{shown(spot.path)} {why}", remedy=remedy, code="registry-damaged")


def again(attempt: Callable[[], T]) -> T:
    """Call `attempt`, which reads, decides and writes, again after a Conflict with another client, up to ten times in all."""
    for _ in range(_TRIES - 1):
        try:
            return attempt()
        except Conflict:
            continue
    return attempt()


MOST = 20
"""the most refusals that a status shows"""
Refusals = Mapping[str, Mapping[str, Any]]
"""path of a record → its `version` (absent if the record does not exist), `why`, and the `remedy`"""


def refusal(there: RegistryEntry | Damaged | None, why: str, remedy: str) -> dict[str, Any]:
    """The refusal of one record, as an entry of `Refusals`. `there`: the record; None if it does not exist."""
    return {**({} if there is None else {"version": there.version}), "why": why, "remedy": remedy}


def read_wish(mirror: Mirror, flow: str, status: StatusRecord | None) -> tuple[Wish | None, Spec | None, dict[str, Any]]:
    """The desired state of a flow. If `desired` is invalid, the last valid desired state applies, which the status contains.

    Args:
        mirror: the cached registry.
        flow: the flow.
        status: its last status; None if it has none.

    Returns:
        (the flow's desired state, its desired version, its refused records). Without a desired state and refusals, the flow has none. A
        desired
        state without a version, or refusals without a desired state, mean that the desired state is unknown.
    """
    spot = DESIRED(flow)
    there, found = mirror.read(spot.path), mirror.stored(spot)
    last = None
    if status is not None and status.goal is not None:
        last = Wish(status.version, status.goal, status.generation, status.operation)
    remedy = f"fix it, or replace it: scribengin resume {flow} (or pause, stop, drain)"
    match found:
        case Stored(record=wanted, entry=entry) if entry.value:
            spec, why = read_spec(mirror, flow, wanted.version)
            if spec is not None:
                return Wish(wanted.version, wanted.state, entry.changed, wanted.operation, wanted.accepts), spec, {}
            if "does not exist" in why:
                remedy = f"write one of these, or: scribengin rollback {flow} VERSION"
            else:
                remedy = f"apply the flow again, or go back: scribengin rollback {flow} VERSION"
        case None if last is None:
            return None, None, {}
        case None:
            mirror.forget(STATUS(flow).path)  # a deletion is one commit, but the watch reports its removals one by one
            if mirror.read(STATUS(flow).path) is None:
                return None, None, {}
            why, remedy = (
                "was removed, but the flow was not deleted",
                f"set a desired state: scribengin stop {flow}; then: scribengin delete {flow}",
            )
        case Damaged() if found.raw.strip(b"{} \n"):
            why = found.why
        case Newer():
            why, remedy = "was written by a newer Scribengin", "run the newer version"
        case _ if last is None:  # only a folder
            return None, None, {}
        case _:
            why = "is empty"
    refused = {spot.path: refusal(there, why, remedy)}
    return last, None if last is None else read_spec(mirror, flow, last.version)[0], refused


def read_spec(mirror: Mirror, flow: str, version: int) -> tuple[Spec | None, str]:
    """(the version, ""), or (None, why it cannot be read, as the end of a sentence)."""
    if version < 1:
        return None, f"names version {version}; versions count from 1"
    spec = mirror.stored(SPEC(flow, str(version)))
    if isinstance(spec, Stored) and spec.entry.value:
        return spec.record, ""
    if isinstance(spec, Damaged) and spec.raw.strip(b"{} \n"):
        return None, f"names version {version}, whose record {spec.why}"
    if isinstance(spec, Newer):
        return None, f"names version {version}, which a newer Scribengin wrote"
    there = sorted(int(name) for name in mirror.children(f"flows/{flow}/spec") if name.isdigit())
    return None, f"names version {version}, which does not exist; there are {', '.join(map(str, there)) or 'none'}"


def shown_refusals(refused: Refusals) -> dict[str, Any]:
    """Returns the first `MOST` refusals, for which a status has room, and the number of the others."""
    shown = dict(list(refused.items())[:MOST])
    if (more := len(refused) - len(shown)) > 0:
        shown["…"] = {"why": f"{more:,} more records are invalid", "remedy": "fix these first"}
    return shown


def refused_limits(mirror: Mirror, flow: str) -> dict[str, Any]:
    """The refused limits of the flow. A running worker keeps the previous ones; an invalid rate limits nothing."""
    spot = LIMIT(flow)
    there, found = mirror.read(spot.path), mirror.stored(spot)
    remedy = f"fix or remove it, or: scribengin limit {flow}"
    if isinstance(found, Damaged | Newer):
        return {spot.path: _says_nothing(there, found, remedy)}
    if isinstance(found, Stored) and (bad := _no_pace(found.record)):
        return {
            spot.path: refusal(
                there, f"has invalid limits, which are ignored: {', '.join(bad)}; rows_per_s and bytes_per_s must be above 0", remedy
            )
        }
    return {}


def workers_of(mirror: Mirror, flow: str, spec: Spec) -> tuple[dict[str, WorkerCount], dict[str, Any]]:
    """(tier → its number of workers, the refusals of the flow's record of them). Invalid values are ignored."""
    spot = WORKERS(flow)
    there, found = mirror.read(spot.path), mirror.stored(spot)
    counts, wrong = worker_counts(flow, spec, found.record if isinstance(found, Stored) else Workers())
    remedy = f"fix or remove it, or: scribengin scale {flow}.TIER --workers N (or each)"
    if isinstance(found, Damaged | Newer):
        return counts, {spot.path: _says_nothing(there, found, remedy)}
    return counts, {spot.path: refusal(there, "; ".join(wrong.values()), remedy)} if wrong else {}


def worker_counts(flow: str, spec: Spec, said: Workers) -> tuple[dict[str, WorkerCount], dict[str, str]]:
    """(tier → its number of workers, tier → why the record's value for it is invalid)."""
    wrong = {tier: why for tier, count in said.tiers.items() if (why := why_not_workers(flow, spec, tier, count))}
    by_hand = {tier: count for tier, count in said.tiers.items() if tier not in wrong}
    return {name: tier.workers for name, tier in spec.tiers.items()} | by_hand, wrong


def group_of(mirror: Mirror, flow: str, tier: str, spec: Spec) -> tuple[str, GroupName | None, dict[str, Any]]:
    """The group of hosts on which a tier runs. An operator's value applies until a version names another group.

    Args:
        mirror: the cached registry.
        flow: the flow.
        tier: the tier.
        spec: the desired version.

    Returns:
        (the group; the record that is to be written, None if there is nothing to write; the refusals).
    """
    spot, said = NODE_GROUP(f"{flow}.{tier}"), spec.tiers[tier].group
    there, found = mirror.read(spot.path), mirror.stored(spot)
    remedy = f"write one of these, or remove it: {', '.join(sorted(spec.groups)) or 'the flow has no group of hosts'}"
    if isinstance(found, Newer) or (isinstance(found, Damaged) and found.raw.strip(b"{} \n")):
        return said, None, {spot.path: _says_nothing(there, found, remedy)}
    if not isinstance(found, Stored) or not found.entry.value or (found.record.said and found.record.said != said):
        return said, GroupName(group=said, said=said) if said else None, {}
    name = found.record.group
    if name not in spec.groups and name != said:  # a version that an earlier release submitted does not name its groups
        return said, None, {spot.path: refusal(there, f'names group "{name}", which is not a group of hosts of flow {flow}', remedy)}
    new = GroupName(group=name, said=said)
    return name, None if new == found.record else new, {}


def _says_nothing(there: RegistryEntry | Damaged | None, found: Damaged | Newer, remedy: str) -> dict[str, Any]:
    """The refusal of a record that cannot be read here."""
    if isinstance(found, Newer):
        return refusal(there, "was written by a newer Scribengin", "run the newer version")
    return refusal(there, found.why, remedy)


def why_not_workers(flow: str, spec: Spec, tier: str, count: WorkerCount) -> str:
    """Why a tier cannot have that many workers; empty if it can."""
    if tier not in spec.tiers:
        return f'flow {flow} has no tier "{tier}"; it has {", ".join(spec.tiers)}'
    if count != "each" and not 1 <= count <= MOST_WORKERS:
        return f"tier {tier} cannot have {count} workers: expected 1 to {MOST_WORKERS}, or each"
    alone = spec.tiers[tier].alone
    workers = "a worker on each host" if count == "each" else f"{count} workers"
    return f"tier {tier} cannot have {workers}: {alone}" if alone and count != 1 else ""


def nodes_without_executors(registry: Registry, flow: str, tier: str, said: TierSpec) -> list[str]:
    """The registered nodes that may take a tier, if Spark runs inside the worker on all of them, so that it cannot have executors; none if
    one of them has executors, or if no registered node may take it."""
    hosts = {name: host.record for name in names(registry, HOSTS) if isinstance(host := read_record(registry, HOST(name)), Stored)}
    mapped = {name for name in hosts if registry.read(MAPPED(name, f"{flow}.{tier}").path) is not None}
    able = mapped or {name for name, host in hosts.items() if is_on_group(name, host.host, said)}
    return [] if any(hosts[name].spark for name in able) else sorted(able)


def _no_pace(limit: Limit) -> list[str]:
    """The keys with invalid numbers; and the unknown keys."""
    paces: dict[str, Mapping[str, float | None]] = {"": {"rows_per_s": limit.rows_per_s, "bytes_per_s": limit.bytes_per_s}}
    for kind, given in (("sources", limit.sources), ("edges", limit.edges)):
        paces |= {f"{kind}.{name}.": pace for name, pace in given.items()}
    return [
        f"{prefix}{key}"
        for prefix, pace in paces.items()
        for key, value in pace.items()
        if key not in ("rows_per_s", "bytes_per_s") or (value is not None and value <= 0)
    ]
