"""Formats a workflow as text, Graphviz or Mermaid: its flows with their tiers, their connections and backlogs."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from scribengin.core.units import show_bytes, show_duration

if TYPE_CHECKING:
    from collections.abc import Iterator

    from scribengin.client.models import FlowNode, Waits, WorkflowView

_COLOURS = {"failed": "#c62828", "degraded": "#ef6c00", "stopped": "#757575", "paused": "#757575", "running": "#2e7d32"}


def as_text(graph: WorkflowView) -> str:
    """A few lines for each flow, upstream flows first."""
    return "\n".join(_lines(graph)) + "\n"


def as_dot(graph: WorkflowView) -> str:
    """The graph in the language of Graphviz, for `dot -Tsvg`."""
    return "\n".join(["digraph workflow {", "  rankdir=LR", "  node [shape=box]", *_dot_lines(graph), "}"]) + "\n"


def as_mermaid(graph: WorkflowView) -> str:
    """The graph in the language of Mermaid."""
    return "\n".join(["flowchart LR", *_mermaid_lines(graph)]) + "\n"


def _dot_lines(graph: WorkflowView) -> Iterator[str]:
    for node in graph.nodes:
        label = "\n".join([node.flow, node.state, *_tier_ways(node)])
        yield f"  {node.flow} [label={_quoted(label)}, color={_quoted(_COLOURS.get(node.state, '#000000'))}]"
    for edge in graph.edges:
        label = f"{edge.place}\n{waits_text(edge.waits)}"
        yield f"  {edge.feeding} -> {edge.reading} [label={_quoted(label)}]"


def _mermaid_lines(graph: WorkflowView) -> Iterator[str]:
    """The lines of the graph. Names of nodes end with `_`, since Mermaid reserves some words, such as `end`."""
    for node in graph.nodes:
        yield f'  {node.flow}_["{"<br>".join(map(_escaped, [node.flow, node.state, *_tier_ways(node)]))}"]'
    for edge in graph.edges:
        yield f'  {edge.feeding}_ -->|"{_escaped(edge.place)}<br>{waits_text(edge.waits)}"| {edge.reading}_'
    for node in graph.nodes:
        if node.state in _COLOURS:
            yield f"  style {node.flow}_ stroke:{_COLOURS[node.state]}"


def waits_text(waits: Waits | None) -> str:
    """A text such as `1,200 rows wait, 3.4 MiB, the oldest 4s`."""
    if waits is None:
        return "backlog not reported"
    parts = [f"{waits.rows:,} rows"] if waits.rows else [f"{waits.files:,} files"] if waits.files else []
    parts += [show_bytes(waits.bytes)] if waits.bytes else []
    if not parts:
        return "nothing waits"
    age = f", the oldest {show_duration(waits.seconds)}" if waits.seconds else ""
    return f"{parts[0]} wait{''.join(f', {part}' for part in parts[1:])}{age}"


def _lines(graph: WorkflowView) -> Iterator[str]:
    for node in graph.nodes:
        since = f" since {node.since}" if node.since else ""
        why, then = f": {node.reason}" if node.reason else "", f"; {node.next}" if node.next else ""
        yield f"{node.flow} is {node.state}{since}{why}{then}"
        yield from (f"  tiers {way}" for way in _tier_ways(node))
        for edge in (edge for edge in graph.edges if edge.feeding == node.flow):
            yield f"  {edge.sink} -> {edge.reading}.{edge.source}, at {edge.place}: {waits_text(edge.waits)}"


def _tier_ways(node: FlowNode) -> list[str]:
    """A text such as `edge -> core, edge -> side`; empty for a flow without tiers."""
    ways = [f"{feeder} -> {tier.tier}" for tier in node.tiers for feeder in tier.fed_by]
    return [", ".join(ways)] if ways else []


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


def _escaped(text: str) -> str:
    return text.replace("&", "&amp;").replace('"', "&quot;").replace("<", "&lt;").replace(">", "&gt;")
