"""`scribengin graph FLOW`: show the steps of a flow, from its file or as it was submitted, or the workflow of a submitted flow."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import click

from scribengin.cli.answer import CommandAnswer
from scribengin.cli.complete_values import flow_files
from scribengin.cli.each_flow import FlowCommand, each_flow
from scribengin.cli.flow_argument import is_name
from scribengin.cli.plane_option import masters_option
from scribengin.cli.settings import setting_flags

if TYPE_CHECKING:
    from scribengin.cli.plane_option import Masters

    Form = Literal["dot", "mermaid"] | None


@click.command(cls=FlowCommand)
@click.argument("flow", metavar="FLOW", shell_complete=flow_files)
@click.option("--steps", is_flag=True, help="For a submitted flow: show its nodes, the tiers in which they run, and their current rates.")
@click.option("--live", is_flag=True, help="Show row counts of the last run on the arrows, and dead letters at the nodes.")
@click.option("--svg", type=click.Path(path_type=Path, dir_okay=False), metavar="FILE", help="Write a picture to this file; - for stdout.")
@click.option("--dot", "form", flag_value="dot", help="Print Graphviz: scribengin graph NAME --dot | dot -Tsvg. For workflows.")
@click.option("--mermaid", "form", flag_value="mermaid", help="Print Mermaid.")
@setting_flags("state")
@masters_option
@each_flow("flow")
def command(*, flow: str, steps: bool, live: bool, svg: Path | None, form: Form, state: Path | None, masters: Masters) -> CommandAnswer:
    """Show a flow as a graph: text, Mermaid or a picture.

    For a flow file this is the graph of its sources, steps and sinks. For the name of a submitted flow it is its workflow: all flows that
    are connected with it, their state and tiers, and the backlog between them. Two flows are connected if one writes a folder or topic that
    the other reads; this needs no declaration. Without a running master the backlog is left out. With --steps or --live the graph shows
    sources, steps and sinks of this flow, its tiers and the channels between them.

    \b
    Examples:
      scribengin graph flow.yaml
      scribengin graph orders --live
    """
    if svg is not None and form is not None:
        raise click.UsageError("--svg, --dot and --mermaid exclude each other")
    named = is_name(flow)
    if form == "dot" and (steps or live or not named):
        raise click.UsageError("--dot takes the name of a workflow; use --mermaid or --svg FILE")
    if not named:
        from scribengin.cli.flow_picture import of_file

        return of_file(flow, state, live=live, mermaid=form == "mermaid", svg=svg)
    if live or (steps and svg is not None):
        from scribengin.cli.flow_picture import of_name

        return of_name(flow, masters, live=live, mermaid=form == "mermaid", svg=svg)
    if steps:
        return _of_steps(flow, masters, as_mermaid=form == "mermaid")
    return _of_workflow(flow, masters, form, svg)


def _of_workflow(flow: str, masters: Masters, form: Form, svg: Path | None) -> CommandAnswer:
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
    return CommandAnswer(told, show=lambda: click.echo(draw(found), nl=False))


def _of_steps(flow: str, masters: Masters, *, as_mermaid: bool) -> CommandAnswer:
    import msgspec

    from scribengin.cli.flow_graph import show_steps

    with masters.client() as client:
        graph = client.graph(flow)
    return CommandAnswer(msgspec.to_builtins(graph), show=lambda: click.echo(graph.mermaid, nl=False) if as_mermaid else show_steps(graph))
