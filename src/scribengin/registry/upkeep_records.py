"""What leader and hosts say to each other of sinks' folders, as records: kinds for the places that `tree` declares below `upkeep/`."""

from __future__ import annotations

from hashlib import sha256
from os.path import normpath

from scribengin.registry.records import Record

_LENGTH = 16


class MaintenanceOwner(Record):
    """Which host is to keep a folder: the leader's word."""

    path: str
    """the folder, on every host the same"""
    node: str
    """the host whose agent does it; empty: nobody writes there any more"""
    number: int = 1
    """rises by one with each host that it is given to"""
    writers: tuple[str, ...] = ()
    """the tiers that write there, as `flow.tier`"""
    since: str = ""
    """when it was given to that host, or to none, ISO 8601"""


class MaintenanceReport(Record):
    """What came of it: the host's word. Written after a turn that had something to do or failed, and every ten minutes."""

    node: str
    number: int = 0
    """of the `MaintenanceOwner` that it is about"""
    term: int = 0
    """of the right under which it was done"""
    at: str = ""
    """the end of the last turn that is told, ISO 8601"""
    did_at: str = ""
    """the end of the last turn that had something to do"""
    folded: int = 0
    """commit records that were folded then"""
    files: int = 0
    """files that nobody needed, deleted then"""
    bytes: int = 0
    """what these took"""
    error: str = ""
    """why the last turn failed; empty where it has not"""


def id_of_folder(path: str) -> str:
    """Under which name a folder's records stand."""
    return sha256(normpath(path).encode()).hexdigest()[:_LENGTH]
