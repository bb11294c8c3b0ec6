"""`scribengin graph FLOW`: the steps of a flow, from its file or as it was submitted; or the workflow of one that was submitted."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import click

from scribengin.cli.answer import Answer
from scribengin.cli.each_flow import FlowCommand, each_flow
from scribengin.cli.flow_argument import is_name
from scribengin.cli.plane_option import masters_option
from scribengin.cli.settings import setting_flags

if TYPE_CHECKING:
    from scribengin.cli.plane_option import Masters

    Form = Literal["dot", "mermaid"] | None


@click.command(cls=FlowCommand)
@click.argument("flow", metavar="FLOW")
@click.option("--steps", is_flag=True, help="Of a name: the nodes of this flow, the tiers where they run, and how they go now.")
@click.option("--live", is_flag=True, help="The last run's rows on the arrows, and dead letters at the nodes.")
@click.option("--svg", type=click.Path(path_type=Path, dir_okay=False), metavar="FILE", help="Write a picture; - for stdout.")
@click.option("--dot", "form", flag_value="dot", help="For Graphviz: scribengin graph NAME --dot | dot -Tsvg. For workflows.")
@click.option("--mermaid", "form", flag_value="mermaid", help="For Mermaid.")
@setting_flags("state")
@masters_option
@each_flow("flow")
def command(*, flow: str, steps: bool, live: bool, svg: Path | None, form: Form, state: Path | None, masters: Masters) -> Answer:
    """Show the steps of a flow as a graph: as text, for Mermaid, or as a picture.

    FLOW is a flow file, or the name of a flow that was submitted. Of a name it is the workflow that is shown: the flows that meet, as they
    stand, with their tiers; where they meet, and what waits there. Flows meet where one writes a folder or a topic that another reads;
    nobody has to declare it. Also where no master is alive, without what waits. With --steps or --live: the sources, steps and sinks of
    this flow, its tiers, and the channels between these.
    """
    if svg is not None and form is not None:
        raise click.UsageError("--svg, --dot and --mermaid are three forms; say one")
    named = is_name(flow)
    if form == "dot" and (steps or live or not named):
        raise click.UsageError("--dot is for the workflow of a name; say --mermaid or --svg FILE")
    if not named:
        from scribengin.cli.flow_picture import of_file

        return of_file(flow, state, live=live, mermaid=form == "mermaid", svg=svg)
    if live or (steps and svg is not None):
        from scribengin.cli.flow_picture import of_name

        return of_name(flow, masters, live=live, mermaid=form == "mermaid", svg=svg)
    if steps:
        return _of_steps(flow, masters, as_mermaid=form == "mermaid")
    return _of_workflow(flow, masters, form, svg)


def _of_workflow(flow: str, masters: Masters, form: Form, svg: Path | None) -> Answer:
    import msgspec

    from scribengin.cli import workflow_graph

    with masters.reader() as plane:
        found = plane.workflow(flow)
    told: dict[str, Any] = msgspec.to_builtins(found)
    if svg is not None:
        from scribengin.cli.flow_picture import written
        from scribengin.plan.picture import picture_of_workflow

        waits = {(edge.feeding, edge.reading, edge.place): workflow_graph.waits_text(edge.waits) for edge in found.edges}
        return written(picture_of_workflow(told, waits), told, svg)
    draw = {"dot": workflow_graph.as_dot, "mermaid": workflow_graph.as_mermaid}.get(form or "", workflow_graph.as_text)
    return Answer(told, show=lambda: click.echo(draw(found), nl=False))


def _of_steps(flow: str, masters: Masters, *, as_mermaid: bool) -> Answer:
    import msgspec

    from scribengin.cli.flow_graph import show_steps

    with masters.client() as client:
        graph = client.graph(flow)
    return Answer(msgspec.to_builtins(graph), show=lambda: click.echo(graph.mermaid, nl=False) if as_mermaid else show_steps(graph))
