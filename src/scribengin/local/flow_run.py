"""One running flow in this process: its queries, each in a thread, its back-pressure control, and the release of acknowledged input."""

from __future__ import annotations

import os
import threading
import time
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from scribengin.connectors.channel.outbox import OutboxSink, left_text
from scribengin.connectors.group.contract import chooses
from scribengin.core.problems import Problem
from scribengin.core.remedies import flow_command
from scribengin.local.acks import Releases, topology_of
from scribengin.local.background_compaction import BackgroundCompaction, show_all
from scribengin.local.backlog_view import Levels
from scribengin.local.channel_backpressure import ChannelThrottle, QueryBackPressure
from scribengin.local.channel_verification import MISMATCH_REMEDY, mismatch_text
from scribengin.local.contract import QueryResult, SinkResult
from scribengin.local.ledger import in_plan_order, ledger_lines, query_rows, stateful_runs
from scribengin.local.query_metrics import Meter
from scribengin.local.rate_limit import Paced
from scribengin.local.reset import TrashKeeper
from scribengin.local.schema_drift import Learning, NoticedNow, keep_all_learned, read_noticed
from scribengin.local.sink_columns import accepted_rows
from scribengin.local.stored_queries import letters_waiting
from scribengin.local.summaries import SummaryKeeper
from scribengin.plan.diff import letters
from scribengin.plan.groups import member_places, target
from scribengin.plan.maintained_places import kept_folders, kept_stores
from scribengin.plan.tier_flows import source_id
from scribengin.spark.open_windows import open_windows_note
from scribengin.state.channel_acks import QueryKey, QueryReading
from scribengin.state.columns import ChannelFolder
from scribengin.state.contract import Counts
from scribengin.state.decisions import Decisions
from scribengin.state.ledger import read_held, write_held
from scribengin.state.replays import Replays
from scribengin.state.retention import Retention
from scribengin.state.topology import has_moved

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping, Sequence

    from structlog.typing import FilteringBoundLogger

    from scribengin.connectors.contract import SourceStream
    from scribengin.connectors.group.health import MemberSeen
    from scribengin.core.errors import ScribenginError
    from scribengin.local.contract import GateView, QueryView, RunSettings
    from scribengin.local.prepare import Prepared, PreparedFlow
    from scribengin.local.query_parts import OpenedQuery
    from scribengin.spark.commit import CommittedBatch
    from scribengin.spark.query import QueryRun
    from scribengin.state.channel_checks import Mismatch


@dataclass(slots=True)
class LiveQuery:
    """A query that runs in a thread of its own. `ended` is set when the thread has ended."""

    tier: Prepared
    opened: OpenedQuery
    meter: Meter
    run: QueryRun
    thread: threading.Thread
    ended: threading.Event


