"""The contract of sinks whose rows are written by one of Spark's own sinks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from scribengin.connectors.contract import SinkStream, StagingSink

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import pyarrow as pa

    from scribengin.core.errors import ScribenginError


class RowStream(SinkStream, Protocol):
    """A stream of a SparkSink. `write` prepares rows for Spark, `close` only counts them."""

    def take(self) -> Sequence[pa.RecordBatch]:
        """The rows prepared for Spark since the last call, with the sink's `columns`."""


class SparkSink(StagingSink, Protocol):
    """A sink whose rows are written by one of Spark's own sinks, at least once: a Batch that fails, or is killed, before it is decided is
    written again. Alone in its Query. `stream` returns RowStreams; `publish` does nothing."""

    format: str
    """Spark's name of its sink"""
    columns: str
    """the columns of the rows for Spark, as DDL"""
    jars: str
    """the set of jars that Spark needs for it (`embedded.jars`)"""

    def spark_options(self) -> Mapping[str, str]:
        """The options for Spark's sink, with secrets in plain text: only for Spark, with redaction of all these names. Raises SinkError for
        settings that Spark's client does not have."""

    def fault(self, text: str) -> ScribenginError | None:
        """Spark's message about a failed write, as a Scribengin error; None if the place is not the cause."""
