"""`scribengin list`: the flows of the control plane."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from scribengin.cli.answer import AnsweringCommand, CommandAnswer
from scribengin.cli.each_flow import NO_FLOW
from scribengin.cli.plane_option import masters_option
from scribengin.cli.tables import print_table
from scribengin.cli.value_options import labels_option

if TYPE_CHECKING:
    from scribengin.cli.plane_option import Masters


@click.command(cls=AnsweringCommand)
@labels_option
@masters_option
def command(*, labels: dict[str, str], masters: Masters) -> CommandAnswer:
    """List submitted flows: desired state, actual state, since when, and why.

    \b
    Example:
      scribengin list -l team=shop
    """
    import msgspec

    with masters.reader() as plane:
        found = msgspec.to_builtins(plane.flows(labels))

    def show() -> None:
        if not found:
            click.echo("no flow has these labels" if labels else NO_FLOW)
            return
        met = {"by": "fed by"} if any(row["workflow"] for row in found) else {}
        rows = [{**row, "by": ", ".join(row["fed_by"])} for row in found]
        print_table(
            rows, {name: name for name in ("flow", "version", "wanted", "state", "since")} | met | {"reason": "reason", "next": "next"}
        )
        for row in found:
            for path, said in row["refused"].items():
                click.echo(f"refused: {path} {said['why']}; {said['remedy']}")

    return CommandAnswer(found, show=show)
