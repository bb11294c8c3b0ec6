"""Sinks that commit the units of a Batch one by one, beside the contract that all sinks keep."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from scribengin.connectors.contract import ChainedSink, SinkStream, StagingSink

if TYPE_CHECKING:
    from collections.abc import Mapping

    from scribengin.connectors.contract import BatchId
    from scribengin.core.types import Schema


class AlreadyCommitted(Exception):
    """Raised by a UnitStream: this unit of this Batch is committed; `report` is what its task reported then."""

    def __init__(self, report: Mapping[str, Any]) -> None:
        super().__init__("committed by another attempt")
        self.report = report


class UnitStream(SinkStream, Protocol):
    """A stream whose rows become visible by `commit`, in one step with what the task has to report of them.

    `write`, `close` and `commit` raise AlreadyCommitted where another attempt was first. `close` waits until the rows are where they
    will be, still invisible, and says so in the Receipt.
    """

    def commit(self, report: Mapping[str, Any]) -> None:
        """Make rows and report visible together."""


class UnitSink(ChainedSink, StagingSink, Protocol):
    """A sink that can commit the units of a Batch one by one: each in a transaction of its own that also holds its report. The engine
    asks for it where a unit is the same whenever the Batch is run: its `input_hash` says what is read, and the unit which part."""

    units: int
    """how many units a Batch may have at most"""

    def unit_stream(
        self, batch: BatchId, unit: int, attempt: str, schema: Schema, *, input_hash: str, behind: Mapping[str, Any]
    ) -> UnitStream:
        """Executor side: as `stream`. `unit` counts from 0; `behind` is what `ChainedSink.behind` has said."""
