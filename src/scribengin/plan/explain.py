"""The plan of a tier as text for people (as wide as the terminal), and its queries as JSON and as pictures (Mermaid)."""

from __future__ import annotations

import shutil
import sys
import textwrap
from itertools import groupby
from typing import TYPE_CHECKING, Any

from scribengin.connectors import catalog
from scribengin.plan.agent_lanes import describe_agents, is_collected
from scribengin.plan.describe import describe, span
from scribengin.plan.graph import Graph
from scribengin.plan.guarantees import written_by_spark
from scribengin.plan.resolve import resolve
from scribengin.spec.model import Sink, Source, Step, Utilities

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

    from scribengin.plan.diff import ChannelChange, PlanChanges, QueryChange
    from scribengin.plan.model import Plan, PlannedNode, QueryPlan
    from scribengin.spec.model import Flow, Node

WIDTH = 100
"""columns if stdout is not a terminal"""
_LEAST = 30
"""the least width, in columns, of text after the beginning of a line, however narrow the terminal is"""
_HEADINGS = {
    "decode": "decoded in an Arrow stage",
    "native": "Spark",
    "vector": "Python worker: vectorised SQL",
    "python": "Python stage",
    "tail": "Python worker: Python steps and the writes of the sinks, in one pass",
}
_BY_SPARK = "Python worker: makes the messages in one pass; Spark's own sink writes them"


def explain(plan: Plan, changes: PlanChanges | None = None, advice: Sequence[str] = ()) -> str:
    """The text form: each query with its stages in order, unit, trigger and guarantees, then hints and changes."""
    return "\n".join(_lines(plan, changes, advice)) + "\n"


def _lines(plan: Plan, changes: PlanChanges | None, advice: Sequence[str]) -> Iterator[str]:
    count = len(plan.queries)
    yield f"flow {plan.flow.name}: 1 tier ({plan.tier}), {count} {'query' if count == 1 else 'queries'}"
    yield from about_lines(plan.flow)
    yield from agent_lines(plan.flow)
    yield from tier_lines(plan)
    yield from hint_lines([*plan.hints, *advice])
    yield from change_lines(changes)


def about_lines(flow: Flow) -> Iterator[str]:
    """The flow's `about` text."""
    if flow.about:
        yield from textwrap.wrap(" ".join(flow.about.split()), _width(), initial_indent="  ", subsequent_indent="  ")


def agent_lines(flow: Flow) -> Iterator[str]:
    """What agents run for the flow, after an empty line; nothing if they feed none of its sources."""
    for number, (tier, text) in enumerate(describe_agents(flow)):
        if number == 0:
            yield ""
        yield from wrapped(f"tier {tier}  ", text)


def tier_lines(plan: Plan, words: Mapping[str, str] | None = None) -> Iterator[str]:
    """The text of each query of a tier, after an empty line. `words`: node → text to print instead of its options."""
    text = _Text(plan, words or {})
    for query in plan.queries:
        yield ""
        yield from text.query(query)


def hint_lines(hints: Iterable[str]) -> Iterator[str]:
    """The hints after an empty line; nothing if there are no hints."""
    for index, hint in enumerate(hints):
        if index == 0:
            yield ""
            yield "hints"
        yield from wrapped("  - ", hint)


def change_lines(changes: PlanChanges | None) -> Iterator[str]:
    """The changes as text, query by query, then channel by channel."""
    if changes is None:
        return
    yield ""
    yield "changes since the stored state"
    told: list[QueryChange | ChannelChange] = [*changes.queries, *changes.channels]
    width = max((len(change.label) for change in told), default=0)
    for change in told:
        yield from wrapped(f"  {change.label:{width}}  ", f"{change.fate}: {change.says}")
        named = [f"{what} {', '.join(ids)}" for what in ("changed", "added", "removed") if (ids := getattr(change, what, ()))]
        if named:
            yield from wrapped(" " * (width + 4), "; ".join(named))
        for sentence in getattr(change, "again", ()):
            yield from wrapped(" " * (width + 4), f"to start over: {sentence}")
        if change.remedy:
            yield from wrapped(" " * (width + 4), f"remedy: {change.remedy}")


