"""`scribengin quota set|list|remove`: limit the resources that all flows with a label use together."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

import click

from scribengin.cli.answer import AnsweringCommand, CommandAnswer
from scribengin.cli.guesses import GuessingGroup
from scribengin.cli.plane_option import masters_option
from scribengin.cli.tables import print_table
from scribengin.cli.value_options import bytes_of
from scribengin.core.units import show_bytes

if TYPE_CHECKING:
    from collections.abc import Mapping

    from scribengin.cli.plane_option import Masters

_BOUNDS: dict[str, Literal["cores", "memory_bytes", "rows_per_s"]] = {
    "cores": "cores",
    "memory": "memory_bytes",
    "rows-per-second": "rows_per_s",
}


@click.group(cls=GuessingGroup)
def command() -> None:
    """Set shared resource quotas for all flows with a label: cores, memory, rows per second.

    A flow that does not fit waits, and its status says for what. Flows that are running are not stopped by a quota.

    \b
    Example:
      scribengin quota set team=shop --cores 8 --memory 16GiB
    """


@command.command("set", cls=AnsweringCommand)
@click.argument("quota", metavar="LABEL=VALUE")
@click.option("--cores", type=int, metavar="N", help="Cores of all workers of these flows together.")
@click.option("--memory", callback=bytes_of, metavar="SIZE", help="Memory of all workers of these flows together, such as 8GiB.")
@click.option(
    "--rows-per-second",
    "rate",
    type=float,
    metavar="N",
    help="Rows per second that these flows read together, divided among those that run.",
)
@click.option("--unset", multiple=True, type=click.Choice(list(_BOUNDS)), help="Remove this limit of the quota. May be repeated.")
@masters_option
def set_(
    *, quota: str, cores: int | None, memory: int | None, rate: float | None, unset: tuple[str, ...], masters: Masters
) -> CommandAnswer:
    """Create or update a quota. Omitted values do not change.

    \b
    Example:
      scribengin quota set team=shop --cores 8 --memory 16GiB
    """
    import msgspec

    from scribengin.client.change_models import SetQuota

    with masters.client() as client:
        row = msgspec.to_builtins(client.set_quota(quota, SetQuota(cores, memory, rate, tuple(_BOUNDS[name] for name in unset))))

    def show() -> None:
        click.echo(f"quota {quota}: {_bounds(row)}")
        if row["over"]:
            click.echo(f"its flows have more already ({_taken(row['taken'])}): they keep running; no other flow starts until they use less")

    return CommandAnswer(row, show=show)


@command.command("list", cls=AnsweringCommand)
@click.argument("quota", metavar="[LABEL=VALUE]", required=False)
@masters_option
def list_(*, quota: str | None, masters: Masters) -> CommandAnswer:
    """List quotas, or show one: its limits, and the flows that use it or wait for it.

    \b
    Example:
      scribengin quota list
    """
    import msgspec

    from scribengin.core.errors import Refused

    with masters.client() as client:
        rows = msgspec.to_builtins(client.quotas())
    if quota is not None:
        known = ", ".join(row["quota"] for row in rows) or "none"
        rows = [row for row in rows if row["quota"] == quota]
        if not rows:
            raise Refused(f'there is no quota "{quota}"', remedy=f"there are: {known}", code="quota-unknown")

    def show() -> None:
        if not rows:
            click.echo("there are no quotas; add one: scribengin quota set LABEL=VALUE --cores N")
        for number, row in enumerate(rows):
            if number:
                click.echo()
            _show(row)

    return CommandAnswer(rows, show=show)


@command.command(cls=AnsweringCommand)
@click.argument("quota", metavar="LABEL=VALUE")
@masters_option
def remove(*, quota: str, masters: Masters) -> CommandAnswer:
    """Remove a quota. Flows that wait for it start.

    \b
    Example:
      scribengin quota remove team=shop
    """
    with masters.client() as client:
        client.remove_quota(quota)
    return CommandAnswer({"quota": quota}, show=lambda: click.echo(f"quota {quota} is removed"))


def _show(row: Mapping[str, Any]) -> None:
    if row["refused"]:
        click.echo(f"quota {row['quota']}: its record {row['refused']}; no further flow starts under it")
    else:
        click.echo(f"quota {row['quota']}: {_bounds(row)}; taken: {_taken(row['taken'])}")
    flows = [
        {
            "flow": flow["flow"],
            "cores": flow["cores"] or "–",
            "memory": show_bytes(flow["memory_bytes"]) if flow["memory_bytes"] else "–",
            "rows/s": "–" if flow["rows_per_s"] is None else f"{flow['rows_per_s']:,.0f}" + (" (idle)" if flow["idle"] else ""),
            "waits": flow["reason"] or ("yes" if flow["waits"] else ""),
        }
        for flow in row["flows"]
    ]
    if flows:
        print_table(flows, {name: name for name in ("flow", "cores", "memory", "rows/s", "waits")})
    else:
        click.echo("no flow has this label")


def _bounds(row: Mapping[str, Any]) -> str:
    said = [f"{row['cores']} cores"] if row["cores"] is not None else []
    said += [f"{show_bytes(row['memory_bytes'])} of memory"] if row["memory_bytes"] is not None else []
    said += [f"{row['rows_per_s']:,g} rows/s"] if row["rows_per_s"] is not None else []
    return ", ".join(said)


def _taken(taken: Mapping[str, int]) -> str:
    return f"{taken['cores']} cores, {show_bytes(taken['memory_bytes'])} of memory"
