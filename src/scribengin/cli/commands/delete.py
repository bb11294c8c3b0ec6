"""`scribengin delete NAME...`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from scribengin.cli.answer import AnsweringCommand, CommandAnswer
from scribengin.cli.plane_option import masters_option
from scribengin.cli.value_options import chosen, labels_option

if TYPE_CHECKING:
    from scribengin.cli.plane_option import Masters


@click.command(cls=AnsweringCommand)
@click.argument("flows", nargs=-1, metavar="NAME...")
@labels_option
@masters_option
def command(*, flows: tuple[str, ...], labels: dict[str, str], masters: Masters) -> CommandAnswer:
    """Delete stopped flows. Outputs and state are kept: a flow that is submitted again continues from there.

    \b
    Example:
      scribengin delete orders
    """
    with masters.client() as client:
        flows = chosen(client, flows, labels)  # raises before the first deletion if one of the flows does not exist
        for flow in flows:
            client.delete(flow)
    return CommandAnswer(list(flows), show=lambda: click.echo(f"deleted: {', '.join(flows)}"))