class _Text:
    def __init__(self, plan: Plan, words: Mapping[str, str]) -> None:
        self._plan = plan
        self._words = words
        self._resolved = resolve(Graph(plan.flow))

    def query(self, query: QueryPlan) -> Iterator[str]:
        """The query's stages in order, its unit and guarantees."""
        often = f"a Batch every {span(query.trigger_s)}" if query.trigger_s else "a Batch as soon as the previous one is done"
        yield f"query {query.name}: {often}, {'keeps state' if query.stateful else 'no state'}"
        names = max(len(node.id) for node in query.nodes)
        feeds = max(len(_feeds(node)) for node in query.nodes)
        for stage, nodes in groupby(_in_stages(query), key=_group):
            yield f"  {_HEADINGS[stage] if stage != 'tail' or not self._by_spark(query) else _BY_SPARK}"
            for node in nodes:
                yield from wrapped(f"    {node.id:{names}}  {_feeds(node):{feeds}}  ", self._says(query, node))
                yield from utility_lines(self._plan.flow.node(node.id))
        yield from wrapped("  unit       ", f"{query.unit}: {query.unit_reason}")
        for path in query.guarantees:
            yield from wrapped("  guarantee  ", f"{path.source} -> {path.sink}: {path.guarantee}; {path.reason}")

    def _by_spark(self, query: QueryPlan) -> bool:
        flow = self._plan.flow
        return any(written_by_spark(flow, flow.sinks[sink], catalog.sink_types(internal=True)) for sink in query.sinks)

    def _says(self, query: QueryPlan, node: PlannedNode) -> str:
        declared = self._plan.flow.node(node.id)
        types = catalog.sink_types(internal=True) if isinstance(declared, Sink) else catalog.source_types(internal=True)
        text = self._words.get(node.id) or describe(declared, types)
        if isinstance(declared, Source) and is_collected(declared):
            text = f"records of agents, {declared.options['format']}"
        if node.stateful and isinstance(declared, Step):
            marks = [f"{mark.column} {span(mark.delay_s)} of {mark.origin}" for mark in self._resolved.reaching(declared)]
            rules = f"the slowest of {', '.join(marks)}" if len(marks) > 1 else "".join(marks)
            text += f" [state; watermark {rules}]" if rules else " [state]"
        if node.stage == "vector":
            text += " [vectorised SQL]"
        elif node.stage == "native" and node.id in query.by_spark:
            text += f" [Spark: {query.by_spark[node.id]}]"
        if isinstance(declared, Source | Sink) and node.schema is not None:
            text += f" ({node.schema})"
        return text


def utility_lines(node: Node) -> Iterator[str]:
    """A line for each utility of a step, in the order of the flow file."""
    if isinstance(node, Step) and isinstance(node.action, Utilities):
        width = max(map(len, node.action.names))
        for name, reference in zip(node.action.names, node.action.references, strict=True):
            yield from wrapped(f"      {node.id}.{name:{width}}  ", f"{'test' if node.action.order == 'free' else 'python'} {reference}")


def engine_of(query: QueryPlan, node: PlannedNode) -> str | None:
    """The engine that runs a step: `tail (python)`, `tail (vector)`, `Spark: lower()`; None for sources and sinks."""
    match node.stage:
        case "vector":
            return "tail (vector)"
        case "native":
            return f"Spark: {query.by_spark[node.id]}" if node.id in query.by_spark else "Spark"
        case "tail":
            return "tail (python)"
        case "python":
            return "Python stage"
    return None


