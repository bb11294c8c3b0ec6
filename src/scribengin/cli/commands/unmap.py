"""`scribengin unmap FLOW.TIER`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from scribengin.cli.answer import Answer, AnsweringCommand
from scribengin.cli.binding import parts_of
from scribengin.cli.plane_option import masters_option

if TYPE_CHECKING:
    from scribengin.cli.plane_option import Masters


@click.command(cls=AnsweringCommand)
@click.argument("tier", metavar="FLOW.TIER")
@masters_option
def command(*, tier: str, masters: Masters) -> Answer:
    """Let a tier run on any node. It stays where it is until it is started anew."""
    with masters.client() as client:
        changed = client.unbind(*parts_of(tier)).changed
    said = "may run anywhere" if changed else "was not mapped"
    return Answer({"tier": tier, "changed": changed}, show=lambda: click.echo(f"{tier} {said}"))
