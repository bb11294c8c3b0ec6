"""`scribengin fmt FILE…`."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING

import click

from scribengin.cli.answer import AnsweringCommand, CommandAnswer
from scribengin.cli.complete_values import flow_files
from scribengin.cli.flow_argument import flow_path
from scribengin.core.errors import Exit, InputError
from scribengin.core.problems import Place, Problem
from scribengin.core.storage import rewrite

if TYPE_CHECKING:
    from pathlib import Path


@click.command(cls=AnsweringCommand)
@click.argument("files", nargs=-1, required=True, type=click.Path(), metavar="FILE...", shell_complete=flow_files)
@click.option("--check", is_flag=True, help="Change nothing; exit with status 2 if a file would change.")
def command(*, files: tuple[str, ...], check: bool) -> CommandAnswer:
    """Format flow files. Comments, quotes and order are kept.

    \b
    Example:
      scribengin fmt flow.yaml --check
    """
    rows: list[dict[str, object]] = []
    problems: list[Problem] = []
    for file in files:
        try:
            path = flow_path(file)
            before, after = _laid_out(path, file)
        except InputError as error:
            problems += error.problems
            continue
        rows.append({"file": file, "changed": before != after})
        if before != after and check:
            remedy = f"scribengin fmt {shlex.quote(file)}"
            problems.append(Problem("not-formatted", Place(file), "this file is not laid out in the common form", remedy))
        elif before != after:
            rewrite(path, after.encode())

    def show() -> None:
        for row in rows:
            if row["changed"] and not check:
                click.echo(f"{row['file']}: laid out")

    return CommandAnswer({"files": rows}, problems, Exit.INPUT if problems else Exit.DONE, show)


def _laid_out(path: Path, file: str) -> tuple[str, str]:
    """Returns the text before and after formatting. Raises InputError if the file is not a readable YAML file."""
    from scribengin.spec.fmt import format_text

    if path.suffix == ".py":
        raise InputError([Problem("not-yaml", Place(file), "this is a Python file; fmt lays YAML files out", "use ruff format or black")])
    try:
        before = path.read_bytes().decode()
    except (OSError, UnicodeDecodeError) as error:
        raise InputError([Problem("flow-unreadable", Place(file), f"this file cannot be read: {error}")]) from error
    return before, format_text(before, file)
