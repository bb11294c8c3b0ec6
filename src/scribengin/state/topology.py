"""The division of a flow when it last ran: its tiers, and the channels between them. One record beside the tiers' folders."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

from scribengin.core.records import seal, unseal
from scribengin.core.storage import names_in, put_if_absent, read_or_none, replace
from scribengin.state.columns import CHANNELS_FOLDER
from scribengin.state.folder import StateFolder
from scribengin.state.lineage import past_lineages, read_lineage

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from scribengin.state.folder import QueryFolder


# Queries that were moved from one tier to another: their old state is kept in place for `audit`; they continue in a new lineage.


_MOVED, _JOURNAL, _MOVES_FORMAT = "moved", "move", 1
_CONFIRMED = "confirmed"


@dataclass(frozen=True, slots=True)
class MovedLineage:
    """The record of a move, beside the lineage that it has ended. `to` names the queries (`tier.query`) that continue; `sinks` are the
    options of the channels that the lineage wrote to, which may no longer be part of the flow; `stateful` are its steps with state, which
    continues elsewhere."""

    lineage: str
    to: tuple[str, ...]
    sinks: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    stateful: tuple[str, ...] = ()


def read_moved(part: QueryFolder) -> MovedLineage | None:
    """The move record of the lineage in that folder; None if it was not moved away."""
    file = part.path / "moved.json"
    data = read_or_none(file)
    if data is None:
        return None
    body = unseal(data, _MOVED, _MOVES_FORMAT, file)
    return MovedLineage(body["lineage"], tuple(body["to"]), body["sinks"], tuple(body.get("stateful", ())))


def has_moved(part: QueryFolder) -> bool:
    """True if the present lineage was moved away."""
    moved = read_moved(part)
    lineage = None if moved is None else read_lineage(part)
    return moved is not None and lineage is not None and moved.lineage == lineage.id


def write_moved(part: QueryFolder, moved: MovedLineage) -> None:
    """Write the record of a move. It replaces one of an earlier lineage, which an interrupted move has left. The caller holds the lease.
    Idempotent."""
    there = read_moved(part)
    if there is None or there.lineage != moved.lineage:
        replace(part.path / "moved.json", seal(_MOVED, _MOVES_FORMAT, asdict(moved)))


class Journal:
    """The record of what a move is going to do, durable before it begins, so that the next start completes a move that was interrupted.

    It has two steps. A journal that is only written makes other processes refuse to change the flow, and nothing is done yet. After
    `confirm` the move is carried out, whatever happens.
    """

    def __init__(self, root: Path, flow: str) -> None:
        self.file = root / flow / "move.json"

    @property
    def there(self) -> bool:
        """True while a move is in progress or was interrupted."""
        return self.file.exists()

    def read(self) -> dict[str, Any] | None:
        """The body of the journal; None if no move is in progress."""
        data = read_or_none(self.file)
        return None if data is None else unseal(data, _JOURNAL, _MOVES_FORMAT, self.file)

    @staticmethod
    def is_confirmed(body: Mapping[str, Any]) -> bool:
        """True if the move may have begun, and has to be completed."""
        return bool(body[_CONFIRMED])

    def write(self, body: Mapping[str, Any]) -> None:
        """Write the journal of a planned move. The caller holds the leases of all its tiers."""
        put_if_absent(self.file, seal(_JOURNAL, _MOVES_FORMAT, dict(body) | {_CONFIRMED: False}))

    def confirm(self, body: Mapping[str, Any]) -> None:
        """Record that nothing prevents the move, and that it is carried out from now on. The caller holds the leases."""
        replace(self.file, seal(_JOURNAL, _MOVES_FORMAT, dict(body) | {_CONFIRMED: True}))

    def remove(self) -> None:
        """Delete the journal, when the move is complete, or if it was not confirmed and nothing of it is done. The caller holds
        the leases."""
        self.file.unlink(missing_ok=True)


_KIND, _FORMAT = "topology", 1
_WHOLE = "main"
"""the only tier of a flow that is not divided"""


@dataclass(frozen=True, slots=True)
class KnownChannel:
    """A channel as it was when the flow last ran.

    `source` is the id of its rows in tier `reading`. `place` identifies its location. `sink` are the options with which its writing end can
    be opened again, without secrets; `properties` describe it in words. A `gone` channel is no longer part of the flow; its contents stay.
    """

    id: str
    source: str
    feeding: str
    reading: str
    place: str
    sink: Mapping[str, Any] = field(default_factory=dict)
    properties: Mapping[str, str] = field(default_factory=dict)
    gone: bool = False

    @property
    def identity(self) -> tuple[str, str]:
        """The id and place, which must not change if the channel is to keep its rows."""
        return self.id, self.place


@dataclass(frozen=True, slots=True)
class StoredTopology:
    """The tiers of a flow, its channels, and those that it had earlier."""

    tiers: tuple[str, ...]
    channels: tuple[KnownChannel, ...] = ()

    def after(self, before: StoredTopology | None) -> StoredTopology:
        """This topology, with those channels of `before` that are not in it marked as gone."""
        own = {channel.identity for channel in self.channels}
        earlier = before.channels if before is not None else ()
        gone = [KnownChannel(**asdict(channel) | {"gone": True}) for channel in earlier if channel.identity not in own]
        return StoredTopology(self.tiers, (*self.channels, *gone))

    def as_json(self) -> dict[str, Any]:
        """The topology as JSON."""
        return asdict(self)

    @staticmethod
    def from_json(data: Mapping[str, Any]) -> StoredTopology:
        """The topology that `as_json` wrote."""
        return StoredTopology(tuple(data["tiers"]), tuple(KnownChannel(**each) for each in data["channels"]))


def read_topology(root: Path, flow: str) -> StoredTopology | None:
    """The topology of the flow's last run; None if it never ran, or always had the single tier `main`."""
    file = _file(root, flow)
    data = read_or_none(file)
    return None if data is None else StoredTopology.from_json(unseal(data, _KIND, _FORMAT, file))


def write_topology(root: Path, flow: str, topology: StoredTopology) -> None:
    """Store the topology at the start of a run. A flow that always had the single tier `main` needs no record; one with a single named tier
    does, because it may be divided later. The caller holds a lease."""
    before = read_topology(root, flow)
    if topology != before and (before is not None or topology.tiers != (_WHOLE,)):
        replace(_file(root, flow), seal(_KIND, _FORMAT, topology.as_json()))


def tiers_with_state(root: Path, flow: str) -> list[StateFolder]:
    """The tiers that have run, including those that the flow no longer has, by name."""
    folders = [StateFolder(root, flow, name) for name in sorted(names_in(root / flow)) if name != CHANNELS_FOLDER]
    return [folder for folder in folders if folder.path.is_dir() and (folder.lock.exists() or folder.queries())]


def known_lineages(root: Path, flow: str) -> frozenset[str]:
    """The ids of all lineages in the state of the flow, present and past."""
    found = set()
    for tier in tiers_with_state(root, flow):
        for folder in tier.queries():
            lineage = read_lineage(folder)
            found |= {each.id for each in (lineage, *(past for _, past in past_lineages(folder))) if each is not None}
    return frozenset(found)


def works_of(root: Path, flow: str, sink: str) -> tuple[Path, ...]:
    """The existing work folders of a sink, in all queries and tiers that ever wrote to it."""
    found = [query.work(sink) for tier in tiers_with_state(root, flow) for query in tier.queries()]
    return tuple(work for work in found if work.exists())


def _file(root: Path, flow: str) -> Path:
    return root / flow / "topology.json"
