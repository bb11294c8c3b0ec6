"""A flow as boxes, arrows with what passed there, and frames; `picture_svg`, `picture_text` and `picture_mermaid` draw it."""

from __future__ import annotations

import unicodedata
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from collections.abc import Mapping

Kind = Literal["source", "step", "state", "sink", "flow"]
"""`state`: a step that keeps something between Batches"""
_MOST = 34
"""characters of a line in a box"""


@dataclass(frozen=True, slots=True)
class PictureNode:
    """A box. `about` is whole, `lines` are what stands below the name; `dead` is told apart, in words."""

    id: str
    kind: Kind
    about: str = ""
    lines: tuple[str, ...] = ()
    dead: str = ""
    frame: str = ""


@dataclass(frozen=True, slots=True)
class PictureEdge:
    """An arrow. `label` is the branch that it reads, `count` what passed, `channel` what it goes through where it is cut."""

    start: str
    end: str
    label: str = ""
    count: str = ""
    channel: str = ""

    @property
    def text(self) -> str:
        """What stands at it."""
        return " · ".join(filter(None, [self.label, self.count, self.channel]))


@dataclass(frozen=True, slots=True)
class GraphPicture:
    """`frames`: id → title. `caption` says of what time counts are; empty without any."""

    title: str
    nodes: tuple[PictureNode, ...]
    edges: tuple[PictureEdge, ...]
    frames: Mapping[str, str]
    caption: str = ""


def picture_of(graph: Mapping[str, Any], counts: Mapping[str, Any] | None = None) -> GraphPicture:
    """Of what `graph_as_json` makes, or the API gives; `counts` as `local.edge_counts` has them. Where there are none and the graph says
    how its ends go now (`live`), that is shown."""
    graph_nodes = {node["node"]: node for node in graph["nodes"]}
    of_node = {each["node"]: each for each in (counts or {}).get("nodes", ())}
    of_edge = {(each["reads"], each["node"]): each["rows"] for each in (counts or {}).get("edges", ())}
    tiers = graph["tiers"] if len(graph["tiers"]) > 1 else []
    frames = {tier["tier"]: f"tier {tier['tier']}" + (f" on {tier['group']}" if tier["group"] else "") for tier in tiers}
    nodes = []
    for id_, node in graph_nodes.items():
        own = of_node.get(id_)
        lines = [_cut(node["about"])]
        lines += [_cut(text) for text in (_counted(own) if own else _going(node))]
        dead = _dead(own) if own else ""
        frame = node["tiers"][0] if len(node["tiers"]) == 1 and frames else ""
        nodes.append(PictureNode(id_, _kind(node), node["about"], tuple(lines), dead, frame))
    edges = []
    for edge in graph["edges"]:
        start, _, branch = edge["reads"].partition(".")
        count = of_edge.get((edge["reads"], edge["node"]), "")
        if not counts:
            count = _passing(graph_nodes[start], graph_nodes[edge["node"]])
        edges.append(PictureEdge(start, edge["node"], branch, count, f"by {edge['channel']}" if edge["channel"] else ""))
    return GraphPicture(graph["flow"], tuple(nodes), tuple(edges), frames, (counts or {}).get("caption", ""))


def picture_of_workflow(workflow: Mapping[str, Any], waits: Mapping[tuple[str, str, str], str]) -> GraphPicture:
    """Of flows that meet, as the API tells a workflow. `waits`: (feeding, reading, place) → what waits there, in words."""
    nodes = tuple(PictureNode(node["flow"], "flow", node["state"], (node["state"],)) for node in workflow["nodes"])
    edges = tuple(
        PictureEdge(edge["feeding"], edge["reading"], "", waits.get((edge["feeding"], edge["reading"], edge["place"]), ""), edge["place"])
        for edge in workflow["edges"]
    )
    return GraphPicture(" + ".join(node.id for node in nodes), nodes, edges, {})


def _kind(node: Mapping[str, Any]) -> Kind:
    if node["kind"] in ("source", "sink"):
        return "source" if node["kind"] == "source" else "sink"
    return "state" if node.get("stateful") else "step"


def _counted(own: Mapping[str, Any]) -> list[str]:
    """`20 in, 5 dropped`, of a node or of a run of native steps that is counted as one."""
    parts = [f"{own['in']:,} in"]
    parts += [f"{own[name]:,} {name}" for name in ("dropped", "late", "held") if own.get(name)]
    return [*([f"with {own['run'].partition('+')[2]}, as one:"] if own.get("run") else []), ", ".join(parts)]


def _dead(own: Mapping[str, Any]) -> str:
    return f"{own['dead']:,} dead" if own["dead"] else ""


def _going(node: Mapping[str, Any]) -> list[str]:
    """What a worker says of a source or a sink."""
    live = node.get("live")
    if not live:
        return []
    waits = f", {live['lag_rows']:,} wait" if live.get("lag_rows") else ""
    return [f"{live['rows_per_s']:,.0f} rows/s{waits}"]


def _passing(start: Mapping[str, Any], end: Mapping[str, Any]) -> str:
    live = start.get("live") if start["kind"] == "source" else end.get("live")
    return f"{live['rows']:,}" if live else ""


def width_of(text: str) -> int:
    """In places of a terminal: a character of East Asia takes two."""
    return len(text) + sum(unicodedata.east_asian_width(char) in "WF" for char in text)


def cut(text: str, most: int) -> str:
    """At most so wide."""
    if width_of(text) <= most:
        return text
    while width_of(text) > most - 1:
        text = text[:-1]
    return text + "…"


def _cut(text: str) -> str:
    return cut(text, _MOST)
