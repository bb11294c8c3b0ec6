"""`scribengin config resolved FLOW`."""

from __future__ import annotations

import os

import click

from scribengin.cli.answer import AnsweringCommand, CommandAnswer
from scribengin.cli.flow_argument import flow_argument, flow_path
from scribengin.cli.spreading import branches_option, check_options
from scribengin.core.errors import InputError

_spread_option = click.option(
    "--spread", type=click.IntRange(1), metavar="N", help="Split its utilities into N tiers, as `apply --spread` submits it."
)


@click.command(cls=AnsweringCommand)
@flow_argument
@click.option("--as-written", is_flag=True, help="Keep `${...}`, and leave out defaults.")
@_spread_option
@branches_option
def resolved(*, flow: str, as_written: bool, spread: int | None, branches: str | None) -> CommandAnswer:
    """Print a flow as YAML with every default and replaced `${...}`; secrets stay references. Also prints flows that are written in Python.

    \b
    Example:
      scribengin config resolved flow.yaml
    """
    return _printed(flow, spread, branches, resolved=not as_written)


@click.command(cls=AnsweringCommand)
@flow_argument
@click.option("--resolved", is_flag=True, help="Write out every default and replace `${...}`; secrets stay references.")
@_spread_option
@branches_option
def command(*, flow: str, resolved: bool, spread: int | None, branches: str | None) -> CommandAnswer:
    """The old `show FLOW`: see `scribengin config resolved`."""
    return _printed(flow, spread, branches, resolved=resolved)


def _printed(flow: str, spread: int | None, branches: str | None, *, resolved: bool) -> CommandAnswer:
    check_options(spread, branches)
    from scribengin.connectors import catalog
    from scribengin.plan.validate import validate_file
    from scribengin.spec.dump import dump_flow, flow_data

    declared, problems = validate_file(flow_path(flow), os.environ, execute=True)
    if declared is None or any(problem.severity == "error" for problem in problems):
        raise InputError(problems)
    if spread is not None:
        from scribengin.cli.spreading import spread_flow

        declared, found = spread_flow(declared, spread, branches, flow)
        problems = [*problems, *found]
    types = {"source_types": catalog.source_types(), "sink_types": catalog.sink_types()}
    result = {"flow": declared.name, "resolved": resolved, "data": flow_data(declared, resolved=resolved, **types)}
    return CommandAnswer(result, problems, show=lambda: click.echo(dump_flow(declared, resolved=resolved, **types), nl=False))
