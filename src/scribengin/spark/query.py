"""Runs one query: starts it, watches it, stops it between Batches, and restarts it after a temporary failure."""

from __future__ import annotations

import threading
import time
from contextlib import suppress
from dataclasses import dataclass, field
from math import inf
from typing import TYPE_CHECKING, Any

import msgspec

from scribengin.connectors.abilities import buffers_batches
from scribengin.core.errors import Refused, ScribenginError
from scribengin.core.remote import RemotePath
from scribengin.core.storage import make_folder, remove_tree
from scribengin.spark.commit import BatchHold, BatchRunner, CommittedBatch
from scribengin.spark.compile import Compiler
from scribengin.spark.compiled_query import StreamInputs
from scribengin.spark.failures import classify, is_stop
from scribengin.spark.session import use_remote_checkpoints
from scribengin.spark.source_input import (
    LATENCY_POLL_S,
    POLL_S,
    Exhausted,
    FedRanges,
    Feed,
    OffsetConfig,
    OffsetRanges,
    Ranges,
    StopRequested,
    clock,
    read_offsets,
    verify_entries,
)
from scribengin.spark.task_report import new_reports
from scribengin.spark.unit_commits import UnitCommits
from scribengin.spark.watermarks import IdleInputs
from scribengin.spark.without_pandas import map_in_arrow
from scribengin.spec.model import Step
from scribengin.state.decisions import Decisions
from scribengin.state.intents import Intents
from scribengin.state.ledger import note_published
from scribengin.state.source_log import SourceLog

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

    from scribengin.connectors.contract import BatchLimits, SourceStream
    from scribengin.spark.commit import QueryContext
    from scribengin.spark.compiled_query import Compiled, QueryParts


# The progress of the current Batch in Spark tasks.


def tasks_under_way(spark: SparkSession, group: str) -> tuple[int, int] | None:
    """(finished tasks, all tasks) of the running jobs of a job group; None if none runs.

    It calls the JVM a few times, which takes some ms: for displays, not for every poll.
    """
    tracker = spark.sparkContext.statusTracker()
    running = set(tracker.getActiveJobsIds()).intersection(tracker.getJobIdsForGroup(group))
    infos = [info for job in running if (info := tracker.getJobInfo(job)) is not None]
    stages = [stage for info in infos for id_ in info.stageIds if (stage := tracker.getStageInfo(id_)) is not None]
    total = sum(stage.numTasks for stage in stages)
    return (sum(stage.numCompletedTasks for stage in stages), total) if total else None


BACK_OFF_S = (0.0, 2.0, 10.0, 60.0)
"""Seconds before each restart after a temporary failure; a continuous run repeats the last value."""
ONCE_TRIES = 3
_NOTED_AFTER_S = 5.0
"""seconds after which the last Batch of a query that waits is recorded as published; the decision of a following one would show it"""
_POLL_S = 0.1
_LATE_EVERY_S = 60.0
_TASKS_EVERY = 5
"""every how many polls of the query its tasks are counted"""
_PENDING_S = 5.0
"""for so many seconds a source may have records without handing them out; after that it counts as having nothing to read"""
_ENDLESS_AFTER = 10
"""Batches after which the input of a source counts as endless"""
_NO_DATA = "Waiting for data to arrive"
"""the status of Spark's query when it found no new input"""


@dataclass(slots=True)
class QueryProgress:
    """Spark's last report on the query: its backlog per source, its watermark, the rows in its state."""

    backlog: dict[str, dict[str, Any]] = field(default_factory=dict)
    notices: list[str] = field(default_factory=list)
    watermark: str = ""
    gated: tuple[str, ...] = ()
    """see `Compiled.gated`"""
    held: int | None = None
    held_bytes: int | None = None
    """memory that its state uses, in bytes"""
    state_partitions: int | None = None
    """the most partitions of the state of one of its steps"""
    batch: int = -1
    tasks: tuple[int, int] | None = None
    """(finished, all) tasks of the current Batch"""


