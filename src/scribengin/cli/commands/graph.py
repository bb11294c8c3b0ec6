"""`scribengin graph NAME`: the workflow of a flow that was submitted, or the steps of it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import click

from scribengin.cli.answer import Answer
from scribengin.cli.each_flow import FlowCommand, each_flow
from scribengin.cli.plane_option import masters_option

if TYPE_CHECKING:
    from scribengin.cli.plane_option import Masters


@click.command(cls=FlowCommand)
@click.argument("flow", metavar="NAME")
@click.option("--steps", is_flag=True, help="The nodes of this flow, the tiers where they run, and how they go now.")
@click.option("--dot", "form", flag_value="dot", help="For Graphviz: scribengin graph NAME --dot | dot -Tsvg. Not with --steps.")
@click.option("--mermaid", "form", flag_value="mermaid", help="For Mermaid.")
@masters_option
@each_flow("flow")
def command(*, flow: str, steps: bool, form: Literal["dot", "mermaid"] | None, masters: Masters) -> Answer:
    """Show the workflow of a flow: the flows that meet, as they stand, with their tiers; where they meet, and what waits there.

    Flows meet where one writes a folder or a topic that another reads; nobody has to declare it. Also where no master is alive, without
    what waits. With --steps: the sources, steps and sinks of this flow, its tiers, and the channels between these.
    """
    if steps:
        if form == "dot":
            raise click.UsageError("--steps knows no --dot; say --mermaid")
        return _of_steps(flow, masters, as_mermaid=form == "mermaid")
    import msgspec

    from scribengin.cli import workflow_graph

    with masters.reader() as plane:
        found = plane.workflow(flow)
    draw = {"dot": workflow_graph.as_dot, "mermaid": workflow_graph.as_mermaid}.get(form or "", workflow_graph.as_text)
    return Answer(msgspec.to_builtins(found), show=lambda: click.echo(draw(found), nl=False))


def _of_steps(flow: str, masters: Masters, *, as_mermaid: bool) -> Answer:
    import msgspec

    from scribengin.cli.flow_graph import show_steps

    with masters.client() as client:
        graph = client.graph(flow)
    return Answer(msgspec.to_builtins(graph), show=lambda: click.echo(graph.mermaid, nl=False) if as_mermaid else show_steps(graph))
