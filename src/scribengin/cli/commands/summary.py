"""`scribengin summary FLOW`: show the tables of the flow's summary sinks, as of the last decided Batch."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from scribengin.cli.answer import CommandAnswer
from scribengin.cli.complete_values import nodes
from scribengin.cli.each_flow import FlowCommand, each_flow
from scribengin.cli.flow_argument import flow_argument, is_name
from scribengin.cli.plane_option import masters_option
from scribengin.cli.settings import setting_flags

if TYPE_CHECKING:
    from pathlib import Path

    from scribengin.cli.plane_option import Masters


@click.command(cls=FlowCommand)
@flow_argument
@click.option("--sink", default="", help="Only this sink.", shell_complete=nodes("sinks"))
@setting_flags("state")
@masters_option
@each_flow("flow")
def command(*, flow: str, sink: str, state: Path | None, masters: Masters) -> CommandAnswer:
    """Show the tables of a flow's `type: summary` sinks, as of the last decided Batch.

    Works whether or not the flow runs.

    \b
    Example:
      scribengin summary flow.yaml
    """
    from scribengin.cli.summary import show_summaries

    if is_name(flow):
        import msgspec

        with masters.client() as client:
            found = msgspec.to_builtins(client.summary(flow, sink))
    else:
        from scribengin.cli.flow_state import prepared_flow
        from scribengin.local.summaries import read_summaries

        found = read_summaries(prepared_flow(flow, state), sink)
    return CommandAnswer(found, show=lambda: show_summaries(found))
