"""Distributes a Batch over the workers of a tier: the one that holds the lease decides it, the others stage a portion each.

A portion is a run of the Batch's streams, the same rows for whoever reads them. What a helper stages is hidden, as what a task stages is,
until the decision names it: one that dies, sleeps or is cut off costs time only, for whoever decides then stages its portion itself.
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
"""of a portion, by what its streams say: a smaller one is read in less time than it takes to hand it out. Fault runs say less"""
BYTES_A_ROW = 200
"""a guess, for streams that know only their rows"""


@dataclass(frozen=True, slots=True)
class Portion:
    """The part of a Batch that a helper stages, as the deciding worker has compiled it.

    Attributes:
        query: the Query of the Batch.
        inputs: the Batch's streams, all of them, and the part that the helper reads.
        intent: see `UnitCommits`.
        behind: sink → what it said of its place before the Batch ran.
    """

    query: str
    inputs: BatchInputs
    intent: Intent | None
    behind: Mapping[str, Mapping[str, Any]]


@dataclass(frozen=True, slots=True)
class Staged:
    """The reports of a portion's units: of its tails, and of the stages before native steps."""

    tails: Sequence[StageReport]
    middle: Sequence[TaskReport]

    @property
    def reports(self) -> list[TaskReport]:
        """Those of all its units."""
        return [*(report.task for report in self.tails), *self.middle]


class Helper(Protocol):
    """One other worker of the tier, taken for a Batch: exactly one of `answer` and `drop` ends that."""

    def begin(self, portion: Portion) -> None:
        """Start staging the portion. Returns at once; raises nothing."""

    def answer(self) -> Staged | None:
        """Wait until it is staged; None if the helper could not, or has gone."""

    def drop(self) -> None:
        """Stop staging, whatever was staged so far. Raises nothing."""


class Helpers(Protocol):
    """The other running workers of a tier."""

    def take(self, query: str, digest: str) -> list[Helper]:
        """Those that have nothing to do, and run the Query as it runs here (`digest_of`); no other caller gets them until they have
        ended."""


def digest_of(parts: QueryParts) -> str:
    """Tells a Query's plan, columns and release from all others: workers share a Batch only where all of that is the same."""
    columns = {source: schema.ddl() for source, schema in parts.schemas.items()}
    return hashlib.sha256(canonical([version("scribengin"), parts.query.fingerprint, columns])).hexdigest()


def may_share(parts: QueryParts, compiled: Compiled, streams: Mapping[str, Sequence[SourceStream]]) -> bool:
    """Whether parts of the Batch can be staged separately with the same result."""
    if why_whole(parts.plan, parts.query) or not compiled.tails:
        return False
    if any(spark_writes(sink) for sink in parts.sinks.values()):
        return False
    if any(is_replay(stream) for listed in streams.values() for stream in listed):
        return False
    return all(is_narrow(tail.frame) for tail in compiled.tails if isinstance(tail.program.entry, RowsEntry))


def divided(streams: Mapping[str, Sequence[SourceStream]], most: int) -> list[BatchPart]:
    """The streams in up to `most` parts of about the same size, in their order; one part where more would not pay."""
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
    """Of all streams in a row those from `start` up to `end`."""
    ranges, begun = {}, 0
    for source, listed in streams.items():
        low, high = max(start - begun, 0), min(end - begun, len(listed))
        if low < high:
            ranges[source] = (low, high)
        begun += len(listed)
    return BatchPart(ranges, start)


JOB_GROUP = "portion"
"""of Spark's jobs in a helper"""


class Stager:
    """Stages portions of the Queries of a tier, in a worker that does not hold its lease. One at a time."""

    def __init__(self, spark: SparkSession, compilers: Mapping[str, tuple[QueryParts, Compiler]], claim: Callable[[Portion], None]) -> None:
        """`compilers`: Query → its parts, and what compiles them. `claim` makes the Query's sinks ready for the lineage of a portion."""
        self._spark = spark
        self._compilers = compilers
        self._claim = claim
        self.digests = {name: digest_of(parts) for name, (parts, _) in compilers.items()}

    def stage(self, portion: Portion) -> Staged:
        """Stage the portion. Raises any failure; none of its output is visible then, and the deciding worker stages it itself."""
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
        """Stop what is being staged; from any thread. Its result is no longer needed."""
        with suppress(Exception):  # Spark itself may be gone
            self._spark.sparkContext.cancelJobGroup(JOB_GROUP)
