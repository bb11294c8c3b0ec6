"""`scribengin limit NAME[:SOURCE|:EDGE]`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from scribengin.cli.answer import Answer, AnsweringCommand
from scribengin.cli.home_option import home_option
from scribengin.core.units import parse_bytes

if TYPE_CHECKING:
    from scribengin.control.home import Home


def _size(_context: click.Context, _parameter: click.Parameter, value: str | None) -> int | None:
    if value is None:
        return None
    try:
        return int(value) if value.isdigit() else parse_bytes(value)
    except ValueError as error:
        raise click.BadParameter(str(error)) from None


@click.command(cls=AnsweringCommand)
@click.argument("what", metavar="NAME[:SOURCE|:EDGE]")
@click.option("--rows-per-s", type=float, metavar="N", help="At most so many rows a second.")
@click.option("--bytes-per-s", callback=_size, metavar="SIZE", help="At most so many bytes a second, such as 10MiB.")
@click.option("--off", is_flag=True, help="No limit any more.")
@home_option
def command(*, what: str, rows_per_s: float | None, bytes_per_s: int | None, off: bool, home: Home) -> Answer:
    """Limit a flow, one of its sources, or an edge between two tiers (`NAME:a->b`); without an option show the limits.

    It holds from the next Batch, without a restart. Of a flow: of all that it reads from outside, in equal parts for its Queries. What the
    flow file says of edges holds too.
    """
    from scribengin.control.limits import read_limits, set_limit
    from scribengin.local.limits import Pace, shown

    flow, _, target = what.partition(":")
    asks = rows_per_s is not None or bytes_per_s is not None
    if off and asks:
        raise click.UsageError("say a limit or --off")
    with home.registry() as registry:
        if asks or off:
            found = set_limit(registry, home.packages, flow, target, rows_per_s=rows_per_s, bytes_per_s=bytes_per_s)
        else:
            found = read_limits(registry, flow)

    def show() -> None:
        for name, pace in found.of.items():
            click.echo(f"{flow}{':' * bool(name)}{name}: {shown(Pace(pace.get('rows_per_s'), pace.get('bytes_per_s')))}")
        if not found.of:
            click.echo(f"{flow}: no limit")

    return Answer(found.as_json(), show=show)
