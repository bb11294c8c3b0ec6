"""`scribengin audit FLOW`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from scribengin.cli.answer import Answer, AnsweringCommand
from scribengin.cli.flow_argument import flow_argument
from scribengin.cli.flow_state import prepared_flow
from scribengin.cli.settings import setting_flags
from scribengin.core.errors import Exit

if TYPE_CHECKING:
    from pathlib import Path

    from scribengin.local.inspect import FlowAudit
    from scribengin.spec.model import Flow
    from scribengin.state.audit import AuditReport
    from scribengin.state.channel_audit import ChannelAudit

_LOSSES_SHOWN = 20


@click.command(cls=AnsweringCommand)
@flow_argument
@setting_flags("state")
def command(*, flow: str, state: Path | None) -> Answer:
    """Read outputs, dead letters and ledger again, and say whether everything balances. Changes nothing; needs no Java."""
    from scribengin.local.inspect import audit_flow

    prepared = prepared_flow(flow, state)
    audit = audit_flow(prepared)
    violations = _violations(audit)
    result = {
        "flow": prepared.name,
        "state": "running" if audit.running else "stopped",
        "folder": str(prepared.folder),
        "queries": [_query(report) for report in audit.reports],
        "channels": [_channel(channel) for channel in audit.channels],
        "ledger": {"balanced": audit.balanced, "violations": violations},
    }
    return Answer(result, prepared.warnings, Exit.DONE if audit.balanced else Exit.FAILED, show=lambda: _show(audit, prepared.plan.flow))


def _violations(audit: FlowAudit) -> list[str]:
    return [f"query {_name(report)}: {violation}" for report in audit.reports for violation in report.violations]


def _name(report: AuditReport) -> str:
    """The Query, and which of its lineages where a rewind has left it."""
    return f"{report.query} (lineage {report.lineage})" if report.past else report.query


def _query(report: AuditReport) -> dict[str, Any]:
    return {
        "name": report.query,
        "lineage": report.lineage,
        "starts": dict(report.starts),
        "past": report.past,
        "batches": report.totals.batches,
        "nodes": {node: counts.as_json() for node, counts in report.totals.nodes.items()},
        "sinks": [
            {"sink": sink.sink, "decided": sink.decided, "found": sink.found}
            | ({"members": dict(report.members[sink.sink])} if sink.sink in report.members else {})
            for sink in report.sinks
        ],
        "dead": {"decided": report.totals.dead, "found": report.dead_found, "expired": report.dead_expired},
        "losses": [loss.as_json() for loss in report.losses],
    }


def _channel(channel: ChannelAudit) -> dict[str, Any]:
    return {
        "channel": channel.channel,
        "reader": str(channel.reading),
        "compared": channel.compared,
        "not_compared": channel.not_compared,
        "mismatches": len(channel.mismatches) + channel.more,
    }


def _show(audit: FlowAudit, flow: Flow) -> None:
    from scribengin.cli.summary import ledger_table, show_losses, show_verdict
    from scribengin.cli.tables import open_console, print_table
    from scribengin.connectors import catalog
    from scribengin.plan.guarantee import written_by_spark

    rows: list[dict[str, Any]] = []
    types = catalog.sink_types(internal=True)
    uncounted = {sink.id for sink in flow.sinks.values() if written_by_spark(flow, sink, types)}
    for report in audit.reports:
        found = [
            (f"sink {sink.sink}{' (as decided; Spark wrote them)' * (sink.sink in uncounted)}", sink.decided, sink.found)
            for sink in report.sinks
        ]
        expired = f" ({report.dead_expired:,} more have outlived `retain`)" if report.dead_expired else ""
        found.append((f"dead letters{expired}", report.totals.dead - report.dead_expired, report.dead_found))
        rows += [{"query": _name(report), "what": what, "decided": decided, "found": there} for what, decided, there in found]
    if audit.running:
        click.echo("a run is going on: the newest Batch of each Query is left out")
    for report in audit.reports:
        if report.starts:
            positions = ", ".join(f"{source} {position}" for source, position in report.starts.items())
            click.echo(f"query {_name(report)} went back to {positions}: what it read again stands there twice")
    print_table(rows, {"query": "Query", "what": "rows of", "decided": "decided", "found": "found"})
    for report in audit.reports:
        for sink, members in report.members.items():
            shares = ", ".join(f"{batches:,} to {member}" for member, batches in members.items())
            click.echo(f"sink {sink} goes to a group; of its Batches went {shares}")
    for channel in audit.channels:
        left = f"; {channel.not_compared:,} could not be" if channel.not_compared else ""
        click.echo(f"channel {channel.channel} to {channel.reading}: {channel.compared:,} Batches compared at both ends{left}")
    console = open_console()
    console.print()
    console.print(ledger_table({_name(report): report.totals.nodes for report in audit.reports}))
    show_verdict(_violations(audit), console)
    show_losses({_name(report): report.totals.nodes for report in audit.reports}, console)
    for report in audit.reports:
        for loss in report.losses[-_LOSSES_SHOWN:]:
            click.echo(f"  query {_name(report)}, entry {loss.entry} of {loss.source}: {loss.what}")
        if len(report.losses) > _LOSSES_SHOWN:
            click.echo(f"  query {_name(report)}: {len(report.losses) - _LOSSES_SHOWN:,} older ones are left out; --json has all")
