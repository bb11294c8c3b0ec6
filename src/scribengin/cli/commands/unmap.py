"""`scribengin node unmap FLOW.TIER`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from scribengin.cli.answer import AnsweringCommand, CommandAnswer
from scribengin.cli.binding import parts_of
from scribengin.cli.plane_option import masters_option

if TYPE_CHECKING:
    from scribengin.cli.plane_option import Masters


@click.command(cls=AnsweringCommand)
@click.argument("tier", metavar="FLOW.TIER")
@masters_option
def command(*, tier: str, masters: Masters) -> CommandAnswer:
    """Remove the binding of a tier to a node. The tier stays where it runs until its next start.

    \b
    Example:
      scribengin node unmap orders.core
    """
    with masters.client() as client:
        changed = client.unbind(*parts_of(tier)).changed
    said = "may run on any node" if changed else "was not mapped"
    return CommandAnswer({"tier": tier, "changed": changed}, show=lambda: click.echo(f"{tier} {said}"))
