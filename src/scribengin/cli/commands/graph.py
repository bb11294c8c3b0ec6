"""`scribengin graph NAME --steps`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from scribengin.cli.answer import Answer, AnsweringCommand
from scribengin.cli.plane_option import masters_option

if TYPE_CHECKING:
    from scribengin.cli.plane_option import Masters


@click.command(cls=AnsweringCommand)
@click.argument("name")
@click.option("--steps", is_flag=True, required=True, help="The nodes of the flow, the tiers where they run, and how they go now.")
@click.option("--mermaid", is_flag=True, help="Print a Mermaid flowchart of it.")
@masters_option
def command(*, name: str, steps: bool, mermaid: bool, masters: Masters) -> Answer:  # noqa: ARG001
    """Show a flow as a graph: sources, steps, sinks, tiers, and the channels between these."""
    import msgspec

    from scribengin.cli.flow_graph import show_steps

    with masters.client() as client:
        graph = client.graph(name)
    return Answer(msgspec.to_builtins(graph), show=lambda: click.echo(graph.mermaid, nl=False) if mermaid else show_steps(graph))
