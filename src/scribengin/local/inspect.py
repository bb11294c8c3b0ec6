"""Looks at a flow without running it: the deep check, what a plan would change, the audit."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from scribengin.core.errors import Refused, ScribenginError
from scribengin.core.problems import Problem
from scribengin.local.parts import limits_by_source, query_parts, stateful_runs, static_by_source
from scribengin.local.prepare import open_sinks, open_sources
from scribengin.plan.diff import Changes, StoredQuery, diff_plans
from scribengin.state.audit import AuditReport, audit_query
from scribengin.state.decisions import Decisions
from scribengin.state.lease import read_holder
from scribengin.state.ledger import read_totals
from scribengin.state.lineage import read_lineage

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from scribengin.local.contract import RunSettings
    from scribengin.local.prepare import Prepared


def planned_changes(prepared: Prepared) -> Changes:
    """What running the plan would change against the state that is there."""
    stored: dict[str, StoredQuery] = {}
    for folder in prepared.folder.queries():
        lineage = read_lineage(folder)
        assert lineage is not None, "queries() lists folders that have one"
        newest = Decisions(folder.decisions).newest()
        positions = {each.source: each.end for each in newest.sources} if newest else {}
        last = newest.batch.number if newest else None
        stored[folder.name] = StoredQuery(folder.name, lineage.id, lineage.fingerprint, lineage.state_fingerprint, positions, last)
    return diff_plans(stored, prepared.plan)


def check_deep(prepared: Prepared, settings: RunSettings) -> list[Problem]:
    """Let Spark analyse names and types of every step. Starts a session (5 to 15 s) and stops it."""
    from scribengin.local.session import start

    spark = start(prepared, settings)
    try:
        return deep_problems(spark, prepared)
    finally:
        spark.stop()


def deep_problems(spark: SparkSession, prepared: Prepared) -> list[Problem]:
    """What Spark says against the flow's steps, with the places of the flow file; each step once."""
    from scribengin.spark.accumulate import new_reports
    from scribengin.spark.compile import Compiler
    from scribengin.spark.failures import step_failure
    from scribengin.spark.query import check_streaming, streaming_inputs
    from scribengin.spark.user_code import pack

    plan = prepared.plan
    sources, sinks = open_sources(plan.flow), open_sinks(plan.flow)
    code = pack(plan.flow.folder, prepared.folder.root)
    problems: dict[str, Problem] = {}
    for query in plan.queries:
        try:
            parts = query_parts(plan, query, prepared.folder.query(query.name), code, sources, sinks)
            session = spark.newSession()
            inputs = streaming_inputs(session, parts, limits_by_source(parts), static_by_source(query, sources))
            check_streaming(session, Compiler(session, parts).compile(inputs, new_reports(session)), parts)
        except ScribenginError as error:
            problem = Problem(error.code, prepared.place_of(error.node or query.name), error.message, error.remedy)
            problems.setdefault(problem.message, problem)
        except Exception as error:
            fault = step_failure(query.name, error)
            problems.setdefault(fault.message, Problem(fault.code, prepared.place_of(query.name), fault.message, fault.remedy))
    return list(problems.values())


@dataclass(frozen=True, slots=True)
class FlowAudit:
    """The audits of a flow's Queries; `running` where a run holds the lease (its newest Batches are left out)."""

    reports: tuple[AuditReport, ...]
    running: bool

    @property
    def balanced(self) -> bool:
        """True where every Query balances."""
        return all(report.balanced for report in self.reports)


def audit_flow(prepared: Prepared) -> FlowAudit:
    """Read outputs, dead letters and ledger of every Query again. Raises Refused where nothing ever ran."""
    running = read_holder(prepared.folder) is not None
    sinks = open_sinks(prepared.plan.flow)
    reports = []
    for query in prepared.plan.queries:
        folder = prepared.folder.query(query.name)
        lineage = read_lineage(folder)
        if lineage is None:
            continue
        own = {id_: sinks[id_] for id_ in query.sinks}
        stateful = stateful_runs(read_totals(folder).nodes, query)
        reports.append(audit_query(folder, own, lineage=lineage.id, stateful=stateful, running=running))
    if not reports:
        raise Refused(
            f'flow "{prepared.plan.flow.name}" has no state in {prepared.folder.path}', remedy="run it first", code="state-missing"
        )
    return FlowAudit(tuple(reports), running)
