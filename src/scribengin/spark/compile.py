"""Compiles a query's plan to Spark frames: sources and Python stages become `mapInArrow`, Spark SQL steps become DataFrame operations, and
task pipelines return their write receipts.

The same code compiles the batch frames of one Batch (`BatchInputs`), the streaming frames of a stateful query and the frames that `plan
--deep` analyses (`StreamInputs`).
"""

from __future__ import annotations

from dataclasses import replace
from functools import reduce
from itertools import count, groupby
from operator import itemgetter
from typing import TYPE_CHECKING, Any

from scribengin.core.errors import StepError
from scribengin.core.types import in_backticks
from scribengin.plan.graph import base
from scribengin.spark import native, spark_parse
from scribengin.spark.compiled_query import BatchInputs, Compiled, Middle, NativeRun, StreamInputs, Tail
from scribengin.spark.counting import ways_behind
from scribengin.spark.failures import step_failure
from scribengin.spark.late_rows import GateNode, late_rule
from scribengin.spark.native import Lane, NativeFrame
from scribengin.spark.node_schema import NodeLayout, declared_schema, step_node, vector_node
from scribengin.spark.predicate_pushdown import sieve_of
from scribengin.spark.program import (
    AT,
    BRANCH,
    EXIT,
    LANE,
    MADE_OF,
    ExitNode,
    PersonsNode,
    Program,
    RowsEntry,
    SinkNode,
    StreamsEntry,
)
from scribengin.spark.row_origin import LoggedStreams
from scribengin.spark.stage import middle_function
from scribengin.spark.without_pandas import map_in_arrow
from scribengin.spec.model import Dedupe, Filter, Merge, Python, Route, Select, Source, Step

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pyspark.sql import DataFrame, SparkSession

    from scribengin.connectors.contract import SourceStream
    from scribengin.core.types import Schema
    from scribengin.plan.model import PlannedNode
    from scribengin.plan.resolve import Inherited
    from scribengin.spark.compiled_query import Inputs, QueryParts
    from scribengin.spark.program import StageNode
    from scribengin.spark.task_report import Reports

MIDDLE = 50
"""Stages that end in Arrow are numbered from here, task pipelines from 0, since the names of task outputs begin with the number."""


class Compiler:
    """Compiles one query, any number of times."""

    def __init__(self, spark: SparkSession, parts: QueryParts) -> None:
        self._spark = spark
        self._parts = parts
        self._layout = NodeLayout(parts.plan, parts.query)
        in_tail = replace(parts.query, nodes=parts.query.in_tail)
        self._in_tail = (replace(parts, query=in_tail), NodeLayout(parts.plan, in_tail))
        self._learned: dict[str, Schema] = {}  # the columns that Spark gives the SQL steps that run in the task pipeline
        self.sink_schemas: Mapping[str, Schema] = {}
        """sink → the columns it receives, as of the last compilation"""

    def compile(self, inputs: Inputs, reports: Reports) -> Compiled:
        """Compile frames over `inputs`.

        Args:
            inputs: The inputs of one Batch, or streaming frames.
            reports: Receives the reports of middle stages: (Batch number, stage index, key) → report.

        Raises:
            StepError: Spark cannot analyse a step.
        """
        walk = _Walk(self._spark, self._parts, self._layout, inputs, reports)
        if isinstance(inputs, BatchInputs) and inputs.may_run_in_tail and self._parts.query.in_tail:
            if not self._learned:
                self._learned = {id_: native.schema_of(frame.df, id_) for id_, frame in walk.compiled().frames.items()}
            walk = _Walk(self._spark, *self._in_tail, inputs, reports, self._learned)
        compiled = walk.compiled()
        self.sink_schemas = {sink: walk.sink_schema(sink) for sink in self._parts.sinks}
        return compiled


