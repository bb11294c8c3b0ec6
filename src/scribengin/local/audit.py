"""Inspects a flow without running it: the changes that a plan makes, and the audit. Does not need Spark, so that `plan` is fast."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

from scribengin.connectors import catalog
from scribengin.connectors.abilities import finds_unaccounted
from scribengin.core.errors import Refused
from scribengin.local.acks import topology_of
from scribengin.local.channel_verification import mismatches_by_query
from scribengin.local.ledger import in_plan_order, ledger_lines, plain_lines, runs_with, stateful_runs
from scribengin.local.move_queries import changes_and_moves, open_left_sinks
from scribengin.local.prepare import open_sinks
from scribengin.plan.advice import cut_advice
from scribengin.plan.guarantees import written_by_spark
from scribengin.plan.ledger_edges import feeders
from scribengin.plan.tier_flows import CHANNEL
from scribengin.state.audit import AuditReport, audit_query, read_losses
from scribengin.state.channel_audit import audit_channels
from scribengin.state.decisions import Decisions
from scribengin.state.lease import read_holder
from scribengin.state.ledger import read_held, read_totals
from scribengin.state.lineage import past_lineages, read_lineage
from scribengin.state.topology import known_lineages, read_moved, tiers_with_state
from scribengin.state.trash import Trash
from scribengin.state.utility_orders import order_texts

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from scribengin.connectors.contract import SinkConnector, Unaccounted
    from scribengin.local.prepare import Prepared, PreparedFlow
    from scribengin.plan.diff import PlanChanges
    from scribengin.plan.model import QueryPlan
    from scribengin.spec.model import Flow
    from scribengin.state.audit import AuditReport
    from scribengin.state.channel_audit import ChannelAudit
    from scribengin.state.contract import Decision
    from scribengin.state.folder import QueryFolder, StateFolder
    from scribengin.state.ledger import Totals
    from scribengin.state.topology import MovedLineage


# An audit as one JSON object, for programs and displays.


def audit_as_json(prepared: PreparedFlow, audit: FlowAudit) -> dict[str, Any]:
    """The object that `audit --json` prints."""
    types = catalog.sink_types(internal=True)
    flow = prepared.plan.flow
    by_spark = {sink.id for sink in flow.sinks.values() if written_by_spark(flow, sink, types)}
    violations = [prepared.named(f"query {_called(report)}: {violation}") for report in audit.reports for violation in report.violations]
    return {
        "flow": prepared.name,
        "state": "running" if audit.running else "stopped",
        "folder": str(prepared.folder),
        "queries": [_query(report, by_spark) | {"lines": _lines(prepared, report)} for report in audit.reports],
        "channels": [_channel(channel) for channel in audit.channels],
        "ledger": {"balanced": audit.balanced, "violations": violations},
    }


def _called(report: AuditReport) -> str:
    """The name of the query, with the lineage if a rewind has ended it."""
    return f"{report.query} (lineage {report.lineage})" if report.past else report.query


def _query(report: AuditReport, by_spark: Collection[str]) -> dict[str, Any]:
    return {
        "name": report.query,
        "lineage": report.lineage,
        "starts": dict(report.starts),
        "past": report.past,
        "batches": report.totals.batches,
        "left_out": report.left_out,
        "nodes": {node: counts.as_json() for node, counts in report.totals.nodes.items()},
        "sinks": [
            {
                "sink": sink.sink,
                "decided": sink.decided,
                "found": sink.found,
                "others": None if sink.others is None else [asdict(each) for each in sink.others],
            }
            | ({"members": dict(report.members[sink.sink])} if sink.sink in report.members else {})
            | ({} if sink.counted else {"counted": False})
            | ({"by_spark": True} if sink.sink in by_spark else {})
            for sink in report.sinks
        ],
        "dead": {"decided": report.totals.dead, "found": report.dead_found, "expired": report.dead_expired, "purged": report.dead_purged},
        "losses": [loss.as_json() for loss in report.losses],
    }


def _lines(prepared: PreparedFlow, report: AuditReport) -> list[dict[str, Any]]:
    """The ledger as people add it up; for a query that the flow no longer has, as it was counted."""
    counts = report.totals.nodes
    for tier in prepared.tiers:
        for query in tier.plan.queries:
            if query.name == report.query:
                return [line.as_json() for line in ledger_lines(counts, query, tier.plan.flow)]
    return [line.as_json() for line in plain_lines(counts)]


def _channel(channel: ChannelAudit) -> dict[str, Any]:
    return {
        "channel": channel.channel,
        "reader": str(channel.reading),
        "compared": channel.compared,
        "not_compared": channel.not_compared,
        "mismatches": len(channel.mismatches) + channel.more,
    }


def planned_changes(prepared: PreparedFlow, found: PlanChanges | None = None) -> PlanChanges:
    """The changes that running the plan would make to the present state. Raises Refused while a move between tiers is in progress.

    Args:
        prepared: The flow.
        found: The result of `changes_and_moves`, if the caller has it already.
    """
    changes = (found or changes_and_moves(prepared)[0]).with_remedies(prepared.named)
    if not changes.refused:
        return changes
    from scribengin.local.rewind import read_again  # which opens sources, and so imports Arrow

    tiers = {tier.plan.tier: tier for tier in prepared.tiers}
    return replace(
        changes,
        queries=tuple(
            replace(change, again=tuple(read_again(tiers[change.tier], change.name)))
            if change.fate == "refused" and change.tier in tiers
            else change
            for change in changes.queries
        ),
    )


def run_advice(prepared: PreparedFlow) -> tuple[str, ...]:
    """Advice from earlier runs: on the order of utilities, and, for a flow with several tiers, on how it is divided."""
    counted = {}
    orders: dict[str, None] = {}
    for tier in prepared.tiers:
        for query in tier.plan.queries:
            folder = tier.folder.query(query.name)
            if read_lineage(folder) is None:
                continue
            if prepared.plan.flow.tiers:
                counted[tier.plan.tier, query.name] = read_totals(folder)
            if (newest := Decisions(folder.decisions).newest()) is not None:
                orders |= dict.fromkeys(f"as of the last Batch of {query.name}, {text}" for text in order_texts(newest.orders))
    return (*orders, *cut_advice(prepared.plan, counted)) if prepared.plan.flow.tiers else tuple(orders)


@dataclass(frozen=True, slots=True)
class FlowAudit:
    """The audits of a flow's queries. If `running` is True, a run holds the lease, and its newest Batches are left out."""

    reports: tuple[AuditReport, ...]
    running: bool
    channels: tuple[ChannelAudit, ...] = ()
    """their mismatches are among the violations of the queries that read them"""

    @property
    def balanced(self) -> bool:
        """True if every query balances."""
        return all(report.balanced for report in self.reports)


