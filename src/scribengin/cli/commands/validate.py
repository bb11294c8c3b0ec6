"""`scribengin validate FILE…`: every mistake at once, without Java, in under half a second."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import click

from scribengin.cli.answer import Answer, AnsweringCommand
from scribengin.cli.flow_argument import flow_path
from scribengin.core.errors import Exit, InputError

if TYPE_CHECKING:
    from scribengin.core.problems import Problem


@click.command(cls=AnsweringCommand)
@click.argument("files", nargs=-1, required=True, type=click.Path(), metavar="FILE...")
def command(files: tuple[str, ...]) -> Answer:
    """Check flow files. Reads them, the modules they name and nothing else; starts neither Java nor Spark."""
    from scribengin.plan.test_files import read_test_files
    from scribengin.plan.validate import validate_file

    rows: list[dict[str, object]] = []
    problems: list[Problem] = []
    for file in files:
        flow = None
        try:
            flow, found = validate_file(flow_path(file), os.environ, tests=True)
            found += read_test_files(flow, flow_path(file))[1] if flow is not None else []
        except InputError as error:
            found = list(error.problems)
        errors = sum(problem.severity == "error" for problem in found)
        rows.append(
            {"file": file, "flow": flow.name if flow else None, "ok": not errors, "errors": errors, "warnings": len(found) - errors}
        )
        problems += found
    wrong = sum(not row["ok"] for row in rows)

    def show() -> None:
        for row in rows:
            if row["ok"]:
                click.echo(f"{row['file']}: {click.style('ok', fg='green')}")

    return Answer({"files": rows}, problems, Exit.INPUT if wrong else Exit.DONE, show)
