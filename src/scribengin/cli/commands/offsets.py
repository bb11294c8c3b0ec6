"""`scribengin offsets show FLOW` and `scribengin offsets set FLOW SOURCE POSITION`: show or set the positions of sources."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from scribengin.cli.answer import CommandAnswer
from scribengin.cli.commands.source import positions_of_file, positions_of_name, set_of_file
from scribengin.cli.complete_values import nodes, words
from scribengin.cli.each_flow import FlowCommand, each_flow
from scribengin.cli.flow_argument import flow_argument, is_name
from scribengin.cli.flow_verbs import done
from scribengin.cli.plane_option import masters_option
from scribengin.cli.settings import setting_flags
from scribengin.cli.tables import print_table
from scribengin.cli.waiting import wait_option

if TYPE_CHECKING:
    from pathlib import Path

    from scribengin.cli.plane_option import Masters


@click.command(cls=FlowCommand)
@flow_argument
@click.option("--query", help="Only this query.", shell_complete=nodes("sinks"))
@setting_flags("state")
@masters_option
@each_flow("flow")
def show(*, flow: str, query: str | None, state: Path | None, masters: Masters) -> CommandAnswer:
    """Show the position of every source in every query, also while the flow runs.

    \b
    Example:
      scribengin offsets show flow.yaml
    """
    name, rows = (flow, positions_of_name(flow, query, masters)) if is_name(flow) else positions_of_file(flow, query, state)

    def display() -> None:
        tier = {"tier": "tier"} if is_name(flow) else {}
        headings = {"query": "Query", "source": "source", "position": "position", "logged": "logged", "batch": "last Batch"}
        print_table(rows, tier | headings | {"last": "last read"})

    return CommandAnswer({"flow": name, "sources": rows}, show=display)


@click.command(cls=FlowCommand)
@flow_argument
@click.argument("source", shell_complete=nodes("sources"))
@click.argument("position", metavar="POSITION|end", shell_complete=words(lambda: ["end"]))
@click.option("--query", help="Only this query.", shell_complete=nodes("sinks"))
@click.option("--yes", is_flag=True, help="Do not ask. Skipped data is never read; data read again is duplicated in the outputs.")
@click.option("--dry-run", is_flag=True, help="Only list what would be skipped or repeated.")
@setting_flags("state")
@wait_option
@masters_option
@each_flow("flow")
def set_(
    *,
    flow: str,
    source: str,
    position: str,
    query: str | None,
    yes: bool,
    dry_run: bool,
    state: Path | None,
    wait: float | None,
    masters: Masters,
) -> CommandAnswer:
    """Set the position of SOURCE (a number as in `offsets show`; `end`: after all data available now). The flow must be stopped.

    Data skipped by a forward move is never read. Data behind a backward move is read again in a new lineage; its earlier output stays, so
    rows are duplicated. A query that keeps state cannot go back; `scribengin reset FLOW --outputs` starts over.

    \b
    Example:
      scribengin offsets set flow.yaml events end --dry-run
    """
    if not is_name(flow):
        return set_of_file(flow=flow, source=source, position=position, query=query, yes=yes, dry_run=dry_run, state=state)
    from scribengin.client.change_models import SetOffset

    with masters.client() as client:
        return done(
            client, lambda sure: client.set_offset(flow, SetOffset(source, position, query, sure)), yes=yes, dry_run=dry_run, wait_s=wait
        )
