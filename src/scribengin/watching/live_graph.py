"""The graph of a flow, with the live figures of each node and channel from its workers' last reports."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


def with_live(graph: Mapping[str, Any], told: Mapping[str, Any] | None) -> dict[str, Any]:
    """`graph` with `live` at each node and channel; null if nothing is known, as for steps, and everywhere if `told` (the value of
    `figures.flow_as_json`) is None. A node that several Queries read or write has the sum of theirs."""
    queries = [query for tier in (told or {}).get("tiers", ()) for query in tier["queries"]]
    gates = {gate["channel"]: gate for gate in (told or {}).get("edges", ())}
    nodes = [{**node, "live": _node(node, queries)} for node in graph["nodes"]]
    channels = [{**channel, "live": _gate(gates.get(channel["channel"]))} for channel in graph["channels"]]
    return {**graph, "nodes": nodes, "channels": channels}


def _node(node: Mapping[str, Any], queries: Sequence[Mapping[str, Any]]) -> dict[str, Any] | None:
    section = {"source": "sources", "sink": "sinks"}.get(node["kind"])
    ends = [query[section][node["node"]] for query in queries if section and node["node"] in query[section]]
    if not ends:
        return None
    live: dict[str, Any] = {"rows": sum(end["rows"] for end in ends), "rows_per_s": round(sum(end["rows_per_s"] for end in ends), 1)}
    if section == "sources":  # each Query reads for itself: the one that is farthest behind tells
        for name in ("rows", "files", "bytes", "seconds"):
            known = [end["lag"][name] for end in ends if end["lag"][name] is not None]
            live[f"lag_{name}"] = max(known, default=None)
    return live


def _gate(gate: Mapping[str, Any] | None) -> dict[str, Any] | None:
    return None if gate is None else {name: gate[name] for name in ("rows", "bytes", "age_s", "in_per_s", "out_per_s", "paused")}
