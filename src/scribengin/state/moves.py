"""Queries that were moved from one tier to another: their old state is kept in place for `audit`; they continue in a new lineage."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

from scribengin.core.records import seal, unseal
from scribengin.core.storage import put_if_absent, read_or_none, replace
from scribengin.state.lineage import read_lineage

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from scribengin.state.folder import QueryFolder

_MOVED, _JOURNAL, _FORMAT = "moved", "move", 1
_CONFIRMED = "confirmed"


@dataclass(frozen=True, slots=True)
class MovedLineage:
    """Stands beside a lineage that a move has left. `to` names the Queries (`tier.query`) that go on; `sinks` are the options of the
    channels that it fed, which need be no part of the flow any more; `stateful` its steps with state, which went on elsewhere."""

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
    body = unseal(data, _MOVED, _FORMAT, file)
    return MovedLineage(body["lineage"], tuple(body["to"]), body["sinks"], tuple(body.get("stateful", ())))


def has_moved(part: QueryFolder) -> bool:
    """Whether the present lineage was moved away."""
    moved = read_moved(part)
    lineage = None if moved is None else read_lineage(part)
    return moved is not None and lineage is not None and moved.lineage == lineage.id


def write_moved(part: QueryFolder, moved: MovedLineage) -> None:
    """Under the lease. Done again it changes nothing; what a move that was cut short has left of an earlier lineage gives way."""
    there = read_moved(part)
    if there is None or there.lineage != moved.lineage:
        replace(part.path / "moved.json", seal(_MOVED, _FORMAT, asdict(moved)))


class Journal:
    """What a move is going to do, durable before it begins, so that the next start completes one that was cut short.

    In two steps: what is only written keeps others from asking, and says nothing yet of what is done; once `confirm`ed it is carried out,
    whatever happens."""

    def __init__(self, root: Path, flow: str) -> None:
        self.file = root / flow / "move.json"

    @property
    def there(self) -> bool:
        """True while a move is in progress, or was interrupted."""
        return self.file.exists()

    def read(self) -> dict[str, Any] | None:
        """What `write` wrote; None if no move is under way."""
        data = read_or_none(self.file)
        return None if data is None else unseal(data, _JOURNAL, _FORMAT, self.file)

    @staticmethod
    def is_confirmed(body: Mapping[str, Any]) -> bool:
        """Whether what was read may have been begun, and has to be completed."""
        return bool(body[_CONFIRMED])

    def write(self, body: Mapping[str, Any]) -> None:
        """Write the record of a planned move. Call it under the leases of all its tiers."""
        put_if_absent(self.file, seal(_JOURNAL, _FORMAT, dict(body) | {_CONFIRMED: False}))

    def confirm(self, body: Mapping[str, Any]) -> None:
        """Under the leases: nothing stands in the way of what was written, and from here on it is carried out."""
        replace(self.file, seal(_JOURNAL, _FORMAT, dict(body) | {_CONFIRMED: True}))

    def remove(self) -> None:
        """Under the leases, when all of it is done, or if nothing of it is done and it was not confirmed."""
        self.file.unlink(missing_ok=True)
