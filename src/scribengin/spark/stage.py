"""Runs a Program on an executor: one pass from blocks or Arrow rows to staged segments or Arrow rows.

Only the user's own Python code runs per record; everything else runs per chunk.
"""

from __future__ import annotations

from collections import defaultdict
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from itertools import chain, compress
from time import perf_counter
from typing import TYPE_CHECKING, Any, Literal
from uuid import uuid4

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from scribengin.connectors.abilities import commits_units, runs_code
from scribengin.connectors.catalog import open_source
from scribengin.connectors.contract import AlreadyCommitted, BatchId, SourceStream
from scribengin.connectors.group.contract import makes_streams
from scribengin.core import faults
from scribengin.core.types import arrow_schema
from scribengin.formats.column_notices import notices_of, nulls_of
from scribengin.formats.contract import DecodedRows, Structs, is_traced
from scribengin.plan.graph import flat_name
from scribengin.spark.chunk import BlockOrigin, Chunk, Origin, UnknownOrigin, chunks_of
from scribengin.spark.counting import newest_of, noticing
from scribengin.spark.dead_letter_writer import DeadLetterWriter, Trails
from scribengin.spark.late_rows import GateNode, LateRowCounter
from scribengin.spark.offset_log import batch_of_task
from scribengin.spark.parse_step import ParseStep
from scribengin.spark.predicate_pushdown import compile_predicate, compiled
from scribengin.spark.program import (
    AT,
    DEAD,
    DIED_IN,
    LATE,
    MADE_IN,
    MADE_OF,
    PART,
    SPARK_PARSE,
    UNIT_STRIDE,
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
from scribengin.spark.replay_input import ReplayNode, letters_in, refuse, source_blocks
from scribengin.spark.row_origin import ReplayOrigin, pack_at
from scribengin.spark.stage_outputs import ArrowExit, SinkExit
from scribengin.spark.task_report import StageReport, TaskReport, report_of
from scribengin.spark.utilities import utilities_step
from scribengin.spark.watchdog import Watchpoint
from scribengin.state.channel_digests import NOT_WHOLE, taken_of
from scribengin.state.contract import Counts
from scribengin.state.source_log import REPLAY
from scribengin.vector.engine import run_steps

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from scribengin.formats.column_notices import Noticer
    from scribengin.formats.contract import Block, DecodedColumns, Decoder
    from scribengin.spark.chunk import Origin
    from scribengin.spark.dead_letter_writer import LetterRules
    from scribengin.spark.program import SourceRef

    Decode = Callable[[Block], DecodedRows | Structs | DecodedColumns]
    from collections.abc import Callable

    from scribengin.connectors.contract import OriginStream, SinkStream, SourceConnector
    from scribengin.formats.contract import Block, Handed
    from scribengin.spark.utilities import Free, InARow

    Form = Literal["structs", "rows", "columns"]
    from scribengin.spark.program import Program
    from scribengin.spark.task_report import Reports

    ArrowFunction = Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]


# Writes dead letters for rows that failed a `require` in Spark, where they leave the Spark SQL steps.


def split_dead(
    batch: pa.RecordBatch, ordinals: list[int] | None, origin: Origin, native: Counts, letters: DeadLetterWriter
) -> tuple[list[int] | None, pa.RecordBatch]:
    """Remove the rows that failed a `require`, which DEAD marks, count them and write their dead letters.

    Args:
        batch: The rows.
        ordinals: Their ordinals; None if they have none.
        origin: The origin of the rows.
        native: The counts of the Spark SQL stage.
        `letters`: Takes the dead letters.

    Returns:
        (ordinals, rows) of the rows that failed none.
    """
    dead = batch.column(DEAD)
    if dead.null_count == batch.num_rows:
        return ordinals, batch
    keep = dead.is_null()
    for index, failed in enumerate(dead.to_pylist()):
        if failed is not None:
            step, name = failed["step"], failed["name"]
            ordinal = None if ordinals is None else ordinals[index]
            payload = (None if ordinal is None else origin.payload(ordinal)) or failed["payload"].encode()
            reason, message = "require", f'"{name}" does not hold'
            if name == SPARK_PARSE:
                reason, message = "malformed", "Spark's parser cannot read it"
            letters.write(step, origin, ordinal, payload, reason, message)
            native.dead += 1
    return (None if ordinals is None else list(compress(ordinals, keep.to_pylist()))), batch.filter(keep)