def audit_flow(prepared: PreparedFlow) -> FlowAudit:
    """Read outputs, dead letters and ledger of every query again. Raises Refused if no query has run."""
    known = known_lineages(prepared.root, prepared.name)
    audits = [_audit_left(prepared), *(_audit_tier(tier, known) for tier in prepared.tiers)]
    reports = tuple(report for audit in audits for report in audit.reports)
    if not reports:
        if any(audit.running for audit in audits):
            begun = f'flow "{prepared.name}" is running and has not committed a Batch yet'
            raise Refused(begun, remedy="repeat the command after the first Batch is committed", code="state-missing")
        remedy = Trash(prepared.root, prepared.name).hint() or "run the flow first"
        raise Refused(f'flow "{prepared.name}" has no state in {prepared.folder}', remedy=remedy, code="state-missing")
    channels = tuple(audit_channels(topology_of(prepared.plan, prepared.root)))
    told = mismatches_by_query(prepared.plan, prepared.root, channels)
    reports = tuple(
        replace(report, violations=(*report.violations, *told.get(report.query, ()))) if not report.past else report for report in reports
    )
    return FlowAudit(reports, any(audit.running for audit in audits), channels)


def _with_others(report: AuditReport, sinks: Mapping[str, SinkConnector], known: Collection[str], channels: Collection[str]) -> AuditReport:
    """Add what the targets of the sinks contain in addition. Channels belong to the flow, and are not examined."""

    def others(id_: str) -> tuple[Unaccounted, ...] | None:
        if id_ in channels:
            return ()
        return tuple(sink.unaccounted(known)) if finds_unaccounted(sink := sinks[id_]) else None

    return replace(report, sinks=tuple(replace(audit, others=others(audit.sink)) for audit in report.sinks))


