"""`scribengin offsets show NAME` and `scribengin offsets set NAME SOURCE POSITION`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from scribengin.cli.answer import CommandAnswer
from scribengin.cli.each_flow import FlowCommand, each_flow
from scribengin.cli.going import done
from scribengin.cli.guesses import GuessingGroup
from scribengin.cli.plane_option import masters_option
from scribengin.cli.tables import print_table
from scribengin.cli.waiting import wait_option

if TYPE_CHECKING:
    from scribengin.cli.plane_option import Masters


@click.group(cls=GuessingGroup)
def command() -> None:
    """Positions of a submitted flow in its sources. A position counts the committed entries of a source's log."""


@command.command(cls=FlowCommand)
@click.argument("flow", metavar="NAME")
@masters_option
@each_flow("flow")
def show(*, flow: str, masters: Masters) -> CommandAnswer:
    """Show the position of every source in every query, also while the flow runs.

    \b
    Example:
      scribengin offsets show orders
    """
    import msgspec

    with masters.client() as client:
        rows = msgspec.to_builtins(client.offsets(flow))

    def display() -> None:
        headings = {"tier": "tier", "query": "Query", "source": "source", "position": "position", "logged": "logged", "batch": "last Batch"}
        print_table(rows, headings | {"last": "last read"})

    return CommandAnswer({"flow": flow, "sources": rows}, show=display)


@command.command("set", cls=FlowCommand)
@click.argument("flow", metavar="NAME")
@click.argument("source")
@click.argument("position", metavar="POSITION|end")
@click.option("--query", help="Only this query.")
@click.option("--yes", is_flag=True, help="Do not ask. Skipped data is never read; data read again is duplicated in the outputs.")
@click.option("--dry-run", is_flag=True, help="Only list what would be skipped or repeated.")
@wait_option
@masters_option
@each_flow("flow")
def set_(
    *, flow: str, source: str, position: str, query: str | None, yes: bool, dry_run: bool, wait: float | None, masters: Masters
) -> CommandAnswer:
    """Set the position of SOURCE (a number as in `offsets show`; `end`: after all data available now). The flow must be stopped.

    Data skipped by a forward move is never read. Data behind a backward move is read again; its earlier output stays, so rows are
    duplicated.

    \b
    Example:
      scribengin offsets set orders events end --dry-run
    """
    from scribengin.client.verb_models import SetOffset

    with masters.client() as client:
        return done(
            client, lambda sure: client.set_offset(flow, SetOffset(source, position, query, sure)), yes=yes, dry_run=dry_run, wait_s=wait
        )
