"""`scribengin apply FILE`: submit a flow to the control plane."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from scribengin.cli.answer import Answer, AnsweringCommand
from scribengin.cli.flow_argument import flow_path
from scribengin.cli.plane_option import masters_option
from scribengin.cli.waiting import wait_for, wait_option
from scribengin.core.errors import InputError
from scribengin.core.problems import Place, Problem

if TYPE_CHECKING:
    from scribengin.cli.plane_option import Masters


@click.command(cls=AnsweringCommand)
@click.argument("file", type=click.Path(), metavar="FILE")
@wait_option
@masters_option
def command(*, file: str, wait: float | None, masters: Masters) -> Answer:
    """Submit a flow: its file and its code become its next version, which then runs. The same again does nothing.

    The folder of the file is packed: later edits change nothing before the next `apply`. Relative paths of data start there.
    """
    import os

    import msgspec

    from scribengin.client.models import Submit
    from scribengin.packages.make import make_package

    path = flow_path(file)
    made = make_package(path.parent, os.environ)
    name = next((flow.name for flow in made.package.manifest.flows if flow.path == path.name), None)
    if name is None:
        raise InputError([Problem("flow-missing", Place(str(path)), "this is no flow file", "name one that has sources or sinks")])
    with masters.client() as client:
        applied = client.apply(name, Submit(made.package.id, path.name, str(path.parent.resolve())), made.package.data)
        row = msgspec.to_builtins(wait_for(client, applied.flow, ("running",), wait))

    def show() -> None:
        what = "submitted" if applied.changed else "nothing to do: it is just this that runs as"
        click.echo(f"flow {applied.flow}: {what} version {applied.version}")
        if row is not None:
            click.echo(f"flow {applied.flow} is {row['state']}")

    return Answer({"flow": applied.flow, "version": applied.version, "changed": applied.changed, "status": row}, made.warnings, show=show)
