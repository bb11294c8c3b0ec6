"""One Batch, from Spark's call to the published sinks: entry → stage → decide → publish. The guarantee depends on this order.

Spark calls `foreachBatch` at least once per Batch. The decision record, not Spark's log, says what a Batch is.
"""

from __future__ import annotations

import time
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from socket import gethostname
from typing import TYPE_CHECKING, Any, Protocol

from scribengin.connectors.abilities import refuses_rows, spark_writes
from scribengin.connectors.contract import BatchId, Receipt
from scribengin.core import faults
from scribengin.core.errors import StateError
from scribengin.formats.notice import FormatNotice
from scribengin.spark.bad_record_search import find_culprits
from scribengin.spark.compiled_query import BatchInputs, Compiled
from scribengin.spark.counting import add_losses, gather_counts, gather_notices
from scribengin.spark.dead_letter_limit import DeadTally, too_many_dead
from scribengin.spark.failures import is_data_error, is_not_sure_error
from scribengin.spark.late_rows import NEVER_US
from scribengin.spark.offset_log import planned_us, watermark_us
from scribengin.spark.portions import Helper, Portion, Staged, digest_of, divided, may_share
from scribengin.spark.replay_input import with_letters
from scribengin.spark.source_input import StopRequested
from scribengin.spark.staging import check_read, check_whole, committing, middle_reports, read_what_is_left, run_action
from scribengin.spark.step_ordering import learned, with_orders
from scribengin.spark.task_report import new_reports, newest_times, repeated_dead_letters, seconds_of
from scribengin.spark.unit_commits import OtherIntent, behind_of, blame_members, plan_of
from scribengin.spark.watermarks import late_notice
from scribengin.spec.model import Utilities
from scribengin.state.channel_digests import sum_taken
from scribengin.state.clocks import clocks_after
from scribengin.state.contract import Counts, Decision, LineSegment
from scribengin.state.decisions import input_hash
from scribengin.state.lookups import count_as_filtered, current, versions_of
from scribengin.state.publishing import publish

if TYPE_CHECKING:
    import threading
    from collections.abc import Callable, Iterable, Mapping
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession
    from structlog.typing import FilteringBoundLogger

    from scribengin.connectors.contract import BatchLimits, SourceStream
    from scribengin.spark.compile import Compiler
    from scribengin.spark.compiled_query import QueryParts
    from scribengin.spark.counting import Skip
    from scribengin.spark.portions import Helpers
    from scribengin.spark.source_input import Ranges
    from scribengin.spark.task_report import Reports, TaskReport
    from scribengin.spark.unit_commits import UnitCommits
    from scribengin.spark.watermarks import IdleInputs
    from scribengin.state.clocks import Clock
    from scribengin.state.contract import SourceRange
    from scribengin.state.decisions import Decisions
    from scribengin.state.folder import QueryFolder
    from scribengin.state.intents import Intent
    from scribengin.state.lease import Lease
    from scribengin.state.source_log import SourceLog


# Makes a Batch wait until the channels that the query writes have room.


_LEAST_S, _MOST_S = 0.05, 0.5


@dataclass(frozen=True, slots=True)
class BatchAdmission:
    """Tells when the next Batch may begin.

    Attributes: wait_s: Seconds until the Batch may begin, at least. share: The share (0 to 1) of the source limits that the Batch may use.
    why: The reason for people; empty if nothing delays or limits the Batch. paused: True: the Batch waits for an unknown time.
    """

    wait_s: float = 0.0
    share: float = 1.0
    why: str = ""
    paused: bool = False


class BackPressure(Protocol):
    """Reports how much room the channels have. Called by the query's thread."""

    def begun(self) -> None:
        """Record the start of a Batch."""

    def committed(self, batch: CommittedBatch) -> None:
        """Record that the Batch is committed."""

    def admit(self) -> BatchAdmission:
        """When the next Batch may begin."""


@dataclass(frozen=True, slots=True)
class BatchHold:
    """Delays a Batch until `pressure` admits it. `tell` is called with the reason for the delay and whether its length is unknown; the
    reason is empty once the Batch may begin."""

    pressure: BackPressure
    stop: threading.Event
    tell: Callable[[str, bool], None]

    def wait(self) -> float:
        """Wait until the Batch may begin; returns the share of the source limits that it may use. Raises StopRequested."""
        while True:
            if self.stop.is_set():
                raise StopRequested
            admission = self.pressure.admit()
            self.tell(admission.why, admission.paused)
            if admission.wait_s <= 0.0 and not admission.paused:
                self.pressure.begun()
                return admission.share
            self.stop.wait(min(max(admission.wait_s, _LEAST_S), _MOST_S))


