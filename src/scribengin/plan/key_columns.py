"""The columns of sources that a flow uses as keys: if one is null in every record, all rows are late, separate, or without a match."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from scribengin.plan.checks.subject import called
from scribengin.plan.columns import find
from scribengin.plan.graph import Graph, base
from scribengin.plan.resolve import Resolved, resolve
from scribengin.spec.model import Aggregate, Dedupe, Filter, Join, Merge, Parse, Route, Select, Sink, Source, Step

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from scribengin.spec.model import Flow, Node

_Uses = dict[str, str]
"""column → its use as a key, for messages: `the join key of step "placed"`"""


def key_columns(flow: Flow) -> dict[str, Mapping[str, str]]:
    """The columns of each source that are read as a key, under whatever name, as far as steps say it without SQL or Python.

    Args:
        flow: The whole flow, not one tier of it.

    Returns:
        Source → column → what reads it, for people: `the join key of step "placed"`. Without columns that are NOT NULL, but of lookup
        tables: a record that lacks one is a dead letter.
    """
    graph = Graph(flow)
    resolved = resolve(graph)
    asked: dict[str, _Uses] = {id_: {} for id_ in graph.nodes}
    for id_ in reversed(graph.order):
        node = graph.nodes[id_]
        if not isinstance(node, Sink) and node.watermark is not None:
            asked[id_].setdefault(node.watermark.column, f"the watermark of {called(node)}")
        for reference in () if isinstance(node, Source) else node.inputs:
            if base(reference) in asked:
                uses = _own(node, reference) | _passed(node, asked[id_])
                columns = resolved.of(reference) or ()
                for column, use in uses.items():
                    if find(columns, column) is not None:
                        asked[base(reference)].setdefault(column, use)
    return {id_: _of_source(source, asked[id_], resolved) for id_, source in flow.sources.items()}


def _of_source(source: Source, uses: _Uses, resolved: Resolved) -> _Uses:
    columns = resolved.of(source.id) or ()
    known = {column: find(columns, column) for column in uses}
    return {name: uses[name] for name, column in known.items() if column is not None and (column.nullable or source.static)}


def _own(node: Node, reference: str) -> _Uses:
    """The key columns that the node itself uses of an input."""
    if isinstance(node, Sink):
        by = node.options.get("partition_by") or ()
        folders = [part if isinstance(part, str) else part.get("time") for part in by]
        return _named(folders, "a partition", node) | _named(_listed(node.options.get("key")), "the key", node)
    match node.action if isinstance(node, Step) else None:
        case Aggregate(by=by, window=window):
            return _named(by, "a group-by column", node) | _named([window.time] if window else [], "the window's time", node)
        case Dedupe(key=key, time=time):
            return _named(key, "the key", node) | _named([time], "the time", node)
        case Join(key=key, time=pairs):
            times = [column for input_, column in pairs if input_ == reference]
            return _named(key, "the join key", node) | _named(times, "the time", node)
        case Merge(key=key, time=time):
            return _named(key, "the key", node) | _named([time], "the time", node)
        case _:
            return {}


def _listed(option: Any) -> list[Any]:
    return list(option) if isinstance(option, list | tuple) else [option]


def _named(columns: Iterable[str | None], use: str, node: Node) -> _Uses:
    return {column: f"{use} of {called(node)}" for column in columns if isinstance(column, str)}


def _passed(node: Node, uses: _Uses) -> _Uses:
    """The key columns that readers of the node use, by their names in its inputs."""
    match node.action if isinstance(node, Step) else None:
        case Filter() | Route() | Dedupe() | Merge() | Join():
            return uses
        case Parse(schema=schema):
            return {column: use for column, use in uses.items() if column not in schema}
        case Aggregate(by=by):
            return {column: use for column, use in uses.items() if column in by}
        case Select(columns=pairs):
            plain = {name: expression.strip().strip("`") for name, expression in pairs}
            return {plain[column]: use for column, use in uses.items() if column in plain}
        case _:
            return {}
