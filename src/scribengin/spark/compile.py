"""A Query's plan as Spark frames: sources and Python stages become `mapInArrow`, native steps DataFrame operations, tails receipts.

The same walk compiles the batch frames of one Batch (`BatchInputs`), the streaming frames of a stateful Query and the frames
that `plan --deep` analyses (`StreamInputs`).
"""

from __future__ import annotations

from dataclasses import replace
from itertools import count
from typing import TYPE_CHECKING, Any

from scribengin.core.errors import StepError
from scribengin.core.types import Schema
from scribengin.plan.graph import base
from scribengin.spark import native, spark_parse
from scribengin.spark.arrow_functions import middle_function
from scribengin.spark.compiled import BatchInputs, Compiled, NativeRun, StreamInputs, Tail
from scribengin.spark.failures import step_failure
from scribengin.spark.gate import GateNode, window_us
from scribengin.spark.layout import Layout
from scribengin.spark.native import Frame
from scribengin.spark.program import AT, EXIT, ExitNode, ParseNode, Program, PythonNode, RowsEntry, SinkNode, StreamsEntry, UnionNode
from scribengin.spark.sieve import sieve_of
from scribengin.spec.functions import form_of
from scribengin.spec.model import Dedupe, Merge, Parse, Python, Source, Step

if TYPE_CHECKING:
    from pyspark.accumulators import Accumulator
    from pyspark.sql import DataFrame, SparkSession

    from scribengin.connectors.contract import SourceStream
    from scribengin.plan.model import PlannedNode
    from scribengin.spark.compiled import Inputs, QueryParts
    from scribengin.spark.program import StageNode

MIDDLE = 50
"""Stages that end in Arrow are numbered from here, tails from 0: a tail's number leads its units' names."""


class Compiler:
    """Compiles one Query, any number of times."""

    def __init__(self, spark: SparkSession, parts: QueryParts) -> None:
        self._spark = spark
        self._parts = parts
        self._layout = Layout(parts.plan, parts.query)

    def compile(self, inputs: Inputs, reports: Accumulator[dict[Any, Any]]) -> Compiled:
        """Frames over `inputs`; middle stages add to `reports`: (Batch number, stage index, key) → report.

        Raises StepError for what Spark cannot take.
        """
        return _Walk(self._spark, self._parts, self._layout, inputs, reports).compiled()


