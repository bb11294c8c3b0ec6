"""A plan for people (text in 100 columns), for programs (JSON) and as a picture (Mermaid)."""

from __future__ import annotations

import textwrap
from itertools import groupby
from typing import TYPE_CHECKING, Any

from scribengin.connectors import catalog
from scribengin.plan.describe import describe, span
from scribengin.plan.graph import Graph
from scribengin.plan.guarantee import written_by_spark
from scribengin.plan.resolve import resolve
from scribengin.spec.model import Sink, Source, Step

if TYPE_CHECKING:
    from collections.abc import Iterator

    from scribengin.plan.diff import Changes
    from scribengin.plan.model import Plan, PlannedNode, QueryPlan

WIDTH = 100
_HEADINGS = {
    "decode": "decoded in an Arrow stage",
    "native": "Spark",
    "python": "Python stage",
    "tail": "tail: one pass in Python, the sinks' writes with it",
}
_BY_SPARK = "tail: one pass in Python makes the messages, Spark's own sink writes them"


def explain(plan: Plan, changes: Changes | None = None) -> str:
    """The text form: each Query with its stages in order, unit, trigger and guarantees, then hints and changes."""
    return "\n".join(_Text(plan).lines(changes)) + "\n"


class _Text:
    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._resolved = resolve(Graph(plan.flow))

    def lines(self, changes: Changes | None) -> Iterator[str]:
        flow = self._plan.flow
        count = len(self._plan.queries)
        yield f"flow {flow.name}: 1 tier ({self._plan.tier}), {count} {'query' if count == 1 else 'queries'}"
        if flow.about:
            yield from textwrap.wrap(" ".join(flow.about.split()), WIDTH, initial_indent="  ", subsequent_indent="  ")
        for query in self._plan.queries:
            yield ""
            yield from self._query(query)
        if self._plan.hints:
            yield ""
            yield "hints"
            for hint in self._plan.hints:
                yield from _wrapped("  - ", hint)
        if changes is not None:
            yield ""
            yield "against the state that is there"
            width = max((len(change.name) for change in changes.queries), default=0)
            for change in changes.queries:
                yield from _wrapped(f"  {change.name:{width}}  ", f"{change.fate}: {change.says}")
                named = [f"{what} {', '.join(ids)}" for what in ("changed", "added", "removed") if (ids := getattr(change, what))]
                if named:
                    yield from _wrapped(" " * (width + 4), "; ".join(named))
                if change.remedy:
                    yield from _wrapped(" " * (width + 4), f"remedy: {change.remedy}")

    def _query(self, query: QueryPlan) -> Iterator[str]:
        often = f"a Batch every {span(query.trigger_s)}" if query.trigger_s else "a Batch as soon as the last is done"
        yield f"query {query.name}: {often}, {'keeps state' if query.stateful else 'no state'}"
        names = max(len(node.id) for node in query.nodes)
        feeds = max(len(_feeds(node)) for node in query.nodes)
        for stage, nodes in groupby(_in_stages(query), key=_group):
            yield f"  {_HEADINGS[stage] if stage != 'tail' or not self._by_spark(query) else _BY_SPARK}"
            for node in nodes:
                yield from _wrapped(f"    {node.id:{names}}  {_feeds(node):{feeds}}  ", self._says(node))
        yield from _wrapped("  unit       ", f"{query.unit}: {query.unit_reason}")
        for path in query.guarantees:
            yield from _wrapped("  guarantee  ", f"{path.source} -> {path.sink}: {path.guarantee}; {path.reason}")

    def _by_spark(self, query: QueryPlan) -> bool:
        flow = self._plan.flow
        return any(written_by_spark(flow, flow.sinks[sink], catalog.sink_types(internal=True)) for sink in query.sinks)

    def _says(self, node: PlannedNode) -> str:
        declared = self._plan.flow.node(node.id)
        types = catalog.sink_types(internal=True) if isinstance(declared, Sink) else catalog.source_types(internal=True)
        text = describe(declared, types)
        if node.stateful and isinstance(declared, Step):
            marks = [f"{mark.column} {span(mark.delay_s)} of {mark.origin}" for mark in self._resolved.reaching(declared)]
            rules = f"the slowest of {', '.join(marks)}" if len(marks) > 1 else "".join(marks)
            text += f" [state; watermark {rules}]" if rules else " [state]"
        if isinstance(declared, Source | Sink) and node.schema is not None:
            text += f" ({node.schema})"
        return text