def _audit_tier(prepared: Prepared, known: Collection[str]) -> FlowAudit:
    running = read_holder(prepared.folder) is not None
    sinks = open_sinks(prepared.plan.flow, prepared.plan, prepared.folder)
    channels = {id_ for id_, sink in prepared.plan.flow.sinks.items() if sink.type == CHANNEL}
    reports = []
    for query in prepared.plan.queries:
        folder = prepared.folder.query(query.name)
        lineage = read_lineage(folder)
        if lineage is None:
            continue
        own = {id_: sinks[id_] for id_ in query.sinks}
        fed_by = partial(_fed_by, query=query, flow=prepared.plan.flow, known={})
        for part, each in [*past_lineages(folder), (folder, lineage)]:
            totals = read_totals(part)
            moved = read_moved(part)
            stateful = stateful_runs(totals.nodes, query) | runs_with(totals.nodes, () if moved is None else moved.stateful)
            written = own if moved is None else _left_sinks(prepared.whole.flow, prepared.folder, folder, moved, totals)
            report = audit_query(part, written, lineage=each.id, stateful=stateful, fed_by=fed_by, running=running and part == folder)
            if part == folder:
                report = _with_others(report, written, known, channels)
            if report.totals.last == totals.last:
                for node, held in read_held(part).items():
                    report.totals.nodes[node].held = held
            losses = () if part != folder else tuple(read_losses(folder, each.starts, _ends(folder)))
            ordered = replace(report.totals, nodes=in_plan_order(report.totals.nodes, query, prepared.plan.flow))
            reports.append(
                replace(
                    report,
                    query=query.name,
                    lineage=each.id,
                    starts={} if each.origin else each.starts,
                    past=part != folder,
                    totals=ordered,
                    losses=losses,
                )
            )
    return FlowAudit(tuple(reports), running)


def _audit_left(prepared: PreparedFlow) -> FlowAudit:
    """The audits of queries of any tier that a move has ended and that the flow no longer has there."""
    flow = prepared.plan.flow
    chosen = {(tier.tier, query.name) for tier in prepared.plan.tiers for query in tier.queries}
    reports = []
    for tier in tiers_with_state(prepared.root, flow.name):
        for folder in tier.queries():
            if (tier.tier, folder.name) in chosen or read_moved(folder) is None:
                continue
            lineage = read_lineage(folder)
            assert lineage is not None, "queries() lists folders that have one"
            for part, each in [*past_lineages(folder), (folder, lineage)]:
                moved = read_moved(part) or read_moved(folder)
                assert moved is not None
                totals = read_totals(part)
                sinks = _left_sinks(flow, tier, folder, moved, totals)
                report = audit_query(part, sinks, lineage=each.id, stateful=runs_with(totals.nodes, moved.stateful))
                reports.append(replace(report, query=folder.name, lineage=each.id, starts={} if each.origin else each.starts, past=True))
    return FlowAudit(tuple(reports), running=False)


def _left_sinks(flow: Flow, tier: StateFolder, folder: QueryFolder, moved: MovedLineage, totals: Totals) -> dict[str, SinkConnector]:
    return open_left_sinks(flow, tier.root, folder, tier.tier, totals.sinks, moved.sinks)


def _ends(folder: QueryFolder) -> dict[str, int]:
    newest = Decisions(folder.decisions).newest()
    return {} if newest is None else {each.source: each.end for each in newest.sources}


def _fed_by(
    decision: Decision, *, query: QueryPlan, flow: Flow, known: dict[frozenset[str], dict[str, tuple[str, ...]]]
) -> dict[str, tuple[str, ...]]:
    """Node → its upstream nodes in a Batch; empty for a Batch of another version of the flow. `known` is a cache: most Batches have the
    same nodes."""
    if decision.plan != query.fingerprint:
        return {}
    nodes = frozenset(decision.counts)
    if nodes not in known:
        known[nodes] = feeders(decision.counts, query, flow)
    return known[nodes]
