"""Hints on results that may change if a flow is split into tiers: steps that depend on the order or the lateness of their rows."""

from __future__ import annotations

from typing import TYPE_CHECKING

from scribengin.plan.describe import span
from scribengin.plan.graph import Graph
from scribengin.plan.python_functions import inspect_function, inspect_utilities
from scribengin.plan.resolve import resolve
from scribengin.spec.model import Dedupe, Python, Step, Utilities

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    from scribengin.plan.model import Plan
    from scribengin.plan.resolve import Resolved
    from scribengin.spec.model import Flow


def cut_notes(plan: Plan, arriving: Collection[str]) -> Iterator[str]:
    """Hints on the steps of one tier whose rows come from a channel; `arriving` are the sources that are channels."""
    graph = Graph(plan.flow)
    resolved = resolve(graph)
    for id_ in graph.order:
        node = graph.nodes[id_]
        if isinstance(node, Step) and not graph.upstream([id_]).isdisjoint(arriving):
            yield from _notes(node, resolved, plan.flow)


def _notes(step: Step, resolved: Resolved, flow: Flow) -> Iterator[str]:
    marks = resolved.reaching(step)
    if step.id in resolved.stateful and marks:
        rules = " and ".join(f"{mark.column} {span(mark.delay_s)} of {mark.origin}" for mark in marks)
        yield f'"{step.id}" treats rows behind its watermark ({rules}) as late: splitting into tiers may change which rows are late'
    match step.action:
        case Dedupe():
            yield f'"{step.id}" keeps the first of equal rows: splitting into tiers may change which row is the first'
        case Python(reference, function=function) if inspect_function(reference, flow.code_folder, function).kind == "class":
            yield f'"{step.id}" is a class, which may keep rows: if it does, splitting into tiers may change its results'
        case Utilities() as action if any(info.kind == "class" for info in inspect_utilities(action, flow.code_folder)):
            yield (
                f'"{step.id}" has a class among its utilities, which may keep rows: if it does, splitting into tiers may change its results'
            )
