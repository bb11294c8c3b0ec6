"""`scribengin offsets show NAME` and `scribengin offsets set NAME SOURCE POSITION`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from scribengin.cli.answer import Answer
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
    """How far a flow of the control plane has read its sources. A position counts the entries of a source's log that are committed."""


@command.command(cls=FlowCommand)
@click.argument("flow", metavar="NAME")
@masters_option
@each_flow("flow")
def show(*, flow: str, masters: Masters) -> Answer:
    """Print the position of every source in every Query, also while the flow runs."""
    import msgspec

    with masters.client() as client:
        rows = msgspec.to_builtins(client.offsets(flow))

    def display() -> None:
        headings = {"tier": "tier", "query": "Query", "source": "source", "position": "position", "logged": "logged", "batch": "last Batch"}
        print_table(rows, headings | {"last": "last read"})

    return Answer({"flow": flow, "sources": rows}, show=display)


@command.command("set", cls=FlowCommand)
@click.argument("flow", metavar="NAME")
@click.argument("source")
@click.argument("position", metavar="POSITION|end")
@click.option("--query", help="In this Query only.")
@click.option("--yes", is_flag=True, help="Do not ask. What is skipped is never read, what is read again is written again.")
@click.option("--dry-run", is_flag=True, help="Only list what would be skipped or repeat.")
@wait_option
@masters_option
@each_flow("flow")
def set_(
    *, flow: str, source: str, position: str, query: str | None, yes: bool, dry_run: bool, wait: float | None, masters: Masters
) -> Answer:
    """Let SOURCE be at POSITION (as `offsets show` counts them; `end`: behind all that is there), while the flow is stopped.

    Forward, what lies between is never read. Back, it is read again, and what was written of it stays and is written again beside it.
    """
    from scribengin.client.verb_models import SetOffset

    with masters.client() as client:
        return done(
            client, lambda sure: client.set_offset(flow, SetOffset(source, position, query, sure)), yes=yes, dry_run=dry_run, wait_s=wait
        )