class _Walk:
    def __init__(
        self,
        spark: SparkSession,
        parts: QueryParts,
        layout: NodeLayout,
        inputs: Inputs,
        reports: Reports,
        schemas: Mapping[str, Schema] | None = None,
    ) -> None:
        self._spark = spark
        self._parts = parts
        self._layout = layout
        self._inputs = inputs
        self._reports = reports
        self._frames: dict[str, NativeFrame] = {}
        self._lanes: dict[str, list[Lane]] = {}
        self._taken: list[tuple[DataFrame, tuple[str, ...]]] = []
        self._schemas: dict[str, Schema] = dict(schemas or {})
        self._runs: dict[str, NativeRun] = {}
        self._gated: dict[str, None] = {}
        self._python_before_native = False
        self._middles: list[Middle] = []
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
        return Compiled(
            tuple(tails), tuple(self._runs.values()), self._frames, tuple(self._gated), self._python_before_native, tuple(self._middles)
        )

    # --- Spark SQL steps ---

    def _native(self, node: PlannedNode) -> None:
        step = self._layout.step(node.id)
        try:
            if lanes := self._lanes_through(node, step):
                outs = self._on_lanes(node, step, lanes)
            else:
                inputs = [(id_, self._entered(node, step, id_)) for id_ in node.inputs]
                if isinstance(step.action, Python):
                    outs = self._frame_function(step, step.action, inputs)
                else:
                    looks_up = self._layout.looks_up(step)
                    outs = native.apply(self._spark, step, inputs, stateful=node.stateful, looks_up=looks_up)
        except StepError as error:
            error.node = error.node or node.id
            raise
        except Exception as error:
            raise step_failure(node.id, error) from error
        for branch, frame in outs.items():
            id_ = f"{node.id}.{branch}" if branch else node.id
            self._frames[id_] = frame if id_ in self._lanes else self._shareable(id_, frame)

    def _shareable(self, id_: str, frame: NativeFrame) -> NativeFrame:
        """The frame in a form that its readers can share: if there are several, the rows that failed a `require` are removed once for all
        of them."""
        if not frame.dead or self._layout.reading_stages(id_) < 2:
            return frame
        return self._without_dead_rows(id_, frame)

    # --- unions before a step with state ---

    def _lanes_through(self, node: PlannedNode, step: Step) -> list[tuple[str, Lane]]:
        """(input, lane) for a union, or a step after one, that passes rows one by one to a stateful step; empty if no stateful step
        follows, or if an input has no watermark of its own."""
        if not isinstance(self._inputs, StreamInputs) or node.stateful or step.watermark is not None:
            return []
        if isinstance(step.action, Merge):
            lanes = [(id_, lane) for id_ in node.inputs for lane in self._lanes.get(id_, [Lane(id_, self._frames[id_])])]
            return lanes if all(self._may_rule(id_, lane) for id_, lane in lanes) else []
        if isinstance(step.action, Filter | Select | Route):
            return [(node.inputs[0], lane) for lane in self._lanes.get(node.inputs[0], [])]
        return []

    def _may_rule(self, id_: str, lane: Lane) -> bool:
        frame = lane.frame
        return frame.df.isStreaming and (frame.stateful or self._layout.watermark(id_, self._schema(id_), lane.origin) is not None)

    def _on_lanes(self, node: PlannedNode, step: Step, lanes: list[tuple[str, Lane]]) -> dict[str, NativeFrame]:
        outs: dict[str, list[NativeFrame]] = {}
        for id_, lane in lanes:
            frame = self._entering(node, step, id_, lane.frame, lane.origin)
            for branch, out in native.apply(self._spark, step, [(id_, frame)], stateful=False).items():
                self._lanes.setdefault(f"{node.id}.{branch}" if branch else node.id, []).append(Lane(lane.origin, out))
                outs.setdefault(branch, []).append(out)
        return {branch: native.side_by_side(frames) for branch, frames in outs.items()}

    def _entered(self, node: PlannedNode, step: Step, id_: str) -> NativeFrame:
        if not node.stateful or id_ not in self._lanes:
            return self._entering(node, step, id_, self._frames[id_])
        return native.side_by_side([self._entering(node, step, id_, lane.frame, lane.origin) for lane in self._lanes[id_]])

    def _entering(self, node: PlannedNode, step: Step, id_: str, frame: NativeFrame, origin: str | None = None) -> NativeFrame:
        """The frame as input of the step. Rows that failed a `require` are removed if the step cannot carry them; before the first stateful
        step a late-row counter is added. `origin`: see Lane."""
        first_state = node.stateful and not frame.stateful and frame.df.isStreaming
        watermark = self._layout.watermark(id_, self._schema(id_), origin) if first_state else None
        gate = None if watermark is None or frame.gated else self._gate(node, step, id_, watermark)
        if gate is not None or (frame.dead and not native.carries_dead(step.action)):
            frame = self._without_dead_rows(id_, frame, gate, origin)
        if watermark is None or frame.watermarked:
            return frame
        # only here: Arrow drops the watermark in a Python stage, and Spark does not allow setting one twice
        delay_s = watermark.delay_s
        if isinstance(step.action, Dedupe) and step.action.within_s is not None:
            delay_s = max(delay_s, step.action.within_s)
        return replace(frame, df=frame.df.withWatermark(in_backticks(watermark.column), f"{delay_s} seconds"), watermarked=True)

    def _gate(self, node: PlannedNode, step: Step, id_: str, mark: Inherited) -> GateNode:
        """The late-row counter before a stateful step; it checks the times of the step's rows."""
        offsets = self._parts.letters.folder.parent / "checkpoint" / "offsets"
        self._gated[mark.origin] = None
        lag_us, holds_us, late = self._layout.lag_us(node.id), self._layout.holds_us(node.id), self._parts.plan.flow.late(step)
        rule = late_rule(step, mark.column)
        rule = replace(rule, known=rule.known and self._layout.has_known_lag(node.id))
        return GateNode(f"{id_}~{node.id}", node.id, (id_,), self._schema(id_), mark, rule, late, lag_us, holds_us, offsets)

    def _gate_behind(self, output: str) -> GateNode | None:
        """The late-row counter of a Python stage's only reader, if that reader is stateful: the counter then needs no stage of its own."""
        readers = self._layout.readers(output)
        if len(readers) != 1 or not readers[0].stateful or not isinstance(self._inputs, StreamInputs):
            return None
        step = self._layout.step(readers[0].id)
        watermark = self._layout.watermark(output, self._schema(output))
        return None if watermark is None or self._layout.requires(base(output)) else self._gate(readers[0], step, output, watermark)

    def _frame_function(self, step: Step, action: Python, inputs: list[tuple[str, NativeFrame]]) -> dict[str, NativeFrame]:
        function = action.function or self._parts.code.load(action.reference)
        self._python_before_native = True
        frame = inputs[0][1]
        df = function(frame.visible())
        out = NativeFrame(df, run=(*frame.run, step.id), fed_by=frame.fed_by, stateful=frame.stateful)
        return {"": native.required(out, step) if step.require else out}

    # --- Python stages between Spark SQL steps ---

    def _middle(self, node: PlannedNode) -> None:
        if node.stage == "decode" and all(self._layout.absorbed(node, reader) for reader in self._layout.readers(node.id)):
            return  # the Python step after it reads the source
        chain = self._layout.chain(node)
        head = chain[0]
        outputs = self._layout.outputs(node)
        if head.stage == "decode":
            df, entry = self._source_entry(head.id)
            self._frames |= self._run_middle(df, entry, [self._stage_node(step) for step in chain[1:]], outputs)
        else:
            self._frames |= self._from_frames(head.inputs, chain, outputs)
        for output in outputs if self._layout.requires(node.id) else ():
            step = self._layout.step(node.id)
            if output in self._lanes:
                self._lanes[output] = [replace(lane, frame=native.required(lane.frame, step)) for lane in self._lanes[output]]
            self._frames[output] = self._shareable(output, native.required(self._frames[output], step))

    def _from_frames(self, ids: tuple[str, ...], chain: list[PlannedNode], outputs: list[str]) -> dict[str, NativeFrame]:
        apart = all(id_ in self._lanes for id_ in ids) and not any(self._layout.step(node.id).watermark for node in chain)
        ways = [(id_, lane) for id_ in ids for lane in (self._lanes[id_] if apart else [Lane(id_, self._frames[id_])])]
        outs = [(lane.origin, self._from_frame(id_, lane.frame, chain, outputs, lane.origin if apart else None)) for id_, lane in ways]
        for output in outputs if apart else ():
            self._lanes[output] = [Lane(origin, frames[output]) for origin, frames in outs]
        return {output: native.side_by_side([frames[output] for _, frames in outs]) for output in outputs}

    def _from_frame(
        self, id_: str, frame: NativeFrame, chain: list[PlannedNode], outputs: list[str], origin: str | None
    ) -> dict[str, NativeFrame]:
        df, entry = self._rows_entry(id_, frame)
        nodes: list[StageNode] = [self._stage_node(step, only=id_ if step is chain[0] else None) for step in chain]
        return self._run_middle(df, entry, nodes, outputs, frame, origin)

    def _without_dead_rows(self, id_: str, frame: NativeFrame, gate: GateNode | None = None, origin: str | None = None) -> NativeFrame:
        """The frame's rows after a stage that removes the dead letters and runs the late-row counter, if given."""
        df, entry = self._rows_entry(id_, frame)
        return self._run_middle(df, entry, [] if gate is None else [gate], [id_], frame, origin)[id_]

    def _run_middle(
        self,
        df: DataFrame,
        entry: StreamsEntry | RowsEntry,
        nodes: Sequence[StageNode],
        outputs: list[str],
        before: NativeFrame | None = None,
        origin: str | None = None,
    ) -> dict[str, NativeFrame]:
        """Compile one Python stage between Spark SQL steps.

        Args:
            df: The input of the stage.
            entry: What the input is: streams of sources, or rows.
            nodes: The nodes of the stage.
            outputs: The ids that leave the stage: a node, or branches of it.
            before: The frame that enters it; None if streams of sources do.
            origin: See Lane.

        Returns:
            Output → its frame.
        """
        at, stateful = (True, False) if before is None else (before.at, before.stateful)
        nodes, exits, gated = list(nodes), list[ExitNode](), set[str]()
        self._python_before_native |= any(isinstance(node, PersonsNode) for node in nodes)
        behind = ways_behind(before, entry, nodes)
        for output in outputs:
            schema = self._schema(output)
            gate = next((node for node in nodes if isinstance(node, GateNode) and node.inputs == (output,)), None)
            if gate is None and not stateful and (gate := self._gate_behind(output)) is not None:
                nodes.append(gate)
            name = output
            if isinstance(entry, RowsEntry) and entry.node == output:  # these rows only pass: `output` has an exit already
                name = gate.node if gate else f"{output}~"
            # the lanes of a union are separate if one of them is stateful: each counts its output
            name += f"{LANE}{origin}" if origin else ""
            gated |= {output} if gate else set()
            sieve = sieve_of(self._layout.native_steps_behind(output), schema) if isinstance(entry, StreamsEntry) else None
            branch = output if len(outputs) > 1 else None
            exits.append(ExitNode(name + EXIT, (gate.node if gate else output,), schema, at, sieve, branch))
        hidden = f", {AT} BIGINT" * at + f", {BRANCH} STRING" * (len(outputs) > 1)
        program = self._program(entry, (*nodes, *exits))
        df = self._mapped(df, program, outputs[0], f"{schema.ddl()}{hidden}")
        self._note_middle(df, program, [source for source, _ in behind])
        frame = NativeFrame(df, at, behind=behind, stateful=stateful, copied=before is not None and before.copied)
        dfs = [df if len(outputs) == 1 else df.where(f"{BRANCH} = '{output}'").drop(BRANCH) for output in outputs]
        return {
            output: replace(frame, df=df, fed_by=(exit_.node,), gated=output in gated)
            for output, df, exit_ in zip(outputs, dfs, exits, strict=True)
        }

    def _mapped(self, df: DataFrame, program: Program, output: str, ddl: str) -> DataFrame:
        if isinstance(program.entry, RowsEntry):
            df = native.numbered(df)
        out = map_in_arrow(df, middle_function(program, self._reports), ddl)
        if isinstance(self._inputs, BatchInputs) and self._inputs.suspects is not None and self._is_streamed(program.entry):
            return self._inputs.suspects.narrowed(output, out)
        return out

    def _note_middle(self, df: DataFrame, program: Program, sources: Sequence[str]) -> None:
        if any(source in self._parts.query.sources for source in sources):
            self._middles.append(Middle(df, program))

    def _parsed_by_spark(self, id_: str) -> NativeFrame:
        """A source with `parse: spark`: its lines as text, parsed by Spark."""
        source = self._parts.plan.flow.sources[id_]
        df, entry = self._source_entry(id_)
        place = entry.sources[id_].place
        as_text = replace(place, options={**place.options, "format": "text", "parse": "strict"}, schema=None)
        entry = replace(entry, sources={id_: replace(entry.sources[id_], place=as_text)})
        program = self._program(entry, (ExitNode(id_ + EXIT, (id_,), spark_parse.TEXT, at=True),))
        out = self._mapped(df, program, id_, f"{spark_parse.TEXT.ddl()}, {AT} BIGINT")
        self._note_middle(out, program, [id_])
        lines = NativeFrame(out, at=True, run=(id_,), fed_by=(id_ + EXIT,), behind=((id_, ()),))
        return self._shareable(id_, spark_parse.parsed(lines, source, self._parts.schemas[id_]))

    def _is_streamed(self, entry: StreamsEntry | RowsEntry) -> bool:
        return isinstance(entry, StreamsEntry) and not entry.sources.keys().isdisjoint(self._parts.query.sources)

    # --- tails ---

    def _streams_tail(self, sources: list[str]) -> Tail | None:
        refs = {id_: self._parts.sources[id_] for id_ in sources}
        nodes = self._tail_nodes(sources)
        if isinstance(self._inputs, StreamInputs):
            return None  # nothing native: nothing for Spark to analyse
        units = tuple((id_, index) for id_ in sources for index in range(len(self._inputs.streams[id_])))
        if not units:
            return None
        part = self._part(units)
        entry = StreamsEntry(refs, units, {id_: self._inputs.streams[id_] for id_ in sources}, self._inputs.skip, part)
        return Tail(self._unit_numbers(len(units), part), self._program(entry, nodes))

    def _rows_tail(self, id_: str) -> Tail:
        frame = self._frames[id_]
        if frame.copied:  # a sink derives the ids of rows from AT
            frame = replace(frame, df=frame.df.drop(AT), at=False, copied=False)
        df, entry = self._rows_entry(id_, frame)
        return Tail(df, self._program(entry, self._tail_nodes([id_], only=id_)))

    def _tail_nodes(self, ids: list[str], only: str | None = None) -> tuple[StageNode, ...]:
        return tuple(filter(None, (self._stage_node(node, only) for node in self._layout.tail_behind(ids))))

    # --- pieces ---

    def _source_entry(self, id_: str) -> tuple[DataFrame, StreamsEntry]:
        refs = {id_: self._parts.sources[id_]}
        if isinstance(self._inputs, StreamInputs) and id_ in self._inputs.frames:
            return self._inputs.frames[id_], StreamsEntry(refs)
        given = self._inputs
        streams, skip = (given.static[id_], {}) if isinstance(given, StreamInputs) else (given.streams[id_], given.skip)
        units = tuple((id_, index) for index in range(len(streams)))
        part = self._part(units) if id_ in self._parts.query.sources else None  # each part of a Batch reads tables as a whole
        return self._unit_numbers(len(units), part), StreamsEntry(refs, units, {id_: streams}, skip, part)

    def _part(self, units: Sequence[tuple[str, int]]) -> tuple[tuple[int, int], ...] | None:
        """See `StreamsEntry.part`."""
        if not isinstance(self._inputs, BatchInputs) or self._inputs.part is None:
            return None
        found, begun = list[tuple[int, int]](), 0
        for source, own in groupby(units, key=itemgetter(0)):
            start, end = self._inputs.part.ranges.get(source, (0, 0))
            if start < end:
                found.append((begun + start, begun + end))
            begun += sum(1 for _ in own)
        return tuple(found)

    def _unit_numbers(self, count: int, part: tuple[tuple[int, int], ...] | None) -> DataFrame:
        """One row for each task output of this process, its number, each row in a partition of its own."""
        frames = [self._spark.range(start, end, 1, end - start) for start, end in part or () if start < end]
        if part is None or not frames:
            count = count if part is None else 0
            return self._spark.range(0, count, 1, max(1, count))
        return reduce(lambda a, b: a.unionAll(b), frames)

    def _rows_entry(self, id_: str, frame: NativeFrame) -> tuple[DataFrame, RowsEntry]:
        """(the frame's rows as input of the stage after it, the stage's entry)."""
        streams: Mapping[str, tuple[SourceStream, ...]]
        if isinstance(self._inputs, BatchInputs):
            streams = self._inputs.streams
        else:
            streams = LoggedStreams(self._parts.query.sources, self._parts.letters.folder.parent, self._inputs.static)
        sources = {name: ref for name, ref in self._parts.sources.items() if name in streams}
        # if several stages read the same rows of a Spark SQL stage, only one counts them; a union of one lane has the frame of its input
        first = not any(df is frame.df and run == frame.run for df, run in self._taken)
        self._taken.append((frame.df, frame.run))
        name = "+".join(frame.run or [base(id_)] * frame.dead) if first else ""
        if name:
            run = self._runs.get(name, NativeRun(name, (), (), frame.stateful))
            fed_by, behind = dict.fromkeys((*run.fed_by, *frame.fed_by)), dict.fromkeys((*run.behind, *frame.behind))
            self._runs[name] = NativeRun(name, tuple(fed_by), tuple(behind), run.stateful)
        # if no step drops rows, the counts at the stage's ends give what it made, and Spark does not carry the unread column
        made_of = frame.made_of and name != "" and self._layout.may_drop(frame.run)
        df = frame.df.drop(MADE_OF) if frame.made_of and not made_of else frame.df
        part = self._inputs.part if isinstance(self._inputs, BatchInputs) else None
        numbers = (0, None) if part is None else (part.first, part.end)
        return df, RowsEntry(id_, self._schema(id_), name, frame.at, frame.dead, made_of, sources, streams, *numbers)

    def _program(self, entry: StreamsEntry | RowsEntry, nodes: tuple[StageNode, ...]) -> Program:
        index = next(self._indexes["middle" if any(isinstance(node, ExitNode) for node in nodes) else "tail"])
        batch = self._inputs.batch if isinstance(self._inputs, BatchInputs) else None
        return Program(index, entry, nodes, self._parts.code, self._parts.letters, batch)

    def _stage_node(self, node: PlannedNode, only: str | None = None) -> Any:
        """The node as part of a stage; None if the next node includes it. `only`: the input by which the stage is entered, if there is
        one."""
        inputs = node.inputs
        if only in inputs:
            inputs = tuple(input_ for input_ in inputs if input_ == only or self._layout.in_tail(input_))
        if node.stage == "sink":
            return SinkNode(node.id, inputs, self._parts.sinks[node.id], self.sink_schema(node.id))
        if node.stage == "vector":
            return vector_node(list(map(self._layout.step, self._layout.vector_run(node))), self._schema)
        return step_node(self._layout.step(node.id), inputs, self._parts.code, self._schema, self._inputs.orders)

    def sink_schema(self, id_: str) -> Schema:
        """The common columns of all inputs of a sink."""
        inputs = self._parts.query.node(id_).inputs
        return native.union_schema(id_, [(input_, self._schema(input_)) for input_ in inputs])

    def _schema(self, id_: str) -> Schema:
        """The columns of `id_`: from its frame if there is one, else from its declaration and inputs."""
        name = base(id_)
        if id_ in self._frames:
            return native.schema_of(self._frames[id_].df, id_)
        if name in self._schemas:
            return self._schemas[name]
        node = self._parts.plan.flow.node(name)
        schema = self._parts.schemas[name] if isinstance(node, Source) else declared_schema(node, self._schema)
        self._schemas[name] = schema
        return schema
