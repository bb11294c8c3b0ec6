"""`scribengin limit NAME[:SOURCE|:EDGE]`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from scribengin.cli.answer import CommandAnswer
from scribengin.cli.each_flow import FlowCommand, each_flow
from scribengin.cli.plane_option import masters_option
from scribengin.cli.value_options import bytes_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from scribengin.cli.plane_option import Masters


@click.command(cls=FlowCommand)
@click.argument("what", metavar="NAME[:SOURCE|:EDGE]")
@click.option("--rows-per-second", "rows_per_s", type=float, metavar="N", help="Maximum rows per second.")
@click.option("--bytes-per-second", "bytes_per_s", callback=bytes_of, metavar="SIZE", help="Maximum bytes per second, such as 10MiB.")
@click.option("--unset", is_flag=True, help="Remove the limit.")
@masters_option
@each_flow("what")
def command(*, what: str, rows_per_s: float | None, bytes_per_s: int | None, unset: bool, masters: Masters) -> CommandAnswer:
    """Show or change rate limits of a running flow, of one of its sources, or of an edge between two tiers (`NAME:a->b`). Without an
    option, show the limits.

    A limit applies from the next Batch on. The limit of a flow covers all data that it reads from outside, divided equally among its
    queries. Limits that the flow file sets for edges apply too.

    \b
    Examples:
      scribengin limit orders --rows-per-second 5000
      scribengin limit orders --unset
    """
    import msgspec

    from scribengin.client.change_models import SetLimit

    flow, _, target = what.partition(":")
    asks = rows_per_s is not None or bytes_per_s is not None
    if unset and asks:
        raise click.UsageError("pass a limit or --unset")
    with masters.client() as client:
        found = client.limit(flow, SetLimit(target, rows_per_s, bytes_per_s)) if asks or unset else client.limits(flow)

    def show() -> None:
        for name, pace in found.limits.items():
            click.echo(f"{flow}{':' * bool(name)}{name}: {' and '.join(_pace_texts(pace))}")
        if not found.limits:
            click.echo(f"{flow}: no limit")

    return CommandAnswer(msgspec.to_builtins(found), show=show)


def _pace_texts(pace: Mapping[str, float]) -> list[str]:
    units = {"rows_per_s": "rows/s", "bytes_per_s": "bytes/s"}
    return [f"{value:,g} {units[name]}" for name, value in pace.items() if name in units]
