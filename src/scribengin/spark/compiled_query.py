"""The inputs and outputs of the compiler: a query's parts, the inputs of its frames, its task pipelines and Spark SQL stages."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from scribengin.spark.program import RowsEntry

if TYPE_CHECKING:
    from collections.abc import Mapping, Set

    from pyspark.sql import DataFrame

    from scribengin.connectors.contract import BatchId, SinkConnector, SourceStream
    from scribengin.core.types import Schema
    from scribengin.plan.model import Plan, QueryPlan
    from scribengin.spark.bad_record_search import Suspects
    from scribengin.spark.dead_letter_writer import LetterRules
    from scribengin.spark.native import NativeFrame
    from scribengin.spark.program import Program, SourceRef
    from scribengin.spark.user_code import UserCode


@dataclass(frozen=True, slots=True)
class BatchPart:
    """The part of a Batch's streams that one of the tier's workers reads.

    Attributes: ranges: source → (start, end) in the Batch's streams of that source, end exclusive; a source that is not listed has no
    stream in it. first: how many of the Batch's streams precede this part, over all sources.
    """

    ranges: Mapping[str, tuple[int, int]]
    first: int

    @property
    def end(self) -> int:
        """How many of the Batch's streams precede the next part."""
        return self.first + sum(end - start for start, end in self.ranges.values())


@dataclass(frozen=True, slots=True)
class BatchInputs:
    """The streams of one Batch, read by batch frames. `skip`: see StreamsEntry. `suspects` is set while `bad_record_search` runs.
    `by_spark`: True if Spark runs all SQL steps, because the vector engine was not sure of a value."""

    batch: BatchId
    streams: Mapping[str, tuple[SourceStream, ...]]
    skip: Mapping[tuple[str, int], Mapping[int, tuple[str, str]]] = field(default_factory=dict)
    suspects: Suspects | None = None
    orders: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """what the previous Batch recorded of utilities: see `Decision.orders`"""
    by_spark: bool = False
    part: BatchPart | None = None
    """the part that this process runs; None: all"""

    @property
    def may_run_in_tail(self) -> bool:
        """False if only Spark may run the SQL steps of the Batch."""
        return not (self.by_spark or self.skip or self.suspects)


@dataclass(frozen=True, slots=True)
class StreamInputs:
    """Streaming frames of descriptors, one per source. `static`: the streams of static sources, fixed when the query starts."""

    frames: Mapping[str, DataFrame]
    static: Mapping[str, tuple[SourceStream, ...]] = field(default_factory=dict)
    orders: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)


Inputs = BatchInputs | StreamInputs


@dataclass(frozen=True, slots=True)
class Tail:
    """The input of one task pipeline, and its program. `frame` has the columns of the program's entry."""

    frame: DataFrame
    program: Program


@dataclass(frozen=True, slots=True)
class Middle:
    """A stage before Spark SQL steps: its output, and its program."""

    frame: DataFrame
    program: Program

    def is_read(self, keys: Set[str]) -> bool:
        """True if the task outputs with these keys, which have reported, are all that the stage has. If it is entered by rows their number
        is unknown: then True if there is any."""
        if isinstance(self.program.entry, RowsEntry):
            return bool(keys)
        return {f"{source}/{index}" for source, index in self.program.entry.own} <= keys


@dataclass(frozen=True, slots=True)
class NativeRun:
    """A Spark SQL stage: consecutive steps that are counted as one node, at their ends. `fed_by`: the exits whose rows enter it; `behind`:
    as in `NativeFrame`."""

    name: str
    fed_by: tuple[str, ...]
    behind: tuple[tuple[str, tuple[str, ...]], ...]
    stateful: bool


@dataclass(frozen=True, slots=True)
class Compiled:
    """A query's task pipelines (together they process the whole Batch) and its Spark SQL stages."""

    tails: tuple[Tail, ...]
    runs: tuple[NativeRun, ...]
    frames: Mapping[str, NativeFrame]
    """the output of each Spark SQL step, and of each Python stage before one"""
    gated: tuple[str, ...] = ()
    """the nodes whose watermarks are combined in the query"""
    python_before_native: bool = False
    """True if user Python code feeds SQL steps"""
    middles: tuple[Middle, ...] = ()
    """the stages before Spark SQL steps that process rows of streaming sources, in the plan's order"""


@dataclass(frozen=True, slots=True)
class QueryParts:
    """The parts of a query that are the same in all Batches."""

    plan: Plan
    query: QueryPlan
    code: UserCode
    letters: LetterRules
    sources: Mapping[str, SourceRef]
    sinks: Mapping[str, SinkConnector]
    schemas: Mapping[str, Schema]
    """source → columns, resolved"""

    released_later: bool = False
    """True if its sources are acknowledged only when other queries have acknowledged the data (`local.acks`)"""

    @property
    def full_name(self) -> str:
        """`flow.query`: the name of the query in other systems."""
        return f"{self.plan.flow.name}.{self.query.name}"
