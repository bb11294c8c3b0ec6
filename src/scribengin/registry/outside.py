"""What a version of a flow says of its ends outside: where it reads, and where it writes. Masters find from it which flows meet."""

from __future__ import annotations

from collections.abc import Mapping  # noqa: TC003  msgspec looks at the annotations of records
from typing import Literal

from scribengin.registry.records import Record


class ExternalPlace(Record):
    """A folder, a prefix of objects or a folder of an HDFS, a table, or a topic."""

    kind: Literal["folder", "objects", "table", "topic"]
    at: str
    """of a folder its path, absolute; of objects their URL, with the endpoint; of a table the server and database, without a user; of a
    topic the servers of its cluster, with commas between"""
    topic: str = ""
    """its name; of a table that one's"""
    many: bool = False
    """of a folder: all folders below, too; of a topic: `topic` is a regular expression"""

    @property
    def called(self) -> str:
        """For people."""
        return f"{self.kind} {self.topic or self.at}"


class SourceLevel(Record):
    """How much waits at a source; what is None is not looked at."""

    rows: int | None = None
    bytes: int | None = None
    age_s: float | None = None


class Waters(Record):
    """From where on flows that feed a source are slowed, below which they go on as before, and where they are paused."""

    high: SourceLevel
    low: SourceLevel
    capacity: SourceLevel


class Outside(Record):
    """The places of a flow's sources and sinks; those of other kinds are left out."""

    reads: Mapping[str, tuple[ExternalPlace, ...]] = {}
    """source → places"""
    writes: Mapping[str, tuple[ExternalPlace, ...]] = {}
    """sink → places"""
    waters: Mapping[str, Waters] = {}
    """source → how much may wait there"""


class SinkHold(Record):
    """What holds a sink back: a flow that reads what it writes."""

    flow: str
    source: str
    share: float
    """of its time that the feeder may still work, 0 to 1; 0: it waits"""
    why: str = ""
    """in words, as of the moment when it came to this share"""


class HeldBackSinks(Record):
    """Which sinks of a flow are held back, each by the reader that holds it back most."""

    sinks: Mapping[str, SinkHold] = {}
