"""Repairs of dead letters, until they are replayed: a file for each dead letter; the newest repair counts.

dead/repairs/0000000012-3.json    of dead letter 3 of Batch 12
"""

from __future__ import annotations

import base64
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from scribengin.core.moments import now_text
from scribengin.core.records import seal, unseal
from scribengin.core.storage import names_in, read_or_none, replace

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from scribengin.state.folder import QueryFolder
    from scribengin.state.replays import Key

_FOLDER, _KIND = "repairs", "letter-repair"


@dataclass(frozen=True, slots=True)
class Repair:
    """Either the record as its source shall read it, or the row as it shall come to the step; the other is None."""

    payload: bytes | None = None
    came: str | None = None


def write_repair(query: QueryFolder, key: Key, repair: Repair) -> None:
    """Store the repair durably. It replaces an earlier one."""
    payload = None if repair.payload is None else base64.b64encode(repair.payload).decode()
    put_repair(query, key, {"payload": payload, "came": repair.came, "repaired_at": now_text()})


def put_repair(query: QueryFolder, key: Key, body: Mapping[str, Any]) -> None:
    """Write what `repair_body` gave, durably."""
    replace(_path(query, key), seal(_KIND, 1, body))


def repair_body(query: QueryFolder, key: Key) -> dict[str, Any] | None:
    """The stored repair of a dead letter; None if it was not repaired."""
    data = read_or_none(_path(query, key))
    return None if data is None else dict(unseal(data, _KIND, 1, _path(query, key)))


def read_repair(query: QueryFolder, key: Key) -> Repair | None:
    """The repair of a dead letter; None if it was not repaired."""
    body = repair_body(query, key)
    if body is None:
        return None
    return Repair(None if body["payload"] is None else base64.b64decode(body["payload"]), body["came"])


def repaired_keys(query: QueryFolder) -> set[Key]:
    """The keys of the repaired dead letters."""
    stems = (name.removesuffix(".json").split("-") for name in names_in(query.dead / _FOLDER))
    return {(int(batch), int(place)) for batch, place in stems}


def drop_repair(query: QueryFolder, key: Key) -> None:
    """Delete the repair: the dead letter is deleted, or is being replayed."""
    _path(query, key).unlink(missing_ok=True)


def drop_repairs(query: QueryFolder, through: int) -> None:
    """Under the lease: the Batches up to that number have lost all their dead letters."""
    for key in repaired_keys(query):
        if key[0] <= through:
            drop_repair(query, key)


def _path(query: QueryFolder, key: Key) -> Path:
    return query.dead / _FOLDER / f"{key[0]:010d}-{key[1]}.json"
