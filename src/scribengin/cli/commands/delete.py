"""`scribengin delete NAME...`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from scribengin.cli.answer import Answer, AnsweringCommand
from scribengin.cli.home_option import home_option

if TYPE_CHECKING:
    from scribengin.control.home import Home


@click.command(cls=AnsweringCommand)
@click.argument("flows", nargs=-1, required=True, metavar="NAME...")
@home_option
def command(*, flows: tuple[str, ...], home: Home) -> Answer:
    """Forget flows that are stopped. Their outputs and their state stay: submitted again, they go on where they were."""
    from scribengin.control import admin

    with home.registry() as registry:
        for flow in flows:
            admin.read_flow(registry, flow)  # all of them are there, or nothing is done
        for flow in flows:
            admin.delete(registry, flow)
    return Answer(list(flows), show=lambda: click.echo(f"forgotten: {', '.join(flows)}"))
