"""`scribengin describe NAME`: all that the registry says of a flow, and of its tasks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from scribengin.cli.answer import Answer
from scribengin.cli.commands.status import read_named, show_named
from scribengin.cli.each_flow import FlowCommand, each_flow
from scribengin.cli.plane_option import masters_option
from scribengin.cli.tables import print_table

if TYPE_CHECKING:
    from scribengin.cli.plane_option import Masters


@click.command(cls=FlowCommand)
@click.argument("flow", metavar="NAME")
@click.option("--tasks", is_flag=True, help="Also what each task reads and writes, and how far it is.")
@masters_option
@each_flow("flow")
def command(*, flow: str, tasks: bool, masters: Masters) -> Answer:
    """Show what is wanted of a flow, how it stands, who serves its tiers, what was refused or damaged; also where no master is alive.

    Tasks are as their workers wrote them last: when the split changed, or half a minute ago.
    """
    import msgspec

    with masters.reader() as plane:
        found = read_named(plane, flow)
        if tasks:
            found["tasks"] = msgspec.to_builtins(plane.tasks(flow))

    def show() -> None:
        show_named(found)
        if tasks:
            click.echo()
            rows = [_row(task) for task in found["tasks"]]
            print_table(rows, {name: name for name in ("tier", "task", "query", "batch", "reads", "writes", "position", "owner")})

    return Answer(found, show=show)


def _row(task: dict[str, Any]) -> dict[str, Any]:
    reads = [f"{source}: {', '.join(labels)}" for source, labels in sorted(task["sources"].items()) if labels]
    writes = [f"{sink}: {said['rows']:,} rows" for sink, said in sorted(task["sinks"].items())]
    position = [f"{source} {entries:,}" for source, entries in sorted(task["position"].items())]
    return {**task, "reads": "; ".join(reads) or "-", "writes": "; ".join(writes) or "-", "position": ", ".join(position) or "-"}
