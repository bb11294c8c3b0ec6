"""`scribengin batch list FLOW`: the last decided Batches of a flow."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from scribengin.cli.answer import CommandAnswer
from scribengin.cli.complete_values import nodes
from scribengin.cli.each_flow import FlowCommand, each_flow
from scribengin.cli.flow_argument import flow_argument, is_name
from scribengin.cli.plane_option import masters_option
from scribengin.cli.settings import setting_flags

if TYPE_CHECKING:
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
        rows = [
            {**each, "dead": "–" if each["dead"] is None else each["dead"], "published": "yes" if each["published"] else "not yet"}
            for each in found["batches"]
        ]
        tier = {"tier": "tier"} if len({each["tier"] for each in rows}) > 1 else {}
        headings = {"query": "Query", "batch": "Batch", "decided_at": "decided at", "rows_in": "in", "rows_out": "out", "dead": "dead"}
        print_table(rows, tier | headings | {"published": "published"})

    return CommandAnswer(found, show=show)