def _in_stages(query: QueryPlan) -> list[PlannedNode]:
    """The nodes in topological order, with everything that runs in the Python worker at the end."""
    return sorted(query.placed, key=lambda node: _group(node) == "tail")


def _group(node: PlannedNode) -> str:
    return "tail" if node.stage in ("read", "tail", "vector", "sink") else node.stage


def _feeds(node: PlannedNode) -> str:
    return f"<- {', '.join(node.inputs)}" if node.inputs else ""


def wrapped(start: str, text: str) -> list[str]:
    """Wrap text to the width of the terminal; further lines are indented like the text of the first."""
    width = max(_width(), len(start) + _LEAST)
    return textwrap.wrap(
        text, width, initial_indent=start, subsequent_indent=" " * len(start), break_long_words=False, break_on_hyphens=False
    )


def _width() -> int:
    return shutil.get_terminal_size((WIDTH, 24)).columns if sys.stdout.isatty() else WIDTH


def query_json(plan: Plan, query: QueryPlan) -> dict[str, Any]:
    """One query in the form of `plan --json`."""
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
                "engine": engine_of(query, node),
                "inputs": list(node.inputs),
                "stateful": node.stateful,
                "schema": None if node.schema is None else str(node.schema),
            }
            | _utilities(plan.flow.node(node.id))
            for node in query.placed
        ],
        "guarantees": [
            {"source": path.source, "sink": path.sink, "guarantee": path.guarantee, "reason": path.reason} for path in query.guarantees
        ],
    }


def _utilities(node: Node) -> dict[str, Any]:
    """The order and the functions of a step of utilities; empty for other nodes."""
    if not (isinstance(node, Step) and isinstance(node.action, Utilities)):
        return {}
    named = zip(node.action.names, node.action.references, strict=True)
    return {"order": node.action.order, "utilities": [{"id": f"{node.id}.{name}", "function": function} for name, function in named]}


def _kind(plan: Plan, id_: str) -> str:
    node = plan.flow.node(id_)
    return type(node.action).__name__.lower() if isinstance(node, Step) else type(node).__name__.lower()


def mermaid_lines(plan: Plan, *, tier: str = "", indent: str = "  ", beside: Collection[str] = ()) -> Iterator[str]:
    """A box for each query, in it one for each stage, and all arrows.

    Args:
        plan: The plan of a tier.
        tier: A prefix of the names of boxes, which otherwise are those of the queries.
        indent: The indentation of the lines.
        beside: Nodes to leave out, with their arrows.
    """
    for query in plan.queries:
        nodes = [node for node in _in_stages(query) if node.id not in beside]
        name = mermaid_id(tier, query.name)
        yield f'{indent}subgraph q_{name} ["query {query.name}"]'
        for index, (stage, members) in enumerate(groupby(nodes, key=_group)):
            yield f'{indent}  subgraph q_{name}_{index} ["{_HEADINGS[stage].partition(":")[0]}"]'
            yield from (f"{indent}    {_mermaid_node(plan, name, node)}" for node in members)
            yield f"{indent}  end"
        yield f"{indent}end"
        for node in nodes:
            for reference in node.inputs:
                start, dot, branch = reference.partition(".")
                if start not in beside:
                    yield f"{indent}{name}__{start} -->{f'|{branch}|' if dot else ''} {name}__{node.id}"


def mermaid_id(tier: str, name: str) -> str:
    """The name of a query in the picture."""
    return f"{tier}__{name}" if tier else name


def _mermaid_node(plan: Plan, query: str, node: PlannedNode) -> str:
    id_ = f"{query}__{node.id}"
    match plan.flow.node(node.id):
        case Source():
            return f'{id_}[("{node.id}")]'
        case Sink():
            return f'{id_}[/"{node.id}"/]'
        case Step() as step:
            shape = ('{{"', '"}}') if node.stateful else ('["', '"]')
            return f"{id_}{shape[0]}{step.id}: {_kind(plan, node.id)}{shape[1]}"
