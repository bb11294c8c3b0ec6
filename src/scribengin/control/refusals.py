"""What people wrote into the tree by hand and cannot hold: told beside it, in the flow's status, until it is mended."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from scribengin.control.world import Wish
from scribengin.registry.contract import Damaged, RegistryEntry
from scribengin.registry.kinds import GroupName, Workers
from scribengin.registry.records import Newer, Stored
from scribengin.registry.tree import DESIRED, LIMIT, NODE_GROUP, SPEC, STATUS, WORKERS
from scribengin.spec.tier_keys import MOST_WORKERS

if TYPE_CHECKING:
    from scribengin.control.mirror import Mirror
    from scribengin.registry.kinds import Limit, Spec, StatusRecord, WorkerCount

MOST = 20
"""that a status tells of"""
Refusals = Mapping[str, Mapping[str, Any]]
"""path of a record → `version` of what stands there (absent where nothing does), `why`, and the `remedy`"""


def refusal(there: RegistryEntry | Damaged | None, why: str, remedy: str) -> dict[str, Any]:
    """One of `Refusals`."""
    return {**({} if there is None else {"version": there.version}), "why": why, "remedy": remedy}


def read_wish(mirror: Mirror, flow: str, status: StatusRecord | None) -> tuple[Wish | None, Spec | None, dict[str, Any]]:
    """(what is wanted of the flow, the version that is wanted, what is refused of it).

    Where what stands in `desired` cannot be, the last that could still is: the status says which that was. No wish and nothing refused:
    nobody wants anything of it. A wish without a version, or something refused without a wish: nobody can know what is to be done.
    """
    spot = DESIRED(flow)
    there, found = mirror.read(spot.path), mirror.stored(spot)
    last = None
    if status is not None and status.goal is not None:
        last = Wish(status.version, status.goal, status.generation, status.operation)
    remedy = f"mend it, or say it anew: scribengin resume {flow} (or pause, stop, drain)"
    match found:
        case Stored(record=wanted, entry=entry) if entry.value:
            spec, why = read_spec(mirror, flow, wanted.version)
            if spec is not None:
                return Wish(wanted.version, wanted.state, entry.changed, wanted.operation, wanted.accepts), spec, {}
            if "is not there" in why:
                remedy = f"write one of these, or: scribengin rollback {flow} VERSION"
            else:
                remedy = f"apply the flow again, or go back: scribengin rollback {flow} VERSION"
        case None if last is None:
            return None, None, {}
        case None:
            mirror.forget(STATUS(flow).path)  # to delete a flow is one step, and what it has removed is told of one by one
            if mirror.read(STATUS(flow).path) is None:
                return None, None, {}
            why, remedy = (
                "was removed, and the flow was not deleted",
                f"say what is wanted: scribengin stop {flow}; then: scribengin delete {flow}",
            )
        case Damaged() if found.raw.strip(b"{} \n"):
            why = found.why
        case Newer():
            why, remedy = "was written by a newer Scribengin", "run the newer version"
        case _ if last is None:  # a folder
            return None, None, {}
        case _:
            why = "is empty"
    refused = {spot.path: refusal(there, why, remedy)}
    return last, None if last is None else read_spec(mirror, flow, last.version)[0], refused


def read_spec(mirror: Mirror, flow: str, version: int) -> tuple[Spec | None, str]:
    """A version; else why there is none."""
    if version < 1:
        return None, f"wants version {version}; versions count from 1"
    spec = mirror.stored(SPEC(flow, str(version)))
    if isinstance(spec, Stored) and spec.entry.value:
        return spec.record, ""
    if isinstance(spec, Damaged) and spec.raw.strip(b"{} \n"):
        return None, f"wants version {version}, whose record {spec.why}"
    if isinstance(spec, Newer):
        return None, f"wants version {version}, which a newer Scribengin wrote"
    there = sorted(int(name) for name in mirror.children(f"flows/{flow}/spec") if name.isdigit())
    return None, f"wants version {version}, which is not there; there are {', '.join(map(str, there)) or 'none'}"


def some_of(refused: Refusals) -> dict[str, Any]:
    """As many as a status has room for; of the others how many there are."""
    shown = dict(list(refused.items())[:MOST])
    if (more := len(refused) - len(shown)) > 0:
        shown["…"] = {"why": f"{more:,} more records cannot be", "remedy": "mend these first"}
    return shown


def refused_limits(mirror: Mirror, flow: str) -> dict[str, Any]:
    """What stands in the flow's limits and cannot be. A worker that runs goes on with those before; what is no pace limits nothing."""
    spot = LIMIT(flow)
    there, found = mirror.read(spot.path), mirror.stored(spot)
    remedy = f"mend or remove it, or: scribengin limit {flow}"
    if isinstance(found, Damaged | Newer):
        return {spot.path: _says_nothing(there, found, remedy)}
    if isinstance(found, Stored) and (bad := _no_pace(found.record)):
        return {spot.path: refusal(there, f"limits nothing by {', '.join(bad)}: rows_per_s and bytes_per_s are above 0", remedy)}
    return {}


