"""`scribengin trace FLOW RECORD_ID`: where a record went, hop by hop."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import click

from scribengin.cli.answer import Answer
from scribengin.cli.each_flow import FlowCommand, each_flow
from scribengin.cli.flow_argument import flow_argument, is_name
from scribengin.cli.flow_state import prepared_flow
from scribengin.cli.plane_option import masters_option
from scribengin.cli.settings import setting_flags

if TYPE_CHECKING:
    from pathlib import Path

    from scribengin.cli.plane_option import Masters


@click.command(cls=FlowCommand)
@flow_argument
@click.argument("record_id")
@click.option("--limit", type=click.IntRange(1), default=20, show_default=True, help="How many ways are shown at most; --json has all.")
@setting_flags("state")
@masters_option
@each_flow("flow")
def command(*, flow: str, record_id: str, limit: int, state: Path | None, masters: Masters) -> Answer:
    """Show every sink and dead letter that a record reached, with the tiers, Batches and times on its way.

    RECORD_ID is what a record is called by its first place (tweets/part-1.jsonl[0:4096]+17, tweets/topic-0@17), or how it begins, or the
    key of a dead letter (kept:0:2). The way of records is kept for the share of them that `defaults: {trace: …}` says; that of dead letters
    always.
    FLOW is a file, or the name of a flow that was submitted.
    """
    if is_name(flow):
        with masters.client() as client:
            way = client.trace(flow, record_id)
        return Answer(way, show=lambda: _show(way, limit))
    from scribengin.local.tracing import trace_record

    prepared = prepared_flow(flow, state)
    found = trace_record(prepared, record_id)
    return Answer(found, show=lambda: _show(found, limit))


def _show(found: dict[str, Any], limit: int) -> None:
    ways = [(each, f"sink {each['sink']}") for each in found["arrivals"]]
    ways += [(each, f"dead letter of {each['step']}: {each['reason']}: {each['message']}") for each in found["dead"]]
    for each, end in ways[:limit]:
        click.echo(click.style(each["id"], bold=True))
        for hop in each["hops"]:
            click.echo(f"  {hop_text(hop)}")
        click.echo(f"  → {end}")
    if len(ways) > limit:
        click.echo(f"{len(ways) - limit:,} more; see --limit")
    for read in found["read"]:
        acknowledged = "all that was made of it is committed" if read["acknowledged"] else "not yet acknowledged"
        batch = f"Batch {read['batch']:,} of query {read['query']}, tier {read['tier']}"
        click.echo(f"{batch}, read {read['stream']} at {read['decided_at']}; {acknowledged}")
    for note in found["notes"]:
        click.echo(note)


def hop_text(hop: dict[str, Any]) -> str:
    """`2026-01-01T10:00:00.000Z  edge, query hot_to_core, Batch 17, on host1`."""
    at = datetime.fromtimestamp(hop["time_ms"] / 1000, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    member = f", by {hop['member']}" if hop.get("member") else ""
    return f"{at}  {hop['tier']}, query {hop['query']}, Batch {hop['batch']:,}, on {hop['host']}{member}"
