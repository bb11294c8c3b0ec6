"""Passes what a Batch has learned of utilities from its tasks' reports to its decision, and from there to the next Batch."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from scribengin.spark.ordering import BETTER, MANY, TOLD_ROWS, WINDOW, Evidence, best_order, expected_ns, is_surprising, shares
from scribengin.spark.program import UtilitiesNode

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from scribengin.spark.program import Program
    from scribengin.spark.task_report import TaskReport


def with_orders(program: Program, orders: Mapping[str, Mapping[str, Any]]) -> Program:
    """A stage that was compiled before, with the newest evidence."""
    nodes = tuple(
        replace(node, learned=orders.get(node.node, {})) if isinstance(node, UtilitiesNode) and node.free else node
        for node in program.nodes
    )
    return replace(program, nodes=nodes)


def learned(before: Mapping[str, Mapping[str, Any]], reports: Iterable[TaskReport]) -> dict[str, Mapping[str, Any]]:
    """Step of utilities → `names` as written, `ns` that a record costs each; where they are free also `order`, by which the next Batch
    begins, `keeps`, the share of all records that each keeps, and `known`, which is for the next Batch alone.

    `before` is what the last Batch has left: it is kept for a step without a report.
    """
    found: dict[str, list[Mapping[str, Any]]] = {}
    for report in reports:
        for step, figures in report.orders.items():
            found.setdefault(step, []).append(figures)
    return {**before, **{step: _of_step(before.get(step, {}), figures) for step, figures in found.items()}}


def _of_step(before: Mapping[str, Any], tasks: list[Mapping[str, Any]]) -> dict[str, Any]:
    names = list(tasks[0]["names"])
    same = before if list(before.get("names", ())) == names else {}
    if "evidence" not in tasks[0]:
        asked, ns = ([sum(each) for each in zip(*(task[key] for task in tasks), strict=True)] for key in ("asked", "ns"))
        earlier = same.get("ns", [None] * len(names))
        return {"names": names, "ns": [round(b / a, 1) if a else old for a, b, old in zip(asked, ns, earlier, strict=True)]}
    return _of_free(names, same if "known" in same else {}, tasks)


def _of_free(names: list[str], before: Mapping[str, Any], tasks: list[Mapping[str, Any]]) -> dict[str, Any]:
    known = before.get("known", {})
    older = Evidence.from_json(known["evidence"]) if known else Evidence.nothing(len(names))
    order = [names.index(name) for name in before.get("order", names)]
    told = known.get("told", [[0, 0] for _ in names])
    for task in tasks:
        if task["order"] == order:
            told = [[a + c, b + d] for (a, b), (c, d) in zip(told, task["told"], strict=True)]
    surprised = is_surprising(told, shares(older, order)) if older.masks else False
    if surprised or any(task["forgot"] for task in tasks):
        older.masks = {}
    fresh = Evidence.nothing(len(names))
    for task in tasks:
        fresh = fresh.plus(Evidence.from_json(task["evidence"]))
    fresh.shrink(WINDOW)
    together = fresh.over(older)
    best = list(best_order(together))
    if together.weight and best != order and expected_ns(together, best) < BETTER * expected_ns(together, order):
        order, told = best, [[0, 0] for _ in names]
    costs = [together.cost_ns(test) for test in range(len(names))]
    keeps = [together.keeps(test) for test in range(len(names))]
    # each task of the next Batch may sample its part of what these have saved up
    saved_ns = min(max(0, sum(task["budget_ns"] for task in tasks)) / len(tasks), MANY * sum(costs))
    return {
        "names": names,
        "order": [names[test] for test in order],
        "ns": [round(cost, 1) if cost else None for cost in costs],
        "keeps": [None if each is None else round(each, 4) for each in keeps],
        "known": {"evidence": together.as_json(), "told": _recent(told), "budget_ns": round(saved_ns)},
    }


def _recent(told: list[list[int]]) -> list[list[int]]:
    """Those that have told enough start over."""
    return [[0, 0] if asked >= TOLD_ROWS else [asked, kept] for asked, kept in told]