def workers_of(mirror: Mirror, flow: str, spec: Spec) -> tuple[dict[str, WorkerCount], dict[str, Any]]:
    """(tier → how many workers it has, what stands in the flow's record of them and cannot be). What cannot be changes nothing."""
    spot = WORKERS(flow)
    there, found = mirror.read(spot.path), mirror.stored(spot)
    counts, wrong = worker_counts(flow, spec, found.record if isinstance(found, Stored) else Workers())
    remedy = f"mend or remove it, or: scribengin scale {flow}.TIER --workers N (or each)"
    if isinstance(found, Damaged | Newer):
        return counts, {spot.path: _says_nothing(there, found, remedy)}
    return counts, {spot.path: refusal(there, "; ".join(wrong.values()), remedy)} if wrong else {}


def worker_counts(flow: str, spec: Spec, said: Workers) -> tuple[dict[str, WorkerCount], dict[str, str]]:
    """(tier → how many workers it has, tier → why what the record says of it cannot be)."""
    wrong = {tier: why for tier, count in said.tiers.items() if (why := why_not_workers(flow, spec, tier, count))}
    by_hand = {tier: count for tier, count in said.tiers.items() if tier not in wrong}
    return {name: tier.workers for name, tier in spec.tiers.items()} | by_hand, wrong


def group_of(mirror: Mirror, flow: str, tier: str, spec: Spec) -> tuple[str, GroupName | None, dict[str, Any]]:
    """(the group on which the tier runs, what is to be written of it, what stands there and cannot be). A person's word holds until a
    version says otherwise."""
    spot, said = NODE_GROUP(f"{flow}.{tier}"), spec.tiers[tier].group
    there, found = mirror.read(spot.path), mirror.stored(spot)
    remedy = f"write one of these, or remove it: {', '.join(sorted(spec.groups)) or 'the flow has no group of hosts'}"
    if isinstance(found, Newer) or (isinstance(found, Damaged) and found.raw.strip(b"{} \n")):
        return said, None, {spot.path: _says_nothing(there, found, remedy)}
    if not isinstance(found, Stored) or not found.entry.value or (found.record.said and found.record.said != said):
        return said, GroupName(group=said, said=said) if said else None, {}
    name = found.record.group
    if name not in spec.groups and name != said:  # a version of an earlier release names its groups nowhere
        return said, None, {spot.path: refusal(there, f'names group "{name}", which is no group of hosts of flow {flow}', remedy)}
    new = GroupName(group=name, said=said)
    return name, None if new == found.record else new, {}


def _says_nothing(there: RegistryEntry | Damaged | None, found: Damaged | Newer, remedy: str) -> dict[str, Any]:
    """Of a record that cannot be read here."""
    if isinstance(found, Newer):
        return refusal(there, "was written by a newer Scribengin", "run the newer version")
    return refusal(there, found.why, remedy)


def why_not_workers(flow: str, spec: Spec, tier: str, count: WorkerCount) -> str:
    """Why a tier cannot have so many workers; empty where it can."""
    if tier not in spec.tiers:
        return f'flow {flow} has no tier "{tier}"; it has {", ".join(spec.tiers)}'
    if count != "each" and not 1 <= count <= MOST_WORKERS:
        return f"tier {tier} cannot have {count} workers: say 1 to {MOST_WORKERS}, or each"
    alone = spec.tiers[tier].alone
    workers = "a worker on each host" if count == "each" else f"{count} workers"
    return f"tier {tier} cannot have {workers}: {alone}" if alone and count != 1 else ""


def _no_pace(limit: Limit) -> list[str]:
    """The keys whose numbers are none; and those that are no key."""
    paces: dict[str, Mapping[str, float | None]] = {"": {"rows_per_s": limit.rows_per_s, "bytes_per_s": limit.bytes_per_s}}
    for kind, given in (("sources", limit.sources), ("edges", limit.edges)):
        paces |= {f"{kind}.{name}.": pace for name, pace in given.items()}
    return [
        f"{prefix}{key}"
        for prefix, pace in paces.items()
        for key, value in pace.items()
        if key not in ("rows_per_s", "bytes_per_s") or (value is not None and value <= 0)
    ]
