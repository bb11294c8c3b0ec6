"""Sinks that commit the task outputs of a Batch one by one, beside the contract that all sinks implement."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from scribengin.connectors.contract import ChainedSink, SinkStream, StagingSink

if TYPE_CHECKING:
    from collections.abc import Mapping

    from scribengin.connectors.contract import BatchId
    from scribengin.core.types import Schema


class AlreadyCommitted(Exception):
    """Raised by a UnitStream: this task output of this Batch is committed; `report` is what its task reported then."""

    def __init__(self, report: Mapping[str, Any]) -> None:
        super().__init__("committed by another attempt")
        self.report = report


class UnitStream(SinkStream, Protocol):
    """A stream whose rows become visible by `commit`, in one step with the report of its task.

    `write`, `close` and `commit` raise AlreadyCommitted if another attempt was first. `close` waits until the rows are in their final
    place, still invisible, and records it in the write receipt.
    """

    def commit(self, report: Mapping[str, Any]) -> None:
        """Make rows and report visible together."""


class UnitSink(ChainedSink, StagingSink, Protocol):
    """A sink that can commit the task outputs of a Batch one by one: each in its own transaction, which also contains its report. The
    engine uses it if a task output is the same whenever the Batch is run: its `input_hash` identifies the input, and the unit number the
    part."""

    units: int
    """maximum number of task outputs of a Batch"""

    def unit_stream(
        self, batch: BatchId, unit: int, attempt: str, schema: Schema, *, input_hash: str, behind: Mapping[str, Any]
    ) -> UnitStream:
        """Executor side: like `stream`. `unit` counts from 0; `behind` is the value of `ChainedSink.behind`."""
