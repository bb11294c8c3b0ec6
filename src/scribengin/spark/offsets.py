"""The source of a stateful Query as Spark sees it: a stream of offsets, each a number of entries of the source's log, of descriptors.

Spark runs `latestOffset` and `partitions` in a planner process of its own. An entry is logged there, durably, before Spark hears
of the offset; who reads the same offset later, in any process, reads the same streams.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import msgspec
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import SupportsTriggerAvailableNow

from scribengin.spark.feed import Feed
from scribengin.state.source_log import SourceLog

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.datasource import ReadLimit

    from scribengin.connectors.contract import BatchLimits
    from scribengin.spark.program import SourceRef

SCHEMA = "source STRING, index INT, stream STRING"


@dataclass(frozen=True, slots=True)
class OffsetConfig:
    """What the planner process needs."""

    ref: SourceRef
    log: Path
    limits: BatchLimits
    query: str = ""
    tells: bool = True
    start: int = 0
    """the entry at which a new checkpoint begins"""


class _Descriptor(InputPartition):
    """One row: source, index in the Batch's streams of that source, the stream as JSON."""


class OffsetReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Proposes entries of a source's log as offsets `{"source": id, "n": entries}`. Lives in Spark's planner process."""

    def __init__(self, config: OffsetConfig) -> None:
        self._node = config.ref.node
        self._log = SourceLog(config.log, self._node)
        self._feed = Feed(config.ref, config.log, config.limits, query=config.query, tells=config.tells)
        self._start = config.start
        self._latest: dict[str, Any] | None = None

    def __getstate__(self) -> dict[str, Any]:
        """Tasks only call `read`, which needs nothing; connections of the feed's reader, and all that it remembers, stay here."""
        return {"_node": self._node}

    def initialOffset(self) -> dict[str, Any]:  # noqa: D102, N802
        return self._offset(self._start)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: D102, N802
        self._feed.fill()

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: ARG002, D102, N802
        number = int(start["n"])
        reached = min(self._log.length(), number + 1) if self._feed.final else self._feed.next(number)
        if self._feed.final and reached == number:
            self._feed.exhausted(number)
        backlog = msgspec.json.encode(self._feed.backlog(reached)).decode()
        self._latest = self._offset(reached) | {"backlog": backlog, "notes": "\n".join(self._feed.notices())}
        return self._offset(reached)

    def reportLatestOffset(self) -> dict[str, Any] | None:  # noqa: D102, N802
        return self._latest

    def commit(self, end: dict[str, Any]) -> None:  # noqa: D102
        reached = int(end["n"])
        if reached:
            self._feed.committed(self._log.range(reached - 1, reached))

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:  # noqa: D102
        streams = self._log.range(int(start["n"]), int(end["n"]))
        return [_Descriptor((self._node, index, msgspec.json.encode(stream.as_json()).decode())) for index, stream in enumerate(streams)]

    def read(self, partition: InputPartition) -> Iterator[tuple[Any, ...]]:  # noqa: D102
        yield partition.value

    def _offset(self, number: int) -> dict[str, Any]:
        return {"source": self._node, "n": number}


def clock(spark: SparkSession) -> DataFrame:
    """A stream that has one row for every Batch: it opens Batches, and nobody reads the row."""
    rate = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 1).option("numPartitions", 1)
    return rate.load()


def read_offsets(spark: SparkSession, config: OffsetConfig) -> DataFrame:
    """The streaming frame of a source's descriptors."""
    name = f"scribengin_{config.ref.node}"

    # a class per source, pickled by value: options may hold secrets, and what Spark calls options is printed in plans
    class Configured(DataSource):
        settings = config

        @classmethod
        def name(cls) -> str:
            return name

        def schema(self) -> str:
            return SCHEMA

        def streamReader(self, schema: Any) -> OffsetReader:  # noqa: ARG002, N802
            return OffsetReader(self.settings)

    spark.dataSource.register(Configured)
    return spark.readStream.format(name).load()


def batch_offsets(spark: SparkSession, query_id: str) -> tuple[dict[str, int], dict[str, int]]:
    """(start, end) per source of the Batch that runs now, from the running query itself: `offsets/` may have been rewritten."""
    execution = spark._jsparkSession.streams().get(query_id).streamingQuery()
    return _positions(execution.committedOffsets()), _positions(execution.availableOffsets())


def _positions(progress: Any) -> dict[str, int]:
    found: dict[str, int] = {}
    offsets = progress.iterator()
    while offsets.hasNext():
        offset = msgspec.json.decode(offsets.next()._2().json())
        found[offset["source"]] = int(offset["n"])
    return found
