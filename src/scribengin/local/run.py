"""`run`: a whole flow in this process, until it is through, stopped, or failed."""

from __future__ import annotations

import os
import threading
import time
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

from scribengin.connectors.channel.outbox import OutboxSink, left_text
from scribengin.connectors.contract import is_handed_over
from scribengin.core.errors import InputError, SourceError, Unreachable
from scribengin.core.problems import Problem
from scribengin.local.acks import Releases
from scribengin.local.contract import QueryResult, RunResult, RunView, SinkResult
from scribengin.local.deep import deep_problems
from scribengin.local.gates import Pressure, open_gates
from scribengin.local.ledger import in_plan_order, query_rows, stateful_runs
from scribengin.local.meter import Meter
from scribengin.local.migrate import migrate
from scribengin.local.parts import QueryBench, build_parts
from scribengin.local.prepare import open_sources, prepare
from scribengin.local.run_log import open_run_log
from scribengin.local.session import start
from scribengin.plan.split import source_id
from scribengin.spark.open_windows import open_windows_note
from scribengin.spark.user_code import pack
from scribengin.state.contract import Counts
from scribengin.state.lease import take_lease
from scribengin.state.ledger import write_held
from scribengin.state.retention import Retention

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from pyspark.sql import SparkSession
    from structlog.typing import FilteringBoundLogger

    from scribengin.core.errors import ScribenginError
    from scribengin.local.contract import RunSettings
    from scribengin.local.prepare import Prepared, PreparedFlow
    from scribengin.spark.commit import Committed
    from scribengin.spark.query import QueryRun

_VIEW_S = 0.25


def run_flow(path: Path, settings: RunSettings, watch: Callable[[RunView], None], *, spark: SparkSession | None = None) -> RunResult:
    """Run the flow of a file. `watch` is called from this thread. `spark` lends a session (tests); else one is started and stopped.

    Raises InputError, Refused or EnvironmentFault for what is known before the first Batch; a Query that fails later is in
    the result.
    """
    begun = time.monotonic()

    def show(phase: str, *notices: str) -> None:
        name = prepared.name if prepared else path.name
        watch(RunView(name, phase, time.monotonic() - begun, notices=notices))  # type: ignore[arg-type]

    prepared: PreparedFlow | None = None
    show("checking")
    prepared = prepare(path, state=settings.state, tier=settings.tier)
    with ExitStack() as stack:
        watch = _with_metrics(stack, settings, watch)
        leases = {tier.plan.tier: stack.enter_context(take_lease(tier.folder)) for tier in prepared.tiers}
        migrate(prepared, leases)
        _look_at_sources(prepared)
        if spark is None:
            show("starting spark")
            spark = start(prepared, settings, partial(show, "starting spark"))
            stack.callback(spark.stop)
        if settings.stop.is_set():
            return _not_begun(prepared)
        show("checking with spark")
        code = pack(prepared.plan.flow.folder, prepared.root)
        prepared, problems = deep_problems(spark, prepared, code)
        if problems:
            raise InputError([*prepared.warnings, *problems])
        if settings.stop.is_set():
            return _not_begun(prepared)
        benches = [(tier, bench) for tier in prepared.tiers for bench in build_parts(spark, tier, code, settings, leases[tier.plan.tier])]
        logs = {tier.plan.tier: stack.enter_context(open_run_log(tier.folder.path / "tmp" / "run.log")) for tier in prepared.tiers}
        return _Runner(prepared, settings, benches, watch, begun, logs).run()


def _look_at_sources(prepared: PreparedFlow) -> None:
    """What is not there is told before Spark starts. Raises SourceError or Unreachable, with its place."""
    for tier in prepared.tiers:
        for node, source in open_sources(tier.plan.flow).items():
            try:
                if not is_handed_over(source):
                    source.reader()
            except (SourceError, Unreachable) as error:
                error.place = tier.place_of(node)
                raise


