"""Records between the leader and hosts about sinks' folders: kinds for the paths that `tree` declares below `upkeep/`."""

from __future__ import annotations

from hashlib import sha256
from os.path import normpath

from scribengin.registry.records import Record

_LENGTH = 16


class MaintenanceOwner(Record):
    """The leader's assignment of a folder to a host that maintains it."""

    path: str
    """the folder, the same on every host"""
    node: str
    """the host whose agent maintains it; empty: it is no longer written"""
    number: int = 1
    """increases by one with each host to which it is assigned"""
    writers: tuple[str, ...] = ()
    """the tiers that write there, as `flow.tier`"""
    since: str = ""
    """when it was assigned to that host, or to none, ISO 8601"""


class MaintenanceReport(Record):
    """The host's report on its maintenance. Written after a run that had work or failed, and every ten minutes."""

    node: str
    number: int = 0
    """the `number` of the `MaintenanceOwner` to which it refers"""
    term: int = 0
    """the Term of the lease under which it was done"""
    at: str = ""
    """the end of the last reported run, ISO 8601"""
    did_at: str = ""
    """the end of the last run that had work"""
    folded: int = 0
    """commit records that were folded in that run"""
    files: int = 0
    """unneeded files that were deleted in that run"""
    bytes: int = 0
    """bytes of these files"""
    error: str = ""
    """why the last run failed; empty if it did not"""


def id_of_folder(path: str) -> str:
    """The name of a folder's records."""
    return sha256(normpath(path).encode()).hexdigest()[:_LENGTH]
