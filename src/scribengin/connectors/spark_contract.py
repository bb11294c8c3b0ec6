"""The contract of sinks whose rows a sink of Spark's own writes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from scribengin.connectors.contract import SinkStream, StagingSink

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import pyarrow as pa

    from scribengin.core.errors import ScribenginError


class RowStream(SinkStream, Protocol):
    """A stream of a SparkSink. `write` makes rows for Spark, `close` only counts them."""

    def take(self) -> Sequence[pa.RecordBatch]:
        """The rows for Spark that were made since the last call, with the sink's `columns`."""


class SparkSink(StagingSink, Protocol):
    """A sink whose rows a sink of Spark's own writes, at least once: a Batch that fails, or is killed, before it is decided is written
    again. Alone in its Query. `stream` gives RowStreams; `publish` has nothing left to do."""

    format: str
    """what Spark calls its sink"""
    columns: str
    """of the rows that Spark gets, as DDL"""
    jars: str
    """the set of jars that Spark needs for it (`embedded.jars`)"""

    def spark_options(self) -> Mapping[str, str]:
        """What Spark's sink is told, secrets in plain: for Spark alone, under a redaction of all these names. Raises SinkError for
        settings that Spark's client does not have."""

    def fault(self, text: str) -> ScribenginError | None:
        """What Spark said of a failed write in our words; None where it was not the place that failed."""
