"""`scribengin history NAME`: the versions of a flow."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from scribengin.cli.answer import CommandAnswer
from scribengin.cli.each_flow import FlowCommand, each_flow
from scribengin.cli.plane_option import masters_option
from scribengin.cli.tables import print_table

if TYPE_CHECKING:
    from scribengin.cli.plane_option import Masters


@click.command(cls=FlowCommand)
@click.argument("flow", metavar="NAME")
@masters_option
@each_flow("flow")
def command(*, flow: str, masters: Masters) -> CommandAnswer:
    """List the versions of a flow, newest first, and mark the desired one.

    \b
    Example:
      scribengin history orders
    """
    import msgspec

    with masters.reader() as plane:
        found = msgspec.to_builtins(plane.versions(flow))

    def show() -> None:
        rows = [
            {**each, "package": each["package"][:12], "tiers": ", ".join(each["tiers"]), "wanted": "wanted" if each["wanted"] else ""}
            for each in found
        ]
        print_table(rows, {"version": "version", "wanted": "", "at": "at", "by": "by", "tiers": "tiers", "package": "package"})

    return CommandAnswer(found, show=show)
