"""`scribengin describe NAME`: what the registry holds about a flow, its tasks and the attempts of its tiers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from scribengin.cli.answer import CommandAnswer
from scribengin.cli.commands.status import read_named, show_named
from scribengin.cli.each_flow import FlowCommand, each_flow
from scribengin.cli.plane_option import masters_option
from scribengin.cli.tables import print_table
from scribengin.core.time_text import moment_text

if TYPE_CHECKING:
    from scribengin.cli.plane_option import Masters


@click.command(cls=FlowCommand)
@click.argument("flow", metavar="NAME")
@click.option("--tasks", is_flag=True, help="Also show what each task reads and writes, and its progress.")
@click.option("--attempts", is_flag=True, help="Also show the processes that ran its tiers: where, when, and why each ended.")
@masters_option
@each_flow("flow")
def command(*, flow: str, tasks: bool, attempts: bool, masters: Masters) -> CommandAnswer:
    """Show desired state, actual state, workers, and rejected or damaged records of a flow. Works without a running master.

    Tasks are as their workers reported them last: when their division changed, or up to half a minute ago.

    \b
    Example:
      scribengin describe orders --tasks
    """
    import msgspec

    with masters.reader() as plane:
        found = read_named(plane, flow)
        if tasks:
            found["tasks"] = msgspec.to_builtins(plane.tasks(flow))
        if attempts:
            found["attempts"] = plane.attempts(flow)

    def show() -> None:
        show_named(found)
        if tasks:
            click.echo()
            rows = [_row(task) for task in found["tasks"]]
            print_table(rows, {name: name for name in ("tier", "task", "query", "batch", "reads", "writes", "position", "owner")})
        if attempts:
            click.echo()
            rows = [_attempt(attempt) for attempt in found["attempts"]]
            print_table(rows, {name: name for name in ("worker", "state", "process", "since", "ended", "batches", "cause")})

    return CommandAnswer(found, show=show)


def _row(task: dict[str, Any]) -> dict[str, Any]:
    reads = [f"{source}: {', '.join(labels)}" for source, labels in sorted(task["sources"].items()) if labels]
    writes = [f"{sink}: {said['rows']:,} rows" for sink, said in sorted(task["sinks"].items())]
    position = [f"{source} {entries:,}" for source, entries in sorted(task["position"].items())]
    return {**task, "reads": "; ".join(reads) or "-", "writes": "; ".join(writes) or "-", "position": ", ".join(position) or "-"}


def _attempt(attempt: dict[str, Any]) -> dict[str, Any]:
    """A row of the table. The cause is why the attempt ended, and the last failure inside of it if that differs."""
    at = {name: "-" if attempt[name] is None else _moment(attempt[name]) for name in ("since", "ended")}
    process = f"{attempt['pid']} on {attempt['host']}" if attempt["pid"] else attempt["node"] or "-"
    failed = [failure["cause"] for failure in attempt["failures"]]
    cause = attempt["cause"] or ("as wanted" if attempt["state"] == "ended" else "")
    inside = f"{len(failed)} failure{'s' * (len(failed) != 1)} inside, the last: {failed[-1]}" if failed and failed[-1] not in cause else ""
    batches = "-" if attempt["batches"] is None else f"{attempt['batches']:,}"
    return {**attempt, **at, "process": process, "batches": batches, "cause": "; ".join(filter(None, [cause, inside]))}


def _moment(seconds: float) -> str:
    return moment_text(seconds).replace("+00:00", "Z")
