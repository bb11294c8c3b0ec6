"""Assigns the maintenance of sinks' folders to hosts: one host per folder, however many flows and tiers write there.

It is a duty of the leader besides flows: `place` is pure; `Upkeep` reads, and writes the result, under the leader's Term. The host's part
is `hosts/folder_keeper.py`.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING

from msgspec.structs import replace

from scribengin.core.errors import Refused
from scribengin.core.time_text import moment_text
from scribengin.registry.contract import Conflict, Delete, parent_of
from scribengin.registry.record_io import Newer, Stored
from scribengin.registry.records import MaintenanceOwner, id_of_folder
from scribengin.registry.tree import KEEPING, UPKEEP_LEASE_TERM, UPKEPT

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from scribengin.control.registry_cache import Mirror
    from scribengin.control.world import FlowSeen, ObservedTier, WorkerNode, World
    from scribengin.registry.contract import Registry, Term, Write

FOLDERS = "upkeep"
ROUNDS = 60
"""the number of cycles in which all folders are checked once, even if nothing has changed"""
FORGOTTEN_S = 86_400.0
"""seconds after the end of the last writer until the records of a folder are removed. Not at once: a new lease counts its holders from the
beginning, and a host that was suspended while it reported would pass for the new holder. No session lives that long."""
_FOLDERS = 200
"""most folders in one commit"""


@dataclass(frozen=True, slots=True)
class MaintainedFolder:
    """A folder, the tiers that write there, and the hosts of their workers."""

    path: str
    writers: tuple[str, ...]
    nodes: frozenset[str]


def place(
    wanted: Mapping[str, MaintainedFolder], kept: Mapping[str, MaintenanceOwner], nodes: Mapping[str, WorkerNode]
) -> dict[str, MaintenanceOwner]:
    """The new maintenance owner of each folder whose owner or writers change.

    An owner stays while its host answers and is not decommissioned, unless all writers are on other hosts. Otherwise the host with the
    fewest folders is chosen, one of the writers' hosts if possible.

    Args:
        wanted: folder id → folder, for the folders that are written.
        kept: folder id → present owner.
        nodes: the nodes that answer now.
    """
    able = {name for name, node in nodes.items() if not node.decommissioned}
    load = Counter(each.node for id_, each in kept.items() if id_ in wanted)
    found = {}
    for id_, folder in sorted(wanted.items()):
        now, near = kept.get(id_), folder.nodes & able
        if now is not None and now.node in able and (not near or now.node in near):
            if now.writers != folder.writers:
                found[id_] = replace(now, writers=folder.writers)
            continue
        node = min(near or able, key=lambda name: (load[name], name), default=None)
        if node is None:
            continue
        load[node] += 1
        if now is not None:
            load[now.node] -= 1
        found[id_] = MaintenanceOwner(path=folder.path, node=node, number=1 if now is None else now.number + 1, writers=folder.writers)
    return found


class Upkeep:
    """The leader's part of the maintenance of folders. For the thread of its mirror."""

    def __init__(self, registry: Registry, mirror: Mirror) -> None:
        self._registry = registry
        self._mirror = mirror
        self._flows: dict[str, tuple[FlowSeen, dict[str, tuple[str, str, str]]]] = {}
        """flow → as last observed, and `tier/folder id` → (path, tier, host)"""
        self._takers: dict[str, bool] = {}
        self._look = 0
        self._again = True

    def place_owners(self, world: World, term: Term) -> list[str]:
        """Assign folders to hosts. Returns the messages of refused writes, for the log. Raises FencedError, Unreachable."""
        if not self._has_news(world):
            return []
        self._again = True  # stays set if reading or writing fails, so that the change is not lost
        kept = self._read_kept()
        wanted = self._wanted()
        unknown = {name for name, each in world.held.items() if not each.is_new}
        if unknown:  # it is unknown to which folders these flows write
            held = {id_ for id_, each in kept.items() if {writer.partition(".")[0] for writer in each.writers} & unknown}
        else:
            held = set[str]()
        refused: list[str] = []
        writes: list[list[Write]] = []

        def add(id_: str, keeping: MaintenanceOwner | None) -> None:
            try:
                writes.append([*(self._remove(id_) if keeping is None else self._put(id_, keeping))])
            except Refused as error:
                refused.append(error.message)

        for id_, keeping in place(wanted, kept, world.nodes).items():
            if id_ not in held:
                new = id_ not in kept or keeping.number != kept[id_].number
                add(id_, replace(keeping, since=moment_text(world.now)) if new else keeping)
        for id_ in sorted(kept.keys() - wanted.keys() - held):
            left_s = _left_s(kept[id_], world.now)
            if left_s is None:
                add(id_, MaintenanceOwner(path=kept[id_].path, node="", number=kept[id_].number, since=moment_text(world.now)))
            elif left_s <= 0:
                add(id_, None)
        if not unknown:  # folders whose record is missing or invalid, but which had a maintenance owner once
            for id_ in self._ids() - kept.keys() - wanted.keys():
                add(id_, MaintenanceOwner(path="", node="", since=moment_text(world.now)))
        writes = [each for each in writes if each]
        again = False
        for at in range(0, len(writes), _FOLDERS):
            again |= self._commit(writes[at : at + _FOLDERS], term, refused)
        self._again = again
        return refused

    def _has_news(self, world: World) -> bool:
        """True if a flow that writes to folders has changed, or a host was added or removed, since the last check, or a periodic check is
        due."""
        news = self._again
        for gone in self._flows.keys() - world.flows.keys():
            news |= bool(self._flows.pop(gone)[1])
        for name, flow in world.flows.items():
            before = self._flows.get(name)
            if before is None or before[0] is not flow:
                folders = _folders(name, flow)
                news |= folders != (before[1] if before is not None else {})
                self._flows[name] = flow, folders
        takers = {name: node.decommissioned for name, node in world.nodes.items()}
        news |= takers != self._takers
        self._takers = takers
        self._look = (self._look + 1) % ROUNDS
        return news or not self._look

    def _wanted(self) -> dict[str, MaintainedFolder]:
        paths: dict[str, str] = {}
        writers: dict[str, set[str]] = {}
        nodes: dict[str, set[str]] = {}
        for _, folders in self._flows.values():
            for key, (path, tier, node) in folders.items():
                id_ = key.rpartition("/")[2]
                paths.setdefault(id_, path)
                writers.setdefault(id_, set()).add(tier)
                nodes.setdefault(id_, set()).update({node} - {""})
        return {id_: MaintainedFolder(path, tuple(sorted(writers[id_])), frozenset(nodes[id_])) for id_, path in paths.items()}

    def _read_kept(self) -> dict[str, MaintenanceOwner]:
        """The folders that have an owner, or had one until a day ago."""
        ids = sorted(self._ids())
        self._mirror.fetch([KEEPING(id_).path for id_ in ids])
        found = {id_: self._mirror.stored(KEEPING(id_)) for id_ in ids}
        return {id_: each.record for id_, each in found.items() if isinstance(each, Stored)}

    def _ids(self) -> set[str]:
        return {id_ for id_ in self._mirror.children(FOLDERS) if KEEPING.fits(id_)}

    def _put(self, id_: str, keeping: MaintenanceOwner) -> Iterator[Write]:
        """The writes of an assignment. An invalid record is replaced; one of a newer Scribengin is left unchanged. Without an owner, the
        last report is removed."""
        if isinstance(self._mirror.stored(KEEPING(id_)), Newer):
            return
        yield self._mirror.put(KEEPING(id_), keeping)
        if not keeping.node and (told := self._mirror.read(UPKEPT(id_).path)) is not None:
            yield Delete(told.path, told.version)

    def _remove(self, id_: str) -> Iterator[Write]:
        """The writes that remove all records of a folder; none if a host still has the lease, or there are unknown records."""
        paths = [KEEPING(id_).path, UPKEPT(id_).path, UPKEEP_LEASE_TERM(id_).path]
        folder = parent_of(paths[0])
        if not {f"{folder}/{name}" for name in self._mirror.children(folder)} <= {*paths}:
            return
        for path in paths:
            if (there := self._mirror.read(path)) is not None:
                yield Delete(path, there.version)
        yield Delete(folder)

    def _commit(self, folders: Sequence[list[Write]], term: Term, refused: list[str]) -> bool:
        """Commit the writes of folders; the messages of refused ones are added to `refused`. Returns True if another check is needed
        soon."""
        writes = [write for each in folders for write in each]
        try:
            self._registry.commit(*writes, term=term)
        except (Conflict, Refused) as error:
            if len(folders) > 1:  # which folder caused it is found by halving
                middle = len(folders) // 2
                first = self._commit(folders[:middle], term, refused)
                return self._commit(folders[middle:], term, refused) or first
            if isinstance(error, Refused):  # it would be refused again
                refused.append(error.message)
                return False
        finally:
            for write in writes:
                self._mirror.forget(write.path)
        return True


def _folders(flow: str, seen: FlowSeen) -> dict[str, tuple[str, str, str]]:
    """`tier/folder id` → (path, `flow.tier`, host) of the folders that the flow's tiers write, for tiers that have had a worker."""
    return {
        f"{tier.tier}/{id_of_folder(path)}": (path, f"{flow}.{tier.tier}", _host(tier))
        for tier in seen.tiers.values()
        if tier.run is not None
        for path in tier.folders
    }


def _left_s(keeping: MaintenanceOwner, now: float) -> float | None:
    """The seconds for which a folder's records still stay; None if it is assigned, or has no time from which to count."""
    if keeping.node:
        return None
    try:
        return datetime.fromisoformat(keeping.since).timestamp() + FORGOTTEN_S - now
    except ValueError:
        return None


def _host(tier: ObservedTier) -> str:
    """The host of the tier's worker, now or last."""
    return tier.run.node if tier.run is not None else ""
