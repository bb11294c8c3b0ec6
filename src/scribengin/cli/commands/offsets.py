"""`scribengin offsets show NAME` and `scribengin offsets set NAME SOURCE POSITION`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from scribengin.cli.answer import Answer, AnsweringCommand
from scribengin.cli.going import done
from scribengin.cli.home_option import home_option
from scribengin.cli.tables import print_table
from scribengin.cli.waiting import wait_option

if TYPE_CHECKING:
    from scribengin.control.home import Home


@click.group()
def command() -> None:
    """How far a flow of the control plane has read its sources. A position counts the entries of a source's log that are committed."""


@command.command(cls=AnsweringCommand)
@click.argument("flow", metavar="NAME")
@home_option
def show(*, flow: str, home: Home) -> Answer:
    """Print the position of every source in every Query, also while the flow runs."""
    from scribengin.control.offsets import read_offsets

    with home.registry() as registry:
        rows = [row.as_json() for row in read_offsets(registry, home.packages, flow)]

    def display() -> None:
        headings = {"tier": "tier", "query": "Query", "source": "source", "position": "position", "logged": "logged", "batch": "last Batch"}
        print_table(rows, headings | {"last": "last read"})

    return Answer({"flow": flow, "sources": rows}, show=display)


@command.command("set", cls=AnsweringCommand)
@click.argument("flow", metavar="NAME")
@click.argument("source")
@click.argument("position", metavar="POSITION|end")
@click.option("--query", help="In this Query only.")
@click.option("--yes", is_flag=True, help="Do it: what is skipped is never read, what is read again is written again.")
@wait_option
@home_option
def set_(*, flow: str, source: str, position: str, query: str | None, yes: bool, wait: float | None, home: Home) -> Answer:
    """Let SOURCE be at POSITION (as `offsets show` counts them; `end`: behind all that is there), while the flow is stopped.

    Forward, what lies between is never read. Back, it is read again, and what was written of it stays and is written again beside it.
    """
    from scribengin.control.offsets import plan_offsets

    with home.registry() as registry:
        going = plan_offsets(registry, home.packages, flow, source, position, query)
        return done(registry, going, yes=yes, wait_s=wait, again=f"scribengin offsets set {flow} {source} {position} --yes")
