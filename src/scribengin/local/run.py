"""`run`: whole flows in this process, until they are through, stopped, or failed."""

from __future__ import annotations

import time
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from scribengin.connectors.abilities import is_handed_over
from scribengin.core.errors import InputError, Refused, SourceError, StepError, Unreachable
from scribengin.core.problems import Place, Problem
from scribengin.local.accepting import Accepting
from scribengin.local.contract import RunResult, RunView
from scribengin.local.deep import deep_problems
from scribengin.local.flow_run import FlowRun
from scribengin.local.migrate import migrate
from scribengin.local.parts import build_parts
from scribengin.local.prepare import open_sources, prepare
from scribengin.local.run_log import open_run_log
from scribengin.local.session import start
from scribengin.local.summaries import summaries_of
from scribengin.plan.meetings import circle, meetings, way_text
from scribengin.spark.session import stop_session
from scribengin.spark.user_code import pack
from scribengin.state.lease import take_lease

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence
    from pathlib import Path

    from pyspark.sql import SparkSession

    from scribengin.local.contract import RunSettings
    from scribengin.local.prepare import PreparedFlow
    from scribengin.plan.meetings import Meeting
    from scribengin.spark.user_code import UserCode
    from scribengin.state.lease import Lease

_VIEW_S = 0.25


def run_flow(path: Path, settings: RunSettings, watch: Callable[[RunView], None], *, spark: SparkSession | None = None) -> RunResult:
    """Run the flow of a file; see `run_flows`."""
    return run_flows([path], settings, watch, spark=spark)


def run_flows(
    paths: Sequence[Path], settings: RunSettings, watch: Callable[[RunView], None], *, spark: SparkSession | None = None
) -> RunResult:
    """Run the flows of some files side by side; where one writes what another reads, the second ends, under `--once`, behind the first.

    `watch` is called from this thread. `spark` lends a session (tests); else one is started and stopped. Raises InputError, Refused or
    EnvironmentFault for what is known before the first Batch; a Query that fails later is in the result.
    """
    begun = time.monotonic()
    flows: list[PreparedFlow] = []

    def show(phase: str, *notices: str) -> None:
        name = _name(flows) if flows else " + ".join(path.name for path in paths)
        watch(RunView(name, phase, time.monotonic() - begun, notices=notices))  # type: ignore[arg-type]

    show("checking")
    flows = [prepare(path, state=settings.state, tier=settings.tier, base=settings.base) for path in paths]
    met = _meetings(flows)
    with ExitStack() as stack:
        watch = _with_metrics(stack, settings, watch)
        leases = [
            {tier.plan.tier: stack.enter_context(take_lease(tier.folder, right=settings.right)) for tier in flow.tiers} for flow in flows
        ]
        for flow, held in zip(flows, leases, strict=True):
            migrate(flow, held)
            look_at_sources(flow)
        if spark is None:
            show("starting spark")
            spark = start(flows, settings, partial(show, "starting spark"))
            stack.callback(stop_session, spark)
        if settings.stop.is_set():
            return _not_begun(flows)
        show("checking with spark")
        codes = [pack(flow.plan.flow.code_folder, flow.here) for flow in flows]
        accepting = [Accepting(flow, settings.word) for flow in flows]
        flows = _checked(spark, flows, codes, accepting)
        if settings.stop.is_set():
            return _not_begun(flows)
        runs: dict[str, FlowRun] = {}
        for flow, code, held in zip(flows, codes, leases, strict=True):
            run = runs[flow.name] = open_run(stack, spark, flow, code, held, settings, partial(_fed, runs, met, flow.name))
            accepting.pop(0).keep(run.tell)
        return _drive(list(runs.values()), settings, watch, begun)


def _meetings(flows: Sequence[PreparedFlow]) -> tuple[Meeting, ...]:
    """Raises Refused where a tier of a flow is in two of the files, InputError where flows feed each other in a circle."""
    seen: dict[str, PreparedFlow] = {}
    for flow in flows:
        if flow.name in seen:
            tiers = " and ".join(f'"{tier.plan.tier}"' for tier in flow.tiers)
            raise Refused(
                f'tier {tiers} of flow "{flow.name}" stands in two files: {seen[flow.name].path} and {flow.path}',
                remedy="give one of the flows another name, or run them one after the other",
                code="tier-two-flows",
            )
        seen[flow.name] = flow
    met = meetings([flow.plan.flow for flow in flows])
    if way := circle(seen, met):
        reading = seen[way[-1].reading]
        tier = next(tier for tier in reading.tiers if way[-1].source in tier.plan.flow.sources)
        message = f"flows feed each other in a circle: {way_text(way)}"
        raise InputError([Problem("flows-circle", tier.place_of(way[-1].source), message, "let one of them write elsewhere")])
    return met


def _fed(runs: Mapping[str, FlowRun], met: Sequence[Meeting], reading: str, sources: Collection[str]) -> bool:
    """True where no flow beside this one will write any more what these sources read."""
    return not any(runs[each.feeding].writes(each.sink) for each in met if each.reading == reading and each.source in sources)