_LOOKS = 2
"""how often a Batch searches for the records that make it fail: in one pass, then record by record for those that the pass did not find"""
_UNSURE_BATCHES = 3
"""Batches that the vector engine gave up and Spark had to run; after so many, Spark runs all Batches until the query restarts"""


@dataclass(frozen=True, slots=True)
class CommittedBatch:
    """What the runner reports of a committed Batch. `streams` is what it read; `replayed` is True if it was decided before."""

    decision: Decision
    streams: Mapping[str, tuple[SourceStream, ...]]
    phases_s: Mapping[str, float]
    replayed: bool
    newest_us: Mapping[str, int] = field(default_factory=dict)
    """node with a watermark → the newest watermark that its rows in this Batch would give"""
    notice: str = ""
    """a notice to show at once; empty if there is none"""
    seconds: Mapping[str, float] = field(default_factory=dict)
    """node → seconds that tasks spent in it; a Spark SQL stage (`known+hot`) is one node"""


@dataclass(frozen=True, slots=True)
class _Agreed:
    """What is the same for all parts of a Batch: its streams, and how task outputs and sinks commit."""

    streams: Mapping[str, tuple[SourceStream, ...]]
    intent: Intent | None
    behind: Mapping[str, Mapping[str, Any]]


@dataclass(frozen=True, slots=True)
class _PartDone:
    """A part of a Batch that has run. `skip`: see StreamsEntry. `helped`: True if another worker staged it."""

    compiled: Compiled
    staged: Staged
    skip: Skip = field(default_factory=dict)
    helped: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class QueryContext:
    """What one claimed query needs in this process, the same for each of its Batches and each of its restarts.

    Built once for a run, and used by everything that runs it: `QueryRun` (its lifetime) and `BatchRunner` (its Batches).
    """

    spark: SparkSession
    """the process's session; each start of the query has a session of its own"""
    parts: QueryParts
    folder: QueryFolder
    lineage: str
    first: int = 0
    """the number of the lineage's first Batch"""
    starts: Mapping[str, int] = field(default_factory=dict)
    """source → the entry of its log at which the lineage begins; 0 if not listed"""
    lease: Lease
    limits: Mapping[str, BatchLimits]
    """streaming source → the most that a Batch may read of it"""
    static: Mapping[str, tuple[SourceStream, ...]]
    """static source → its contents, fixed until the query restarts"""
    stop: threading.Event
    """set to end the query between two Batches"""
    on_begin: Callable[[Mapping[str, tuple[SourceStream, ...]]], None]
    """called with the streams that a Batch is about to read"""
    on_commit: Callable[[CommittedBatch], None]
    log: FilteringBoundLogger
    pressure: BackPressure | None = None
    """for a query that writes channels"""
    helpers: Helpers | None = None
    """the other workers of the tier; None if it has only this one"""
    tally: DeadTally = field(default_factory=lambda: DeadTally(()))
    """how many records have become dead letters in this process"""
    spark_log: Path | None = None
    """a folder on this machine for Spark's log of a query without state, if its state folder is elsewhere: the decisions say which Batch is
    next, so that the log need not outlive a start. None: the log is a part of the state"""
    published: int = -1
    """the newest Batch that was known to be published when the query was claimed"""
    notes_each: bool = False
    """True if others wait for the record that a Batch is published; else it is written when no Batch follows. Only with `spark_log`"""


