"""A picture for Mermaid: each node once, tiers as boxes."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from scribengin.plan.picture import GraphPicture, PictureNode

_SHAPES = {"source": ("([", "])"), "sink": ("[/", "/]"), "state": ("{{", "}}"), "step": ("[", "]"), "flow": ("[", "]")}


def as_mermaid(picture: GraphPicture) -> str:
    """The flowchart. Names end in `_`: some words, such as `end`, no node can be called."""
    lines = ["flowchart LR"]
    for frame, title in picture.frames.items():
        lines.append(f'  subgraph t_{frame} ["{_escaped(title)}"]')
        lines += [f"    {_node(node)}" for node in picture.nodes if node.frame == frame]
        lines.append("  end")
    lines += [f"  {_node(node)}" for node in picture.nodes if node.frame not in picture.frames]
    for edge in picture.edges:
        arrow = "-.->" if edge.channel else "-->"
        text = f'|"{_escaped(edge.text)}"|' if edge.text else ""
        lines.append(f"  {edge.start}_ {arrow}{text} {edge.end}_")
    return "\n".join(lines) + "\n"


def _node(node: PictureNode) -> str:
    begin, end = _SHAPES[node.kind]
    text = "<br>".join(_escaped(line) for line in (f"<b>{node.id}</b>", *node.lines, node.dead) if line)
    text = text.replace("&lt;b&gt;", "<b>", 1).replace("&lt;/b&gt;", "</b>", 1)
    return f'{node.id}_{begin}"{text}"{end}'


def _escaped(text: str) -> str:
    return text.replace("&", "&amp;").replace('"', "&quot;").replace("<", "&lt;").replace(">", "&gt;")
