"""The counts of a query, as people read them."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from scribengin.plan.graph import Graph
from scribengin.plan.tiers import is_static
from scribengin.spec.model import Utilities
from scribengin.state.contract import Counts

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping

    from scribengin.plan.model import QueryPlan
    from scribengin.spec.model import Flow


def stateful_runs(nodes: Iterable[str], plan: QueryPlan) -> frozenset[str]:
    """The nodes of the ledger that keep state; `known+by_hour` is one node."""
    return runs_with(nodes, {node.id for node in plan.nodes if node.stateful})


def runs_with(nodes: Iterable[str], steps: Collection[str]) -> frozenset[str]:
    """The nodes of the ledger in which one of the steps ran."""
    return frozenset(name for name in nodes if not set(steps).isdisjoint(name.split("+")))


def query_rows(counts: Mapping[str, Counts], sources: tuple[str, ...], sinks: tuple[str, ...]) -> Counts:
    """The rows of a query: in from its sources, out to its sinks, and the outcome of the others on the way."""
    rows = Counts()
    for node, count in counts.items():
        # rows that a replay has sent in behind the sources came in, too
        rows.rows_in += count.rows_in if node in sources else count.replayed
        rows.out += count.out if node in sinks else 0
        rows.filtered += count.filtered
        rows.dead += count.dead
        rows.late += count.late
        rows.late_dead += count.late_dead
        rows.made += count.made
        rows.lost += count.lost
        rows.lost_unknown += count.lost_unknown
        rows.replayed += count.replayed
    return rows


def in_plan_order(nodes: Mapping[str, Counts], plan: QueryPlan, flow: Flow) -> dict[str, Counts]:
    """The ledger's nodes in the order in which rows pass them, sinks last; steps that Spark counts as one (`known+by_hour`) have the place
    of their first step. The `parts` of each node are put into the order of the flow file."""
    order = {id_: index for index, id_ in enumerate([*(node.id for node in plan.nodes if node.id not in plan.sinks), *plan.sinks])}
    for id_, counts in nodes.items():
        step = flow.steps.get(id_)
        if counts.parts and step is not None and isinstance(step.action, Utilities):
            names = step.action.names
            counts.parts = {name: counts.parts[name] for name in (*names, *counts.parts) if name in counts.parts}
    return dict(sorted(nodes.items(), key=lambda item: order.get(item[0].split("+")[0], len(order))))


@dataclass(frozen=True, slots=True)
class LedgerLine:
    """The rows of a node, in figures that add up: rows_in + made == out + filtered + folded + dead + late."""

    node: str
    """`known+hot` for steps that Spark counts as one"""
    rows_in: int
    out: int
    made: int = 0
    filtered: int = 0
    folded: int = 0
    """rows that a step with state took in without writing one for them: into groups, into joins, as duplicates"""
    dead: int = 0
    late: int = 0
    held: int | None = None
    """groups or rows in the state now, which are not part of the sum; None if the node keeps none"""
    replayed: int = 0
    lookup: bool = False
    """True for a lookup table, which each Batch reads again: its rows come from no stream"""
    part_of: str = ""
    """for a utility: its step"""

    def as_json(self) -> dict[str, Any]:
        """The line as one JSON object: `node`, `in`, `out`, `made`, …"""
        data = asdict(self)
        return {"node": data.pop("node"), "in": data.pop("rows_in"), **data}

    @staticmethod
    def from_json(data: Mapping[str, Any]) -> LedgerLine:
        """The line that `as_json` wrote."""
        return LedgerLine(rows_in=data["in"], **{name: value for name, value in data.items() if name != "in"})


def ledger_lines(counts: Mapping[str, Counts], plan: QueryPlan, flow: Flow) -> tuple[LedgerLine, ...]:
    """The ledger of a query, in the order of `counts`. Rows that a join looks up in a static table count neither as its input nor as
    filtered by it; if two nodes read a table, half of its rows is attributed to each."""
    graph = Graph(flow)
    stateful = stateful_runs(counts, plan)
    tables = frozenset(node.id for node in plan.nodes if node.id in graph.nodes and is_static(graph, node.id))
    steps = {name: frozenset(name.split("+")) for name in counts}
    lookups = frozenset(name for name, ids in steps.items() if ids <= tables)
    readers = {name: _readers(graph, steps, name) for name in lookups}

    def line(name: str, count: Counts) -> LedgerLine:
        looked_up = 0
        if name not in lookups:
            looked_up = sum(counts[table].out // len(reading) for table, reading in readers.items() if name in reading)
        return _line(name, count, looked_up, stateful=name in stateful, lookup=name in lookups)

    return _with_parts(counts, line)


def plain_lines(counts: Mapping[str, Counts]) -> tuple[LedgerLine, ...]:
    """A line for each node, from the counts of decisions alone, if the plan is not known."""
    return _with_parts(counts, partial(_line, looked_up=0))


def _with_parts(counts: Mapping[str, Counts], line: Callable[[str, Counts], LedgerLine]) -> tuple[LedgerLine, ...]:
    """Each node's line, followed by those of its utilities."""
    lines: list[LedgerLine] = []
    for name, count in counts.items():
        lines.append(line(name, count))
        lines += [_line(part, each, 0, part_of=name) for part, each in count.parts.items()]
    return tuple(lines)


def _readers(graph: Graph, steps: Mapping[str, frozenset[str]], table: str) -> list[str]:
    """The ledger's nodes that read a table directly."""
    ids = steps[table]
    return [name for name, own in steps.items() if name != table and any(ids.intersection(graph.parents.get(id_, ())) for id_ in own)]


def _line(name: str, count: Counts, looked_up: int, *, stateful: bool = False, lookup: bool = False, part_of: str = "") -> LedgerLine:
    made, filtered, folded = count.made, count.filtered, 0
    rows_in, out, dead, late = count.rows_in - looked_up, count.out, count.dead, count.late
    if stateful:
        surplus = rows_in - out
        made, filtered, folded = max(0, -surplus), 0, max(0, surplus)
        rows_in += dead + late  # neither of them enters the state
    elif looked_up:
        surplus = rows_in + made - out - dead
        made, filtered = made + max(0, -surplus), max(0, surplus)
    return LedgerLine(name, rows_in, out, made, filtered, folded, dead, late, count.held, count.replayed, lookup, part_of)
