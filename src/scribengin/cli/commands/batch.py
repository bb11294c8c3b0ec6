"""`scribengin batch list FLOW` and `scribengin batch show FLOW BATCH`: the decided Batches of a flow."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from scribengin.cli.answer import CommandAnswer
from scribengin.cli.complete_values import nodes
from scribengin.cli.each_flow import FlowCommand, each_flow
from scribengin.cli.flow_argument import flow_argument, is_name
from scribengin.cli.plane_option import masters_option
from scribengin.cli.settings import setting_flags
from scribengin.core.units import show_bytes

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from scribengin.cli.plane_option import Masters

_MOST = 1000
"""as in the API"""


@click.command(cls=FlowCommand)
@flow_argument
@click.option("--query", default="", help="Only this query.", shell_complete=nodes("sinks"))
@click.option("--limit", type=click.IntRange(1, _MOST), default=10, show_default=True, help="Maximum number to show.")
@setting_flags("state")
@masters_option
@each_flow("flow")
def list_(*, flow: str, query: str, limit: int, state: Path | None, masters: Masters) -> CommandAnswer:
    """List the last decided Batches of a flow, newest first: when each was decided, its rows and dead letters, and if it is published.

    Works whether or not the flow runs; needs no Java. Of several queries the Batches are listed together, in the order of their decisions.
    Batches of an earlier lineage are left out.

    \b
    Examples:
      scribengin batch list flow.yaml
      scribengin batch list orders --query kept --limit 100
    """
    from scribengin.cli.tables import print_table

    where = ""
    if is_name(flow):
        import msgspec

        with masters.client() as client:
            found = msgspec.to_builtins(client.batches(flow, query, limit=limit))
    else:
        from scribengin.cli.flow_state import prepared_flow
        from scribengin.core.storage import shown_path
        from scribengin.local.batches import last_batches

        prepared = prepared_flow(flow, state)
        found, where = last_batches(prepared, query, limit), f" in {shown_path(prepared.root)}"

    def show() -> None:
        if not found["batches"]:
            click.echo(f"no Batch has been decided yet{where}; those of an earlier lineage are not listed")
            return
        rows = [_shown(each) for each in found["batches"]]
        tier = {"tier": "tier"} if len({each["tier"] for each in rows}) > 1 else {}
        headings = {"query": "Query", "batch": "Batch", "decided_at": "decided at", "rows_in": "in", "rows_out": "out", "dead": "dead"}
        print_table(rows, tier | headings | {"published": "published", "took": "took"})

    return CommandAnswer(found, show=show)


@click.command(cls=FlowCommand)
@flow_argument
@click.argument("batch", type=click.IntRange(0))
@click.option("--query", default="", help="The query; needed if the flow has several.", shell_complete=nodes("sinks"))
@setting_flags("state")
@masters_option
@each_flow("flow")
def show(*, flow: str, batch: int, query: str, state: Path | None, masters: Masters) -> CommandAnswer:
    """Show one decided Batch of a flow: its phases, what it read, its rows at each node, and the receipts of its output.

    \b
    Example:
      scribengin batch show flow.yaml 12
    """
    if is_name(flow):
        import msgspec

        with masters.client() as client:
            found = msgspec.to_builtins(client.batch(flow, batch, query))
    else:
        from scribengin.cli.flow_state import prepared_flow
        from scribengin.local.batches import describe_batch

        found = describe_batch(prepared_flow(flow, state), query, batch)
    return CommandAnswer(found, show=lambda: _show(found))


def _shown(row: Mapping[str, Any]) -> dict[str, Any]:
    took = "–" if row["phases_s"] is None else f"{sum(row['phases_s'].values()):.3f} s"
    return {
        **row,
        "dead": "–" if row["dead"] is None else row["dead"],
        "published": "yes" if row["published"] else "not yet",
        "took": took,
    }


def _show(found: Mapping[str, Any]) -> None:
    from scribengin.cli.tables import print_table
    from scribengin.core.time_text import shown_moment

    shown = _shown(found)
    workers = f" with {found['workers']} workers" if found["workers"] > 1 else ""
    host = f" by {found['host']}{workers}" if found["host"] else ""
    click.echo(f"Batch {found['batch']} of query {found['query']}, decided {shown_moment(found['decided_at'])}{host}, Term {found['term']}")
    click.echo(f"{found['rows_in']:,} rows in, {found['rows_out']:,} out, {shown['dead']} dead; published: {shown['published']}")
    if found["phases_s"] is not None:
        click.echo("took " + ", ".join(f"{phase} {seconds:.3f} s" for phase, seconds in found["phases_s"].items()))
    if found["state_rows"] is not None:
        click.echo(f"state after it: {found['state_rows']:,} rows, {show_bytes(found['state_bytes'])}")
    if found["watermark"] is not None:
        click.echo(f"watermark {shown_moment(found['watermark'])}")
    click.echo()
    print_table(
        found["nodes"],
        {"node": "node", "in": "in", "out": "out", "filtered": "filtered", "folded": "folded", "dead": "dead", "late": "late"},
    )
    if found["receipts"]:
        click.echo()
        print_table(found["receipts"], {"sink": "sink", "unit": "task output", "rows": "rows", "bytes": "bytes"})
