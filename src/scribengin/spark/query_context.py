"""What one claimed Query needs in this process, the same for each of its Batches and each of its restarts."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from scribengin.spark.dead_letter_limit import DeadTally

if TYPE_CHECKING:
    import threading
    from collections.abc import Callable, Mapping

    from pyspark.sql import SparkSession
    from structlog.typing import FilteringBoundLogger

    from scribengin.connectors.contract import BatchLimits, SourceStream
    from scribengin.spark.commit import BackPressure, CommittedBatch
    from scribengin.spark.compiled_query import QueryParts
    from scribengin.spark.portions import Helpers
    from scribengin.state.folder import QueryFolder
    from scribengin.state.lease import Lease


@dataclass(frozen=True, slots=True, kw_only=True)
class QueryContext:
    """Built once for a run of a Query, and held by everything that runs it: `QueryRun` (its life) and `BatchRunner` (its Batches)."""

    spark: SparkSession
    """of the process; each start of the Query has a session of its own"""
    parts: QueryParts
    folder: QueryFolder
    lineage: str
    first: int = 0
    """the number of the lineage's first Batch"""
    starts: Mapping[str, int] = field(default_factory=dict)
    """source → the entry of its log at which the lineage begins; 0 for others"""
    lease: Lease
    limits: Mapping[str, BatchLimits]
    """streaming source → how much of it a Batch may take"""
    static: Mapping[str, tuple[SourceStream, ...]]
    """static source → its contents, fixed until the Query restarts"""
    stop: threading.Event
    """set: end between two Batches"""
    on_begin: Callable[[Mapping[str, tuple[SourceStream, ...]]], None]
    """called with the streams that a Batch is about to read"""
    on_commit: Callable[[CommittedBatch], None]
    log: FilteringBoundLogger
    pressure: BackPressure | None = None
    """of a Query that feeds channels"""
    helpers: Helpers | None = None
    """the other workers of the tier; None if it has only this one"""
    tally: DeadTally = field(default_factory=lambda: DeadTally(()))
    """how many records have become dead letters in this process"""
