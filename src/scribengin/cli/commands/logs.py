"""`scribengin logs NAME`: what a flow's workers have printed."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from scribengin.cli.answer import Answer
from scribengin.cli.each_flow import FlowCommand, each_flow
from scribengin.cli.plane_option import masters_option

if TYPE_CHECKING:
    from scribengin.cli.plane_option import Masters


@click.command(cls=FlowCommand)
@click.argument("flow", metavar="NAME")
@click.option("--tier", help="Of this tier only.")
@click.option("-n", "--lines", type=click.IntRange(1, 10_000), default=50, show_default=True, help="So many of each file, the last ones.")
@masters_option
@each_flow("flow")
def command(*, flow: str, tier: str | None, lines: int, masters: Masters) -> Answer:
    """Show what the newest worker of each tier has printed, on whichever host, and the run logs of the tiers."""
    import msgspec

    with masters.client() as client:
        found = msgspec.to_builtins(client.logs(flow, tier=tier, lines=lines))

    def show() -> None:
        for each in found:
            where = f"{each['node']}:{each['file']}" if each["node"] else each["file"]
            click.echo(f"--- tier {each['tier']}: {each['problem'] or where}")
            for line in each["lines"]:
                click.echo(line)

    return Answer(found, show=show)
