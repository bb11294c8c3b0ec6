"""How a flow was cut when it last ran: its tiers, and the channels that they hand over by. One record beside the tiers' folders."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

from scribengin.core.records import seal, unseal
from scribengin.core.storage import names_in, read_or_none, replace
from scribengin.state.channels import FOLDER
from scribengin.state.folder import StateFolder
from scribengin.state.lineage import past_lineages, read_lineage

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

_KIND, _FORMAT = "topology", 1
_WHOLE = "main"
"""the only tier of a flow that is not cut"""


@dataclass(frozen=True, slots=True)
class KnownChannel:
    """A channel as it was when the flow last ran. `source` is what tier `reading` calls its rows; `place` tells one place from another;
    `sink` are the options that open its writing end again, without secrets; `properties` are in words.

    A `gone` one is no part of the flow any more; what it held stays there.
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
        """What must stay for its rows to go on where they are."""
        return self.id, self.place


@dataclass(frozen=True, slots=True)
class StoredTopology:
    """`channels` are the flow's own and those that it had earlier."""

    tiers: tuple[str, ...]
    channels: tuple[KnownChannel, ...] = ()

    def after(self, before: StoredTopology | None) -> StoredTopology:
        """With the channels of `before` that are none of these, as gone ones."""
        own = {channel.identity for channel in self.channels}
        earlier = before.channels if before is not None else ()
        gone = [KnownChannel(**asdict(channel) | {"gone": True}) for channel in earlier if channel.identity not in own]
        return StoredTopology(self.tiers, (*self.channels, *gone))

    def as_json(self) -> dict[str, Any]:
        """The form in a record."""
        return asdict(self)

    @staticmethod
    def from_json(data: Mapping[str, Any]) -> StoredTopology:
        """The topology that `as_json` wrote."""
        return StoredTopology(tuple(data["tiers"]), tuple(KnownChannel(**each) for each in data["channels"]))


def read_topology(root: Path, flow: str) -> StoredTopology | None:
    """That of the flow's last run; None where it never ran, or was never cut."""
    file = _file(root, flow)
    data = read_or_none(file)
    return None if data is None else StoredTopology.from_json(unseal(data, _KIND, _FORMAT, file))


def write_topology(root: Path, flow: str, topology: StoredTopology) -> None:
    """Under a lease, at the start of a run. A flow that was never cut needs no record; one of a single tier with a name does: it may be cut
    into several later."""
    before = read_topology(root, flow)
    if topology != before and (before is not None or topology.tiers != (_WHOLE,)):
        replace(_file(root, flow), seal(_KIND, _FORMAT, topology.as_json()))


def tiers_with_state(root: Path, flow: str) -> list[StateFolder]:
    """The tiers that have run, those too that the flow has no more; by name."""
    folders = [StateFolder(root, flow, name) for name in sorted(names_in(root / flow)) if name != FOLDER]
    return [folder for folder in folders if folder.path.is_dir() and (folder.lock.exists() or folder.queries())]


def known_lineages(root: Path, flow: str) -> frozenset[str]:
    """Every lineage that the state of the flow accounts for."""
    found = set()
    for tier in tiers_with_state(root, flow):
        for folder in tier.queries():
            lineage = read_lineage(folder)
            found |= {each.id for each in (lineage, *(past for _, past in past_lineages(folder))) if each is not None}
    return frozenset(found)


def works_of(root: Path, flow: str, sink: str) -> tuple[Path, ...]:
    """The folders of a sink in all Queries that ever wrote to it, in whatever tier."""
    found = [query.work(sink) for tier in tiers_with_state(root, flow) for query in tier.queries()]
    return tuple(work for work in found if work.exists())


def _file(root: Path, flow: str) -> Path:
    return root / flow / "topology.json"
