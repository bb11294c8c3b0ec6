"""`scribengin scale NAME[.TIER]`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from scribengin.cli.answer import Answer
from scribengin.cli.each_flow import FlowCommand, each_flow
from scribengin.cli.going import wait_for_operation
from scribengin.cli.plane_option import masters_option
from scribengin.cli.size_option import bytes_of
from scribengin.cli.waiting import wait_for, wait_running_option

if TYPE_CHECKING:
    from scribengin.cli.plane_option import Masters
    from scribengin.cli.waiting import Wait
    from scribengin.registry.kinds import WorkerCount


def _workers(_context: click.Context, _parameter: click.Parameter, value: str | None) -> WorkerCount | None:
    """A whole number, or `each`. Raises BadParameter."""
    try:
        return None if value is None else "each" if value == "each" else int(value)
    except ValueError:
        raise click.BadParameter(f'"{value}" is not a whole number or each') from None


_STATES = {"running": "running", "paused": "paused"}


@click.command(cls=FlowCommand)
@click.argument("what", metavar="NAME[.TIER]")
@click.option("--cores", type=int, metavar="N", help="Of a worker, or of each of its executors where it has some.")
@click.option("--memory", callback=bytes_of, metavar="SIZE", help="The same, such as 2GiB.")
@click.option(
    "--executors", type=int, metavar="N", help="How many, each with these cores and memory; refused if Spark runs in the workers."
)
@click.option(
    "--workers",
    callback=_workers,
    metavar="N|each",
    help="How many read a tier's sources side by side, or one on each host of its group; for tiers without state.",
)
@click.option("--partitions", type=int, metavar="N", help="Over which the state is spread, of the Queries that keep some; none is lost.")
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
    wait: Wait | None,
    masters: Masters,
) -> Answer:
    """Give a flow, or one of its tiers, other resources. Workers of the tiers that change end after the Batches under way, and others take
    over where they were; positions and state are kept, and the other tiers go on. It stays so when the flow is submitted again.

    With --workers those that run go on, and others come to help or leave: each reads a part of every Batch. With `--workers each` they
    follow the hosts of the tier's group, or all hosts where it has none.
    """
    import msgspec

    from scribengin.client.verb_models import Scale

    flow, _, tier = what.partition(".")
    with masters.client() as client:
        scaled = client.scale(flow, Scale(tier or None, cores, memory, executors, partitions, workers))
        if scaled.operation is not None:
            wait_for_operation(client, flow, scaled.operation, None if wait is None else wait.seconds)
        goal = client.flow(flow).wanted.state
        status = msgspec.to_builtins(wait_for(client, flow, (_STATES.get(goal, "stopped"),), wait))

    def show() -> None:
        said = f"version {scaled.version} is wanted" if scaled.changed else "it has just that already"
        said += f"; operation {scaled.operation} spreads its state" if scaled.operation is not None else ""
        click.echo(f"flow {flow}: {said}" + (f"; it is {status['state']}" if status is not None else ""))

    return Answer({**msgspec.to_builtins(scaled), "status": status}, show=show)
