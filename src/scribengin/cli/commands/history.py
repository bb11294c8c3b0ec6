"""`scribengin history NAME`: the versions of a flow."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from scribengin.cli.answer import Answer, AnsweringCommand
from scribengin.cli.home_option import home_option
from scribengin.cli.tables import print_table

if TYPE_CHECKING:
    from scribengin.control.home import Home


@click.command(cls=AnsweringCommand)
@click.argument("flow", metavar="NAME")
@home_option
def command(*, flow: str, home: Home) -> Answer:
    """Show the versions of a flow, the newest first, and which is wanted."""
    from scribengin.control import admin

    with home.registry() as registry:
        found = admin.history(registry, flow)

    def show() -> None:
        rows = [
            {**each, "package": each["package"][:12], "tiers": ", ".join(each["tiers"]), "wanted": "wanted" if each["wanted"] else ""}
            for each in found
        ]
        print_table(rows, {"version": "version", "wanted": "", "at": "at", "by": "by", "tiers": "tiers", "package": "package"})

    return Answer(found, show=show)
