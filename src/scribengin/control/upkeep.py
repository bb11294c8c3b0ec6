"""The upkeep of sinks' folders: which host does it. One host a folder, however many flows and tiers write there.

A duty of the leader beside flows: `place` is pure; `Upkeep` looks, and writes what follows, under the leader's Term. The host's part is
`hosts/folder_keeper.py`.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from msgspec.structs import replace

from scribengin.core.errors import Refused
from scribengin.registry.contract import Conflict, Delete
from scribengin.registry.records import Newer, Stored
from scribengin.registry.tree import KEEPING, UPKEPT
from scribengin.registry.upkeep_records import Keeping, id_of_folder

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from scribengin.control.mirror import Mirror
    from scribengin.control.world import FlowSeen, Node, TierSeen, World
    from scribengin.registry.contract import Registry, Term, Write

FOLDERS = "upkeep"
ROUNDS = 60
"""in so many looks all folders have their turn, though nothing says that one needs it"""
_WRITES = 200
"""in one commit"""


@dataclass(frozen=True, slots=True)
class Written:
    """A folder, the tiers that write there, and on which hosts their workers are."""

    path: str
    writers: tuple[str, ...]
    nodes: frozenset[str]


def place(wanted: Mapping[str, Written], kept: Mapping[str, Keeping], nodes: Mapping[str, Node]) -> dict[str, Keeping]:
    """Who is to keep each folder, where that is another than stands there. It stays where it is while that host answers and is not being
    emptied, unless all who write there are elsewhere; who has the fewest is chosen, of the hosts of those who write there where one can."""
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
        found[id_] = Keeping(path=folder.path, node=node, number=1 if now is None else now.number + 1, writers=folder.writers)
    return found


class Upkeep:
    """The leader's part. For the thread of its mirror."""

    def __init__(self, registry: Registry, mirror: Mirror) -> None:
        self._registry = registry
        self._mirror = mirror
        self._flows: dict[str, tuple[FlowSeen, dict[str, tuple[str, str, str]]]] = {}
        """flow → as it was seen last, and tier and folder's id → (path, tier, host)"""
        self._takers: dict[str, bool] = {}
        self._look = 0
        self._again = True

    def look(self, world: World, term: Term) -> None:
        """Place what is to be placed. Raises FencedError, Unreachable."""
        if not self._has_news(world):
            return
        kept = self._read_kept()
        wanted = self._wanted()
        if world.held:  # nobody knows what these write to
            held = {id_ for id_, each in kept.items() if {writer.partition(".")[0] for writer in each.writers} & world.held.keys()}
        else:
            held = set[str]()
        since = datetime.now(UTC).isoformat(timespec="seconds")
        writes: list[list[Write]] = []
        for id_, keeping in place(wanted, kept, world.nodes).items():
            if id_ not in held:
                new = id_ not in kept or keeping.number != kept[id_].number
                writes.append([*self._put(id_, replace(keeping, since=since) if new else keeping)])
        writes += [[*self._remove(id_)] for id_ in sorted(kept.keys() - wanted.keys() - held)]
        self._again = bool(writes)
        for at in range(0, len(writes), _WRITES):
            self._commit([write for each in writes[at : at + _WRITES] for write in each], term)

    def _has_news(self, world: World) -> bool:
        """Whether a flow that writes to folders has changed, or a host has come or gone, since the last look."""
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

    def _wanted(self) -> dict[str, Written]:
        paths: dict[str, str] = {}
        writers: dict[str, set[str]] = {}
        nodes: dict[str, set[str]] = {}
        for _, folders in self._flows.values():
            for key, (path, tier, node) in folders.items():
                id_ = key.rpartition("/")[2]
                paths.setdefault(id_, path)
                writers.setdefault(id_, set()).add(tier)
                nodes.setdefault(id_, set()).update({node} - {""})
        return {id_: Written(path, tuple(sorted(writers[id_])), frozenset(nodes[id_])) for id_, path in paths.items()}

    def _read_kept(self) -> dict[str, Keeping]:
        ids = [id_ for id_ in self._mirror.children(FOLDERS) if KEEPING.fits(id_)]
        self._mirror.fetch([KEEPING(id_).path for id_ in ids])
        found = {id_: self._mirror.stored(KEEPING(id_)) for id_ in ids}
        return {id_: each.record for id_, each in found.items() if isinstance(each, Stored)}

    def _put(self, id_: str, keeping: Keeping) -> Iterator[Write]:
        """What says nothing is written over; what a newer program wrote is left alone."""
        if not isinstance(self._mirror.stored(KEEPING(id_)), Newer):
            yield self._mirror.put(KEEPING(id_), keeping)

    def _remove(self, id_: str) -> Iterator[Write]:
        """Nobody writes there any more. The number of its Terms stays."""
        for path in (KEEPING(id_).path, UPKEPT(id_).path):
            if (there := self._mirror.read(path)) is not None:
                yield Delete(path, there.version)

    def _commit(self, writes: list[Write], term: Term) -> None:
        if not writes:
            return
        try:
            self._registry.commit(*writes, term=term)
        except (Conflict, Refused):
            self._again = True  # somebody was faster: at the next look
        finally:
            for write in writes:
                self._mirror.forget(write.path)


def _folders(flow: str, seen: FlowSeen) -> dict[str, tuple[str, str, str]]:
    """`tier/id` → (path, `flow.tier`, host) of the folders that its tiers write to, of tiers that had a worker once."""
    return {
        f"{tier.tier}/{id_of_folder(path)}": (path, f"{flow}.{tier.tier}", _host(tier))
        for tier in seen.tiers.values()
        if tier.run is not None
        for path in tier.folders
    }


def _host(tier: TierSeen) -> str:
    """Where its worker is, or was last."""
    return tier.run.node if tier.run is not None else ""
