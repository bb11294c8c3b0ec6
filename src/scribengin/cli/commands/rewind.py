"""`scribengin offsets rewind NAME --to-time TIME | --to-batch N`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from scribengin.cli.each_flow import FlowCommand, each_flow
from scribengin.cli.flow_verbs import done
from scribengin.cli.plane_option import masters_option
from scribengin.cli.value_options import as_moment
from scribengin.cli.waiting import wait_option

if TYPE_CHECKING:
    from datetime import datetime

    from scribengin.cli.answer import CommandAnswer
    from scribengin.cli.plane_option import Masters


@click.command(cls=FlowCommand)
@click.argument("flow", metavar="NAME")
@click.option("--to-time", metavar="TIME", callback=as_moment, help="Go back to this time: 2026-01-31T12:00:00Z, or how long ago (2h).")
@click.option(
    "--to-batch", type=click.IntRange(min=-1), metavar="N", help="Go back to the position after Batch N; -1: before the first one."
)
@click.option("--query", help="Only this query.")
@click.option("--yes", is_flag=True, help="Do not ask. Without it the command first lists what would repeat.")
@click.option("--dry-run", is_flag=True, help="Only list what would repeat.")
@wait_option
@masters_option
@each_flow("flow")
def command(
    *,
    flow: str,
    to_time: datetime | None,
    to_batch: int | None,
    query: str | None,
    yes: bool,
    dry_run: bool,
    wait: float | None,
    masters: Masters,
) -> CommandAnswer:
    """Read again what a flow has read since a time or a Batch. Its workers stop, go back, and restart if the desired state is running.

    Output written since then stays, so rows are duplicated. A query that keeps state cannot go back.

    \b
    Example:
      scribengin offsets rewind orders --to-time 2h --dry-run
    """
    from scribengin.client.change_models import Rewind

    if (to_time is None) == (to_batch is None):
        raise click.UsageError("pass --to-time or --to-batch")
    at = None if to_time is None else to_time.isoformat()
    with masters.client() as client:
        return done(client, lambda sure: client.rewind(flow, Rewind(at, to_batch, query, sure)), yes=yes, dry_run=dry_run, wait_s=wait)
