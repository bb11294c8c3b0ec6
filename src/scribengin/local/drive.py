"""Runs flows side by side in this process, from Spark's check of their steps to their results."""

from __future__ import annotations

import time
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from scribengin.core.errors import InputError
from scribengin.core.problems import Place, Problem
from scribengin.local.contract import RunResult, RunView
from scribengin.local.flow_run import FlowRun
from scribengin.local.query_parts import build_parts
from scribengin.local.run_log import open_run_log
from scribengin.local.sink_columns import Accepting
from scribengin.local.spark_analysis import deep_problems, store_channel_columns
from scribengin.local.summaries import summaries_of
from scribengin.spark.user_code import pack

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence
    from contextlib import ExitStack

    from pyspark.sql import SparkSession

    from scribengin.core.errors import StepError
    from scribengin.core.types import Schema
    from scribengin.local.contract import RunSettings
    from scribengin.local.prepare import PreparedFlow
    from scribengin.plan.flow_links import Meeting
    from scribengin.spark.user_code import UserCode
    from scribengin.state.lease import Lease

_VIEW_S = 0.25


def run_checked(
    stack: ExitStack,
    spark: SparkSession,
    flows: Sequence[PreparedFlow],
    leases: Sequence[Mapping[str, Lease]],
    met: Sequence[Meeting],
    settings: RunSettings,
    watch: Callable[[RunView], None],
    begun_s: float,
) -> RunResult:
    """Run flows after Spark has analysed every step of them.

    Args:
        stack: Closes what lives as long as the run.
        spark: The session.
        flows: The prepared flows, whose sources were checked.
        leases: For each flow: tier → its lease.
        met: The places that one of the flows writes and another one reads.
        settings: The settings of the run.
        watch: Called with each view, from this thread.
        begun_s: When the run began, by the monotonic clock.

    Raises:
        InputError: The problems that Spark finds in steps. A query that fails later is part of the result.
    """
    if settings.stop.is_set():
        return _not_begun(flows)
    watch(RunView(_name(flows), "checking with spark", time.monotonic() - begun_s))
    codes = [pack(flow.plan.flow.code_folder, flow.here) for flow in flows]
    accepting = [Accepting(flow, settings.word) for flow in flows]
    flows = _checked(spark, flows, codes, accepting)
    if settings.stop.is_set():
        return _not_begun(flows)
    runs: dict[str, FlowRun] = {}
    for flow, code, held, takes in zip(flows, codes, leases, accepting, strict=True):
        run = runs[flow.name] = open_run(stack, spark, flow, code, held, settings, partial(_fed, runs, met, flow.name))
        takes.keep(run.tell)
    return _drive(list(runs.values()), settings, watch, begun_s, spark.sparkContext.uiWebUrl or "")


def _fed(runs: Mapping[str, FlowRun], met: Sequence[Meeting], reading: str, sources: Collection[str]) -> bool:
    """True if no other flow of this run will write any more what these sources read."""
    return not any(runs[each.feeding].writes(each.sink) for each in met if each.reading == reading and each.source in sources)


def _checked(
    spark: SparkSession, flows: Sequence[PreparedFlow], codes: Sequence[UserCode], accepting: Sequence[Accepting]
) -> list[PreparedFlow]:
    """The flows as they are planned after Spark has analysed every step. The columns of their channels are stored. Raises InputError."""
    checked: list[tuple[PreparedFlow, dict[str, Schema]]] = []
    problems: list[Problem] = []
    for flow, code, takes in zip(flows, codes, accepting, strict=True):
        columns: dict[str, Schema] = {}
        found, wrong = deep_problems(spark, flow, code, columns, takes)
        checked.append((found, columns))
        problems += [*flow.warnings, *wrong] if wrong else []
    if problems:
        raise InputError(problems)
    for flow, columns in checked:
        store_channel_columns(flow, columns)
    return [flow for flow, _ in checked]


def open_run(
    stack: ExitStack,
    spark: SparkSession,
    flow: PreparedFlow,
    code: UserCode,
    leases: Mapping[str, Lease],
    settings: RunSettings,
    fed: Callable[[Collection[str]], bool],
) -> FlowRun:
    """Recover a flow and claim its sinks; returns its run, which has not started yet.

    Args:
        stack: Closes the logs.
        spark: The session.
        flow: The prepared flow.
        code: The user's code.
        leases: Tier → its lease.
        settings: The settings of the run.
        fed: True if no other flow will write any more what the sources with these ids read.
    """
    queries = [(tier, opened) for tier in flow.tiers for opened in build_parts(spark, tier, code, settings, leases[tier.plan.tier])]
    logs = {tier.plan.tier: stack.enter_context(open_run_log(tier.scratch / "run.log")) for tier in flow.tiers}
    return FlowRun(flow, settings, queries, logs, fed)


def _drive(runs: Sequence[FlowRun], settings: RunSettings, watch: Callable[[RunView], None], begun: float, spark_page: str) -> RunResult:
    """Start the queries, make views until the last one has ended, and return the result."""
    flows = [run.prepared for run in runs]

    def show(phase: str) -> None:
        several = len(runs) > 1
        views = tuple(replace(view, name=_named(run, view.name, several=several)) for run in runs for view in run.views())
        gates = tuple(replace(gate, query=_named(run, gate.query, several=several)) for run in runs for gate in run.gates())
        notices = tuple(note for run in runs for note in run.notices())
        noticed = tuple(row for run in runs for row in run.noticed())
        accepted = tuple(row for run in runs for row in run.accepted())
        watch(RunView(_name(flows), phase, time.monotonic() - begun, views, notices, gates, noticed, accepted, spark_page))  # type: ignore[arg-type]

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
    """The tables of summaries, and a warning for each that a user's class cannot compute: the flow itself has done its work."""
    unread: list[StepError] = []
    found = tuple(each for run in runs for each in summaries_of(run.prepared, unread=unread))
    return found, tuple(Problem(error.code, Place(""), error.message, error.remedy, "warning") for error in unread)


def _named(run: FlowRun, query: str, *, several: bool) -> str:
    return f"{run.prepared.name}.{query}" if several else query


def _name(flows: Sequence[PreparedFlow]) -> str:
    return " + ".join(flow.name for flow in flows)


def _folders(flows: Sequence[PreparedFlow]) -> str:
    return ", ".join(str(flow.folder) for flow in flows)


def _not_begun(flows: Sequence[PreparedFlow]) -> RunResult:
    """The result of a run that was stopped before any query began."""
    problems = tuple(problem for flow in flows for problem in flow.warnings)
    return RunResult(_name(flows), "stopped", _folders(flows), (), balanced=True, problems=problems)
