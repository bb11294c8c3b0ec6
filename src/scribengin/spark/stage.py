"""Runs a Program on an executor: one pass from blocks or Arrow rows to staged segments or Arrow rows.

The only per-record Python in it is the user's own; everything else is per chunk.
"""

from __future__ import annotations

from collections import defaultdict
from contextlib import ExitStack
from functools import partial
from time import perf_counter
from typing import TYPE_CHECKING, Any, Literal
from uuid import uuid4

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from scribengin.connectors.abilities import commits_units, runs_code, stages
from scribengin.connectors.catalog import open_source
from scribengin.core import faults
from scribengin.core.types import arrow_schema
from scribengin.formats.contract import DecodedRows, Structs, is_traced
from scribengin.formats.noticing import notices_of, nulls_of
from scribengin.plan.graph import flat_name
from scribengin.spark.carried_dead import split_dead
from scribengin.spark.chunk import BlockOrigin, Chunk, Origin, UnknownOrigin, chunks_of
from scribengin.spark.counting import newest_of
from scribengin.spark.exits import ArrowExit, SinkExit
from scribengin.spark.gate import GateNode, LateRowCounter
from scribengin.spark.hangs import Watchpoint
from scribengin.spark.letters import DeadLetterWriter
from scribengin.spark.looking import looking_form
from scribengin.spark.origin import ReplayOrigin
from scribengin.spark.parse_step import ParseStep
from scribengin.spark.program import (
    AT,
    DIED_IN,
    LATE,
    MADE_IN,
    MADE_OF,
    ExitNode,
    ParseNode,
    Program,
    PythonNode,
    RowsEntry,
    SinkNode,
    StreamsEntry,
    UnionNode,
    UtilitiesNode,
    VectorNode,
    feeds_a_step,
    last_step,
)
from scribengin.spark.python_step import BatchStep, RecordStep, instantiate
from scribengin.spark.reading import StageReading
from scribengin.spark.replayed import ReplayNode
from scribengin.spark.task_report import TaskReport, UnfilledColumns
from scribengin.spark.trails import Trails
from scribengin.spark.utilities import utilities_step
from scribengin.spark.vector_run import VectorRun
from scribengin.state.contract import Counts
from scribengin.state.taken import NOT_WHOLE, taken_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from scribengin.connectors.contract import BatchId, OriginStream, SinkStream, SourceConnector, SourceStream
    from scribengin.formats.contract import Block, Decoder, Handed
    from scribengin.formats.noticing import Noticer
    from scribengin.spark.free_utilities import Free
    from scribengin.spark.reading import Decode
    from scribengin.spark.utilities import InARow

    Form = Literal["structs", "rows", "columns"]

RECEIPT_SCHEMA = pa.schema([pa.field("receipt", pa.binary())])


