"""`scribengin validate FILE…`: every mistake at once, without Java, in under half a second; with `--env` what only a look outside shows."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import click

from scribengin.cli.answer import AnsweringCommand, CommandAnswer, problems_of
from scribengin.cli.complete_values import flow_files
from scribengin.cli.flow_argument import flow_path
from scribengin.cli.settings import read_settings, run_settings, setting_flags
from scribengin.core.errors import Exit, InputError, ScribenginError

if TYPE_CHECKING:
    from pathlib import Path

    from scribengin.core.problems import Problem
    from scribengin.local.connection_checks import NodeReach
    from scribengin.spec.model import Flow

_WITHIN_S = 10.0
"""how long a place may take to answer; all of a flow are asked at once"""
_COLOURS = {"ok": "green", "wrong": "red", "unreached": "yellow", "unchecked": "yellow"}


@click.command(cls=AnsweringCommand)
@click.argument("files", nargs=-1, required=True, type=click.Path(), metavar="FILE...", shell_complete=flow_files)
@click.option(
    "--env",
    "environment",
    is_flag=True,
    help="Also connect to every source and sink: check places, their owners, logins, topics and tables. Changes nothing.",
)
@setting_flags("state")
def command(files: tuple[str, ...], *, environment: bool, state: Path | None) -> CommandAnswer:
    """Check flow files. Reads the files and the modules that they name; does not start Java or Spark.

    With --env the exit status is 2 if a place is wrong or belongs to another flow, and 3 if a place cannot be reached. Flows written in
    Python are executed.

    \b
    Examples:
      scribengin validate flow.yaml
      scribengin validate flow.yaml --env
    """
    from scribengin.plan.test_files import read_test_files
    from scribengin.plan.validate import validate_file

    rows: list[dict[str, Any]] = []
    problems: list[Problem] = []
    looked: list[list[NodeReach]] = []
    for file in files:
        flow = None
        try:
            flow, found = validate_file(flow_path(file), os.environ, tests=True, execute=environment)
            found += read_test_files(flow, flow_path(file))[1] if flow is not None else []
        except InputError as error:
            found = list(error.problems)
        reached = _reached(flow_path(file), flow, found, state) if environment else []
        found = [*found, *(each.problem for each in reached if each.problem is not None)]
        errors = sum(problem.severity == "error" for problem in found)
        row = {"file": file, "flow": flow.name if flow else None, "ok": not errors, "errors": errors, "warnings": len(found) - errors}
        rows.append(row | ({"places": [each.as_json() for each in reached]} if environment else {}))
        looked.append(reached)
        problems += found

    def show() -> None:
        for row, reached in zip(rows, looked, strict=True):
            if row["ok"]:
                click.echo(f"{row['file']}: {click.style('ok', fg='green')}")
            elif reached:
                click.echo(f"{row['file']}: {click.style('wrong', fg='red')}")
            for each in reached:
                where = f" ({each.place})" if each.place else ""
                says = {"wrong": "wrong", "unreached": "not reached"}.get(each.state, each.says)
                click.echo(f"  {each.role} {each.node}: {each.type}{where}: {click.style(says, fg=_COLOURS[each.state])}")

    unreached = any(each.state == "unreached" for reached in looked for each in reached)
    wrong = any(not row["ok"] for row in rows)
    return CommandAnswer({"files": rows}, problems, Exit.INPUT if wrong else Exit.ENVIRONMENT if unreached else Exit.DONE, show)


def _reached(path: Path, flow: Flow | None, found: list[Problem], state: Path | None) -> list[NodeReach]:
    """What a look at the places finds, of a flow without mistakes; what the plan itself is refused for, and what is odd about its lookup
    tables, is added to `found`."""
    from scribengin.local.connection_checks import check_places
    from scribengin.local.preflight import empty_lookups, repeated_keys
    from scribengin.local.prepare import prepare_valid

    if flow is None or any(problem.severity == "error" for problem in found):
        return []
    try:
        prepared = prepare_valid(path, flow, found, state=run_settings(read_settings({"state": state})).state)
    except ScribenginError as error:
        found += problems_of(error)
        return []
    found += [*empty_lookups(prepared), *repeated_keys(prepared)]
    return check_places(prepared, within_s=_WITHIN_S)