def _checked(
    spark: SparkSession, flows: Sequence[PreparedFlow], codes: Sequence[UserCode], accepting: Sequence[Accepting]
) -> list[PreparedFlow]:
    """The flows as they are planned when Spark has analysed every step. Raises InputError."""
    checked, problems = [], list[Problem]()
    for flow, code, takes in zip(flows, codes, accepting, strict=True):
        found, wrong = deep_problems(spark, flow, code, accepting=takes)
        checked.append(found)
        problems += [*flow.warnings, *wrong] if wrong else []
    if problems:
        raise InputError(problems)
    return checked


def open_run(
    stack: ExitStack,
    spark: SparkSession,
    flow: PreparedFlow,
    code: UserCode,
    leases: Mapping[str, Lease],
    settings: RunSettings,
    fed: Callable[[Collection[str]], bool],
) -> FlowRun:
    """Recovered, its sinks claimed; nothing has started."""
    benches = [(tier, bench) for tier in flow.tiers for bench in build_parts(spark, tier, code, settings, leases[tier.plan.tier])]
    logs = {tier.plan.tier: stack.enter_context(open_run_log(tier.scratch / "run.log")) for tier in flow.tiers}
    return FlowRun(flow, settings, benches, logs, fed)


def _drive(runs: Sequence[FlowRun], settings: RunSettings, watch: Callable[[RunView], None], begun: float) -> RunResult:
    """From the start of the first Query to the end of the last."""
    flows = [run.prepared for run in runs]

    def show(phase: str) -> None:
        several = len(runs) > 1
        views = tuple(replace(view, name=_named(run, view.name, several=several)) for run in runs for view in run.views())
        gates = tuple(replace(gate, query=_named(run, gate.query, several=several)) for run in runs for gate in run.gates())
        notices = tuple(note for run in runs for note in run.notices())
        noticed = tuple(row for run in runs for row in run.noticed())
        accepted = tuple(row for run in runs for row in run.accepted())
        watch(RunView(_name(flows), phase, time.monotonic() - begun, views, notices, gates, noticed, accepted))  # type: ignore[arg-type]

    for run in runs:
        run.start()
    try:
        while any(run.alive for run in runs):
            failed = any(run.failed for run in runs)
            show("stopping" if settings.stop.is_set() else "degraded" if failed else "running")
            if settings.fail_fast and failed:
                settings.stop.set()
            first = runs[0].live[0].thread
            first.join(_VIEW_S) if first.is_alive() else time.sleep(_VIEW_S)
    finally:
        settings.stop.set()
        for run in runs:
            run.join()
    show("ended")
    return _result(runs)


def _result(runs: Sequence[FlowRun]) -> RunResult:
    flows, several = [run.prepared for run in runs], len(runs) > 1
    states = [live.run.state for run in runs for live in run.live]
    state = "failed" if any(run.failed for run in runs) else "finished" if all(each == "finished" for each in states) else "stopped"
    queries = tuple(replace(query, name=_named(run, query.name, several=several)) for run in runs for query in run.results())
    violations = tuple(violation for run in runs for violation in run.violations())
    problems = tuple(problem for run in runs for problem in run.problems())
    summaries, unread = _summaries(runs)
    for run in runs:
        run.log_end(state, balanced=not violations)
    problems += unread
    return RunResult(_name(flows), state, _folders(flows), queries, not violations, violations, problems, summaries)  # type: ignore[arg-type]


def _summaries(runs: Sequence[FlowRun]) -> tuple[tuple[Mapping[str, Any], ...], tuple[Problem, ...]]:
    """The tables, and a warning where a person's class cannot give one: the flow itself has done its work."""
    unread: list[StepError] = []
    found = tuple(each for run in runs for each in summaries_of(run.prepared, unread=unread))
    return found, tuple(Problem(error.code, Place(""), error.message, error.remedy, "warning") for error in unread)


def _named(run: FlowRun, query: str, *, several: bool) -> str:
    return f"{run.prepared.name}.{query}" if several else query


def _name(flows: Sequence[PreparedFlow]) -> str:
    return " + ".join(flow.name for flow in flows)


def _folders(flows: Sequence[PreparedFlow]) -> str:
    return ", ".join(str(flow.folder) for flow in flows)


def look_at_sources(prepared: PreparedFlow) -> None:
    """What is not there is told before Spark starts. Raises SourceError or Unreachable, with its place."""
    for tier in prepared.tiers:
        for node, source in open_sources(tier.plan.flow).items():
            try:
                if not is_handed_over(source):
                    source.reader()
            except (SourceError, Unreachable) as error:
                error.place = tier.place_of(node)
                raise


def _not_begun(flows: Sequence[PreparedFlow]) -> RunResult:
    """What a run gives that was stopped before any Query began."""
    problems = tuple(problem for flow in flows for problem in flow.warnings)
    return RunResult(_name(flows), "stopped", _folders(flows), (), balanced=True, problems=problems)


def _with_metrics(stack: ExitStack, settings: RunSettings, watch: Callable[[RunView], None]) -> Callable[[RunView], None]:
    if settings.metrics_port is None:
        return watch
    from scribengin.local.metrics import serve_metrics

    publish = stack.enter_context(serve_metrics(settings.metrics_port))

    def both(view: RunView) -> None:
        publish(view)
        watch(view)

    return both
