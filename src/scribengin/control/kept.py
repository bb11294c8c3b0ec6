"""What the registry says of the folders that a flow's sinks write into: who keeps them, and what came of it. Works with no master alive."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from scribengin.registry.records import Stored, read_records
from scribengin.registry.tree import KEEPING, UPKEEP_LEASE, UPKEPT
from scribengin.registry.upkeep_records import MaintenanceOwner, MaintenanceReport, id_of_folder

if TYPE_CHECKING:
    from scribengin.registry.contract import Registry
    from scribengin.registry.kinds import HolderRecord, Spec
    from scribengin.registry.records import Spot


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