def _not_begun(prepared: PreparedFlow) -> RunResult:
    """What a run gives that was stopped before any Query began."""
    return RunResult(prepared.name, "stopped", str(prepared.folder), (), balanced=True, problems=prepared.warnings)


def _with_metrics(stack: ExitStack, settings: RunSettings, watch: Callable[[RunView], None]) -> Callable[[RunView], None]:
    if settings.metrics_port is None:
        return watch
    from scribengin.local.metrics import serve_metrics

    publish = stack.enter_context(serve_metrics(settings.metrics_port))

    def both(view: RunView) -> None:
        publish(view)
        watch(view)

    return both


@dataclass(slots=True)
class _Live:
    tier: Prepared
    bench: QueryBench
    meter: Meter
    run: QueryRun
    thread: threading.Thread


class _Runner:
    def __init__(
        self,
        prepared: PreparedFlow,
        settings: RunSettings,
        benches: list[tuple[Prepared, QueryBench]],
        watch: Callable[[RunView], None],
        begun: float,
        logs: Mapping[str, FilteringBoundLogger],
    ) -> None:
        self._prepared = prepared
        self._settings = settings
        self._watch = watch
        self._begun = begun
        self._logs = logs
        self._noted: set[str] = set()
        self._gates = open_gates(prepared)
        self._told: list[str] = []
        self._releases = Releases(prepared, say=self._hear)
        self._ended = threading.Event()
        self._live = [self._make(tier, bench) for tier, bench in benches]

    def _make(self, tier: Prepared, bench: QueryBench) -> _Live:
        meter = Meter(bench.plan.sources, bench.plan.sinks, last=bench.totals().last)
        log = self._logs[tier.plan.tier].bind(query=bench.plan.name)
        retention = Retention(bench.folder, tier.plan.flow.defaults.retain_s)
        retention.look()

        def committed(batch: Committed) -> None:
            meter.committed(batch)
            retention.look()

        feeds = {channel.id for channel in self._prepared.plan.channels if channel.reading == tier.plan.tier}
        feeds &= {channel.id for channel in self._prepared.plan.channels if source_id(channel) in bench.plan.sources}

        def fed() -> bool:
            return not any(live.thread.is_alive() for live in self._live if feeds.intersection(live.bench.plan.sinks))

        run = bench.make_run(
            once=self._settings.once,
            stop=self._settings.stop,
            on_begin=meter.begun,
            on_commit=committed,
            log=log,
            fed=fed,
            pressure=self._pressure(bench),
        )

        def drive() -> None:
            run.run()
            meter.end()

        return _Live(tier, bench, meter, run, threading.Thread(target=drive, name=f"query {bench.plan.name}"))

    def _pressure(self, bench: QueryBench) -> Pressure | None:
        for id_, sink in bench.parts.sinks.items():
            if isinstance(sink, OutboxSink):
                sink.is_full = self._gates[id_].full_text
        gates = [self._gates[sink] for sink in bench.plan.sinks if sink in self._gates]
        return Pressure(gates, bench.limits) if gates else None

    def run(self) -> RunResult:
        for log in self._logs.values():
            log.info("run started", flow=self._prepared.name, pid=os.getpid(), once=self._settings.once)
        releasing = threading.Thread(target=self._releases.run, args=(self._ended,), name="releases")
        if self._releases.wanted:
            releasing.start()
        # who is fed asks whether its feeders are alive
        for live in self._live:
            live.thread.start()
        try:
            while any(live.thread.is_alive() for live in self._live):
                failed = any(live.run.state == "failed" for live in self._live)
                self._show("stopping" if self._settings.stop.is_set() else "degraded" if failed else "running")
                if self._settings.fail_fast and failed:
                    self._settings.stop.set()
                self._live[0].thread.join(_VIEW_S) if self._live[0].thread.is_alive() else time.sleep(_VIEW_S)
        finally:
            self._settings.stop.set()
            for live in self._live:
                live.thread.join()
            self._ended.set()
            if self._releases.wanted:
                releasing.join()
        self._show("ended")
        result = self._result()
        for log in self._logs.values():
            log.info("run ended", state=result.state, balanced=result.balanced, seconds=time.monotonic() - self._begun)
        return result

    def _hear(self, text: str) -> None:
        """What could not be released."""
        self._told.append(text)
        next(iter(self._logs.values())).warning("release", message=text)

    def _show(self, phase: str) -> None:
        told = [*(note for live in self._live for note in live.run.progress.notices), *self._told]
        notices = tuple(dict.fromkeys(note for note in told if note not in self._noted))
        self._noted.update(notices)
        views = tuple(live.meter.view(live.bench.plan.name, live.run) for live in self._live)
        if self._gates:
            views = tuple(replace(view, tier=live.tier.plan.tier) for view, live in zip(views, self._live, strict=True))
        gates = tuple(gate.look() for gate in self._gates.values())
        self._watch(RunView(self._prepared.name, phase, time.monotonic() - self._begun, views, notices, gates))  # type: ignore[arg-type]

    def _result(self) -> RunResult:
        queries = tuple(self._query_result(live) for live in self._live)
        failed = [live for live in self._live if live.run.state == "failed"]
        state = "failed" if failed else "finished" if all(live.run.state == "finished" for live in self._live) else "stopped"
        violations = tuple(violation for live in self._live for violation in live.bench.balance())
        problems = [*self._prepared.warnings]
        for live in failed:
            assert live.run.error is not None
            problems.append(self._failure(live, live.run.error))
        return RunResult(
            self._prepared.name,
            state,  # type: ignore[arg-type]
            str(self._prepared.folder),
            queries,
            not violations,
            violations,
            tuple(problems),
        )

    def _failure(self, live: _Live, error: ScribenginError) -> Problem:
        """What failed, where it is written, how far it came, and where the traceback is."""
        name = live.bench.plan.name
        through = live.meter.last + 1
        came = f"{through:,} Batch{'es' * (through != 1)} of it {'are' if through != 1 else 'is'} committed"
        if live.bench.totals().last > live.meter.last:
            came += ", and one more is decided, but not yet published"
        remedy = "; ".join(filter(None, [error.remedy, f"all of it is in {live.tier.folder.path / 'tmp' / 'run.log'}"]))
        return Problem(error.code, live.tier.place_of(error.node or name), f"query {name}: {error.message} ({came})", remedy)

    def _query_result(self, live: _Live) -> QueryResult:
        bench = live.bench
        totals = bench.totals()
        plan = bench.plan
        error = live.run.error
        progress = live.run.progress
        stateful = stateful_runs(totals.nodes, plan)
        if progress.held is not None and len(stateful) == 1:  # Spark's figure is the sum over all state of the Query
            totals.nodes[min(stateful)].held = progress.held
            if progress.batch == totals.last:
                write_held(bench.folder, totals.last, {min(stateful): progress.held})
        notes = [open_windows_note(bench.parts, held=progress.held, watermark=progress.watermark)]
        notes += [left_text(id_, sink.left()) for id_, sink in bench.parts.sinks.items() if isinstance(sink, OutboxSink)]
        sinks = tuple(
            SinkResult(sink, totals.nodes.get(sink, Counts()).out, bench.place_of(sink), plan.guarantee_of(sink)) for sink in plan.sinks
        )
        return QueryResult(
            plan.name,
            live.run.state,  # type: ignore[arg-type]
            totals.batches,
            live.meter.seconds(),
            query_rows(totals.nodes, plan.sources, plan.sinks),
            live.meter.rows,
            in_plan_order(totals.nodes, plan),
            sinks,
            error.message if error else "",
            error.remedy if error else "",
            tuple(filter(None, notes)),
            live.meter.view(plan.name, live.run),
        )