class FlowRun:
    """The queries of a flow, from their start to their results. Used by one thread, besides those that it starts."""

    def __init__(
        self,
        prepared: PreparedFlow,
        settings: RunSettings,
        queries: Sequence[tuple[Prepared, OpenedQuery]],
        logs: Mapping[str, FilteringBoundLogger],
        fed_from_outside: Callable[[Collection[str]], bool],
    ) -> None:
        """Prepare the run of a flow, without starting it.

        Args:
            prepared: The flow.
            settings: The settings of the run.
            queries: The opened queries, each with its tier.
            logs: Tier → its run log.
            fed_from_outside: True if no other flow of this process will write any more what the sources with these ids read.
        """
        self.prepared = prepared
        self._settings = settings
        self._logs = logs
        self._fed_from_outside = fed_from_outside
        self._begun = time.monotonic()
        self._noted: set[str] = set()
        self._told: list[str] = [prepared.named(note) for tier in prepared.tiers for note in unreplayed_notices(tier)]
        self._levels = Levels(topology_of(prepared.plan, prepared.root))
        feeders = {link.channel: link.writer.query for link in self._levels.topology.links}
        self._gates = {
            channel.id: ChannelThrottle(channel, feeders[channel.id], partial(self._levels.level, channel.id))
            for channel in prepared.plan.channels
        }
        self._mismatches: list[tuple[Mismatch, str]] = []
        """with the text that is reported for each"""
        self._releases = Releases(prepared, self._levels, say=self._note_failure, stop=self._stop)
        self._ended = threading.Event()
        self._releasing = threading.Thread(target=self._releases.run, args=(self._ended,), name="releases")
        folders = {folder for tier in prepared.tiers for folder in kept_folders(tier.plan.flow)} - settings.kept_elsewhere
        stores = [store for tier in prepared.tiers for store in kept_stores(tier.plan.flow)]
        self._rolling = BackgroundCompaction([Path(folder) for folder in sorted(folders)], self._note_failure, stores)
        self._hidden: list[tuple[Prepared, OpenedQuery, ScribenginError]] = []
        """queries whose output is not all visible, and why"""
        self._trash = TrashKeeper(prepared)
        self._accepted: tuple[Mapping[str, object], ...] | None = None
        keep_all_learned(prepared.plan.flow, prepared.root)
        self._learning: list[Learning] = []
        self._noticed = NoticedNow(prepared.plan.flow, self._learning)
        self.live = [self._make(tier, opened) for tier, opened in queries]

    def _make(self, tier: Prepared, opened: OpenedQuery) -> LiveQuery:
        channels = [channel for channel in self.prepared.plan.channels if channel.reading == tier.plan.tier]
        read = {source_id(channel): channel.id for channel in channels if source_id(channel) in opened.plan.sources}
        me = QueryKey(tier.plan.tier, opened.plan.name)
        waits = {source: partial(self._levels.waiting_for, QueryReading(me, source)) for source in read}
        meter = Meter(opened.plan.sources, opened.plan.sinks, last=opened.totals().last, channels=waits)
        log = self._logs[tier.plan.tier].bind(query=opened.plan.name)
        kept = tier.plan.flow.defaults
        retention = Retention(opened.folder, kept.retain_s, retain_bytes=kept.retain_bytes)
        retention.apply()
        replays = Replays(opened.folder.replays)
        ended = threading.Event()
        self._follow_turns(tier, opened)

        def notice(text: str) -> None:
            self._told.append(text)
            log.info("columns", message=text)

        learning = Learning(self.prepared.plan.flow, self.prepared.root, notice)
        learning.begin(opened.totals(), read_noticed(opened.folder))
        self._learning.append(learning)
        keeper = SummaryKeeper(tier.plan.flow, opened.folder, opened.plan.sinks, notice)

        def begun(streams: Mapping[str, tuple[SourceStream, ...]]) -> None:
            for source, channel in read.items():
                if (spec := tier.plan.flow.sources[source].schema) is not None:
                    ChannelFolder.of(tier.folder.root, tier.folder.flow, channel).check_columns(spec.fields, source)
            meter.begun(streams)

        def committed(batch: CommittedBatch) -> None:
            meter.committed(batch)
            replays.note_done(stream for streams in batch.streams.values() for stream in streams)
            learning.committed(batch)
            keeper.committed(batch.decision)
            retention.apply()
            self._trash.empty_old()

        def fed() -> bool:
            if any(not live.ended.is_set() for live in self.live if set(read.values()).intersection(live.opened.plan.sinks)):
                return False
            return self._fed_from_outside(opened.plan.sources)

        run = opened.make_run(
            once=self._settings.once,
            stop=self._settings.stop,
            on_begin=begun,
            on_commit=committed,
            log=log,
            fed=fed,
            all_fed=set(opened.plan.sources) <= read.keys(),
            pressure=self._pressure(tier, opened),
            helpers=self._settings.helpers,
        )

        def drive() -> None:
            try:
                run.run()
                self._show_all(tier, opened)
            finally:
                meter.end()
                ended.set()

        return LiveQuery(tier, opened, meter, run, threading.Thread(target=drive, name=f"query {opened.plan.name}"), ended)

    def _pressure(self, tier: Prepared, opened: OpenedQuery) -> QueryBackPressure | Paced | None:
        for id_, sink in opened.parts.sinks.items():
            if isinstance(sink, OutboxSink):
                sink.is_full = self._gates[id_].full_text
        gates = [self._gates[sink] for sink in opened.plan.sinks if sink in self._gates]
        depth = QueryBackPressure(gates, opened.limits) if gates else None
        if self._settings.limits is None:
            return depth
        return Paced(opened.plan, self.prepared.plan, tier.plan.tier, opened.limits, self._settings.limits, depth)

    def _follow_turns(self, tier: Prepared, opened: OpenedQuery) -> None:
        """Give each sink that writes to a whole group the function that returns the settings of the group."""
        for id_, sink in opened.parts.sinks.items():
            group = target(tier.plan.flow.sinks[id_])
            if self._settings.turns is not None and chooses(sink) and group is not None and "." not in group:
                sink.turns = partial(self._settings.turns, group)

    # --- life ---

    def start(self) -> None:
        """Start every query."""
        for log in self._logs.values():
            log.info("run started", flow=self.prepared.name, pid=os.getpid(), once=self._settings.once)
        if self._releases.wanted:
            self._releases.begin()
            self._releasing.start()
        self._rolling.start()
        for live in self.live:
            live.thread.start()

    @property
    def alive(self) -> bool:
        """True while a query runs."""
        return any(live.thread.is_alive() for live in self.live)

    @property
    def failed(self) -> bool:
        """True if a query has failed."""
        return bool(self._mismatches or self._hidden) or any(live.run.state == "failed" for live in self.live)

    def join(self) -> None:
        """Wait for the queries, which were requested to stop or end on their own, and for the last releases."""
        for live in self.live:
            live.thread.join()
        self._ended.set()
        self._rolling.stop()
        if self._releases.wanted:
            self._releasing.join()

    def log_end(self, state: str, *, balanced: bool) -> None:
        """Log the end of the run in the logs of its tiers."""
        for log in self._logs.values():
            log.info("run ended", state=state, balanced=balanced, seconds=time.monotonic() - self._begun)

    def writes(self, sink: str) -> bool:
        """True while a query may still write that sink."""
        return any(sink in live.opened.plan.sinks and not live.ended.is_set() for live in self.live)

    # --- what is shown ---

    def views(self) -> tuple[QueryView, ...]:
        """The current view of every query."""
        tier = (lambda live: live.tier.plan.tier) if self._gates else (lambda _: "")
        return tuple(
            replace(live.meter.view(live.opened.plan.name, live.run), tier=tier(live), members=_members(live.opened)) for live in self.live
        )

    def gates(self) -> tuple[GateView, ...]:
        """The current view of every channel."""
        return tuple(gate.view() for gate in self._gates.values())

    def notices(self) -> tuple[str, ...]:
        """Sentences that were not shown yet."""
        told = [*(note for live in self.live for note in live.run.progress.notices), *self._told]
        notices = tuple(dict.fromkeys(note for note in told if note not in self._noted))
        self._noted.update(notices)
        return notices

    def noticed(self) -> tuple[Mapping[str, object], ...]:
        """The differences between the data and the schemas, as `status` shows them."""
        return self._noticed.rows()

    def accepted(self) -> tuple[Mapping[str, object], ...]:
        """Accepted columns of its sinks in this process, as `status` shows them."""
        if self._accepted is None:
            sinks = {sink: self.prepared.plan.flow.sinks.get(sink) for live in self.live for sink in live.opened.plan.sinks}
            mine = {sink: node for sink, node in sinks.items() if node is not None}
            self._accepted = tuple(accepted_rows(self.prepared.root, self.prepared.name, mine))
        return self._accepted

    def tell(self, text: str) -> None:
        """Add a notice about columns, before the start."""
        self._told.append(text)
        next(iter(self._logs.values())).info("columns", message=text)

    def _note_failure(self, text: str) -> None:
        """Report what could not be released or maintained."""
        self._told.append(text)
        next(iter(self._logs.values())).warning("release", message=text)

    def _stop(self, mismatch: Mismatch) -> None:
        """Stop the queries, because to continue would spread the error."""
        self._mismatches.append((mismatch, str(mismatch)))
        self._settings.stop.set()
        text = mismatch_text(self.prepared.plan, self.prepared.root, mismatch)
        self._mismatches[-1] = (mismatch, text)
        next(iter(self._logs.values())).error("channel mismatch", message=text)

    # --- results ---

    def results(self) -> tuple[QueryResult, ...]:
        """The result of every query."""
        told: dict[str, None] = {}
        results = []
        for live, learning in zip(self.live, self._learning, strict=True):
            new = [text for text in learning.repeated if text not in told]
            told.update(dict.fromkeys(new))
            results.append(self._query_result(live, new))
        return tuple(results)

    def violations(self) -> tuple[str, ...]:
        """The violations of the ledger."""
        return tuple(violation for live in self.live for violation in live.opened.balance())

    def problems(self) -> tuple[Problem, ...]:
        """The warnings, and the reasons of queries that failed."""
        failed = [(live, live.run.error) for live in self.live if live.run.error is not None and live.run.state == "failed"]
        return (
            *self.prepared.warnings,
            *(self._failure(live, error) for live, error in failed),
            *self._too_many_dead(),
            *(self._mismatched(*each) for each in self._mismatches),
            *(self._unseen(*each) for each in self._hidden),
        )

    def _too_many_dead(self) -> Iterator[Problem]:
        """The problems of queries that have not failed, but have too many dead letters."""
        for live in self.live:
            tally, name = live.run.context.tally, live.opened.plan.name
            if live.run.state == "failed" or not tally.cause:
                continue
            place = live.tier.place_of(name)
            look = self.prepared.named(f"see them: {flow_command('dead-letter list')}")
            if tally.degraded is not None:
                yield Problem("max-dead", place, f"query {name}: {tally.degraded}", look)
            else:
                yield Problem("mostly-dead", place, f"query {name}: {tally}", f"{look}; {tally.remedy}")

    def _show_all(self, tier: Prepared, opened: OpenedQuery) -> None:
        error = show_all(tier.plan.flow, opened.plan.sinks)
        if error is not None:
            self._hidden.append((tier, opened, error))
            self._logs[tier.plan.tier].error("roller", query=opened.plan.name, message=error.message)

    def _unseen(self, tier: Prepared, opened: OpenedQuery, error: ScribenginError) -> Problem:
        """The problem for committed output that readers do not see yet."""
        message = f"query {opened.plan.name}: {error.message}"
        remedy = f"{error.remedy}; then: {flow_command('maintain', '--flush')}"
        return Problem(error.code, tier.place_of(opened.plan.name), message, self.prepared.named(remedy))

    def _mismatched(self, mismatch: Mismatch, text: str) -> Problem:
        channel = next(each for each in self.prepared.plan.channels if each.id == mismatch.channel)
        tier = next((each for each in self.prepared.tiers if each.plan.tier == channel.feeding), self.prepared.tiers[0])
        return Problem("channel-mismatch", tier.place_of(channel.id), text, self.prepared.named(MISMATCH_REMEDY))

    def _failure(self, live: LiveQuery, error: ScribenginError) -> Problem:
        """The problem with the error, its place in the flow file, the progress so far, and the path of the log."""
        name = live.opened.plan.name
        through = live.meter.last + 1
        came = f"the query has committed {through:,} Batch{'es' * (through != 1)}"
        if live.opened.totals().last > live.meter.last:
            came += ", and one more is decided but not published yet"
        remedy = "; ".join(filter(None, [self.prepared.named(error.remedy), f"all of it is in {live.tier.scratch / 'run.log'}"]))
        return Problem(error.code, live.tier.place_of(error.node or name), f"query {name}: {error.message} ({came})", remedy)

    def _query_result(self, live: LiveQuery, noticed: Sequence[str]) -> QueryResult:
        opened = live.opened
        totals = opened.totals()
        plan = opened.plan
        error = live.run.error
        progress = live.run.progress
        stateful = stateful_runs(totals.nodes, plan)
        if progress.held is not None and len(stateful) == 1:  # Spark's figure is the sum over all state of the query
            totals.nodes[min(stateful)].held = progress.held
            if progress.batch == totals.last:
                write_held(opened.folder, totals.last, {min(stateful): progress.held})
        newest = Decisions(opened.folder.decisions).newest()
        clocks = {} if newest is None else newest.clocks
        held = progress.held
        if held is None and len(stateful) == 1 and not live.meter.batches:  # Spark does not report how much state it keeps if no Batch ran
            held = read_held(opened.folder).get(min(stateful))
        notes = [open_windows_note(opened.parts, held=held, watermark=progress.watermark, clocks=clocks)]
        notes += noticed
        notes += [left_text(id_, sink.left()) for id_, sink in opened.parts.sinks.items() if isinstance(sink, OutboxSink)]
        sinks = tuple(
            SinkResult(sink, totals.nodes.get(sink, Counts()).out, opened.place_of(sink), plan.guarantee_of(sink)) for sink in plan.sinks
        )
        flow = opened.parts.plan.flow
        nodes = in_plan_order(totals.nodes, plan, flow)
        here = {node: live.meter.nodes[node] for node in nodes if node in live.meter.nodes}
        for node in stateful.intersection(here):
            here[node].held = nodes[node].held
        return QueryResult(
            plan.name,
            live.run.state,  # type: ignore[arg-type]
            totals.batches,
            live.meter.seconds(),
            query_rows(totals.nodes, plan.sources, plan.sinks),
            live.meter.rows,
            nodes,
            sinks,
            error.message if error else "",
            self.prepared.named(error.remedy) if error else "",
            tuple(filter(None, notes)),
            live.meter.view(plan.name, live.run),
            {} if newest is None else newest.orders,
            ledger_lines(nodes, plan, flow),
            ledger_lines(here, plan, flow),
        )


def unreplayed_notices(tier: Prepared) -> list[str]:
    """Notices about queries that the flow no longer has, and where dead letters wait for a replay. Queries that were moved to another tier
    are left out: no sink brings them back, and the replay command has reported that."""
    made = {query.name for query in tier.plan.queries}
    gone = (folder for folder in tier.folder.queries() if folder.name not in made and not has_moved(folder))
    left = {folder.name: letters_waiting(folder) for folder in gone}
    see = flow_command("dead-letter list")
    return [
        f'{letters(count)} for replay in query "{name}", which no sink uses any more; to list them: {see}'
        for name, count in left.items()
        if count
    ]


def _members(opened: OpenedQuery) -> dict[str, tuple[MemberSeen, ...]]:
    """Sink → the members of its group."""
    found = {}
    for id_, sink in opened.parts.sinks.items():
        if chooses(sink):
            flow = opened.parts.plan.flow
            group, places = (target(flow.sinks[id_]) or "").partition(".")[0], member_places(flow, flow.sinks[id_])
            found[id_] = tuple(replace(member, group=group, place=places.get(member.member, "")) for member in sink.members())
    return found