@dataclass(slots=True, kw_only=True)
class BatchRunner:
    """Runs the Batches of one query. `compiled` is set for a stateful query, whose frames were compiled when it started."""

    context: QueryContext
    spark: SparkSession
    """the session of this start of the query"""
    compiler: Compiler
    decisions: Decisions
    logs: Mapping[str, SourceLog]
    ranges: Ranges
    on_commit: Callable[[CommittedBatch], None]
    hold: BatchHold | None = None
    units: UnitCommits | None = None
    compiled: Compiled | None = None
    reports: Reports | None = None
    idle: IdleInputs | None = None
    """for a stateful query"""
    _last: Decision | None = field(default=None)
    _phases_s: Mapping[str, float] = field(default_factory=dict)
    """of the Batch before, if this runner has run it"""
    _unsure: int = field(default=0)
    _known: set[tuple[str, str, str]] | None = None
    """the column notices that decisions have recorded"""
    _versions: frozenset[str] | None = None
    """the versions of the static sources, computed when a record of theirs first becomes a dead letter"""
    _digest: str = ""
    """identifies to helpers what this process runs; empty until there are helpers"""

    def __call__(self, df: DataFrame, number: int) -> None:
        """Run one Batch; Spark calls it. An exception ends the query; nothing undecided is visible."""
        faults.reached("batch.entry")
        if self.context.stop.is_set():
            raise StopRequested
        self.context.lease.check()
        decided = self.decisions.read(number)
        if decided is not None:
            ranges = decided.sources if self.compiled is None else self.ranges.take(df, None)
            self._replay(decided, ranges, self._streams(ranges), df)
            self.context.lease.check()
            return
        last = self._last or self.decisions.newest()
        ranges = (None if self.units is None else self.units.begun(number)) or self._take(df, last)
        started = time.perf_counter()
        self.context.lease.check()
        self._check_order(number, ranges, last)
        batch = BatchId(
            self.context.parts.plan.flow.name, self.context.parts.query.name, self.context.lineage, number, self.context.lease.term
        )
        streams = self._streams(ranges)
        self.context.on_begin(streams)
        planned = time.perf_counter()
        try:
            decision, timing, told = self._stage(batch, ranges, streams, df)
        except OtherIntent as other:
            ranges, streams = other.sources, self._streams(other.sources)
            decision, timing, told = self._stage(batch, ranges, streams, df)
        faults.reached("stage.after")
        decide = time.perf_counter()
        self.context.lease.check()
        decision = replace(decision, before=self._measured())
        decision = self.decisions.decide(decision, hash_under=lambda plan: input_hash(batch, ranges, streams, plan))
        publish = time.perf_counter()
        self._known_columns().update(notice.key for notice in decision.noticed)
        decision = self._publish(decision)
        self._last = decision
        if self.units is not None:
            self.units.drop(number)
        done = time.perf_counter()
        phases = {
            "plan": planned - started + timing,
            "process": decide - planned - timing,
            "decide": publish - decide,
            "publish": done - publish,
        }
        self._phases_s = {phase: round(seconds, 3) for phase, seconds in phases.items()}
        excess = self.context.tally.add(decision.counts)
        notice = late_notice(self.context.parts, decision, self.decisions, self._streams_of) if decision.clocks else ""
        self.on_commit(CommittedBatch(decision, streams, phases, replayed=False, notice=notice, **told))
        self._advance_without_idle_inputs(decision)
        if excess is not None and self.context.tally.stops:
            raise too_many_dead(excess, self.context.folder, decision.dead, committed=number)
        faults.reached("commit.before")
        # a suspended driver must not write Spark's log after its lease expired: its successor would find the entry there and stop
        self.context.lease.check()

    def _measured(self) -> dict[str, Any]:
        """See `Decision.before`. Spark's last progress is that of the Batch before this one, since this one has not ended."""
        if not self._phases_s:
            return {}
        state: dict[str, int] = {}
        if self.compiled is not None and (running := self.spark.streams.active):
            last = running[0].lastProgress
            if last is not None and last.stateOperators:
                rows, size = zip(*((each.numRowsTotal, each.memoryUsedBytes) for each in last.stateOperators), strict=True)
                state = {"state_rows": sum(rows), "state_bytes": sum(size)}
        return {"phases_s": self._phases_s, **state}

    # --- entry ---

    def _take(self, df: DataFrame, last: Decision | None) -> tuple[SourceRange, ...]:
        if self.hold is not None:
            self.ranges.share(self.hold.wait())
        return self.ranges.take(df, last)

    def _advance_without_idle_inputs(self, decision: Decision) -> None:
        """If an input brings no more rows, the watermark advances with this Batch as if the input did not exist."""
        if self.idle is not None and (running := self.spark.streams.active):
            self.idle.clocks = decision.clocks
            self.idle.advance(running[0], planned_us(self._offsets, decision.batch.number))

    @property
    def _offsets(self) -> Path:
        return self.context.parts.letters.folder.parent / "checkpoint" / "offsets"

    def _streams_of(self, decision: Decision) -> dict[str, tuple[SourceStream, ...]]:
        return {**self._streams(decision.sources), **self.context.static}

    def _streams(self, ranges: tuple[SourceRange, ...]) -> dict[str, tuple[SourceStream, ...]]:
        return {each.source: tuple(self.logs[each.source].range(each.start, each.end)) for each in ranges}

    def _check_order(self, number: int, ranges: tuple[SourceRange, ...], last: Decision | None) -> None:
        """Check that the Batch begins where the last decided one ended; otherwise records would be lost or duplicated."""
        expected = {each.source: each.end for each in last.sources} if last is not None else self.context.starts
        begins = {each.source: each.start for each in ranges}
        before = self.context.first - 1 if last is None else last.batch.number
        if (last is not None or self.context.first) and number != before + 1:
            raise StateError(
                f"Query {self.context.parts.query.name}: Spark is at batch {number}, but the last decided batch is {before}",
                remedy="restore the state folder as a whole; its parts belong together",
            )
        wrong = {source: start for source, start in begins.items() if start != expected.get(source, 0)}
        if wrong:
            source, start = next(iter(wrong.items()))
            raise StateError(
                f'Query {self.context.parts.query.name}: batch {number} would read source "{source}" from entry {start}, '
                f"expected entry {expected.get(source, 0)} (end of the last decided batch, or start of the lineage)",
                remedy="restore the state folder as a whole; its parts belong together",
            )

    # --- stage ---

    def _stage(
        self, batch: BatchId, ranges: tuple[SourceRange, ...], streams: Mapping[str, tuple[SourceStream, ...]], df: DataFrame
    ) -> tuple[Decision, float, dict[str, Any]]:
        """Run the Batch; returns (the decision, seconds spent on compiling, further fields of CommittedBatch)."""
        begun = time.perf_counter()
        fingerprint = self.context.parts.query.fingerprint
        compiled, reports = self._frames(batch, streams, df)
        compiled = with_letters(df.sparkSession, compiled, streams)
        remarks = {each.source: self.logs[each.source].remarks(each.start, each.end) for each in ranges}
        losses = {source: [each for each in found if each.lost] for source, found in remarks.items()}
        lost = any(losses.values())
        intent = None if self.units is None else self.units.agreed(compiled, batch, ranges, streams, lost=lost)
        behind = behind_of(self.context.parts, 0 if intent is None else intent.units)
        compiled = committing(compiled, self.context.parts, intent, behind)
        compiling = time.perf_counter() - begun
        through = self._run_with_helpers(compiled, reports, self._inputs(batch, streams), _Agreed(streams, intent, behind))
        tails = [report.task for part in through for report in part.staged.tails]
        middle = [report for part in through for report in part.staged.middle]
        all_reports = (*tails, *middle)
        helped = sum(part.helped for part in through)
        counts: dict[str, Counts] = {}
        for part in through:
            for node, count in gather_counts(part.compiled, part.skip, part.staged.reports).items():
                counts.setdefault(node, Counts()).add(count)
        count_as_filtered(counts, repeated_dead_letters(all_reports), (run.name for run in compiled.runs if run.stateful))
        add_losses(counts, losses)
        for sink in self.context.parts.query.sinks:
            counts.setdefault(sink, Counts())  # so that the Batch lists all of its sinks, also those without rows
        dead = [report.dead for report in all_reports if report.dead is not None]
        self._check_dead(counts, dead, intent)
        plan = plan_of(fingerprint, intent, tails)
        newest = newest_times(middle)
        receipts = (Receipt.from_json(receipt) for report in tails for receipt in report.receipts)
        decision = Decision(
            batch=batch,
            input_hash=input_hash(batch, ranges, streams, plan),
            plan=plan,
            sources=ranges,
            receipts=tuple(sorted(receipts, key=lambda receipt: (receipt.sink, receipt.unit))),
            dead=tuple(sorted(dead, key=lambda segment: segment.name)),
            counts=counts,
            decided_at=datetime.now(UTC).isoformat(timespec="milliseconds"),
            behind=behind,
            trails=tuple(report.trails for report in all_reports if report.trails is not None),
            times=self._times(batch.number, middle),
            ran={"tier": self.context.parts.plan.tier, "host": gethostname(), **({"workers": str(1 + helped)} if helped else {})},
            taken=sum_taken(report.taken for report in all_reports),
            orders=learned(self._orders(), all_reports),
            noticed=gather_notices(all_reports, self._known_columns(), read_again(remarks)),
            offers=tuple(id_ for id_, sink in self.context.parts.sinks.items() if refuses_rows(sink)),
            clocks=self._clocks(batch.number, newest),
            lookups=self._lookups(all_reports),
        )
        told = {"newest_us": {node: us for node, (us, _) in newest.items()}, "seconds": seconds_of(all_reports)}
        return decision, compiling, told

    def _run_with_helpers(self, compiled: Compiled, reports: Reports, inputs: BatchInputs, agreed: _Agreed) -> list[_PartDone]:
        """Run the Batch, divided into parts if the tier has other workers that can take some. A part that a helper could not stage runs
        here."""
        with ExitStack() as stack:
            taken = self._take_helpers(compiled, agreed.streams)
            for helper in taken:
                stack.callback(helper.drop)
            parts = divided(agreed.streams, len(taken) + 1)
            if len(parts) == 1:
                return [self._run_part(compiled, reports, inputs, agreed)]
            own, *others = (replace(inputs, part=part) for part in parts)
            for helper, theirs in zip(taken, others, strict=False):
                helper.begin(Portion(self.context.parts.query.name, theirs, agreed.intent, agreed.behind))
            done = [self._compile_and_run(own, agreed)]
            for helper, theirs in zip(taken, others, strict=False):
                staged = helper.answer()
                helped = None if staged is None else _PartDone(compiled, staged, helped=True)
                done.append(helped or self._compile_and_run(theirs, agreed))
            return done

    def _take_helpers(self, compiled: Compiled, streams: Mapping[str, tuple[SourceStream, ...]]) -> list[Helper]:
        if self.context.helpers is None or len(divided(streams, 2)) == 1 or not may_share(self.context.parts, compiled, streams):
            return []
        self._digest = self._digest or digest_of(self.context.parts)
        return self.context.helpers.take(self.context.parts.query.name, self._digest)

    def _compile_and_run(self, inputs: BatchInputs, agreed: _Agreed) -> _PartDone:
        return self._run_part(*self._frames_of(inputs, agreed), inputs, agreed)

    def _run_part(self, compiled: Compiled, reports: Reports, inputs: BatchInputs, agreed: _Agreed) -> _PartDone:
        """Run the part that `inputs` describes in this process. If a data error occurs, find its records and run again without them."""
        skip: Skip = {}
        looked = 0
        number = inputs.batch.number
        while True:
            try:
                tails = run_action(compiled, self.context.parts, reports, number)
                if self.compiled is None:  # Spark may have skipped stages of a query without state
                    read_what_is_left(compiled, reports, number)
                break
            except Exception as error:
                blame_members(self.context.parts, agreed.behind, error)
                # a Batch that commits by task output was compiled without expressions that the vector engine may give up, and must keep its
                # placement
                one_by_one = agreed.intent is not None and agreed.intent.units > 0
                if self.compiled is None and not inputs.by_spark and not one_by_one and is_not_sure_error(error):
                    inputs = replace(inputs, by_spark=True)
                    self._unsure += 1
                elif self.compiled is None and looked < _LOOKS and is_data_error(error):
                    looked += 1
                    inputs = find_culprits(self.spark, self.context.parts, self.compiler, inputs, error)
                    skip = inputs.skip
                else:
                    raise
            compiled, reports = self._frames_of(inputs, agreed)
        check_read(compiled, agreed.streams, reports, number)
        middle = middle_reports(compiled, reports, number)
        check_whole(self.context.parts.query.name, compiled, tails)
        return _PartDone(compiled, Staged(tails, middle), skip)

    def _frames_of(self, inputs: BatchInputs, agreed: _Agreed) -> tuple[Compiled, Reports]:
        """Compile the frames of a query without state."""
        reports = new_reports(self.spark)
        compiled = with_letters(self.spark, self.compiler.compile(inputs, reports), agreed.streams)
        return committing(compiled, self.context.parts, agreed.intent, agreed.behind), reports

    def _check_dead(self, counts: Mapping[str, Counts], dead: list[LineSegment], intent: Intent | None) -> None:
        """Raise StepError for a Batch with too many dead letters before any of it is visible; it is processed again at the next start.
        Output that tasks have committed or that Spark has written is visible already: such a Batch is decided first."""
        visible = (intent is not None and intent.units > 0) or any(spark_writes(sink) for sink in self.context.parts.sinks.values())
        if not visible and self.context.tally.stops and (excess := self.context.tally.excess(counts)) is not None:
            raise too_many_dead(excess, self.context.folder, dead, committed=None)

    def _clocks(self, number: int, newest: Mapping[str, tuple[int, int | None]]) -> dict[str, Clock]:
        if self.compiled is None or not self.compiled.gated:
            return {}
        last = self._last or self.decisions.newest()
        return clocks_after({} if last is None else last.clocks, newest, self.compiled.gated, number, planned_us(self._offsets, number))

    def _lookups(self, reports: Iterable[TaskReport]) -> tuple[str, ...]:
        """See `Decision.lookups`. A Batch may not read a table; the marks of earlier Batches are kept."""
        if not self.context.static:
            return ()
        last = self._last or self.decisions.newest()
        marks = {*(() if last is None else last.lookups), *(mark for report in reports for mark in report.lookups)}
        if marks and self._versions is None:
            self._versions = versions_of(self.context.parts.query.fingerprint, self.context.static)
        return tuple(sorted(current(marks, self._versions or ())))

    def _known_columns(self) -> set[tuple[str, str, str]]:
        if self._known is None:
            self._known = set(self.decisions.totals().noticed)
        return self._known

    def _times(self, number: int, middle: list[TaskReport]) -> dict[str, int]:
        """See `Decision.times`."""
        if self.compiled is None:
            return {}
        took_in = any(Counts.from_json(counts).rows_in for report in middle for counts in report.counts.values())
        leaves_us = max((report.leaves for report in middle), default=0) if self.compiled.gated else NEVER_US if took_in else 0
        return {"watermark_us": watermark_us(self._offsets, number), "leaves_us": leaves_us}

    def _frames(self, batch: BatchId, streams: Mapping[str, tuple[SourceStream, ...]], df: DataFrame) -> tuple[Compiled, Reports]:
        if self.compiled is None:
            reports = new_reports(self.spark)
            return self.compiler.compile(self._inputs(batch, streams), reports), reports
        assert self.reports is not None
        (tail,) = self.compiled.tails
        program = with_orders(replace(tail.program, batch=batch), self._orders())
        return replace(self.compiled, tails=(replace(tail, frame=df, program=program),)), self.reports

    def _orders(self) -> Mapping[str, Mapping[str, Any]]:
        """Step of utilities → what the previous Batch recorded for it; only for steps that the query has and that still are utilities."""
        last = self._last or self.decisions.newest()
        steps, own = self.context.parts.plan.flow.steps, {node.id for node in self.context.parts.query.nodes}
        kept = {step for step in own if step in steps and isinstance(steps[step].action, Utilities)}
        return {} if last is None else {step: left for step, left in last.orders.items() if step in kept}

    def _inputs(self, batch: BatchId, streams: Mapping[str, tuple[SourceStream, ...]]) -> BatchInputs:
        in_tail = None if self.units is None else self.units.in_tail(batch.number)
        by_spark = self._unsure >= _UNSURE_BATCHES if in_tail is None else not in_tail
        return BatchInputs(batch, {**streams, **self.context.static}, by_spark=by_spark, orders=self._orders())

    # --- publish ---

    def _publish(self, decision: Decision) -> Decision:
        faults.reached("publish.before")
        decision = publish(
            decision, {id_: self.context.parts.sinks[id_] for id_ in self.context.parts.query.sinks}, self.decisions, self.context.folder
        )
        faults.reached("publish.after")
        return decision

    def _replay(
        self, decided: Decision, ranges: tuple[SourceRange, ...], streams: Mapping[str, tuple[SourceStream, ...]], df: DataFrame
    ) -> None:
        """Publish a Batch that was decided before a crash, from its record; its rows are not processed again."""
        begun = time.perf_counter()
        if decided.input_hash != input_hash(decided.batch, ranges, streams, decided.plan):
            raise StateError(
                f"Query {self.context.parts.query.name}: batch {decided.batch.number} was decided with different input "
                "than Spark reads now",
                remedy="restore the state folder as a whole; its parts belong together",
            )
        decided = self._publish(decided)
        if self.compiled is not None:
            # Spark's state must process the rows again; returning without an action would break its checkpoint
            df.write.format("noop").mode("append").save()
        self._last = decided
        self.on_commit(CommittedBatch(decided, streams, {"publish": time.perf_counter() - begun}, replayed=True))


def read_again(remarks: Mapping[str, Iterable[SourceStream]]) -> list[FormatNotice]:
    """A notice for each file that was rewritten after it was read. `remarks`: source → the entries that its log has remarks on."""
    found = [(source, stream) for source, streams in remarks.items() for stream in streams if stream.again]
    return [FormatNotice(source, stream.label, "again", "", stream.again) for source, stream in found]
