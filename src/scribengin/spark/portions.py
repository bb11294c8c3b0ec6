"""Distributes a Batch over the workers of a tier: the worker that holds the lease decides it, the others stage a portion each.

A portion is a range of the Batch's streams; every worker reads the same rows in it. The output of a helper stays hidden, like that of a
task, until the decision names it. If a helper ends, is suspended or is cut off, only time is lost: the deciding worker stages its portion
itself.
"""

from __future__ import annotations

import hashlib
import os
from contextlib import suppress
from dataclasses import dataclass
from importlib.metadata import version
from itertools import accumulate, pairwise
from typing import TYPE_CHECKING, Any, Protocol

from scribengin.connectors.abilities import spark_writes
from scribengin.core.records import canonical
from scribengin.plan.workers import why_whole
from scribengin.spark.compiled_query import BatchPart
from scribengin.spark.program import RowsEntry
from scribengin.spark.staging import check_read, check_whole, committing, middle_reports, read_what_is_left, run_action
from scribengin.spark.task_report import StageReport, TaskReport, new_reports
from scribengin.spark.unit_commits import is_narrow
from scribengin.state.source_log import is_replay

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from pyspark.sql import SparkSession

    from scribengin.connectors.contract import SourceStream
    from scribengin.spark.compile import Compiler
    from scribengin.spark.compiled_query import BatchInputs, Compiled, QueryParts
    from scribengin.state.intents import Intent

LEAST_BYTES = int(os.environ.get("SCRIBENGIN_PORTION_BYTES") or 4 * 2**20)
"""the smallest portion, by the sizes of its streams: a smaller one is read faster than it is handed out. Fault tests set a smaller value"""
BYTES_A_ROW = 200
"""an estimate, for streams that have only a row count"""


@dataclass(frozen=True, slots=True)
class Portion:
    """The part of a Batch that a helper stages, as the deciding worker describes it.

    Attributes: query: The name of the Batch's query. inputs: All streams of the Batch, and the part that the helper reads. intent: See
    `UnitCommits`. behind: Sink → the state of its destination before the Batch ran, as the sink reported it.
    """

    query: str
    inputs: BatchInputs
    intent: Intent | None
    behind: Mapping[str, Mapping[str, Any]]


@dataclass(frozen=True, slots=True)
class Staged:
    """The reports of a portion's tasks: those of its task pipelines, and of the stages before Spark SQL steps."""

    tails: Sequence[StageReport]
    middle: Sequence[TaskReport]

    @property
    def reports(self) -> list[TaskReport]:
        """The reports of all its tasks."""
        return [*(report.task for report in self.tails), *self.middle]


class Helper(Protocol):
    """Another worker of the tier, reserved for one Batch. Exactly one call of `answer` or `drop` releases it."""

    def begin(self, portion: Portion) -> None:
        """Start staging the portion. Returns at once; raises nothing."""

    def answer(self) -> Staged | None:
        """Wait until the portion is staged; None if the helper failed or has gone."""

    def drop(self) -> None:
        """Stop staging, whatever has been staged so far. Raises nothing."""


class Helpers(Protocol):
    """The other running workers of a tier."""

    def take(self, query: str, digest: str) -> list[Helper]:
        """Reserve the idle workers that run the query as it runs here. No other caller gets them until `answer` or `drop`.

        Args:
            query: The name of the query.
            digest: See `digest_of`.
        """


def digest_of(parts: QueryParts) -> str:
    """A digest of a query's plan, columns and release. Workers share a Batch only if all of that is equal."""
    columns = {source: schema.ddl() for source, schema in parts.schemas.items()}
    return hashlib.sha256(canonical([version("scribengin"), parts.query.fingerprint, columns])).hexdigest()


def may_share(parts: QueryParts, compiled: Compiled, streams: Mapping[str, Sequence[SourceStream]]) -> bool:
    """True if parts of the Batch can be staged separately with the same result."""
    if why_whole(parts.plan, parts.query) or not compiled.tails:
        return False
    if any(spark_writes(sink) for sink in parts.sinks.values()):
        return False
    if any(is_replay(stream) for listed in streams.values() for stream in listed):
        return False
    return all(is_narrow(tail.frame) for tail in compiled.tails if isinstance(tail.program.entry, RowsEntry))


def divided(streams: Mapping[str, Sequence[SourceStream]], most: int) -> list[BatchPart]:
    """Divide the streams, in their order, into up to `most` parts of about the same size; one part if the Batch is too small for more."""
    sizes = {source: [_bytes_of(stream) for stream in listed] for source, listed in streams.items()}
    weights = [size for listed in sizes.values() for size in listed]
    count = min(most, len(weights), sum(weights) // LEAST_BYTES)
    if count < 2:
        return [_part(streams, 0, len(weights))]
    through = list(accumulate(weights))
    ends = []
    for number in range(1, count):
        goal = through[-1] * number / count
        nearest = min(range(1, len(weights)), key=lambda end: abs(through[end - 1] - goal))
        ends.append(nearest)
    cuts = sorted({0, len(weights), *ends})
    return [_part(streams, start, end) for start, end in pairwise(cuts)]


def _bytes_of(stream: SourceStream) -> int:
    if stream.bytes:
        return stream.bytes
    return (stream.rows or 0) * BYTES_A_ROW


def _part(streams: Mapping[str, Sequence[SourceStream]], start: int, end: int) -> BatchPart:
    """The part with the streams from `start` up to `end` (exclusive), counted over all sources."""
    ranges, begun = {}, 0
    for source, listed in streams.items():
        low, high = max(start - begun, 0), min(end - begun, len(listed))
        if low < high:
            ranges[source] = (low, high)
        begun += len(listed)
    return BatchPart(ranges, start)


JOB_GROUP = "portion"
"""the group of Spark jobs in a helper"""


class Stager:
    """Stages portions of a tier's queries in a worker that does not hold its lease. One at a time."""

    def __init__(self, spark: SparkSession, compilers: Mapping[str, tuple[QueryParts, Compiler]], claim: Callable[[Portion], None]) -> None:
        """Create a stager.

        Args:
            spark: The session.
            compilers: query → its parts, and its compiler.
            claim: Prepares the query's sinks for the lineage of a portion.
        """
        self._spark = spark
        self._compilers = compilers
        self._claim = claim
        self.digests = {name: digest_of(parts) for name, (parts, _) in compilers.items()}

    def stage(self, portion: Portion) -> Staged:
        """Stage the portion. Raises on any failure; none of its output is visible then, and the deciding worker stages it itself."""
        parts, compiler = self._compilers[portion.query]
        self._claim(portion)
        self._spark.sparkContext.setJobGroup(JOB_GROUP, f"a portion of batch {portion.inputs.batch.number}", interruptOnCancel=True)
        reports = new_reports(self._spark)
        compiled = committing(compiler.compile(portion.inputs, reports), parts, portion.intent, portion.behind)
        number = portion.inputs.batch.number
        tails = run_action(compiled, parts, reports, number)
        read_what_is_left(compiled, reports, number)
        check_read(compiled, portion.inputs.streams, reports, number)
        check_whole(portion.query, compiled, tails)
        return Staged(tails, middle_reports(compiled, reports, number))

    def cancel(self) -> None:
        """Stop the portion that is being staged, whose result is no longer needed. May be called from any thread."""
        with suppress(Exception):  # Spark itself may be gone
            self._spark.sparkContext.cancelJobGroup(JOB_GROUP)
