"""`run`: whole flows in this process, until they are through, stopped, or failed.

This module imports neither PySpark nor Arrow: what is wrong with a flow is reported without them, and Java boots while they are imported.
"""

from __future__ import annotations

import time
from contextlib import ExitStack, closing
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from scribengin.connectors import catalog
from scribengin.connectors.abilities import is_handed_over
from scribengin.core.errors import InputError, Refused
from scribengin.core.problems import Problem
from scribengin.core.storage import folder_fault
from scribengin.local.contract import RunView
from scribengin.local.move_queries import migrate
from scribengin.local.preflight import (
    blaming,
    check_before_spark,
    empty_lookups,
    repeated_keys,
    unmatched_patterns,
    what_is_added_to,
)
from scribengin.local.prepare import first_file_faults, open_sources, prepare
from scribengin.local.reset import empty_trash
from scribengin.local.session import begin
from scribengin.plan.flow_links import circle, meetings, way_text
from scribengin.spark.session import stop_session
from scribengin.state.lease import take_lease
from scribengin.state.topology import tiers_with_state

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from pyspark.sql import SparkSession

    from scribengin.local.contract import RunResult, RunSettings
    from scribengin.local.prepare import PreparedFlow
    from scribengin.plan.flow_links import Meeting
    from scribengin.spec.model import Source


_TOLD_AT_ONCE = frozenset({"lookup-empty", "lookup-repeated", "pattern-unmatched"})
"""warnings of what the places hold now: who sees them in time stops, and puts it right; all are in the result too"""


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
    begun_s = time.monotonic()
    flows: list[PreparedFlow] = []

    def show(phase: str, *notices: str) -> None:
        name = " + ".join([flow.name for flow in flows] or [path.name for path in paths])
        watch(RunView(name, phase, time.monotonic() - begun_s, notices=notices))  # type: ignore[arg-type]

    show("checking")
    flows = [prepare(path, state=settings.state, tier=settings.tier, base=settings.base, here=settings.here) for path in paths]
    flows = [replace(flow, warnings=(*flow.warnings, *empty_lookups(flow), *unmatched_patterns(flow).values())) for flow in flows]
    met = _meetings(flows)
    new = {flow.name for flow in flows if folder_fault(flow.root) is None and not tiers_with_state(flow.root, flow.name)}
    for flow in flows:  # before leases are taken, so that what is refused leaves no folder where the state may be put back
        if flow.name in new:
            _check_here(flow, settings)
    with ExitStack() as stack:
        watch = _with_metrics(stack, settings, watch)
        leases = [
            {tier.plan.tier: stack.enter_context(take_lease(tier.folder, right=settings.right)) for tier in flow.tiers} for flow in flows
        ]
        for flow, held in zip(flows, leases, strict=True):
            migrate(flow, held)
            empty_trash(flow)
            if flow.name not in new:
                _check_here(flow, settings)
            if settings.append_new_lineage and (added := [*what_is_added_to(flow)]):
                show("checking", *added)
        starting = None
        if spark is None:
            show("starting spark")
            starting = stack.enter_context(closing(begin(flows, settings, partial(show, "starting spark"))))
        for flow in flows:
            check_first_files(flow, any_columns=settings.word is not None)
        flows = [replace(flow, warnings=(*flow.warnings, *repeated_keys(flow))) for flow in flows]  # with Arrow, while Java boots
        if odd := [f"{problem.message}; {problem.remedy}" for flow in flows for problem in flow.warnings if problem.code in _TOLD_AT_ONCE]:
            show("starting spark", *odd)
        from scribengin.local.drive import run_checked  # with PySpark and Arrow, while Java boots
        from scribengin.spark.warm_up import begin_warm_up

        if starting is not None:
            spark = starting.session()
            stack.callback(stop_session, spark)
            begin_warm_up(spark)
        assert spark is not None
        return run_checked(stack, spark, flows, leases, met, settings, watch, begun_s)


def _meetings(flows: Sequence[PreparedFlow]) -> tuple[Meeting, ...]:
    """Raises Refused where a tier of a flow is in two of the files, InputError for a circular dependency of flows."""
    seen: dict[str, PreparedFlow] = {}
    for flow in flows:
        if flow.name in seen:
            tiers = " and ".join(f'"{tier.plan.tier}"' for tier in flow.tiers)
            raise Refused(
                f'tier {tiers} of flow "{flow.name}" is defined in two files: {seen[flow.name].path} and {flow.path}',
                remedy="rename one of the flows, or run them one after the other",
                code="tier-two-flows",
            )
        seen[flow.name] = flow
    met = meetings([flow.plan.flow for flow in flows])
    if way := circle(seen, met):
        reading = seen[way[-1].reading]
        tier = next(tier for tier in reading.tiers if way[-1].source in tier.plan.flow.sources)
        message = f"flows form a cycle: {way_text(way)}"
        raise InputError([Problem("flows-circle", tier.place_of(way[-1].source), message, "change the sink of one of them")])
    return met


def _check_here(flow: PreparedFlow, settings: RunSettings) -> None:
    """What a run refuses without Spark. Raises as `check_sources` and `check_before_spark`; InputError where it would not end by itself
    that is to."""
    if settings.once and settings.right is None:  # a drain comes with a right, and ends an endless source where it is
        endless = [(tier, id_) for tier in flow.tiers for id_, source in tier.plan.flow.sources.items() if is_endless(source)]
        if endless:
            raise InputError(
                [
                    Problem(
                        "source",
                        tier.place_of(id_),
                        f'sequence "{id_}" is unlimited, so `--once` would never end',
                        "set `rows:` on the sequence",
                    )
                    for tier, id_ in endless
                ]
            )
    check_sources(flow)
    check_before_spark(flow, adopt=settings.append_new_lineage)


def is_endless(source: Source) -> bool:
    """Whether a source never comes to an end by itself."""
    ends_by = catalog.source_types(internal=True)[source.type].ends_by
    return bool(ends_by) and source.options.get(ends_by) is None


def check_sources(prepared: PreparedFlow) -> None:
    """What is not there is reported before Spark starts. Raises SourceError or Unreachable, with its place."""
    for tier in prepared.tiers:
        for node, source in open_sources(tier.plan.flow).items():
            if not is_handed_over(source):
                with blaming(tier, node):
                    source.reader()


def check_first_files(prepared: PreparedFlow, *, any_columns: bool) -> None:
    """Files of other columns than the flow names, that no Query has started to read, are reported before any is read; Java starts in the
    meantime. With `any_columns` they were accepted. Raises SourceError or Unreachable, with its place."""
    for error in first_file_faults(prepared) if not any_columns else ():
        raise error


def _with_metrics(stack: ExitStack, settings: RunSettings, watch: Callable[[RunView], None]) -> Callable[[RunView], None]:
    if settings.metrics_port is None:
        return watch
    from scribengin.local.metrics import serve_metrics

    publish = stack.enter_context(serve_metrics(settings.metrics_port))

    def both(view: RunView) -> None:
        publish(view)
        watch(view)

    return both
