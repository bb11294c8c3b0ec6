"""`scribengin delete NAME...`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from scribengin.cli.answer import Answer, AnsweringCommand
from scribengin.cli.plane_option import masters_option

if TYPE_CHECKING:
    from scribengin.cli.plane_option import Masters


@click.command(cls=AnsweringCommand)
@click.argument("flows", nargs=-1, required=True, metavar="NAME...")
@masters_option
def command(*, flows: tuple[str, ...], masters: Masters) -> Answer:
    """Forget flows that are stopped. Their outputs and their state stay: submitted again, they go on where they were."""
    with masters.client() as client:
        for flow in flows:
            client.flow(flow)  # all of them are there, or nothing is done
        for flow in flows:
            client.delete(flow)
    return Answer(list(flows), show=lambda: click.echo(f"forgotten: {', '.join(flows)}"))
