"""An audit as one JSON object, for programs and displays."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from scribengin.connectors import catalog
from scribengin.local.ledger import ledger_lines, plain_lines
from scribengin.plan.guarantee import written_by_spark

if TYPE_CHECKING:
    from collections.abc import Collection

    from scribengin.local.inspect import FlowAudit
    from scribengin.local.prepare import PreparedFlow
    from scribengin.state.audit import AuditReport
    from scribengin.state.channel_audit import ChannelAudit


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
    """The Query, and which of its lineages where a rewind has left it."""
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
            | ({"by_spark": True} if sink.sink in by_spark else {})
            for sink in report.sinks
        ],
        "dead": {"decided": report.totals.dead, "found": report.dead_found, "expired": report.dead_expired, "purged": report.dead_purged},
        "losses": [loss.as_json() for loss in report.losses],
    }


def _lines(prepared: PreparedFlow, report: AuditReport) -> list[dict[str, Any]]:
    """The ledger as people add it up; of a Query that the flow does not make any more as it was counted."""
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
