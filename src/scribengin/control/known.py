"""Records as those read them who are about to write: what says nothing is an error, and who was overtaken looks again."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from scribengin.core.errors import StateError
from scribengin.registry.contract import Conflict, Damaged, shown
from scribengin.registry.records import Newer, Record, Stored, read_record

if TYPE_CHECKING:
    from collections.abc import Callable

    from scribengin.registry.contract import Registry
    from scribengin.registry.records import Spot

R = TypeVar("R", bound=Record)
T = TypeVar("T")
_TRIES = 10


def read_known(registry: Registry, spot: Spot[R]) -> R | None:
    """The record; None where there is none, or a folder only. Raises StateError where it says nothing."""
    found = read_stored(registry, spot)
    return None if found is None else found.record


def read_stored(registry: Registry, spot: Spot[R]) -> Stored[R] | None:
    """The same, to be replaced."""
    found = read_record(registry, spot)
    if isinstance(found, Stored):
        return found
    if found is None or (isinstance(found, Damaged) and not found.raw.strip(b"{}")):
        return None
    why = "was written by a newer Scribengin" if isinstance(found, Newer) else found.why
    remedy = (
        "run the newer version"
        if isinstance(found, Newer)
        else "mend it with ZooKeeper's shell, or have it written anew: scribengin resume NAME (or stop)"
    )
    raise StateError(f"{shown(spot.path)} {why}", remedy=remedy, code="registry-damaged")


def again(attempt: Callable[[], T]) -> T:
    """Somebody else may write at the same time: look again, and decide again."""
    for _ in range(_TRIES - 1):
        try:
            return attempt()
        except Conflict:
            continue
    return attempt()
