"""`scribengin shell`: read commands, one on each line, with completion and history; or run a script of them."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from scribengin.cli.answer import AnsweringCommand, CommandAnswer
from scribengin.cli.server_options import home_option
from scribengin.core.errors import Exit
from scribengin.core.problems import Place, Problem

if TYPE_CHECKING:
    from scribengin.control.home import Home


@click.command(cls=AnsweringCommand)
@click.option("-c", "text", metavar="TEXT", help="Run these commands, separated by newlines or ;, and exit.")
@click.option(
    "-f", "file", type=click.Path(exists=True, dir_okay=False, allow_dash=True), metavar="FILE", help="Run a script; - for stdin."
)
@click.option("--keep-going", is_flag=True, help="Continue a script after a command fails.")
@home_option
def command(*, text: str | None, file: str | None, keep_going: bool, home: Home) -> CommandAnswer:
    """Run commands without typing `scribengin`, with completion (Tab) and history. Exit with `exit` or Ctrl-D.

    A script is a file of such commands: # begins a comment, a backslash at the end continues a line. It stops at the first command that
    fails, reports its line, and exits with its status.

    \b
    Examples:
      scribengin shell
      scribengin shell -c "list; node list"
    """
    from scribengin.cli.shell_session import ShellSession, converse, read_script

    if text is not None and file is not None:
        raise click.UsageError("give -c or -f, not both")
    session = ShellSession({**os.environ, "SCRIBENGIN_HOME": str(home.folder)})
    if text is None and file is None:
        converse(session, home.folder / "shell.history")
        return CommandAnswer(session.done)
    name = file or "-c"
    content = text or (sys.stdin.read() if file == "-" else Path(name).read_text() if file else "")
    failed: list[tuple[int, list[str], int]] = []
    for number, words in read_script(content, name):
        if (status := session.perform(words)) != 0:
            failed.append((number, words, status))
            if not keep_going or status == Exit.INTERRUPTED:
                break
    return CommandAnswer(session.done, [_problem(name, *each) for each in failed], Exit(failed[0][2]) if failed else Exit.DONE)


def _problem(name: str, line: int, words: list[str], status: int) -> Problem:
    what, remedy = (
        f"{' '.join(words)} ended with status {status}",
        "the lines above give the reason; --keep-going continues with the next line",
    )
    return Problem("shell-failed", Place(name, line, 1), what, remedy)
