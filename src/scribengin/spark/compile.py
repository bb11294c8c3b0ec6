"""A Query's plan as Spark frames: sources and Python stages become `mapInArrow`, native steps DataFrame operations, tails receipts.

The same walk compiles the batch frames of one Batch (`BatchInputs`), the streaming frames of a stateful Query and the frames
that `plan --deep` analyses (`StreamInputs`).
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from itertools import count
from typing import TYPE_CHECKING, Any

import msgspec
import pyarrow as pa

from scribengin.core.errors import StepError
from scribengin.core.types import Schema
from scribengin.spark import native
from scribengin.spark.gate import GateNode, window_us
from scribengin.spark.native import Frame
from scribengin.spark.program import (
    AT,
    EXIT,
    ExitNode,
    ParseNode,
    Program,
    PythonNode,
    RowsEntry,
    SinkNode,
    SourceRef,
    StreamsEntry,
    UnionNode,
)
from scribengin.spark.stage import RECEIPT_SCHEMA, run_program
from scribengin.spec.functions import form_of
from scribengin.spec.model import Dedupe, Merge, Parse, Python, Sink, Source, Step, Watermark

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from pyspark.accumulators import Accumulator
    from pyspark.sql import DataFrame, SparkSession

    from scribengin.connectors.contract import BatchId, SourceStream
    from scribengin.connectors.contract import Sink as OpenSink
    from scribengin.plan.model import Plan, PlannedNode, QueryPlan
    from scribengin.spark.letters import LetterRules
    from scribengin.spark.program import StageNode
    from scribengin.spark.user_code import UserCode


@dataclass(frozen=True, slots=True)
class BatchInputs:
    """The streams of one Batch, read by batch frames."""

    batch: BatchId
    streams: Mapping[str, tuple[SourceStream, ...]]
    skip: Mapping[tuple[str, int], Mapping[int, tuple[str, str]]] = field(default_factory=dict)
    only: Mapping[tuple[str, int], tuple[int, int]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class StreamInputs:
    """Streaming frames of descriptors, one per source. `static` are the streams of static sources, pinned when the Query starts."""

    frames: Mapping[str, DataFrame]
    static: Mapping[str, tuple[SourceStream, ...]] = field(default_factory=dict)


Inputs = BatchInputs | StreamInputs
MIDDLE = 50
"""Stages that end in Arrow are numbered from here, tails from 0: a tail's number leads its units' names."""


@dataclass(frozen=True, slots=True)
class Tail:
    """What feeds one tail stage, and its program. `frame` has the columns of the program's entry."""

    frame: DataFrame
    program: Program


@dataclass(frozen=True, slots=True)
class NativeRun:
    """Native steps that are counted as one node, at their ends. `fed_by` are the exits whose rows entered it."""

    name: str
    fed_by: tuple[str, ...]
    stateful: bool


@dataclass(frozen=True, slots=True)
class Compiled:
    """A Query's tails (together they are the Batch) and its native runs."""

    tails: tuple[Tail, ...]
    runs: tuple[NativeRun, ...]
    frames: Mapping[str, Frame]
    """what each native step and each Python stage before one gives"""


@dataclass(frozen=True, slots=True)
class QueryParts:
    """What stays the same over all Batches of a Query."""

    plan: Plan
    query: QueryPlan
    code: UserCode
    letters: LetterRules
    sources: Mapping[str, SourceRef]
    sinks: Mapping[str, OpenSink]
    schemas: Mapping[str, Schema]
    """source → columns, resolved"""


class Compiler:
    """Compiles one Query, any number of times."""

    def __init__(self, spark: SparkSession, parts: QueryParts) -> None:
        self._spark = spark
        self._parts = parts
        self._query = parts.query
        self._readers: dict[str, list[PlannedNode]] = {}
        for node in self._query.nodes:
            for input_ in node.inputs:
                self._readers.setdefault(input_, []).append(node)

    def compile(self, inputs: Inputs, reports: Accumulator[dict[Any, Any]]) -> Compiled:
        """Frames over `inputs`; middle stages add to `reports`: (Batch number, stage index, key) → report.

        Raises StepError for what Spark cannot take.
        """
        return _Walk(self._spark, self._parts, self._readers, inputs, reports).compiled()


