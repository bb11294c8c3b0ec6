"""The confirmation of commands that destroy or skip something: list what is lost, and continue only after a confirmation."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import click

from scribengin.cli.flow_argument import as_called
from scribengin.core.errors import Exit, Refused

if TYPE_CHECKING:
    from collections.abc import Sequence


def confirm(what: str, lines: Sequence[str], *, yes: bool, code: str, remedy: str = "") -> None:
    """Return if the action is confirmed; raise otherwise.

    Args:
        what: the heading of the list, such as `reset of flow shop removes:`
        lines: what is lost, one line for each
        yes: True if it was confirmed on the command line
        code: the code of the problem if there is no terminal to ask on
        remedy: what to do before or instead

    Raises:
        Refused: there is no terminal to ask on
        click.exceptions.Exit: the answer was no
        click.Abort: Ctrl-C instead of an answer
    """
    if yes:
        return
    context = click.get_current_context(silent=True)
    as_json = _is_read_by_a_program(context)
    if not as_json:
        click.echo(what, err=True)
        for line in lines:
            click.echo(f"  {line}", err=True)
    if not _asks(context):
        message = f"{what} {'; '.join(lines)}" if as_json else "nothing was done: this needs a confirmation, and there is no terminal"
        no_answer = "run it on a terminal, where it asks; in a script confirm with the option that its --help names"
        raise Refused(message, remedy=f"{remedy}; or {no_answer}" if remedy else no_answer, code=code)
    if remedy:
        click.echo(remedy if context is None else as_called(remedy, context.params), err=True)
    if not click.confirm("Go on?", err=True):
        raise click.exceptions.Exit(Exit.FAILED)


def _asks(context: click.Context | None) -> bool:
    """True if a person can answer."""
    return sys.stdin.isatty() and sys.stderr.isatty() and not _is_read_by_a_program(context)


def _is_read_by_a_program(context: click.Context | None) -> bool:
    return context is not None and bool(context.meta.get("scribengin.json"))
