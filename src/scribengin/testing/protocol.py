"""The commit protocol without Spark: a driver that processes Batches: source log, stage, decide, publish.

It calls the same modules of `state` and the same sinks as the real driver, in the same order, and starts so fast that it can be killed
hundreds of times. Its only step is random on purpose: each attempt sends a record at random to sink `heads`, to sink `tails` or to the dead
letters. So a driver that publishes parts of two attempts loses or duplicates records.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, cast
from uuid import uuid4

import msgspec
import pyarrow as pa

from scribengin.connectors.abilities import chains_batches, refuses_rows
from scribengin.connectors.contract import BatchId, ConnectorContext, SourceStream
from scribengin.connectors.files.options import SINK
from scribengin.connectors.files.sink import FilesSink
from scribengin.core import faults, numbered_log
from scribengin.core.storage import names_in, read_or_none, replace
from scribengin.core.types import arrow_schema, parse_schema
from scribengin.state.contract import Counts, DeadLetter, Decision, LineSegment, SourceRange
from scribengin.state.dead_letters import DeadWriter
from scribengin.state.decisions import Decisions, input_hash
from scribengin.state.folder import StateFolder
from scribengin.state.lease import take_lease
from scribengin.state.lineage import open_lineage
from scribengin.state.publishing import publish, recover_query
from scribengin.state.source_log import SourceLog
from scribengin.testing.checker import Found, read_output
from scribengin.testing.records import SCHEMA, RecordKey, as_line, make_record

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from scribengin.connectors.contract import Receipt, SinkStream, StagingSink
    from scribengin.state.folder import QueryFolder
    from scribengin.state.lease import Lease

FLOW, QUERY, SOURCE, STEP = "protocol", "coins", "records", "toss"
SINKS = ("heads", "tails")
PLAN = "plan-1"
_BATCHES_A_WRITE = 2


@dataclass(frozen=True, slots=True)
class Job:
    """A job to run: `batches` Batches of `units` task outputs with `rows` records each. `state` is the state folder, `out` the folder of
    the outputs."""

    state: Path
    out: Path
    format: str = "json"
    partition_by: tuple[str, ...] = ()
    compression: str = "auto"
    batches: int = 3
    units: int = 2
    rows: int = 12
    run: str = "run"
    fold_every: int = numbered_log.CHUNK
    """number of records in a folded file; with a small number folding happens even in a short job"""
    adopt: bool = False
    """whether a new lineage takes over outputs of an earlier one"""

    @property
    def part_rows(self) -> int:
        """The number of records of one part (task output) in all Batches."""
        return self.batches * self.rows

    @property
    def query(self) -> QueryFolder:
        """The state of the only query."""
        return StateFolder(self.state, FLOW).query(QUERY)

    def read(self, torn: list[str]) -> dict[str, list[Found]]:
        """The rows that an independent reader finds, by sink; errors while reading are added to `torn`."""
        return {
            node: [Found(f"{node}/{each.group}", each.row) for each in read_output(self.out / node, self.format, torn=torn)]
            for node in SINKS
        }


def files_sink(job: Job, node: str) -> StagingSink:
    """The files sink of a node."""
    options = {"path": str(job.out / node), "format": job.format, "partition_by": job.partition_by, "compression": job.compression}
    return FilesSink(ConnectorContext(node, job.out, SINK.filled(options)))


@dataclass(slots=True)
class Driver:
    """Runs a Job in this process. The fields are the parts of the protocol that a test can replace by broken ones."""

    job: Job
    make_sink: Callable[[Job, str], StagingSink] = files_sink
    make_decisions: Callable[[Path], Decisions] = Decisions
    recover: Callable[..., Any] = recover_query
    replay_from_rerun: bool = False
    folder: QueryFolder = field(init=False)
    sinks: dict[str, StagingSink] = field(init=False)

    def __post_init__(self) -> None:
        self.folder = self.job.query
        self.sinks = {node: self.make_sink(self.job, node) for node in SINKS}

    def run(self, *, lock_removed: bool = False) -> None:
        """Process all Batches. With `lock_removed` the lock file is deleted first, as if it were left by a dead driver."""
        numbered_log.CHUNK = self.job.fold_every  # applies to this process
        state = StateFolder(self.job.state, FLOW)
        if lock_removed:
            state.lock.unlink(missing_ok=True)
        with take_lease(state) as lease:
            owner = state.read_owner()
            lineage = open_lineage(self.folder, owner=owner, fingerprint=PLAN, state_fingerprint="", sources=[SOURCE]).id
            for sink in self.sinks.values():
                sink.prepare(owner=owner, lineage=lineage, adopt=self.job.adopt)
            self.recover(self.folder, self.sinks, lineage=lineage, lease=lease)
            log, decisions = SourceLog(self.folder.sources, SOURCE), self.make_decisions(self.folder.decisions)
            while (number := self._committed()) < self.job.batches:
                self._batch(number, lineage, lease, log, decisions)

    # --- Spark's part: offsets/N before a Batch, commits/N after it; written weakly, as Spark does ---

    def _committed(self) -> int:
        return len(names_in(self.folder.checkpoint / "commits"))

    def _planned(self, number: int, log: SourceLog) -> SourceRange:
        file = self.folder.checkpoint / "offsets" / str(number)
        data = read_or_none(file)
        if data is None:
            if log.length() <= number:
                log.append(number, self._streams(number))
                faults.reached("source.logged")
            replace(file, msgspec.json.encode([number, number + 1]))
            data = file.read_bytes()
        start, end = msgspec.json.decode(data)
        return SourceRange(SOURCE, start, end)

    def _streams(self, number: int) -> list[SourceStream]:
        start = number * self.job.rows
        return [
            SourceStream(
                f"part {part}", {"run": self.job.run, "part": part, "start": start, "end": start + self.job.rows}, rows=self.job.rows
            )
            for part in range(self.job.units)
        ]

    # --- a Batch, as spark.commit runs it ---

    def _batch(self, number: int, lineage: str, lease: Lease, log: SourceLog, decisions: Decisions) -> None:
        planned = self._planned(number, log)
        faults.reached("batch.entry")
        lease.check()
        batch = BatchId(FLOW, QUERY, lineage, number, lease.term)
        streams = {SOURCE: tuple(log.range(planned.start, planned.end))}
        hash_ = input_hash(batch, [planned], streams, PLAN)
        decision = decisions.read(number)
        if decision is None or self.replay_from_rerun:
            staged = self._stage(batch, hash_, planned, streams[SOURCE])
            faults.reached("stage.after")
            lease.check()
            decision = staged if self.replay_from_rerun and decision is not None else decisions.decide(staged)
        faults.reached("publish.before")
        publish(decision, self.sinks, decisions, self.folder)
        faults.reached("publish.after")
        faults.reached("commit.before")
        replace(self.folder.checkpoint / "commits" / str(number), b"{}")

    def _stage(self, batch: BatchId, hash_: str, planned: SourceRange, streams: tuple[SourceStream, ...]) -> Decision:
        receipts: list[Receipt] = []
        dead: list[LineSegment] = []
        counts: dict[str, Counts] = {}
        behind = {node: sink.behind(0) for node, sink in self.sinks.items() if chains_batches(sink)}
        for unit, stream in enumerate(streams):
            faults.reached("stage.before")
            staged, letters = self._unit(batch, unit, stream, counts)
            faults.reached("stage.closed")
            receipts += staged
            dead += [letters] if letters is not None else []
        return Decision(
            batch,
            hash_,
            PLAN,
            (planned,),
            tuple(receipts),
            tuple(dead),
            counts,
            datetime.now(UTC).isoformat(),
            behind,
            offers=tuple(node for node, sink in self.sinks.items() if refuses_rows(sink)),
        )

    def _unit(self, batch: BatchId, unit: int, stream: SourceStream, counts: dict[str, Counts]) -> tuple[list[Receipt], LineSegment | None]:
        attempt = uuid4().hex
        toss = random.Random(attempt)
        schema = output_schema(self.job)
        outs = {node: cast("SinkStream", sink.stream(batch, unit, attempt, schema)) for node, sink in self.sinks.items()}
        letters = DeadWriter(self.folder.dead, attempt)
        rows = rows_of(stream)
        source, step = counts.setdefault(SOURCE, Counts()), counts.setdefault(STEP, Counts())
        try:
            chunk = -(-len(rows) // _BATCHES_A_WRITE)
            for start in range(0, len(rows), chunk):
                sent: dict[str, list[dict[str, Any]]] = {node: [] for node in SINKS}
                for row in rows[start : start + chunk]:
                    where = toss.choices((*SINKS, ""), (5, 5, 1))[0]
                    if where:
                        sent[where].append(row)
                    else:
                        letters.write(_letter(batch.number, row))
                        step.dead += 1
                for node, some in sent.items():
                    outs[node].write(as_batch(self.job, some), ids_of(some) if outs[node].wants_ids else None)
                    sink = counts.setdefault(node, Counts())
                    sink.rows_in += len(some)
                    sink.out += len(some)
                    step.out += len(some)
            receipts = [out.close() for out in outs.values()]
            segment = letters.close()
        except BaseException:
            for out in outs.values():
                out.abort()
            letters.abort()
            raise
        source.rows_in += len(rows)
        source.out += len(rows)
        step.rows_in += len(rows)
        return receipts, segment


def rows_of(stream: SourceStream) -> list[dict[str, Any]]:
    """The records of a stream, in order."""
    place = stream.place
    return [make_record(RecordKey(place["run"], place["part"], seq)) for seq in range(place["start"], place["end"])]


def ids_of(rows: list[dict[str, Any]]) -> list[str]:
    """The id of the source record of each row."""
    return [f"{SOURCE}-{row['part']}@{row['seq']}" for row in rows]


def output_schema(job: Job) -> Any:
    """The columns of the sinks: those of a record, or one line of text and, with `partition_by`, the partition column."""
    if job.format != "text":
        return parse_schema(SCHEMA)
    return parse_schema("line STRING, bucket STRING" if job.partition_by else "line STRING")


def as_batch(job: Job, rows: list[dict[str, Any]]) -> pa.RecordBatch:
    """The rows as an Arrow batch."""
    if job.format == "text":
        rows = [{"line": as_line(row), "bucket": row["bucket"]} for row in rows]
    return pa.RecordBatch.from_pylist(rows, schema=arrow_schema(output_schema(job)))


def _letter(batch: int, row: dict[str, Any]) -> DeadLetter:
    id_ = f"{SOURCE}/{row['part']}:{row['seq']}#{STEP}"
    return DeadLetter(id_, QUERY, batch, STEP, "edge", "the coin stands on its edge", SOURCE, payload=as_line(row).encode())
