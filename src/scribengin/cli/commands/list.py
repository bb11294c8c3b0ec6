"""`scribengin list`: the flows of the control plane."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from scribengin.cli.answer import Answer, AnsweringCommand
from scribengin.cli.home_option import home_option
from scribengin.cli.tables import print_table

if TYPE_CHECKING:
    from scribengin.control.home import Home


@click.command(cls=AnsweringCommand)
@home_option
def command(*, home: Home) -> Answer:
    """Show the flows that were submitted: what is wanted of each, how it stands, since when, and why."""
    from scribengin.control import admin

    with home.registry() as registry:
        rows = admin.read_flows(registry)
    found = [
        {
            "flow": row.flow,
            "version": row.desired.version,
            "wanted": row.desired.state,
            "state": "created" if row.status is None else row.status.state,
            "since": row.desired.at if row.status is None else row.status.since,
            "reason": "" if row.status is None else row.status.reason,
            "next": "" if row.status is None else row.status.next,
            "refused": {} if row.status is None else dict(row.status.refused),
        }
        for row in rows
    ]

    def show() -> None:
        if not found:
            click.echo("no flow was submitted yet: scribengin apply FILE")
            return
        print_table(found, {name: name for name in ("flow", "version", "wanted", "state", "since", "reason", "next")})
        for row in rows:
            for path, said in (row.status.refused if row.status is not None else {}).items():
                click.echo(f"refused: {path} {said['why']}; {said['remedy']}")

    return Answer(found, show=show)