@dataclass(slots=True)
class QueryRun:
    """The lifetime of a query in this process, driven by `run` in a thread of its own. Displays read `state` and `error`."""

    context: QueryContext
    once: bool
    fed: Callable[[], bool] = field(default=lambda: True)
    """under `once`: True when no more input will come from tiers that run at the same time; until then the query runs as without `once`"""
    all_fed: bool = False
    """True if it has no other input"""
    state: str = "starting"
    error: ScribenginError | None = None
    message: str = ""
    restarts: int = 0
    idled: bool = False
    """True once the query has found nothing to read, since it started in this process"""
    progress: QueryProgress = field(default_factory=QueryProgress)
    _busy: threading.Lock = field(default_factory=threading.Lock)
    _ending: bool = False
    """True while `_end` holds `_busy`, which it does until Spark's query has stopped"""
    _exhausted: bool = False
    _ends_by_itself: bool = False
    """True for a stateful query that was started with all its input available: it ends when it has processed that"""
    _raised: Exception | None = None
    """the exception that the query's last Batch raised in this process"""
    _committed: int = 0
    """Batches committed since the last start"""
    _committed_when_fed: int | None = None
    """those of them that were committed when no more input could come from preceding tiers"""
    _told_late_s: float = -inf
    _reported_dead: bool = False
    _waited_since: float = inf
    """the time of the first poll that found nothing to read"""
    idle: IdleInputs | None = None
    """set for a stateful query while it runs"""
    _first: int = 0
    """the Batch that Spark counts as 0"""
    _published: int = -1
    """the newest Batch that is known to be published"""
    _published_s: float = 0.0
    """when that was, by the monotonic clock"""
    _noted: int = -1
    """the newest Batch of which a record in the state shows that"""

    def run(self) -> None:
        """Run until finished, stopped or failed; never raises. A committed Batch resets the number of retries."""
        tries = 0
        self.context.log.info("query started", once=self.once)
        while True:
            self._raised = None
            try:
                if not self._ran():
                    continue
                self.context.log.info(f"query {self.state}")
                return
            except Exception as caught:
                # an exception of our own code in a Batch comes back from the JVM as text only
                error = self._raised or caught
            fault, fate = classify(error)
            if self.context.stop.is_set() and (fate == "transient" or _asked_to_stop(error)):
                self.state = "stopped"
                self.context.log.info("query stopped", interrupted=fault.message)
                return
            tries = 1 if self._committed else tries + 1
            if fate == "permanent" or (self.once and tries > ONCE_TRIES):
                self.state, self.error, self.message = "failed", fault, fault.message
                self.context.log.error("query failed", message=fault.message, remedy=fault.remedy, tries=tries, exc_info=error)
                return
            wait_s = BACK_OFF_S[min(tries - 1, len(BACK_OFF_S) - 1)]
            self.restarts += 1
            self.state, self.message = "recovering", f"{fault.message}; restarts {f'in {wait_s:g} s' if wait_s else 'at once'}"
            self.context.log.warning("query restarts", message=fault.message, wait_s=wait_s, tries=tries, exc_info=error)
            self.context.stop.wait(wait_s)
            if self.context.stop.is_set():
                self.state, self.message = "stopped", ""
                return

    def _final(self) -> bool:
        return self.once and self.fed()

    def _ran(self) -> bool:
        """Start the query and run it to its end; False if it must be started again as a query that ends by itself."""
        self._exhausted = self._ending = False
        self._committed, self._committed_when_fed = 0, None
        self._ends_by_itself = self._final()
        query = self._start()
        self.state, self.message = "running", ""
        try:
            looks = 0
            while not query.awaitTermination(_POLL_S):  # type: ignore[arg-type]  # accepts a float, in seconds
                self._observe(query)
                looks += 1
                if looks % _TASKS_EVERY == 0 and self.context.parts.query.stateful and self._busy.acquire(blocking=False):
                    try:
                        self._keep_up()
                        if self.idle is not None:
                            self.idle.advance(query, time.time_ns() // 1000)
                    finally:
                        self._busy.release()
                if looks % _TASKS_EVERY == 0:
                    if self.context.parts.query.stateful and not (self.idled or self._committed) and query.status["message"] == _NO_DATA:
                        self._note_wait(pending=True)  # for a stateful query Spark polls the sources, and reports no more than that
                    self.progress.tasks = tasks_under_way(self.context.spark, str(query.runId)) if self._busy.locked() else None
                if self.context.stop.is_set() or (self._must_start_again() and self._has_settled(query)):
                    self._end(query)
        except Exception as error:
            # what `_end` interrupts does not count: a Batch that just began, or a write of Spark's own between two Batches, which Hadoop's
            # client reports as a failure ("Failed to shutdown streamer"); the next start repeats it
            interrupted = self._ending and self._raised is None
            asked = (self.context.stop.is_set() or self._ending) and _asked_to_stop(self._raised or error)
            if not (self._exhausted or interrupted or asked):
                raise
        self._observe(query)
        if not self.context.stop.is_set() and self._must_start_again():
            return False
        with suppress(ScribenginError, OSError):  # only displays miss it; the next process publishes again
            self._note_published()
        self.state, self.message = "stopped" if self.context.stop.is_set() and not self._exhausted else "finished", ""
        return True

    def _must_start_again(self) -> bool:
        """True if a stateful query must be started again so that it ends: its trigger cannot change while it runs."""
        return self.context.parts.query.stateful and not self._ends_by_itself and self._final()

    def _has_settled(self, query: StreamingQuery) -> bool:
        """True if Spark has processed all that the preceding tiers have sent, the watermark of the last Batch included: Spark moves to that
        in a Batch without input, but not after a restart, so that the rows of closed windows would wait for the next input. A source of
        its own may have input for ever; then there is some after the restart too."""
        if self._committed_when_fed is None:
            self._committed_when_fed = self._committed
        endless = not self.all_fed and self._committed >= self._committed_when_fed + _ENDLESS_AFTER
        return endless or query.status["message"] == _NO_DATA

    def _end(self, query: StreamingQuery) -> None:
        """Stop between two Batches: the stop flag ends a Batch that begins; the lock shows whether one is running."""
        self.state = "stopping"
        self.message = "waiting for the current batch"
        if self._busy.acquire(blocking=False):
            self._ending = True
            try:
                query.stop()
            finally:
                self._busy.release()

    def _start(self) -> StreamingQuery:
        session = self.context.spark.newSession()
        checkpoint, first = self._open_log(session)
        self.context.spark.sparkContext.setLocalProperty("spark.scheduler.pool", self.context.parts.query.name)
        compiler = Compiler(session, self.context.parts)
        self._recheck()
        stateful = self.context.parts.query.stateful
        compiled = reports = None
        if stateful:  # a stateless query is compiled for each Batch; Spark has analysed both kinds before the run
            reports = new_reports(session)
            compiled = compiler.compile(
                streaming_inputs(session, self.context.parts, self.context.limits, self.context.static, self.context.starts), reports
            )
            check_streaming(session, compiled, self.context.parts)
            self.progress.gated = compiled.gated
            self.idle = IdleInputs.of(self.context.parts, self.context.log.info)

        ranges: Ranges = OffsetRanges(session, self.context.parts.query.sources, self.context.starts) if stateful else self._fed_ranges()

        def committed(batch: CommittedBatch) -> None:
            self._committed += not batch.replayed or self.context.spark_log is None
            self._published, self._published_s = batch.decision.batch.number, time.monotonic()
            if self.context.notes_each:
                self._note_published()
            self.progress.tasks = None
            if batch.notice:
                self._report_late(batch.notice)
            self._report_dead()
            ranges.committed(batch.streams)
            if self.context.pressure is not None and not batch.replayed:
                self.context.pressure.committed(batch)
            self.context.on_commit(batch)

        decisions = Decisions(self.context.folder.decisions)
        runner = BatchRunner(
            context=self.context,
            spark=session,
            compiler=compiler,
            decisions=decisions,
            logs={source: SourceLog(self.context.folder.sources, source) for source in self.context.parts.query.sources},
            ranges=ranges,
            on_commit=committed,
            hold=None if self.context.pressure is None else BatchHold(self.context.pressure, self.context.stop, self._note_throttled),
            units=UnitCommits.of(
                self.context.parts,
                Intents(self.context.folder.intents / self.context.lineage),
                decisions,
                session.sparkContext.defaultParallelism,
            ),
            compiled=compiled,
            reports=reports,
            idle=self.idle,
        )

        def batch(frame: DataFrame, number: int) -> None:
            try:
                # `_end` waits for this thread, so waiting for its lock would never end; work between Batches does end
                while not self._busy.acquire(timeout=_POLL_S):
                    if self._ending:
                        raise StopRequested
                try:
                    runner(frame, first + number)
                finally:
                    self._busy.release()
            except Exhausted:
                self._exhausted = True
                raise
            except Exception as error:
                self._raised = error
                raise

        df = clock(session) if compiled is None else compiled.tails[0].frame
        writer = df.writeStream.queryName(self.context.parts.full_name).foreachBatch(batch)
        writer = writer.option("checkpointLocation", checkpoint).outputMode(output_mode(self.context.parts))
        if self._ends_by_itself and stateful:
            return writer.trigger(availableNow=True).start()
        # with `once` a trigger would only delay the end
        trigger_s = max(POLL_S, 0.0 if self.once else self.context.parts.query.trigger_s) if stateful else 0.0
        return writer.trigger(processingTime=f"{round(trigger_s * 1000)} milliseconds").start()

    def _open_log(self, session: SparkSession) -> tuple[str, int]:
        """(where Spark keeps its log, the Batch that it counts as 0). A log on this machine is new at each start, from the Batch after
        the newest decided one on, or from that one if it may not be published yet."""
        folder, log = self.context.folder, self.context.spark_log
        if log is None:
            if isinstance(folder.path, RemotePath):
                use_remote_checkpoints(session, folder.path)
            return str(folder.checkpoint), 0
        if folder.checkpoint.exists():  # of an earlier release
            remove_tree(folder.checkpoint)
        newest = Decisions(folder.decisions).newest()
        self._published = max(self._published, self.context.published)
        self._published_s = time.monotonic()
        self._first = self.context.first
        if newest is not None:
            self._first = newest.batch.number + (newest.batch.number <= self._published)
        if log.exists():
            remove_tree(log)
        log = log.resolve() / str(self.context.lease.term)  # a driver of this machine that was suspended has another folder
        make_folder(log)
        return f"file://{log}", self._first  # with the scheme: on a cluster Spark would look into its file system

    def _note_published(self) -> None:
        """Record that the newest Batch is published, unless Spark's log shows it."""
        if self.context.spark_log is not None and self._published > self._noted:
            note_published(self.context.folder, self.context.lineage, self._published)
            self._noted = self._published

    def _report_late(self, notice: str) -> None:
        """Report late rows at once, and then at most once a minute."""
        if time.monotonic() - self._told_late_s >= _LATE_EVERY_S:
            self._told_late_s = time.monotonic()
            self.progress.notices.append(notice)
            self.context.log.warning("late rows", message=notice)

    def _report_dead(self) -> None:
        """Report once that too many records are dead letters."""
        if self.context.tally.cause and not self._reported_dead:
            self._reported_dead = True
            notice = f"query {self.context.parts.query.name}: {self.context.tally.degraded or self.context.tally}"
            self.progress.notices.append(notice)
            self.context.log.warning("dead letters", message=notice)

    def _recheck(self) -> None:
        last = Decisions(self.context.folder.decisions).newest()
        ends = self.context.starts if last is None else {each.source: each.end for each in last.sources}
        for source in self.context.parts.query.sources:
            self.progress.notices += verify_entries(self.context.parts.sources[source], self.context.folder.sources, ends.get(source, 0))

    def _fed_ranges(self) -> FedRanges:
        query = self.context.parts.query
        name, log = self.context.parts.full_name, self.context.folder.sources
        feeds = [
            Feed(self.context.parts.sources[id_], log, self.context.limits[id_], query=name, reports=not self.context.parts.released_later)
            for id_ in query.sources
        ]
        poll_s = LATENCY_POLL_S if self.context.parts.plan.flow.defaults.profile == "latency" else POLL_S
        return FedRanges(feeds, query.trigger_s, self._final, self.context.stop, self._looked, self.context.starts, poll_s)

    def _note_throttled(self, why: str, paused: bool) -> None:
        if why or self.state == "paused":
            self.state, self.message = "paused" if paused else "running", why
        elif self.state == "running":
            self.message = ""

    def _looked(self, backlog: dict[str, dict[str, Any]], notices: list[str], waits: bool) -> None:
        self.progress.backlog = backlog
        self.progress.notices += notices
        self._keep_up()
        self.state = "waiting" if waits else "running"
        if waits and time.monotonic() - self._published_s > _NOTED_AFTER_S:
            self._note_published()
        if waits and not self.idled:
            self._note_wait(pending=any(each.get(figure) for each in backlog.values() for figure in ("rows", "files", "bytes")))

    def _note_wait(self, *, pending: bool) -> None:
        """Record that a poll found nothing to read. `pending`: True if a source may have input that it does not hand out yet, such as a
        file that is still being written; it may become the first Batch soon."""
        self._waited_since = min(self._waited_since, time.monotonic())
        self.idled = not pending or time.monotonic() - self._waited_since > _PENDING_S

    def _keep_up(self) -> None:
        """Between Batches: send what sinks have kept, if possible."""
        for sink in self.context.parts.sinks.values():
            if buffers_batches(sink):
                self.progress.notices += sink.upkeep()

    def _observe(self, query: StreamingQuery) -> None:
        last = query.lastProgress
        if last is None or (self._first + last.batchId == self.progress.batch and not last.sources):
            return
        self.progress.batch = self._first + last.batchId
        watermark = (last.eventTime or {}).get("watermark", "")
        # Spark's watermark is the epoch until rows with a time have been processed
        self.progress.watermark = "" if watermark.startswith("1970-01-01T00:00:00") else watermark
        self.progress.held = sum(operator.numRowsTotal for operator in last.stateOperators) if last.stateOperators else None
        self.progress.held_bytes = sum(operator.memoryUsedBytes for operator in last.stateOperators) if last.stateOperators else None
        self.progress.state_partitions = max((operator.numShufflePartitions for operator in last.stateOperators), default=None)
        for source in last.sources:
            latest = msgspec.json.decode(source.latestOffset) if source.latestOffset not in (None, "null", "") else None
            if latest is not None:
                # a new mapping, since readers recognise a new poll by that
                self.progress.backlog = {**self.progress.backlog, latest["source"]: msgspec.json.decode(latest["backlog"])}
                self.progress.notices += [note for note in latest["notes"].split("\n") if note and note not in self.progress.notices]


def _asked_to_stop(error: BaseException) -> bool:
    return isinstance(error, StopRequested) or is_stop(error)


def streaming_inputs(
    spark: SparkSession,
    parts: QueryParts,
    limits: Mapping[str, BatchLimits],
    static: Mapping[str, tuple[SourceStream, ...]],
    starts: Mapping[str, int] | None = None,
) -> StreamInputs:
    """Streaming frames of descriptors for all sources of the query. For a stateless query they are only analysed, never run.

    Args:
        spark: The session.
        parts: The query.
        limits: Streaming source → the most that a Batch may read of it.
        static: Static source → its contents.
        starts: Source → the entry of its log at which a new checkpoint begins; 0 for sources that are not listed.
    """
    log = parts.letters.folder.parent / "sources"
    if parts.query.stateful:
        frames = {
            source: read_offsets(
                spark,
                OffsetConfig(
                    parts.sources[source],
                    log,
                    limits[source],
                    parts.full_name,
                    not parts.released_later,
                    (starts or {}).get(source, 0),
                ),
            )
            for source in parts.query.sources
        }
    else:
        frames = {source: clock(spark).selectExpr("'' AS source", "0 AS index", "'' AS stream") for source in parts.query.sources}
    return StreamInputs(frames, static)


def check_streaming(spark: SparkSession, compiled: Compiled, parts: QueryParts) -> None:
    """Make Spark analyse the plan with streaming frames, so that a plan that works only for a single Batch is found.

    Raises Refused or Spark's AnalysisException.
    """
    reads = [node.id for node in parts.query.nodes if node.stage == "read"]
    if parts.query.stateful and (len(compiled.tails) != 1 or reads):
        stateful = next(node.id for node in parts.query.nodes if node.stateful)
        raise Refused(
            f'query {parts.query.name}: step "{stateful}" keeps state, but its sinks read it on {len(compiled.tails) + bool(reads)} paths',
            remedy="remove `together`, and replace a sink that reads several steps with one sink for each",
            code="state-several-ways",
            node=parts.query.sinks[0],
        )
    jvm: Any = spark._jvm
    checker = jvm.org.apache.spark.sql.catalyst.analysis.UnsupportedOperationChecker
    modes = jvm.org.apache.spark.sql.streaming.OutputMode
    mode = {"append": modes.Append, "update": modes.Update, "complete": modes.Complete}[output_mode(parts)]()
    for tail in compiled.tails:
        checker.checkForStreaming(tail.frame._jdf.queryExecution().analyzed(), mode)
        # the entry of the task pipeline, where a Batch would fail first
        map_in_arrow(tail.frame, iter, "receipt BINARY")


def output_mode(parts: QueryParts) -> str:
    """The `emit` of the query's aggregations; checks have made sure that all have the same."""
    flow = parts.plan.flow
    emits = {node.emit for id_ in parts.query.nodes if isinstance(node := flow.node(id_.id), Step)} - {"append"}
    return next(iter(emits), "append")
