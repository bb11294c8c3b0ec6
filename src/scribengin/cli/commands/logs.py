"""`scribengin logs NAME`: print the output of a flow's workers."""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING, Any

import click

from scribengin.cli.answer import CommandAnswer
from scribengin.cli.each_flow import FlowCommand, each_flow
from scribengin.cli.plane_option import masters_option
from scribengin.cli.value_options import as_moment
from scribengin.core.errors import Unreachable

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from datetime import datetime

    from scribengin.cli.plane_option import Masters

_MOST = 10_000
_FOLLOWED = 1_000
"""the number of lines of each file that one request of --follow asks for; more than a worker usually prints between two requests"""
_EVERY_S = 1.0


@click.command(cls=FlowCommand)
@click.argument("flow", metavar="NAME")
@click.option("--tier", help="Only this tier.")
@click.option(
    "-n",
    "--tail",
    "--lines",
    "lines",
    type=click.IntRange(1, _MOST),
    help="Number of lines to show of each file, from its end. Default: 50, or all with --since.",
)
@click.option(
    "--since", metavar="TIME", callback=as_moment, help="Only lines since this time: 2026-01-31T12:00:00Z, or how long ago (10m)."
)
@click.option("-f", "--follow", is_flag=True, help="Print new lines as they come, until Ctrl-C.")
@click.option("--all", "everything", is_flag=True, help="Do not fold frames of Scribengin, Spark and Python in tracebacks.")
@masters_option
@each_flow("flow")
def command(
    *, flow: str, tier: str | None, lines: int | None, since: datetime | None, follow: bool, everything: bool, masters: Masters
) -> CommandAnswer:
    """Show the output of the newest worker of each tier, on whichever host it runs, and the run logs of the tiers.

    In a traceback the line of your own code comes first. --json has all lines unchanged.

    \b
    Example:
      scribengin logs orders --follow
    """
    import msgspec

    from scribengin.cli import log_text

    count = lines or (_MOST if since is not None else 50)
    with masters.client() as client:

        def read_lines(most: int) -> list[dict[str, Any]]:
            found: list[dict[str, Any]] = msgspec.to_builtins(client.logs(flow, tier=tier, lines=most))
            return found if since is None else [each | {"lines": log_text.since(each["lines"], since)} for each in found]

        if follow:
            if sys.stdout is sys.stderr:  # --json has redirected stdout
                raise click.UsageError("--follow and --json exclude each other")
            _follow(read_lines, count, everything=everything)
            return CommandAnswer()
        # reads more lines than asked for, since folding tracebacks reduces their number
        found = read_lines(max(count, _FOLLOWED))
    raw = [each | {"lines": each["lines"][-count:]} for each in found]
    return CommandAnswer(raw, show=lambda: _show(found, count, everything=everything))


def _show(found: Sequence[dict[str, Any]], count: int, *, everything: bool) -> None:
    from scribengin.cli import log_text

    for each in found:
        if not each["lines"] and not each["problem"]:
            continue
        where = f"{each['node']}:{each['file']}" if each["node"] else each["file"]
        click.echo(f"--- tier {each['tier']}: {each['problem'] or where}")
        log_text.print_lines((each["lines"] if everything else log_text.folded(each["lines"]))[-count:])


def _follow(read: Callable[[int], list[dict[str, Any]]], count: int, *, everything: bool) -> None:
    """Print new lines until Ctrl-C."""
    from scribengin.cli import log_text

    found = read(_FOLLOWED)
    _show(found, count, everything=everything)
    before = {(each["tier"], each["node"], each["file"]): each["lines"] for each in found}
    try:
        while True:
            time.sleep(_EVERY_S)
            try:
                now = read(_FOLLOWED)
            except Unreachable:  # the leading master is being replaced
                continue
            fresh = [
                each | {"lines": log_text.new_lines(before.get((each["tier"], each["node"], each["file"]), ()), each["lines"])}
                for each in now
            ]
            before |= {(each["tier"], each["node"], each["file"]): each["lines"] for each in now}
            _show([each for each in fresh if each["lines"]], _MOST, everything=everything)
    except KeyboardInterrupt:
        return
