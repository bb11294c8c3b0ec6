"""What a version of a flow says of its ends outside: where it reads, and where it writes. Masters find from it which flows meet."""

from __future__ import annotations

from collections.abc import Mapping  # noqa: TC003  msgspec looks at the annotations of records
from typing import Literal

from scribengin.registry.records import Record


class Place(Record):
    """A folder, or a topic."""

    kind: Literal["folder", "topic"]
    at: str
    """of a folder its path, absolute; of a topic the servers of its cluster, with commas between"""
    topic: str = ""
    many: bool = False
    """of a folder: all folders below, too; of a topic: `topic` is a regular expression"""

    @property
    def called(self) -> str:
        """For people."""
        return f"folder {self.at}" if self.kind == "folder" else f"topic {self.topic}"


class Outside(Record):
    """The places of a flow's sources and sinks; those of other kinds are left out."""

    reads: Mapping[str, tuple[Place, ...]] = {}
    """source → places"""
    writes: Mapping[str, tuple[Place, ...]] = {}
    """sink → places"""
