"""`scribengin scale NAME[.TIER]`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from scribengin.cli.answer import CommandAnswer
from scribengin.cli.each_flow import FlowCommand, each_flow
from scribengin.cli.flow_verbs import wait_for_operation
from scribengin.cli.plane_option import masters_option
from scribengin.cli.value_options import bytes_of
from scribengin.cli.waiting import wait_for, wait_running_option

if TYPE_CHECKING:
    from scribengin.cli.plane_option import Masters
    from scribengin.cli.waiting import WaitOption
    from scribengin.registry.records import WorkerCount


def _workers(_context: click.Context, _parameter: click.Parameter, value: str | None) -> WorkerCount | None:
    """Parse a whole number or `each`. Raises BadParameter."""
    try:
        return None if value is None else "each" if value == "each" else int(value)
    except ValueError:
        raise click.BadParameter(f'"{value}" is not a whole number or each') from None


_STATES = {"running": "running", "paused": "paused"}


@click.command(cls=FlowCommand)
@click.argument("what", metavar="NAME[.TIER]")
@click.option("--cores", type=int, metavar="N", help="Cores of a worker, or of each executor if it has executors.")
@click.option("--memory", callback=bytes_of, metavar="SIZE", help="Memory of a worker, or of each executor, such as 2GiB.")
@click.option(
    "--executors",
    type=int,
    metavar="N",
    help="Number of executors, each with these cores and this memory. Refused if Spark runs inside the workers.",
)
@click.option(
    "--workers",
    callback=_workers,
    metavar="N|each",
    help="Number of workers that process the tier's Batches together, or `each`. Only for tiers without state.",
)
@click.option(
    "--partitions", type=int, metavar="N", help="Number of partitions that hold the state of stateful queries. The state is kept."
)
@wait_running_option
@masters_option
@each_flow("what")
def command(
    *,
    what: str,
    cores: int | None,
    memory: int | None,
    executors: int | None,
    workers: WorkerCount | None,
    partitions: int | None,
    wait: WaitOption | None,
    masters: Masters,
) -> CommandAnswer:
    """Change the resources of a flow or of one of its tiers. Workers of the changed tiers stop after the current Batches, and others
    continue from there; positions and state are kept, and other tiers keep running. The change also holds for later versions.

    With --workers running workers stay, and others join or leave; each processes a part of every Batch. With `--workers each` the tier has
    one worker on each host of its group, or on each host if it has no group.

    \b
    Examples:
      scribengin scale orders.core --workers 3
      scribengin scale orders --cores 4 --memory 8GiB
    """
    import msgspec

    from scribengin.client.change_models import Scale

    flow, _, tier = what.partition(".")
    with masters.client() as client:
        scaled = client.scale(flow, Scale(tier or None, cores, memory, executors, partitions, workers))
        if scaled.operation is not None:
            wait_for_operation(client, flow, scaled.operation, None if wait is None else wait.seconds)
        goal = client.flow(flow).wanted.state
        status = msgspec.to_builtins(wait_for(client, flow, (_STATES.get(goal, "stopped"),), wait))

    def show() -> None:
        said = f"version {scaled.version} is wanted" if scaled.changed else "nothing to do: it has these resources already"
        said += f"; operation {scaled.operation} spreads its state" if scaled.operation is not None else ""
        click.echo(f"flow {flow}: {said}" + (f"; it is {status['state']}" if status is not None else ""))

    return CommandAnswer({**msgspec.to_builtins(scaled), "status": status}, show=show)