class _Walk:
    def __init__(
        self, spark: SparkSession, parts: QueryParts, layout: Layout, inputs: Inputs, reports: Accumulator[dict[Any, Any]]
    ) -> None:
        self._spark = spark
        self._parts = parts
        self._layout = layout
        self._inputs = inputs
        self._reports = reports
        self._frames: dict[str, Frame] = {}
        self._schemas: dict[str, Schema] = {}
        self._runs: dict[str, NativeRun] = {}
        self._indexes = {"tail": count(), "middle": count(MIDDLE)}

    def compiled(self) -> Compiled:
        for node in self._parts.query.nodes:
            if node.stage == "native" and node.id in self._parts.sources:
                self._frames[node.id] = self._parsed_by_spark(node.id)
            elif node.stage == "native":
                self._native(node)
            elif node.stage == "decode" or (node.stage == "python" and self._layout.is_exit(node)):
                self._middle(node)
        reads = [node.id for node in self._parts.query.nodes if node.stage == "read"]
        tails = [self._rows_tail(id_) for id_ in list(self._frames) if self._layout.feeds_tail(id_)]
        if reads and (streams := self._streams_tail(reads)) is not None:
            tails.insert(0, streams)
        return Compiled(tuple(tails), tuple(self._runs.values()), self._frames)

    # --- native steps ---

    def _native(self, node: PlannedNode) -> None:
        step = self._layout.step(node.id)
        enters, entered = node, step
        if isinstance(step.action, Merge) and (reader := self._state_behind(node)) is not None:
            # each input's own watermark stands before the union: the slowest rules
            enters, entered = reader, self._layout.step(reader.id)
        inputs = [(id_, self._entering(enters, entered, id_, self._frames[id_])) for id_ in node.inputs]
        try:
            if isinstance(step.action, Python):
                outs = self._frame_function(step, step.action, inputs)
            else:
                outs = native.apply(self._spark, step, inputs, stateful=node.stateful)
        except StepError:
            raise
        except Exception as error:
            raise step_failure(node.id, error) from error
        for branch, frame in outs.items():
            self._frames[f"{node.id}.{branch}" if branch else node.id] = frame

    def _state_behind(self, union: PlannedNode) -> PlannedNode | None:
        """The stateful step that alone reads this union, where every input has a watermark and no state yet."""
        readers = self._layout.readers(union.id)
        frames = [(self._layout.watermark(id_, self._schema(id_)), self._frames[id_]) for id_ in union.inputs]
        fit = all(mark is not None and frame.df.isStreaming and not frame.stateful for mark, frame in frames)
        alone = len(readers) == 1 and readers[0].stateful and not union.stateful and not self._layout.requires(union.id)
        return readers[0] if fit and alone else None

    def _entering(self, node: PlannedNode, step: Step, id_: str, frame: Frame) -> Frame:
        """The frame as the step may take it: without rows that failed a `require` where it could not let them pass, and
        through a gate where it keeps state."""
        first_state = node.stateful and not frame.stateful and frame.df.isStreaming
        gate = self._gate(node, step, id_) if first_state and not frame.gated else None
        if gate is not None or (frame.dead and not native.carries_dead(step.action)):
            entry = self._rows_entry(id_, frame)
            frame = self._run_middle(frame.df, entry, [] if gate is None else [gate], id_, at=frame.at, stateful=frame.stateful)
        watermark = self._layout.watermark(id_, self._schema(id_)) if first_state and not frame.watermarked else None
        if watermark is None:
            return frame
        # here and nowhere before: Arrow carries no watermark through a Python stage, and Spark refuses to have one set twice
        delay_s = watermark.delay_s
        if isinstance(step.action, Dedupe) and step.action.within_s is not None:
            delay_s = max(delay_s, step.action.within_s)
        return replace(frame, df=frame.df.withWatermark(watermark.column, f"{delay_s} seconds"), watermarked=True)

    def _gate(self, node: PlannedNode, step: Step, id_: str) -> GateNode | None:
        """Counts late rows before a stateful step; None where no watermark stands or its column is gone."""
        schema = self._schema(id_)
        watermark = self._layout.watermark(id_, schema)
        if watermark is None:
            return None
        offsets = self._parts.letters.folder.parent / "checkpoint" / "offsets"
        return GateNode(f"{id_}~{node.id}", node.id, (id_,), schema, watermark.column, *window_us(step.action), offsets)

    def _gate_behind(self, output: str) -> GateNode | None:
        """The gate of the only reader of a Python stage, where that keeps state: it needs no stage of its own."""
        readers = self._layout.readers(output)
        if len(readers) != 1 or not readers[0].stateful or not isinstance(self._inputs, StreamInputs):
            return None
        step = self._layout.step(readers[0].id)
        return None if self._layout.requires(base(output)) else self._gate(readers[0], step, output)

    def _sieve_behind(self, output: str, schema: Schema) -> str | None:
        """What the filters behind a Python stage let pass, where nobody else reads it."""
        steps: list[Step] = []
        while (
            len(readers := self._layout.readers(output)) == 1 and readers[0].stage == "native" and not self._layout.requires(base(output))
        ):
            output = readers[0].id
            steps.append(self._layout.step(output))
        return sieve_of(steps, schema)

    def _frame_function(self, step: Step, action: Python, inputs: list[tuple[str, Frame]]) -> dict[str, Frame]:
        function = action.function or self._parts.code.load(action.reference)
        frame = inputs[0][1]
        df = function(frame.visible())
        out = Frame(df, run=(*frame.run, step.id), fed_by=frame.fed_by, stateful=frame.stateful)
        return {"": native.required(out, step) if step.require else out}

    # --- Python stages between native steps ---

    def _middle(self, node: PlannedNode) -> None:
        if node.stage == "decode" and all(self._layout.absorbed(node, reader) for reader in self._layout.readers(node.id)):
            return  # the python step behind it reads it
        chain = self._layout.chain(node)
        head = chain[0]
        if head.stage == "decode":
            for output in self._layout.outputs(node):
                self._frames[output] = self._from_source(head, chain[1:], output)
        else:
            for output in self._layout.outputs(node):
                self._frames[output] = self._union_of([self._from_frame(id_, self._frames[id_], chain, output) for id_ in head.inputs])
        if self._layout.requires(node.id):
            step = self._layout.step(node.id)
            for output in self._layout.outputs(node):
                self._frames[output] = native.required(self._frames[output], step)

    def _union_of(self, frames: list[Frame]) -> Frame:
        if len(frames) == 1:
            return frames[0]
        fed_by = tuple(dict.fromkeys(id_ for frame in frames for id_ in frame.fed_by))
        return native.union(frames, (), fed_by)

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
        sieve = self._sieve_behind(output, schema) if isinstance(entry, StreamsEntry) else None
        program = self._program(entry, (*nodes, ExitNode(output + EXIT, (gate.node if gate else output,), schema, at, sieve)))
        ddl = f"{schema}, {AT} BIGINT" if at else str(schema)
        return Frame(self._mapped(df, program, output, ddl), at, fed_by=(output + EXIT,), stateful=stateful, gated=gate is not None)

    def _mapped(self, df: DataFrame, program: Program, output: str, ddl: str) -> DataFrame:
        out = df.mapInArrow(middle_function(program, self._reports), ddl)
        if isinstance(self._inputs, BatchInputs) and self._inputs.suspects is not None and self._is_streamed(program.entry):
            return self._inputs.suspects.narrowed(output, out)
        return out

    def _parsed_by_spark(self, id_: str) -> Frame:
        """A source with `parse: spark`: its lines as text, read by Spark's own parser."""
        source = self._parts.plan.flow.sources[id_]
        df, entry = self._source_entry(id_)
        place = entry.sources[id_].place
        as_text = replace(place, options={**place.options, "format": "text", "parse": "strict"}, schema=None)
        entry = replace(entry, sources={id_: replace(entry.sources[id_], place=as_text)})
        program = self._program(entry, (ExitNode(id_ + EXIT, (id_,), spark_parse.TEXT, at=True),))
        lines = Frame(self._mapped(df, program, id_, f"{spark_parse.TEXT}, {AT} BIGINT"), at=True, run=(id_,), fed_by=(id_ + EXIT,))
        return spark_parse.parsed(lines, source, self._parts.schemas[id_])

    def _is_streamed(self, entry: StreamsEntry | RowsEntry) -> bool:
        return isinstance(entry, StreamsEntry) and not entry.sources.keys().isdisjoint(self._parts.query.sources)

    # --- tails ---

    def _streams_tail(self, sources: list[str]) -> Tail | None:
        refs = {id_: self._parts.sources[id_] for id_ in sources}
        nodes = tuple(self._stage_node(node) for node in self._layout.tail_behind(sources))
        if isinstance(self._inputs, StreamInputs):
            return None  # nothing native: nothing for Spark to analyse
        units = tuple((id_, index) for id_ in sources for index in range(len(self._inputs.streams[id_])))
        if not units:
            return None
        entry = StreamsEntry(refs, units, {id_: self._inputs.streams[id_] for id_ in sources}, self._inputs.skip)
        return Tail(self._spark.range(0, len(units), 1, len(units)), self._program(entry, nodes))

    def _rows_tail(self, id_: str) -> Tail:
        frame = self._frames[id_]
        nodes = tuple(self._stage_node(node, only=id_) for node in self._layout.tail_behind([id_]))
        return Tail(frame.df, self._program(self._rows_entry(id_, frame), nodes))

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
            entry = StreamsEntry(refs, _units(id_, streams), {id_: streams}, self._inputs.skip)
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
        inputs = node.inputs
        if only in inputs:
            inputs = tuple(input_ for input_ in inputs if input_ == only or self._layout.in_tail(input_))
        if node.stage == "sink":
            return SinkNode(node.id, inputs, self._parts.sinks[node.id], self._union_schema(node))
        step = self._layout.step(node.id)
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
                )
            case Parse(column, format_, fields, delimiter, null):
                options = {"delimiter": delimiter, "null": null}
                return ParseNode(node.id, inputs, column, format_, fields, schema_in, self._schema(node.id), options)
            case Merge():
                return UnionNode(node.id, inputs)
        raise StepError(f'step "{node.id}" cannot run in a Python stage: {type(step.action).__name__}')

    def _schema(self, id_: str) -> Schema:
        """The columns that `id_` gives: of the frame where there is one, else from declaration and inputs."""
        name = base(id_)
        if id_ in self._frames:
            return native.schema_of(self._frames[id_].df, id_)
        if name in self._schemas:
            return self._schemas[name]
        node = self._parts.plan.flow.node(name)
        schema = self._schema_of_node(node)
        self._schemas[name] = schema
        return schema

    def _union_schema(self, node: PlannedNode | Step) -> Schema:
        """What the node's inputs have in common: names and types agree, or StepError; a column is NOT NULL where all say so."""
        first, *others = [self._schema(input_) for input_ in node.inputs]
        for input_, other in zip(node.inputs[1:], others, strict=True):
            if {f.name: f.type for f in first.fields} != {f.name: f.type for f in other.fields}:
                raise StepError(
                    f'"{node.id}" reads "{node.inputs[0]}" ({first}) and "{input_}" ({other}), whose columns differ',
                    remedy="bring them to the same names and types with a select",
                    code="union-columns",
                    node=node.id,
                )
        return Schema(tuple(replace(f, nullable=f.nullable or any(o[f.name].nullable for o in others)) for f in first.fields))

    def _schema_of_node(self, node: Any) -> Schema:
        if isinstance(node, Source):
            return self._parts.schemas[node.id]
        assert isinstance(node, Step)
        if node.schema is not None:
            return node.schema.fields
        if isinstance(node.action, Merge):
            return self._union_schema(node)
        inherited = self._schema(node.inputs[0])
        if isinstance(node.action, Parse):
            others = tuple(f for f in inherited.fields if f.name != node.action.column)
            return Schema((*others, *node.action.schema.fields))
        return inherited


def _units(source: str, streams: tuple[SourceStream, ...]) -> tuple[tuple[str, int], ...]:
    return tuple((source, index) for index in range(len(streams)))
