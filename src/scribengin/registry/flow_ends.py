"""A version's record of the places outside a flow where it reads and writes. From it masters find which flows are connected."""

from __future__ import annotations

from collections.abc import Mapping  # noqa: TC003  msgspec evaluates the annotations of records
from typing import Literal

from scribengin.registry.record_io import Record


class ExternalPlace(Record):
    """A place outside a flow: a folder, a prefix of objects or a folder of an HDFS, a table, or a topic."""

    kind: Literal["folder", "objects", "table", "topic"]
    at: str
    """for a folder its absolute path; for objects their URL, with the endpoint; for a table the server and database, without a user; for a
    topic the servers of its cluster, separated by commas"""
    topic: str = ""
    """the name of the topic or table"""
    many: bool = False
    """for a folder: it includes all folders below; for a topic: `topic` is a regular expression"""

    @property
    def called(self) -> str:
        """The place's name in messages."""
        return f"{self.kind} {self.topic or self.at}"


class SourceLevel(Record):
    """A threshold for the backlog of a source; a measure that is None is not checked."""

    rows: int | None = None
    bytes: int | None = None
    age_s: float | None = None


class Waters(Record):
    """The thresholds of a source: above `high` upstream flows are throttled, below `low` they run freely again, at `capacity` they are
    paused."""

    high: SourceLevel
    low: SourceLevel
    capacity: SourceLevel


class Outside(Record):
    """The places of a flow's sources and sinks; kinds of places that no other flow can share are left out."""

    reads: Mapping[str, tuple[ExternalPlace, ...]] = {}
    """source → places"""
    writes: Mapping[str, tuple[ExternalPlace, ...]] = {}
    """sink → places"""
    waters: Mapping[str, Waters] = {}
    """source → its thresholds"""


class SinkHold(Record):
    """Why a sink is throttled: the downstream flow and its source."""

    flow: str
    source: str
    share: float
    """the share of time in which the upstream flow may work, 0 to 1; 0: it is paused"""
    why: str = ""
    """a text for people, as of the moment when it got this share"""


class HeldBackSinks(Record):
    """The throttled sinks of a flow, each with the reader that throttles it most."""

    sinks: Mapping[str, SinkHold] = {}
