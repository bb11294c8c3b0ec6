"""The inputs and outputs of the compiler: a Query's parts, the inputs of its frames, its tails and native runs."""

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
    """Streams of a Batch that one of the tier's workers reads.

    Attributes:
        ranges: source → (start, end) in the Batch's streams of that source; sources that are not named have no stream in it.
        first: how many of the Batch's streams stand before them, over all sources.
    """

    ranges: Mapping[str, tuple[int, int]]
    first: int

    @property
    def end(self) -> int:
        """How many stand before what comes behind them."""
        return self.first + sum(end - start for start, end in self.ranges.values())


@dataclass(frozen=True, slots=True)
class BatchInputs:
    """The streams of one Batch, read by batch frames. `skip`: see StreamsEntry. `suspects` is set by the search of `culprits`. `by_spark`:
    Spark is to run all SQL steps, since the vector engine was not sure of a value."""

    batch: BatchId
    streams: Mapping[str, tuple[SourceStream, ...]]
    skip: Mapping[tuple[str, int], Mapping[int, tuple[str, str]]] = field(default_factory=dict)
    suspects: Suspects | None = None
    orders: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """what the last Batch has learned of utilities: see `Decision.orders`"""
    by_spark: bool = False
    part: BatchPart | None = None
    """what of it runs in this process; None: all"""

    @property
    def may_run_in_tail(self) -> bool:
        """False if only Spark can tell what is to become of the Batch."""
        return not (self.by_spark or self.skip or self.suspects)


@dataclass(frozen=True, slots=True)
class StreamInputs:
    """Streaming frames of descriptors, one per source. `static` are the streams of static sources, pinned when the Query starts."""

    frames: Mapping[str, DataFrame]
    static: Mapping[str, tuple[SourceStream, ...]] = field(default_factory=dict)
    orders: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)


Inputs = BatchInputs | StreamInputs


@dataclass(frozen=True, slots=True)
class Tail:
    """What feeds one tail stage, and its program. `frame` has the columns of the program's entry."""

    frame: DataFrame
    program: Program


@dataclass(frozen=True, slots=True)
class Middle:
    """A stage before native steps: what leaves it, and its program."""

    frame: DataFrame
    program: Program

    def is_read(self, keys: Set[str]) -> bool:
        """Whether the units that have reported, by these keys, are all that it has, as far as that is known."""
        if isinstance(self.program.entry, RowsEntry):
            return bool(keys)
        return {f"{source}/{index}" for source, index in self.program.entry.own} <= keys


@dataclass(frozen=True, slots=True)
class NativeRun:
    """Native steps that are counted as one node, at their ends. `fed_by` are the exits whose rows entered it,
    `behind` as in `NativeFrame`."""

    name: str
    fed_by: tuple[str, ...]
    behind: tuple[tuple[str, tuple[str, ...]], ...]
    stateful: bool


@dataclass(frozen=True, slots=True)
class Compiled:
    """A Query's tails (together they are the Batch) and its native runs."""

    tails: tuple[Tail, ...]
    runs: tuple[NativeRun, ...]
    frames: Mapping[str, NativeFrame]
    """what each native step and each Python stage before one gives"""
    gated: tuple[str, ...] = ()
    """the nodes whose watermarks meet in the Query"""
    python_before_native: bool = False
    """True if user Python code feeds SQL steps"""
    middles: tuple[Middle, ...] = ()
    """the stages before native steps that rows of streamed sources go through, in the plan's order"""


@dataclass(frozen=True, slots=True)
class QueryParts:
    """The parts of a Query that are the same in all Batches."""

    plan: Plan
    query: QueryPlan
    code: UserCode
    letters: LetterRules
    sources: Mapping[str, SourceRef]
    sinks: Mapping[str, SinkConnector]
    schemas: Mapping[str, Schema]
    """source → columns, resolved"""

    released_later: bool = False
    """True if its sources may be told that they are through only when others have acknowledged it (`local.acks`)"""

    @property
    def full_name(self) -> str:
        """`flow.query`: the name of the Query in other systems."""
        return f"{self.plan.flow.name}.{self.query.name}"