class _Walk:
    def __init__(
        self,
        spark: SparkSession,
        parts: QueryParts,
        readers: Mapping[str, list[PlannedNode]],
        inputs: Inputs,
        reports: Accumulator[dict[Any, Any]],
    ) -> None:
        self._spark = spark
        self._parts = parts
        self._nodes = {node.id: node for node in parts.query.nodes}
        self._readers = readers
        self._inputs = inputs
        self._reports = reports
        self._frames: dict[str, Frame] = {}
        self._schemas: dict[str, Schema] = {}
        self._runs: dict[str, NativeRun] = {}
        self._indexes = {"tail": count(), "middle": count(MIDDLE)}

    def compiled(self) -> Compiled:
        for node in self._parts.query.nodes:
            if node.stage == "native":
                self._native(node)
            elif node.stage == "decode" or (node.stage == "python" and self._is_exit(node)):
                self._middle(node)
        entries = [
            *[self._streams_tail(reads) for reads in [[n.id for n in self._parts.query.nodes if n.stage == "read"]] if reads],
            *[
                self._rows_tail(id_)
                for id_ in list(self._frames)
                if any(reader.stage in ("tail", "sink") for reader in self._readers.get(id_, ()))
            ],
        ]
        return Compiled(tuple(entry for entry in entries if entry is not None), tuple(self._runs.values()), self._frames)

    # --- native steps ---

    def _native(self, node: PlannedNode) -> None:
        step = self._parts.plan.flow.node(node.id)
        assert isinstance(step, Step)
        inputs = [(id_, self._entering(node, step, id_, self._frames[id_])) for id_ in node.inputs]
        try:
            if isinstance(step.action, Python):
                outs = self._frame_function(step, step.action, inputs)
            else:
                outs = native.apply(self._spark, step, inputs, stateful=node.stateful)
        except StepError:
            raise
        except Exception as error:
            from scribengin.spark.failures import step_failure

            raise step_failure(node.id, error) from error
        for branch, frame in outs.items():
            self._frames[f"{node.id}.{branch}" if branch else node.id] = frame

    def _entering(self, node: PlannedNode, step: Step, id_: str, frame: Frame) -> Frame:
        """The frame as the step may take it: without rows that failed a `require` where it could not let them pass, and
        through a gate where it keeps state."""
        first_state = node.stateful and not frame.stateful and frame.df.isStreaming
        gate = self._gate(node, step, id_) if first_state and not frame.gated else None
        if gate is not None or (frame.dead and not native.carries_dead(step.action)):
            entry = self._rows_entry(id_, frame)
            frame = self._run_middle(frame.df, entry, [] if gate is None else [gate], id_, at=frame.at, stateful=frame.stateful)
        watermark = self._watermark(id_, self._schema(id_)) if first_state else None
        if watermark is None:
            return frame
        # here and nowhere before: Arrow carries no watermark through a Python stage, and Spark refuses to have one set twice
        delay_s = watermark.delay_s
        if isinstance(step.action, Dedupe) and step.action.within_s is not None:
            delay_s = max(delay_s, step.action.within_s)
        return replace(frame, df=frame.df.withWatermark(watermark.column, f"{delay_s} seconds"))

    def _gate(self, node: PlannedNode, step: Step, id_: str) -> GateNode | None:
        """Counts late rows before a stateful step; None where no watermark stands or its column is gone."""
        schema = self._schema(id_)
        watermark = self._watermark(id_, schema)
        if watermark is None:
            return None
        offsets = self._parts.letters.folder.parent / "checkpoint" / "offsets"
        return GateNode(f"{id_}~{node.id}", node.id, (id_,), schema, watermark.column, *window_us(step.action), offsets)

    def _gate_behind(self, output: str) -> GateNode | None:
        """The gate of the only reader of a Python stage, where that keeps state: it needs no stage of its own."""
        readers = self._readers.get(output, [])
        if len(readers) != 1 or not readers[0].stateful or not isinstance(self._inputs, StreamInputs):
            return None
        step = self._parts.plan.flow.node(readers[0].id)
        assert isinstance(step, Step)
        return None if self._requires(output.partition(".")[0]) else self._gate(readers[0], step, output)

    def _frame_function(self, step: Step, action: Python, inputs: list[tuple[str, Frame]]) -> dict[str, Frame]:
        function = action.function or self._parts.code.load(action.reference)
        frame = inputs[0][1]
        df = function(frame.visible())
        out = Frame(df, run=(*frame.run, step.id), fed_by=frame.fed_by, stateful=frame.stateful)
        return {"": native.required(out, step) if step.require else out}

    # --- Python stages between native steps ---

    def _is_exit(self, node: PlannedNode) -> bool:
        return any(not self._absorbed(node, reader) for branch in self._outputs(node) for reader in self._readers.get(branch, ()))

    def _absorbed(self, node: PlannedNode, reader: PlannedNode) -> bool:
        """True where `reader` runs in the same stage as `node`: both Python, one reader, one way in."""
        alone = sum(len(self._readers.get(branch, ())) for branch in self._outputs(node)) == 1
        return (
            node.stage in ("python", "decode")
            and reader.stage == "python"
            and alone
            and len(reader.inputs) == 1
            and not self._requires(node.id)
        )

    def _requires(self, id_: str) -> bool:
        node = self._parts.plan.flow.node(id_)
        return isinstance(node, Step) and bool(node.require)

    def _outputs(self, node: PlannedNode) -> list[str]:
        return [id_ for id_ in self._readers if id_.partition(".")[0] == node.id]

    def _middle(self, node: PlannedNode) -> None:
        if node.stage == "decode" and all(self._absorbed(node, reader) for reader in self._readers.get(node.id, ())):
            return  # the python step behind it reads it
        chain = self._chain(node)
        head = chain[0]
        if head.stage == "decode":
            for output in self._outputs(node):
                self._frames[output] = self._from_source(head, chain[1:], output)
        else:
            for output in self._outputs(node):
                self._frames[output] = self._union_of([self._from_frame(id_, self._frames[id_], chain, output) for id_ in head.inputs])
        if self._requires(node.id):
            step = self._parts.plan.flow.node(node.id)
            assert isinstance(step, Step)
            for output in self._outputs(node):
                self._frames[output] = native.required(self._frames[output], step)

    def _watermark(self, id_: str, schema: Schema) -> Watermark | None:
        """The watermark that `id_` declares or inherits, where its column is still there."""
        node = self._parts.plan.flow.node(id_)
        if isinstance(node, Sink):
            return None
        if node.watermark is not None:
            return node.watermark if node.watermark.column in schema else None
        if isinstance(node, Source):
            return None
        return next((found for input_ in node.inputs if (found := self._watermark(input_, schema)) is not None), None)

    def _union_of(self, frames: list[Frame]) -> Frame:
        if len(frames) == 1:
            return frames[0]
        fed_by = tuple(dict.fromkeys(id_ for frame in frames for id_ in frame.fed_by))
        return native.union(frames, (), fed_by)

    def _chain(self, node: PlannedNode) -> list[PlannedNode]:
        """The nodes of the stage that ends in `node`, first to last."""
        chain = [node]
        while len(chain[0].inputs) == 1:
            before = self._nodes[chain[0].inputs[0].partition(".")[0]]
            if not self._absorbed(before, chain[0]):
                break
            chain.insert(0, before)
        return chain

    def _from_source(self, source: PlannedNode, steps: list[PlannedNode], output: str) -> Frame:
        frame, entry = self._source_entry(source.id)
        nodes: list[StageNode] = [self._stage_node(step) for step in steps]
        return self._run_middle(frame, entry, nodes, output, at=True)

    def _from_frame(self, id_: str, frame: Frame, chain: list[PlannedNode], output: str) -> Frame:
        entry = self._rows_entry(id_, frame)
        nodes: list[StageNode] = [self._stage_node(step, only=id_ if step is chain[0] else None) for step in chain]
        return self._run_middle(frame.df, entry, nodes, output, at=frame.at, stateful=frame.stateful)

    def _run_middle(
        self, df: DataFrame, entry: StreamsEntry | RowsEntry, nodes: list[StageNode], output: str, *, at: bool, stateful: bool = False
    ) -> Frame:
        schema = self._schema(output)
        gate = next((node for node in nodes if isinstance(node, GateNode)), None)
        if gate is None and not stateful and (gate := self._gate_behind(output)) is not None:
            nodes = [*nodes, gate]
        program = self._program(entry, (*nodes, ExitNode(output + EXIT, (gate.node if gate else output,), schema, at)))
        ddl = f"{schema}, {AT} BIGINT" if at else str(schema)
        out = df.mapInArrow(_middle_function(program, self._reports), ddl)
        return Frame(out, at, fed_by=(output + EXIT,), stateful=stateful, gated=gate is not None)

    # --- tails ---

    def _streams_tail(self, sources: list[str]) -> Tail | None:
        refs = {id_: self._parts.sources[id_] for id_ in sources}
        nodes = tuple(self._stage_node(node) for node in self._reachable(sources))
        if isinstance(self._inputs, StreamInputs):
            return None  # nothing native: nothing for Spark to analyse
        units = tuple((id_, index) for id_ in sources for index in range(len(self._inputs.streams[id_])))
        if not units:
            return None
        entry = StreamsEntry(refs, units, {id_: self._inputs.streams[id_] for id_ in sources}, self._inputs.skip, self._inputs.only)
        return Tail(self._spark.range(0, len(units), 1, len(units)), self._program(entry, nodes))

    def _rows_tail(self, id_: str) -> Tail:
        frame = self._frames[id_]
        nodes = tuple(self._stage_node(node, only=id_) for node in self._reachable([id_]))
        return Tail(frame.df, self._program(self._rows_entry(id_, frame), nodes))

    def _reachable(self, ids: list[str]) -> list[PlannedNode]:
        """The tail nodes behind `ids`, in the plan's order."""
        found: set[str] = set()
        waiting = list(ids)
        while waiting:
            for reader in self._readers.get(waiting.pop(), ()):
                if reader.stage in ("tail", "sink") and reader.id not in found:
                    found.add(reader.id)
                    waiting += self._outputs(reader)
        return [node for node in self._parts.query.nodes if node.id in found]

    # --- pieces ---

    def _source_entry(self, id_: str) -> tuple[DataFrame, StreamsEntry]:
        refs = {id_: self._parts.sources[id_]}
        if isinstance(self._inputs, StreamInputs) and id_ in self._inputs.frames:
            return self._inputs.frames[id_], StreamsEntry(refs)
        if isinstance(self._inputs, StreamInputs):
            streams = self._inputs.static[id_]
            entry = StreamsEntry(refs, _units(id_, streams), {id_: streams})
        else:
            streams = self._inputs.streams[id_]
            entry = StreamsEntry(refs, _units(id_, streams), {id_: streams}, self._inputs.skip, self._inputs.only)
        return self._spark.range(0, len(streams), 1, max(1, len(streams))), entry

    def _rows_entry(self, id_: str, frame: Frame) -> RowsEntry:
        streams = self._inputs.streams if isinstance(self._inputs, BatchInputs) else {}
        sources = {name: ref for name, ref in self._parts.sources.items() if name in streams}
        name = "+".join(frame.run)
        if name:
            self._runs[name] = NativeRun(name, frame.fed_by, frame.stateful)
        return RowsEntry(id_, self._schema(id_), name, frame.at, frame.dead, sources, streams)

    def _program(self, entry: StreamsEntry | RowsEntry, nodes: tuple[StageNode, ...]) -> Program:
        index = next(self._indexes["middle" if any(isinstance(node, ExitNode) for node in nodes) else "tail"])
        batch = self._inputs.batch if isinstance(self._inputs, BatchInputs) else None
        return Program(index, entry, nodes, self._parts.code, self._parts.letters, batch)

    def _stage_node(self, node: PlannedNode, only: str | None = None) -> StageNode:
        """The node as a stage's node; `only` is the one of its inputs that this stage carries where it is entered there."""
        inputs = node.inputs if only is None or only not in node.inputs else tuple(i for i in node.inputs if i == only or self._in_tail(i))
        if node.stage == "sink":
            return SinkNode(node.id, inputs, self._parts.sinks[node.id], self._schema(node.inputs[0]))
        step = self._parts.plan.flow.node(node.id)
        assert isinstance(step, Step)
        schema_in = self._schema(node.inputs[0])
        match step.action:
            case Python() as action:
                form = form_of(action.function or self._parts.code.load(action.reference))
                return PythonNode(
                    node.id,
                    inputs,
                    action.reference,
                    "batch" if form == "batch" else "record",
                    schema_in,
                    self._schema(node.id),
                    action.branches,
                    action.time_limit_s,
                    action.function,
                    step.schema is not None,
                )
            case Parse(column, format_, fields):
                return ParseNode(node.id, inputs, column, format_, fields, schema_in, self._schema(node.id))
            case Merge():
                return UnionNode(node.id, inputs)
        raise StepError(f'step "{node.id}" cannot run in a Python stage: {type(step.action).__name__}')

    def _in_tail(self, id_: str) -> bool:
        return self._nodes[id_.partition(".")[0]].stage in ("tail", "read")

    def _schema(self, id_: str) -> Schema:
        """The columns that `id_` gives: of the frame where there is one, else from declaration and inputs."""
        name = id_.partition(".")[0]
        if id_ in self._frames:
            return native.schema_of(self._frames[id_].df, id_)
        if name in self._schemas:
            return self._schemas[name]
        node = self._parts.plan.flow.node(name)
        schema = self._schema_of_node(node)
        self._schemas[name] = schema
        return schema

    def _schema_of_node(self, node: Any) -> Schema:
        if isinstance(node, Source):
            return self._parts.schemas[node.id]
        assert isinstance(node, Step)
        if node.schema is not None:
            return node.schema.fields
        inherited = self._schema(node.inputs[0])
        if isinstance(node.action, Parse):
            others = tuple(f for f in inherited.fields if f.name != node.action.column)
            return Schema((*others, *node.action.schema.fields))
        return inherited


def _units(source: str, streams: tuple[SourceStream, ...]) -> tuple[tuple[str, int], ...]:
    return tuple((source, index) for index in range(len(streams)))


def _partition() -> tuple[int, int]:
    from pyspark import TaskContext

    context = TaskContext.get()
    assert context is not None
    return context.partitionId(), int(context.getLocalProperty("streaming.sql.batchId") or -1)


def tail_function(program: Program) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """The tail stage for `mapInArrow`: one row per unit, its report."""

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for _, key, report in run_program(program, batches, *_partition()):
            if report is not None:
                line = msgspec.json.encode({"stage": program.index, "key": key, **report})
                yield pa.RecordBatch.from_arrays([pa.array([line], pa.binary())], schema=RECEIPT_SCHEMA)

    return run


def _middle_function(
    program: Program, reports: Accumulator[dict[Any, Any]]
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        partition, number = _partition()
        for rows, key, report in run_program(program, batches, partition, number):
            if rows is not None:
                yield rows
            if report is not None:
                reports.add({(number, program.index, key): report})

    return run