# Reads a stream in a stage: a source's blocks, or dead letters that are replayed from their source.


@dataclass(frozen=True, slots=True)
class StageReading:
    """Reads the streams of one stage. The noticers of its sources are added to `noticers`; `entrances` are the stage's replay points."""

    rules: LetterRules
    entrances: Mapping[str, ReplayNode]
    counted: Callable[[str], Counts]
    letters: DeadLetterWriter
    noticers: dict[str, Noticer]
    decode_as: Callable[[str, Decoder], Decode]

    def blocks(
        self, ref: SourceRef | None, node: str, index: int, stream: SourceStream
    ) -> Iterator[tuple[BlockOrigin, Decode, Noticer | None]]:
        """Read a stream of a source, or dead letters that are replayed. Those that are replayed from a step are passed to that step here,
        and nothing is yielded.

        Args:
            ref: The source; None only if all dead letters of the stream are replayed from a step.
            node: The source's id.
            index: The index of the stream in the Batch's streams of the source.
            stream: The stream.

        Returns:
            (origin with its block, decoder, noticer) for each block; the noticer is None for dead letters.
        """
        said = stream.place.get(REPLAY)
        letters = [] if said is None else letters_in(self.rules.folder, stream, node)
        at = "" if said is None else said["at"]
        if said is not None and at in self.entrances:
            self.entrances[at].enter(letters, self.counted(at), self.letters, said["way"])
        elif at and at not in self.rules.tail:  # otherwise a task pipeline of its own reads them
            refuse(letters, at, self.counted(node), self.letters)
        if at:
            return
        if said is not None and (gone := [letter for letter in letters if letter.source != node]):
            letters = [letter for letter in letters if letter.source == node]
            refuse(gone, "", self.counted(node), self.letters)
        assert ref is not None
        source = open_source(ref.type, ref.place)
        noticer, decoder = noticing(ref, source, self.noticers)
        first_at, sequence = pack_at(ref.index, index), 0
        if said is not None:
            for letter, by in source_blocks(letters, first_at, decoder):
                yield letter, self.decode_as(node, by), None
            return
        decode = self.decode_as(node, decoder)
        for block in source.read(stream):
            yield BlockOrigin(node, block, first_at + sequence, stream.label, sequence, stream), decode, noticer
            sequence += len(block)


# Runs SQL steps inside a stage: the vector engine over chunks, with the same counts and dead letters as the Spark SQL stage.


class VectorRun:
    """Runs SQL steps over chunks whose rows have the first step's columns."""

    def __init__(self, node: VectorNode, counts: Counts, letters: DeadLetterWriter) -> None:
        self._steps = node.steps
        self._schema = node.schema_in
        self._sieve = None if node.sieve is None else compiled(node.sieve)
        self._decides = node.decides
        self._only_filters = not any(step.columns for step in node.steps)
        self._counts = counts
        self._letters = letters

    def __call__(self, chunk: Chunk) -> Iterator[Chunk]:
        """The rows that pass. Rows that fail a `require` become dead letters of their step."""
        self._counts.rows_in += len(chunk)
        structs = None if self._sieve is None else chunk.structs(self._schema)
        if self._sieve is not None and structs is not None:
            kept = chunk.selected(self._sieve(structs))
            self._counts.filtered += len(chunk) - len(kept)
            chunk = kept
            if self._decides:
                self._counts.out += len(chunk)
                if len(chunk):
                    yield chunk
                return
        if len(chunk):
            yield from self._through(chunk)

    def _through(self, chunk: Chunk) -> Iterator[Chunk]:
        batch, bad = chunk.batch(self._schema)
        if bad:
            raise TypeError(f"rows that enter {self._steps[0].id} do not have the expected types: {bad[0].message}")
        outcome = run_steps(self._steps, batch)
        for row, step, name in outcome.failed:
            self._letters.bury(step, chunk, row, "require", f'"{name}" does not hold')
        passed = len(outcome.passed)
        self._counts.dead += len(outcome.failed)
        self._counts.filtered += len(chunk) - passed - len(outcome.failed)
        self._counts.out += passed
        if not passed:
            return
        if passed == len(chunk) and self._only_filters:
            yield chunk
        elif self._only_filters and not chunk.is_arrow:
            keep = np.zeros(len(chunk), bool)
            keep[outcome.passed] = True
            yield chunk.selected(keep.tolist())
        else:
            ordinals = chunk.ordinals
            kept = None if ordinals is None else [ordinals[row] for row in outcome.passed.tolist()]
            yield Chunk(chunk.origin, kept, batch=outcome.batch.cast(arrow_schema(self._steps[-1].schema)))


