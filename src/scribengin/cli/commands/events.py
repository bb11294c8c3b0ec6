"""`scribengin events NAME`: what became of a flow."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from scribengin.cli.answer import Answer
from scribengin.cli.each_flow import FlowCommand, each_flow
from scribengin.cli.plane_option import masters_option
from scribengin.cli.tables import print_table

if TYPE_CHECKING:
    from scribengin.cli.plane_option import Masters


@click.command(cls=FlowCommand)
@click.argument("flow", metavar="NAME")
@masters_option
@each_flow("flow")
def command(*, flow: str, masters: Masters) -> Answer:
    """Show what became of a flow, the newest first: changes of its state with their cause, versions, operations. The last fifty changes of
    state are kept, twenty operations, and the versions that `history` shows. Works where no master is alive.
    """
    import msgspec

    with masters.reader() as plane:
        found = msgspec.to_builtins(plane.happened(flow))
    headings = {"at": "at", "what": "what", "says": "", "why": "why", "by": "by"}
    return Answer(found, show=lambda: print_table(found, headings))
