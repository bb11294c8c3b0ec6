"""Reads records that are to be replaced: an invalid record is an error, and a write that came too late is repeated."""

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
    """The record; None if there is none, or a folder only. Raises StateError if it is invalid."""
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
        else "fix it with ZooKeeper's shell, or replace it: scribengin resume NAME (or stop)"
    )
    raise StateError(f"{shown(spot.path)} {why}", remedy=remedy, code="registry-damaged")


def again(attempt: Callable[[], T]) -> T:
    """Another client may write at the same time: read again, and decide again."""
    for _ in range(_TRIES - 1):
        try:
            return attempt()
        except Conflict:
            continue
    return attempt()