RECEIPT_SCHEMA = pa.schema([pa.field("receipt", pa.binary())])


class Stage:
    """One task's run of a Program. It ends with `finish`, `abort` or `forget`."""

    def __init__(self, program: Program, batch: BatchId, unit: int) -> None:
        self._program = program
        self._batch = batch
        self._unit = unit
        self._attempt = uuid4().hex
        self.counts: dict[str, Counts] = {}
        self._taken: dict[str, list[Handed]] = {}
        """source → the hand-over of each block that a channel source gave"""
        self._seconds: dict[str, float] = defaultdict(float)
        """node → seconds that it took itself; Spark SQL steps count as the stage before this one"""
        self._letters = DeadLetterWriter(
            program.letters, batch.number, self._attempt, lambda: not any(each.made for each in self.counts.values())
        )
        self._noticers: dict[str, Noticer] = {}
        self._trails = Trails(program.letters, batch.number, self._attempt)
        self._readers: dict[str, list[Callable[[Chunk], None]]] = {}
        self._plan: str | None = None
        """the plan of the task output, if it commits by itself"""
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
        """(the consumer of the node's rows, the form of rows that it prefers)."""
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
            assert makes_streams(node.sink), "this sink is a placeholder until the member of its Batch is chosen"
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
            looking = compile_predicate(function, node.schema_in)
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
        """`act`, with its time added to the node's. `act` is the last node on its path."""

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
        """Read stream `index` of a source's streams in this Batch through the stage; yields the rows that leave it as Arrow.

        Args:
            ref_node: The source.
            index: The index of the stream in the Batch's streams of the source.
            stream: The stream.
            entry: The stage's entry.
        """
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
            size = len(block)  # known only now: a decoder that reads lines counts them
            counts.rows_in += size
            if noticer is None:
                counts.replayed += size
            if skip:
                chunk = self._without(chunk, sequence, skip, counts)
            counts.out += len(chunk)
            self._seconds[ref_node] += perf_counter() - begun_s
            if len(chunk):
                self._feed(ref_node, chunk)
            del chunk, origin, block  # frees memory that is still in the CPU cache, for the next block
            yield from self._drain()
            sequence += size
            begun_s = perf_counter()
        yield from self._drain()
        self._seconds[ref_node] += perf_counter() - begun_s

    def _decode_as(self, source: str, decoder: Decoder) -> Decode:
        """The decoder method for the form of rows that suits all readers of the source."""
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
        """The chunk without the records that a Spark SQL step cannot process; these become dead letters."""
        ordinals = chunk.ordinals or ()
        keep = [sequence + ordinal not in skip for ordinal in ordinals]
        for index, ordinal in enumerate(ordinals):
            if sequence + ordinal in skip:
                node, message = skip[sequence + ordinal]
                self._letters.bury(node, chunk, index, "sql-error", message)
                # the source gave the record, and it failed in the Spark SQL stage after it: the driver adds this to that stage's counts
                counts.out += 1
                self._counted(f"{DIED_IN}{node}").dead += 1
        if all(keep):
            return chunk
        return chunk.selected(keep)

    def read_rows(self, batches: Iterator[pa.RecordBatch], entry: RowsEntry) -> Iterator[pa.RecordBatch]:
        """Process Arrow rows of Spark SQL steps in the stage; yields the rows that leave it as Arrow."""
        # a Spark SQL stage is counted at its ends: its output is the input here
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
                # all rows made of one row except the first; they are adjacent
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
        """End the task: (the last Arrow rows, its report with write receipts, dead letters and counts)."""
        for exit_ in self._exits:
            exit_.flush()
        receipts = [sink.close() for sink in self._sinks]
        dead, trails = self._letters.close(), self._trails.close()
        for node, step in self._utilities_steps:
            # counts that are already there come from a replay
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
            nulls=nulls_of(self._noticers),
            taken={source: taken_of(handed) for source, handed in self._taken.items()},
            orders={node.node: step.figures() for node, step in self._utilities_steps},
            newest=newest_of(self._gates),
            lookups=list(self._letters.marks()),
            again=dict(self._letters.again),
            plan=msgspec.UNSET if self._plan is None else self._plan,
        )
        if self._plan is not None:
            # from here on the dead letters may be part of a commit, and a failure does not tell whether they are
            self._letters.keep()
            self._trails.keep()
            for sink in self._sinks:
                sink.commit(report.as_json())
        return list(self._drain()), report

    def forget(self) -> None:
        """Remove everything that this attempt wrote, including its dead letters, since the report of another attempt is used."""
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


