"""`scribengin scale NAME[.TIER]`."""

from __future__ import annotations

import getpass
from typing import TYPE_CHECKING

import click

from scribengin.cli.answer import Answer, AnsweringCommand
from scribengin.cli.going import wait_for_operation
from scribengin.cli.home_option import home_option
from scribengin.cli.waiting import wait_for, wait_option
from scribengin.core.units import parse_bytes

if TYPE_CHECKING:
    from scribengin.control.home import Home

_STATES = {"running": "running", "paused": "paused"}


def _bytes(_context: click.Context, _parameter: click.Parameter, value: str | None) -> int | None:
    if value is None:
        return None
    try:
        return parse_bytes(value)
    except ValueError as error:
        raise click.BadParameter(str(error)) from None


@click.command(cls=AnsweringCommand)
@click.argument("what", metavar="NAME[.TIER]")
@click.option("--cores", type=int, metavar="N", help="Of a worker, or of each of its executors where it has some.")
@click.option("--memory", callback=_bytes, metavar="SIZE", help="The same, such as 2GiB.")
@click.option("--executors", type=int, metavar="N", help="Where the launcher has executors.")
@click.option("--partitions", type=int, metavar="N", help="Over which the state is spread, of the Queries that keep some; none is lost.")
@wait_option
@home_option
def command(
    *,
    what: str,
    cores: int | None,
    memory: int | None,
    executors: int | None,
    partitions: int | None,
    wait: float | None,
    home: Home,
) -> Answer:
    """Give a flow, or one of its tiers, other resources. Workers of the tiers that change end after the Batches under way, and others take
    over where they were; positions and state are kept, and the other tiers go on. It stays so when the flow is submitted again.
    """
    import msgspec

    from scribengin.api.views import RegistryView
    from scribengin.control import admin
    from scribengin.control.scale import scale, spread_state

    flow, _, tier = what.partition(".")
    tiers = [tier] if tier else []
    asked = {"cores": cores, "memory_bytes": memory, "executors": executors}
    by = getpass.getuser()
    with home.registry() as registry:
        row = admin.read_flow(registry, flow)
        scaled = admin.Applied(flow, row.desired.version, changed=False)
        if partitions is None or any(value is not None for value in asked.values()):
            scaled = scale(registry, flow, tiers, **asked, by=by)
        operation = None if partitions is None else spread_state(registry, home.packages, flow, tiers, partitions=partitions, by=by)
        if operation is not None:
            wait_for_operation(registry, flow, operation, wait)
        status = msgspec.to_builtins(wait_for(RegistryView(registry), flow, (_STATES.get(row.desired.state, "stopped"),), wait))

    def show() -> None:
        said = f"version {scaled.version} is wanted" if scaled.changed else "it has just that already"
        said += f"; operation {operation} spreads its state" if operation is not None else ""
        click.echo(f"flow {flow}: {said}" + (f"; it is {status['state']}" if status is not None else ""))

    changed = scaled.changed or operation is not None
    return Answer({"flow": flow, "version": scaled.version, "changed": changed, "operation": operation, "status": status}, show=show)
