"""`scribengin graph NAME`: the workflow of a flow that was submitted."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import click

from scribengin.cli.answer import Answer, AnsweringCommand
from scribengin.cli.plane_option import masters_option

if TYPE_CHECKING:
    from scribengin.cli.plane_option import Masters


@click.command(cls=AnsweringCommand)
@click.argument("flow", metavar="NAME")
@click.option("--dot", "form", flag_value="dot", help="For Graphviz: scribengin graph NAME --dot | dot -Tsvg.")
@click.option("--mermaid", "form", flag_value="mermaid", help="For Mermaid.")
@masters_option
def command(*, flow: str, form: Literal["dot", "mermaid"] | None, masters: Masters) -> Answer:
    """Show the workflow of a flow: the flows that meet, as they stand, with their tiers; where they meet, and what waits there.

    Flows meet where one writes a folder or a topic that another reads; nobody has to declare it. Also where no master is alive, without
    what waits.
    """
    import msgspec

    from scribengin.cli import workflow_graph

    with masters.reader() as plane:
        found = plane.workflow(flow)
    draw = {"dot": workflow_graph.as_dot, "mermaid": workflow_graph.as_mermaid}.get(form or "", workflow_graph.as_text)
    return Answer(msgspec.to_builtins(found), show=lambda: click.echo(draw(found), nl=False))