# The function for `mapInArrow`: runs a task's units, each in its own Stage, and yields their reports.


def run_program(
    program: Program, batches: Iterator[pa.RecordBatch], partition: int, number: int
) -> Iterator[tuple[pa.RecordBatch | None, str, TaskReport | None]]:
    """Run a stage's program in a task.

    Args:
        program: The program.
        batches: The task's input.
        partition: The number of the task's partition.
        number: The Batch's number.

    Returns:
        Yields (rows, "", None) for rows that leave the stage, and (None, key, report) once per task output.
    """
    batch = program.batch or BatchId("", program.letters.query, "", number, 0)
    entry = program.entry
    if isinstance(entry, RowsEntry):
        partition += entry.first
        key = str(partition)
        if any(isinstance(node, ExitNode) for node in program.nodes):
            key, batches = _own_part(batches, partition)
        yield from _one(program, batch, partition, partial(Stage.read_rows, batches=batches, entry=entry), key)
        return
    for rows in batches:
        for unit, node, index, stream in _units(entry, rows):
            feed = partial(Stage.read_stream, ref_node=node, index=index, stream=stream, entry=entry)
            yield from _one(program, batch, unit, feed, f"{node}/{index}")


def _own_part(batches: Iterator[pa.RecordBatch], partition: int) -> tuple[str, Iterator[pa.RecordBatch]]:
    """(key of the report, the same batches). The key is the partition number in PART, the same each time that Spark runs it. An empty
    partition has no PART, and a key that differs from all of those."""
    for first in batches:
        if first.num_rows:
            return str(first.column(PART)[0].as_py()), chain([first], batches)
    return f"empty {partition}", iter(())


def _units(entry: StreamsEntry, rows: pa.RecordBatch) -> Iterator[tuple[int, str, int, SourceStream]]:
    """(number of the task output, source, index in the source's streams, stream) for each row"""
    if entry.units:
        for unit in rows.column("id").to_pylist():
            node, index = entry.units[unit]
            yield unit, node, index, entry.streams[node][index]
        return
    for row in rows.to_pylist():
        yield row["index"], row["source"], row["index"], SourceStream.from_json(msgspec.json.decode(row["stream"]))


def _one(
    program: Program, batch: BatchId, unit: int, feed: partial[Iterator[pa.RecordBatch]], key: str
) -> Iterator[tuple[pa.RecordBatch | None, str, TaskReport | None]]:
    faults.reached("stage.before")
    stage = Stage(program, batch, program.index * UNIT_STRIDE + unit)
    try:
        for rows in feed(stage):
            yield rows, "", None
        last, report = stage.finish()
        for rows in last:
            yield rows, "", None
    except AlreadyCommitted as found:
        stage.forget()
        report = report_of(found.report)
        if isinstance(program.entry, RowsEntry):
            # the stages before this one report their counts only when their rows have been read to the end
            for _ in feed.keywords["batches"]:
                pass
    except BaseException:
        stage.abort()
        raise
    yield None, key, report


# Creates the functions for `mapInArrow` that run a Program on executors.


def tail_function(program: Program) -> ArrowFunction:
    """The function of a task pipeline: returns one row per task output, its report."""

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for _, key, report in run_program(program, batches, *_partition()):
            if report is not None:
                line = msgspec.json.encode(StageReport(program.index, key, report))
                yield pa.RecordBatch.from_arrays([pa.array([line], pa.binary())], schema=RECEIPT_SCHEMA)

    return run


def middle_function(program: Program, reports: Reports) -> ArrowFunction:
    """The function of a stage before Spark SQL steps: it yields the rows, and adds its reports to the accumulator at the end of the
    partition."""

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        partition, number = _partition()
        if program.batch is not None:  # in a helper Spark has no Batch number
            number = program.batch.number
        for rows, key, report in run_program(program, batches, partition, number):
            if rows is not None:
                yield rows
            if report is not None:
                reports.add({(number, program.index, key): report})

    return run


def _partition() -> tuple[int, int]:
    """(partition, Batch number; -1 if Spark has none)"""
    from pyspark import TaskContext

    context = TaskContext.get()
    assert context is not None
    return context.partitionId(), batch_of_task()
