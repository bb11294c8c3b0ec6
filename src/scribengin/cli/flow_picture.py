"""Draws a flow file or a submitted flow: as text, as Mermaid, or as an SVG file."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from scribengin.cli.answer import CommandAnswer
from scribengin.core.errors import EnvironmentFault, Refused
from scribengin.core.problems import Place, Problem

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from scribengin.cli.plane_option import Masters
    from scribengin.plan.picture import GraphPicture

_NOT_HERE = ("state-elsewhere", "answer-late", "answer-large")
"""the codes of errors for which a master cannot read the ledger of a flow"""


def of_file(flow: str, state: Path | None, *, live: bool, mermaid: bool, svg: Path | None) -> CommandAnswer:
    """The picture of a flow file. `state` is the value of --state. Raises InputError."""
    from scribengin.cli.flow_state import prepared_flow
    from scribengin.plan.flow_graph import graph_as_json

    prepared = prepared_flow(flow, state)
    counts = None
    if live:
        from scribengin.local.edge_counts import edge_counts

        counts = edge_counts(prepared)
    graph = graph_as_json(prepared.plan)
    del graph["mermaid"]  # the Mermaid text of the plan, which shows queries and stages
    return _answer(graph, counts, prepared.warnings, mermaid=mermaid, svg=svg)


def of_name(flow: str, masters: Masters, *, live: bool, mermaid: bool, svg: Path | None) -> CommandAnswer:
    """The picture of a submitted flow. If its ledger cannot be read, reports of its workers are shown instead."""
    import msgspec

    counts, problems = None, []
    with masters.client() as client:
        graph = client.graph(flow)
        try:
            counts = msgspec.to_builtins(client.graph_counts(flow)) if live else None
        except Refused as error:
            if error.code not in _NOT_HERE:
                raise
            message = f"its ledger cannot be read: {error.message}; sources and sinks show reports of workers"
            problems.append(Problem(error.code, Place(""), message, error.remedy, "warning"))
    return _answer(msgspec.to_builtins(graph), counts, problems, mermaid=mermaid, svg=svg)


def _answer(
    graph: dict[str, Any], counts: Mapping[str, Any] | None, problems: Sequence[Problem], *, mermaid: bool, svg: Path | None
) -> CommandAnswer:
    from scribengin.plan.picture import picture_of

    picture = picture_of(graph, counts)
    result = {**graph, "counts": counts}
    if svg is not None:
        return written(picture, result, svg, problems)
    if mermaid:
        from scribengin.plan.picture import as_mermaid as draw
    else:
        from scribengin.plan.picture import as_text as draw
    text = draw(picture)
    if mermaid:
        result["mermaid"] = text
    return CommandAnswer(result, problems, show=lambda: click.echo(text, nl=False))


def written(picture: GraphPicture, result: dict[str, Any], file: Path, problems: Sequence[Problem] = ()) -> CommandAnswer:
    """Write the picture to an SVG file, or to stdout if `file` is `-`. Raises EnvironmentFault if it cannot be written."""
    from scribengin.plan.picture import as_svg

    text = as_svg(picture)
    if str(file) == "-":
        return CommandAnswer({**result, "svg": text}, problems, show=lambda: click.echo(text, nl=False))
    try:
        file.write_text(text, encoding="utf-8")
    except OSError as error:
        raise EnvironmentFault(f"{file} cannot be written: {error.strerror}", remedy="name a file in an existing folder") from error
    return CommandAnswer({**result, "file": str(file)}, problems, show=lambda: click.echo(f"wrote {file}"))