class Stage:
    """One task's run of a Program. `run` is what `mapInArrow` calls; `report` is what the task tells the driver."""

    def __init__(self, program: Program, batch: BatchId, unit: int) -> None:
        self._program = program
        self._batch = batch
        self._unit = unit
        self._attempt = uuid4().hex
        self.counts: dict[str, Counts] = {}
        self._taken: dict[str, list[Handed]] = {}
        """source → what its blocks were handed over by"""
        self._seconds: dict[str, float] = defaultdict(float)
        """node → time that it took by itself; native steps as the run in front of the stage"""
        self._letters = DeadLetterWriter(
            program.letters, batch.number, self._attempt, lambda: not any(each.made for each in self.counts.values())
        )
        self._noticers: dict[str, Noticer] = {}
        self._trails = Trails(program.letters, batch.number, self._attempt)
        self._readers: dict[str, list[Callable[[Chunk], None]]] = {}
        self._plan: str | None = None
        """the one that the unit runs, where it commits by itself"""
        self._sinks: list[SinkExit] = []
        self._exits: list[SinkExit | ArrowExit] = []
        self._gates: list[tuple[str, LateRowCounter]] = []
        self._utilities_steps: list[tuple[UtilitiesNode, InARow | Free]] = []
        self._out: list[pa.RecordBatch] = []
        self._wanted: dict[str, set[Form]] = {}
        self._entrances: dict[str, ReplayNode] = {}
        for node in program.nodes:
            reader, form = self._build(node)
            self._entrances |= ReplayNode.of(node, reader)
            for input_ in node.inputs:
                named = isinstance(node, UnionNode) or (isinstance(node, SinkNode) and len(node.inputs) > 1)
                taker = partial(reader, way=input_) if named else reader
                self._readers.setdefault(input_, []).append(taker)
                self._wanted.setdefault(input_, set()).add(form)

    def _build(self, node: Any) -> tuple[Callable[..., None], Form]:
        """The consumer of the node's rows, and the form that it prefers."""
        match node:
            case PythonNode():
                return self._python(node)
            case UtilitiesNode():
                return self._utilities(node)
            case ParseNode():
                return self._parse(node), "rows"
            case VectorNode():
                return self._vector(node), "columns" if node.sieve is None else "structs"
            case UnionNode():
                counts = self._counted(node.node)

                def pass_on(chunk: Chunk, way: str) -> None:
                    counts.rows_in += len(chunk)
                    counts.out += len(chunk)
                    self._feed(node.node, chunk if node.origin is None else chunk.with_column(node.origin, flat_name(way)))

                return pass_on, "columns"
            case GateNode():
                gate = LateRowCounter(node, self._batch.number, self._counted(LATE + node.step), self._letters)
                self._gates.append((node.mark.origin, gate))
                return lambda chunk: self._feed(node.node, gate(chunk)), "columns"
            case SinkNode():
                stream = self._sink_stream(node)
                unit = f"{self._batch.lineage}/{self._batch.number}/{self._unit}"
                before = last_step(self._program.nodes, node.inputs)
                counts = self._counted(node.node)
                sink = SinkExit(node, stream, self._batch.number, unit, counts, self.counts, self._letters, before, self._trails)
                self._sinks.append(sink)
                self._exits.append(sink)
                return self._timed(node.node, sink), "columns"
            case ExitNode():
                before = last_step(self._program.nodes, node.inputs)
                out = ArrowExit(node, self._out, self._counted(node.node), self.counts, self._letters, before)
                self._exits.append(out)
                return out, "columns" if node.sieve is None else "structs"
        raise TypeError(f"not a stage node: {node!r}")

    def _sink_stream(self, node: SinkNode) -> SinkStream | OriginStream:
        if node.commit is None:
            if runs_code(node.sink):
                node.sink.load = self._program.code.load
            assert stages(node.sink), "this sink is a placeholder until the member of its Batch is chosen"
            return node.sink.stream(self._batch, self._unit, self._attempt, node.schema)
        assert commits_units(node.sink)
        commit = node.commit
        self._plan = commit.plan
        return node.sink.unit_stream(
            self._batch, self._unit, self._attempt, node.schema, input_hash=commit.input_hash, behind=commit.behind
        )

    def _python(self, node: PythonNode) -> tuple[Callable[[Chunk], None], Form]:
        target = self._program.code.load(node.reference)
        function = instantiate(target, node.node)
        counts = self._counted(node.node)
        hangs = self._watchpoint(node.node, node.limit_s)
        step: RecordStep | BatchStep
        form: Form = "columns"
        if node.form == "record":
            looking = looking_form(function, node.schema_in)
            form = "rows" if looking is None else "structs"
            step = RecordStep(
                node,
                function,
                looking,
                counts=counts,
                letters=self._letters,
                hangs=hangs,
                settle=feeds_a_step(self._program.nodes, node.node),
            )
        else:
            step = BatchStep(
                node.node,
                function,
                schema_in=node.schema_in,
                schema_out=node.schema_out,
                counts=counts,
                letters=self._letters,
                hangs=hangs,
            )

        return self._stepping(node.node, step), form

    def _utilities(self, node: UtilitiesNode) -> tuple[Callable[[Chunk], None], Form]:
        counts = [self._counted(id_) for id_ in node.ids]
        hangs = [self._watchpoint(id_, node.limit_s) for id_ in node.ids]
        step = utilities_step(node, self._program.code, counts, self._letters, hangs, settle=feeds_a_step(self._program.nodes, node.node))
        self._utilities_steps.append((node, step))
        return self._stepping(node.node, step), step.form

    def _watchpoint(self, id_: str, limit_s: float) -> Watchpoint:
        return Watchpoint(f"{self._program.letters.query}/{self._batch.lineage}/{self._batch.number}/{self._unit}/{id_}", limit_s)

    def _stepping(self, node: str, step: Callable[[Chunk], Iterator[tuple[str, Chunk]]]) -> Callable[[Chunk], None]:
        def run(chunk: Chunk) -> None:
            begun_s = perf_counter()
            for branch, out in step(chunk):
                self._seconds[node] += perf_counter() - begun_s
                self._feed(f"{node}.{branch}" if branch else node, out)
                begun_s = perf_counter()
            self._seconds[node] += perf_counter() - begun_s

        return run

    def _parse(self, node: ParseNode) -> Callable[[Chunk], None]:
        parse = ParseStep(node, self._counted(node.node), self._letters)
        return self._stepping(node.node, lambda chunk: iter([("", parse(chunk))]))

    def _vector(self, node: VectorNode) -> Callable[[Chunk], None]:
        steps = VectorRun(node, self._counted(node.run), self._letters)

        def run(chunk: Chunk) -> None:
            begun_s = perf_counter()
            outs = list(steps(chunk))
            self._seconds[node.run] += perf_counter() - begun_s
            for out in outs:
                self._feed(node.node, out)

        return run

    def _timed(self, node: str, act: Callable[..., None]) -> Callable[..., None]:
        """`act`, behind which nothing else runs."""

        def run(chunk: Chunk, **way: str) -> None:
            begun_s = perf_counter()
            act(chunk, **way)
            self._seconds[node] += perf_counter() - begun_s

        return run

    def _counted(self, node: str) -> Counts:
        return self.counts.setdefault(node, Counts())

    def _feed(self, id_: str, chunk: Chunk) -> None:
        readers = self._readers.get(id_, ())
        for index, reader in enumerate(readers):
            # each reader but the last gets a copy: a user's function may change its dicts
            reader(chunk if index == len(readers) - 1 else chunk.copied())

    # --- entries ---

    def read_stream(self, ref_node: str, index: int, stream: SourceStream, entry: StreamsEntry) -> Iterator[pa.RecordBatch]:
        """Read stream `index` of a source's streams in this Batch through the stage; yields what leaves as Arrow."""
        counts = self._counted(ref_node)
        rules = self._program.letters
        reading = StageReading(rules, self._entrances, self._counted, self._letters, self._noticers, self._decode_as)
        skip = entry.skip.get((ref_node, index), {})
        sequence = 0
        begun_s = perf_counter()
        for origin, decode, noticer in reading.blocks(entry.sources.get(ref_node), ref_node, index, stream):
            block = origin.block
            if is_traced(block):
                self._taken.setdefault(ref_node, []).append(block.handed or NOT_WHOLE)
            chunk = self._decoded(origin, decode, counts, noticer)
            size = len(block)  # a decoder that has seen all lines has told how many
            counts.rows_in += size
            if noticer is None:
                counts.replayed += size
            if skip:
                chunk = self._without(chunk, sequence, skip, counts)
            counts.out += len(chunk)
            self._seconds[ref_node] += perf_counter() - begun_s
            if len(chunk):
                self._feed(ref_node, chunk)
            del chunk, origin, block  # its memory, still in the cache, is what the next block is decoded into
            yield from self._drain()
            sequence += size
            begun_s = perf_counter()
        yield from self._drain()
        self._seconds[ref_node] += perf_counter() - begun_s

    def _decode_as(self, source: str, decoder: Decoder) -> Decode:
        """Decode in the form that suits all readers of the source."""
        wanted = self._wanted.get(source, set())
        structs: Callable[[Block], Structs] | None = getattr(decoder, "structs", None)
        if "structs" in wanted and structs is not None:
            return structs
        return decoder.rows if wanted and wanted <= {"rows", "structs"} else decoder.columns

    def _decoded(self, origin: BlockOrigin, decode: Decode, counts: Counts, noticer: Noticer | None) -> Chunk:
        block, node = origin.block, origin.source
        decoded = decode(block)
        if noticer is not None:
            noticer.inspect(block)
            noticer.decoded(decoded)
        counts.filtered += decoded.skipped
        counts.dead += len(decoded.bad)
        for bad in decoded.bad:
            self._letters.write(node, origin, bad.ordinal, origin.payload(bad.ordinal) or b"", bad.reason, bad.message)
        match decoded:
            case DecodedRows():
                return Chunk(origin, decoded.ordinals, rows=decoded.rows)
            case Structs():
                return Chunk(origin, decoded.ordinals, structs=(decoded.form, decoded.structs))
        return Chunk(origin, decoded.ordinals, batch=decoded.batch)

    def _without(self, chunk: Chunk, sequence: int, skip: Any, counts: Counts) -> Chunk:
        """The chunk without the records that a native step cannot take."""
        ordinals = chunk.ordinals or ()
        keep = [sequence + ordinal not in skip for ordinal in ordinals]
        for index, ordinal in enumerate(ordinals):
            if sequence + ordinal in skip:
                node, message = skip[sequence + ordinal]
                self._letters.bury(node, chunk, index, "sql-error", message)
                # the source gave it, the native run behind is where it died: the driver adds this to the run's counts
                counts.out += 1
                self._counted(f"{DIED_IN}{node}").dead += 1
        if all(keep):
            return chunk
        return chunk.selected(keep)

    def read_rows(self, batches: Iterator[pa.RecordBatch], entry: RowsEntry) -> Iterator[pa.RecordBatch]:
        """Take Arrow rows of the native part through the stage; yields what leaves as Arrow."""
        # a native run is counted at its ends: what comes out of it is what comes in here
        native = self._counted(entry.native) if entry.native else Counts()
        made = self._counted(MADE_IN + entry.native) if entry.made_of else Counts()
        last = pa.nulls(1, pa.int64())
        origin = self._replay(entry)
        begun_s = perf_counter()
        for arrived in batches:
            if entry.native:
                self._seconds[entry.native] += perf_counter() - begun_s
            ordinals, batch = arrived.column(AT).to_pylist() if entry.at else None, arrived
            if entry.made_of:
                made_of = pa.concat_arrays([last, arrived.column(MADE_OF)])
                # all rows of one but its first: they stand side by side
                made.out += pc.equal(made_of[1:], made_of[:-1]).true_count
                last = made_of[-1:]
            if entry.dead:
                ordinals, batch = split_dead(arrived, ordinals, origin, native, self._letters)
            names = [field.name for field in entry.schema.fields]
            rows = batch.select(names).cast(arrow_schema(entry.schema))
            native.out += rows.num_rows
            for chunk in chunks_of(rows, ordinals, origin):
                self._feed(entry.node, chunk)
            yield from self._drain()
            begun_s = perf_counter()

    def _replay(self, entry: RowsEntry) -> Origin:
        if not entry.at:
            return UnknownOrigin()
        sources: dict[str, SourceConnector] = {ref.node: open_source(ref.type, ref.place) for ref in entry.sources.values()}
        return ReplayOrigin(sources, {ref.index: ref.node for ref in entry.sources.values()}, entry.streams, self._program.letters.folder)

    # --- ends ---

    def _drain(self) -> Iterator[pa.RecordBatch]:
        out, self._out[:] = list(self._out), []
        yield from out
        for sink in self._sinks:
            yield from sink.take()

    def finish(self) -> tuple[list[pa.RecordBatch], TaskReport]:
        """End the task: the last Arrow rows, and its report: receipts, dead segment, counts."""
        for exit_ in self._exits:
            exit_.flush()
        receipts = [sink.close() for sink in self._sinks]
        dead, trails = self._letters.close(), self._trails.close()
        for node, step in self._utilities_steps:
            # what is there already came by a replay
            self._counted(node.node).add(step.total({name: self.counts.pop(id_) for name, id_ in zip(node.names, node.ids, strict=True)}))
        faults.reached("stage.closed")
        report = TaskReport(
            receipts=[receipt.as_json() for receipt in receipts],
            dead=dead,
            counts={node: counts.as_json() for node, counts in self.counts.items()},
            trails=trails,
            leaves=max((gate.leaves_us for _, gate in self._gates), default=0),
            seconds={node: round(spent, 6) for node, spent in self._seconds.items()},
            noticed=notices_of(self._noticers.values()),
            nulls={source: UnfilledColumns(**each) for source, each in nulls_of(self._noticers).items()},
            taken={source: taken_of(handed) for source, handed in self._taken.items()},
            orders={node.node: step.figures() for node, step in self._utilities_steps},
            newest=newest_of(self._gates),
            lookups=list(self._letters.marks()),
            again=dict(self._letters.again),
            plan=msgspec.UNSET if self._plan is None else self._plan,
        )
        if self._plan is not None:
            # from here on the letters may belong to what is committed: who fails now does not know
            self._letters.keep()
            self._trails.keep()
            for sink in self._sinks:
                sink.commit(report.as_json())
        return list(self._drain()), report

    def forget(self) -> None:
        """Another attempt's report stands: leave nothing of this one behind, its dead letters neither."""
        self._letters.keep(kept=False)
        self._trails.keep(kept=False)
        self.abort()

    def abort(self) -> None:
        """Remove everything that this attempt staged."""
        with ExitStack() as stack:
            stack.callback(self._letters.abort)
            stack.callback(self._trails.abort)
            for sink in self._sinks:
                stack.callback(sink.abort)