def _in_stages(query: QueryPlan) -> list[PlannedNode]:
    """Topological order with all that runs in the tail at the end."""
    return sorted(query.nodes, key=lambda node: _group(node) == "tail")


def _group(node: PlannedNode) -> str:
    return "tail" if node.stage in ("read", "tail", "sink") else node.stage


def _feeds(node: PlannedNode) -> str:
    return f"<- {', '.join(node.inputs)}" if node.inputs else ""


def _wrapped(start: str, text: str) -> list[str]:
    return textwrap.wrap(
        text, WIDTH, initial_indent=start, subsequent_indent=" " * len(start), break_long_words=False, break_on_hyphens=False
    )


def as_json(plan: Plan, changes: Changes | None = None) -> dict[str, Any]:
    """`result` of `plan --json`."""
    return {
        "flow": plan.flow.name,
        "tiers": [{"name": plan.tier, "queries": [_query_json(plan, query) for query in plan.queries]}],
        "hints": list(plan.hints),
        "changes": None if changes is None else changes.as_json(),
    }


def _query_json(plan: Plan, query: QueryPlan) -> dict[str, Any]:
    return {
        "name": query.name,
        "sinks": list(query.sinks),
        "sources": list(query.sources),
        "static_sources": list(query.static_sources),
        "trigger_s": query.trigger_s,
        "unit": query.unit,
        "unit_reason": query.unit_reason,
        "stateful": query.stateful,
        "fingerprint": query.fingerprint,
        "state_fingerprint": query.state_fingerprint,
        "nodes": [
            {
                "id": node.id,
                "kind": _kind(plan, node.id),
                "stage": node.stage,
                "inputs": list(node.inputs),
                "stateful": node.stateful,
                "schema": None if node.schema is None else str(node.schema),
            }
            for node in query.nodes
        ],
        "guarantees": [
            {"source": path.source, "sink": path.sink, "guarantee": path.guarantee, "reason": path.reason} for path in query.guarantees
        ],
    }


def _kind(plan: Plan, id_: str) -> str:
    node = plan.flow.node(id_)
    return type(node.action).__name__.lower() if isinstance(node, Step) else type(node).__name__.lower()


def as_mermaid(plan: Plan) -> str:
    """A flowchart: a box for each Query, in it one for each stage."""
    lines = ["flowchart LR"]
    for query in plan.queries:
        lines.append(f'  subgraph q_{query.name} ["query {query.name}"]')
        for index, (stage, nodes) in enumerate(groupby(_in_stages(query), key=_group)):
            lines.append(f'    subgraph q_{query.name}_{index} ["{_HEADINGS[stage].partition(":")[0]}"]')
            lines += [f"      {_mermaid_node(plan, query, node)}" for node in nodes]
            lines.append("    end")
        lines.append("  end")
        for node in query.nodes:
            for reference in node.inputs:
                start, dot, branch = reference.partition(".")
                label = f"|{branch}|" if dot else ""
                lines.append(f"  {query.name}__{start} -->{label} {query.name}__{node.id}")
    return "\n".join(lines) + "\n"


def _mermaid_node(plan: Plan, query: QueryPlan, node: PlannedNode) -> str:
    id_ = f"{query.name}__{node.id}"
    match plan.flow.node(node.id):
        case Source():
            return f'{id_}[("{node.id}")]'
        case Sink():
            return f'{id_}[/"{node.id}"/]'
        case Step() as step:
            shape = ('{{"', '"}}') if node.stateful else ('["', '"]')
            return f"{id_}{shape[0]}{step.id}: {_kind(plan, node.id)}{shape[1]}"
