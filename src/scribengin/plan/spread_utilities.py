"""Distributes the utilities of a flow over tiers: each utility, or several in sequence if there are fewer tiers, gets its own tier.

In a chain each tier passes the rows it keeps to the next. As branches each tier reads all rows, and the last tier merges those that all
kept, or that any kept.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import TYPE_CHECKING, Literal

from scribengin.connectors import catalog
from scribengin.core.errors import Refused
from scribengin.core.problems import suggestion
from scribengin.core.units import parse_duration_s
from scribengin.plan.check import check_flow
from scribengin.plan.columns import find
from scribengin.plan.graph import Graph
from scribengin.plan.resolve import resolve
from scribengin.spec.dump import dump_flow
from scribengin.spec.model import Dedupe, Merge, Step, Tier, Utilities
from scribengin.spec.parse import parse_flow

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from scribengin.core.problems import Problem
    from scribengin.spec.model import Flow


CODE = "spread"
_NAME = 63
"""the most characters of an id"""


@dataclass(frozen=True, slots=True)
class Branches:
    """How rows of parallel branches are matched: the columns that identify a record, and how far apart in time its copies may be."""

    key: tuple[str, ...]
    time: str
    within_s: float
    how: Literal["union", "intersect"] = "intersect"
    """`intersect`: rows that all keep, as without tiers; `union`: rows that any keeps, once"""


@dataclass(frozen=True, slots=True)
class Spread:
    """The result. `flow` has the tiers; `runs`: tier → the utilities that run there, in order; `step` is the step that had all of them."""

    flow: Flow
    step: str
    runs: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    consolidates: str = ""
    """the tier that merges the branches"""
    keeps: str = ""
    """the result of the branches, as text"""
    whole: str = ""
    """the reason that no tier was made; empty if some were"""

    def lines(self) -> list[str]:
        """The result as lines of text."""
        if self.whole:
            return [f"the utilities of step {self.step} are not split: {self.whole}"]
        told = [f"tier {tier}: {', '.join(names)}" for tier, names in self.runs.items()]
        return [*told, f"tier {self.consolidates}: {self.keeps}"] if self.consolidates else told


def spread(flow: Flow, tiers: int, branches: Branches | None = None) -> Spread:
    """Distribute the flow's step of utilities over tiers.

    The flow's output stays the same. Two things differ: a utility's dead letters and counts have the name of the step that it is part of
    now; and the free tests of one tier run without those of others, so that a record may become a dead letter that a test of another tier
    would have dropped. Tests of the flow are left out, since they may expect the old names of dead letters.

    Args:
        flow: The flow.
        tiers: The most tiers; at most one for each utility is made.
        branches: How to merge branches, in the last tier; None: a chain.

    Raises:
        Refused: There is nothing to distribute, or it is not possible.
    """
    if flow.tiers:
        raise Refused(f"flow {flow.name} already has tiers", remedy="take `tiers` out, or leave --spread out", code=CODE)
    steps = [step for step in flow.steps.values() if isinstance(step.action, Utilities)]
    if len(steps) != 1:
        what = "no step of utilities" if not steps else f"{len(steps)} steps of utilities: {', '.join(step.id for step in steps)}"
        raise Refused(f"flow {flow.name} has {what}; --spread takes one", remedy="write `tiers` in the flow file instead", code=CODE)
    (step,) = steps
    action = step.action
    assert isinstance(action, Utilities)
    if branches is not None:
        _check_branches(flow, step, action, branches)
    each = branches is not None and branches.how == "union"  # a branch of two tests would keep the rows that both keep
    parts = min(tiers - (branches is not None), len(action.references))
    whole = "" if parts > (not each) else _why_whole(action, tiers, branches)
    if whole and not each:
        return Spread(flow, step.id, whole=whole)
    runs = _runs(action, len(action.references) if each else parts)
    taken = {*flow.sources, *flow.steps, *flow.sinks}
    flow = replace(flow, tests=(), test_files=())
    made, meets = _in_a_row(step, runs, taken) if branches is None else _branched(step, runs, branches, taken)
    steps_now = {id_: part for one in flow.steps.values() for id_, part in (made if one is step else {one.id: one}).items()}
    keeps = f"rows that {'any' if each else 'all'} of them keep{'s' if each else ''}" if branches is not None else ""
    if whole:
        return Spread(replace(flow, steps=steps_now), step.id, keeps=keeps, whole=f"{whole}; the output is {keeps}")
    ways = [id_ for id_ in made if id_ not in meets]
    bounds = _bounds(len(ways), parts)
    names = [_name(step.id, str(number)) for number in range(1, parts + 1 + bool(meets))]
    parted = [*(ways[first:end] for first, end in bounds), *([meets] if meets else [])]
    cut = replace(
        flow,
        steps=steps_now,
        tiers={tier: Tier(tier, tuple(ids)) for tier, ids in _placed(flow, step, dict(zip(names, parted, strict=True))).items()},
    )
    called = [name for run in runs for name in run.names] if each else []
    told = {tier: tuple(called[first:end]) if each else runs[first].names for tier, (first, end) in zip(names, bounds, strict=False)}
    return Spread(cut, step.id, told, names[-1] if meets else "", keeps)


def _why_whole(action: Utilities, tiers: int, branches: Branches | None) -> str:
    if len(action.references) == 1:
        return "there is only one utility"
    if tiers == 1 or branches is None:
        return "only one tier is available"
    return "branches need three tiers: one for each of two branches and one to merge them"


def spread_text(made: Spread, name: str) -> tuple[str, list[Problem]]:
    """(the flow file for a result of `spread`, every problem in it). A flow with tiers must fulfil rules that the original need not. `name`
    is the name of the file in problems."""
    types = {"source_types": catalog.source_types(), "sink_types": catalog.sink_types(internal=True)}
    text = dump_flow(made.flow, source_types=types["source_types"], sink_types=types["sink_types"])
    parsed = parse_flow(text, name, folder=made.flow.folder, code=made.flow.code, environment=os.environ, **types)
    checked = [] if parsed.flow is None else check_flow(parsed.flow, parsed.places, broken=parsed.broken, unread=parsed.unread, **types)
    return text, list(dict.fromkeys([*parsed.problems, *checked]))


def read_branches(text: str) -> Branches:
    """Parse `id ts 10m`, `id+user ts 10m` for a key of several columns, and either followed by `intersect` or `union`. Raises Refused for
    anything else.

    >>> read_branches("id+user ts 10m union")
    Branches(key=('id', 'user'), time='ts', within_s=600.0, how='union')
    """
    says = f'"{text}" is not a valid value of --branches'
    remedy = "write key, time column and duration, such as --branches 'id ts 10m'; add union to keep rows that only one branch keeps"
    parts = text.split()
    hows: dict[str, Literal["union", "intersect"]] = {"intersect": "intersect", "union": "union"}
    how = hows.get(parts[3] if len(parts) == 4 else "intersect")
    if len(parts) not in (3, 4) or how is None:
        found = f': "{parts[3]}" is neither union nor intersect' if len(parts) == 4 else ""
        raise Refused(f"{says}{found}", remedy=remedy, code=CODE)
    key, time, within = parts[:3]
    try:
        within_s = parse_duration_s(within)
    except ValueError as error:
        raise Refused(f"{says}: {error}", remedy=remedy, code=CODE) from error
    if not all(columns := key.split("+")):
        raise Refused(f'{says}: the key "{key}" has an empty column name', remedy=remedy, code=CODE)
    return Branches(tuple(columns), time, within_s, how)


def _check_branches(flow: Flow, step: Step, action: Utilities, branches: Branches) -> None:
    if action.order != "free":
        message = f'step "{step.id}" has `order: fixed`: a utility may depend on the utility before it'
        raise Refused(message, remedy="leave --branches out, or write order: free if all utilities are tests", code=CODE)
    graph = Graph(flow)
    above = graph.upstream([step.id]) - {step.id}
    marked = any(each.watermark is not None for each in flow.steps.values() if each.id in above)
    streams = [source for source in flow.sources.values() if source.id in above and not source.static]
    if bare := [source.id for source in streams if source.watermark is None and not marked]:
        message = f'source "{bare[0]}" has no watermark: the branches would wait for each other for ever'
        raise Refused(message, remedy="add one, such as watermark: ts 10m, or leave --branches out", code=CODE)
    columns = resolve(graph).of(step.inputs[0]) or ()
    for name in (*branches.key, branches.time):
        column = find(columns, name)
        if column is None:
            near = suggestion(name, (each.name for each in columns), "its columns are")
            raise Refused(f'step "{step.id}" reads no column "{name}" to merge the branches by', remedy=near, code=CODE)
        if column.nullable:
            message = f'column "{name}" may be null: a row with null there could not be matched with its copies in the other branches'
            raise Refused(message, remedy=f"declare it: {name} {column.type or 'TYPE'} NOT NULL; or leave --branches out", code=CODE)


def _bounds(count: int, parts: int) -> list[tuple[int, int]]:
    """(start, end) of `parts` parts of `count` items, as equal in length as possible, longer ones first."""
    bounds = [0]
    for part in range(parts):
        bounds.append(bounds[-1] + count // parts + (part < count % parts))
    return list(pairwise(bounds))


def _runs(action: Utilities, parts: int) -> list[Utilities]:
    return [
        replace(action, references=action.references[first:end], functions=action.functions[first:end])
        for first, end in _bounds(len(action.references), parts)
    ]


def _in_a_row(step: Step, runs: Sequence[Utilities], taken: Collection[str]) -> tuple[dict[str, Step], list[str]]:
    """(the steps of a chain, the steps that merge branches: none). The last step keeps the original id, so that its readers stay the
    same."""
    made: dict[str, Step] = {}
    inputs = step.inputs
    for run in runs[:-1]:
        id_ = _free_name(step.id, run.names[0], {*taken, *made})
        made[id_] = Step(id_, inputs, run, on_error=step.on_error)
        inputs = (id_,)
    return made | {step.id: replace(step, inputs=inputs, action=runs[-1])}, []


def _branched(step: Step, runs: Sequence[Utilities], branches: Branches, taken: Collection[str]) -> tuple[dict[str, Step], list[str]]:
    """(the steps of branches, those of them that merge branches)."""
    made: dict[str, Step] = {}
    for run in runs:
        id_ = _free_name(step.id, run.names[0], {*taken, *made})
        made[id_] = Step(id_, step.inputs, run, on_error=step.on_error)
    meets: list[str] = []
    ways = list(made)
    if branches.how == "union":
        last: Dedupe | Merge = Dedupe(branches.key, branches.time, branches.within_s)
        if len(ways) > 1:
            meets.append(_free_name(step.id, "together", {*taken, *made}))
            made[meets[0]] = Step(meets[0], tuple(ways), Merge())
            ways = meets[:1]
    else:
        last = Merge("intersect", branches.key, branches.time, branches.within_s)
        for number, other in enumerate(ways[1:-1], 1):  # Spark joins two streams at a time
            id_ = _free_name(step.id, f"meet_{number}", {*taken, *made})
            made[id_] = Step(id_, (ways[0], other), last)
            meets.append(id_)
            ways[0] = id_
        ways = [ways[0], ways[-1]]
    return made | {step.id: replace(step, inputs=tuple(ways), action=last, schema=None)}, [*meets, step.id]


def _free_name(begin: str, end: str, taken: Collection[str]) -> str:
    """An id of both parts that no node has."""
    end = re.sub("[^a-z0-9_]", "_", end[: _NAME // 2])
    name, number = _name(begin, end), 1
    while name in taken:
        number += 1
        name = _name(begin, f"{end}_{number}")
    return name


def _name(begin: str, end: str) -> str:
    """Both parts as one id; the first is cut if the id would be too long."""
    return f"{begin[: _NAME - len(end) - 1]}_{end}"


def _placed(flow: Flow, step: Step, parted: Mapping[str, Sequence[str]]) -> dict[str, list[str]]:
    """Tier → nodes, from `parted`: tier → parts of the step. Nodes upstream of the utilities go to the first tier, with those that are not
    connected to them; all others go to the last."""
    graph = Graph(flow)
    before = [id_ for id_ in graph.order if id_ in graph.upstream([step.id]) and id_ != step.id and id_ in flow.steps]
    others = [id_ for id_ in graph.order if id_ not in before and id_ != step.id and id_ not in flow.sources]
    with_them = graph.upstream([id_ for id_ in others if step.id in graph.upstream([id_])])
    placed = {tier: list(ids) for tier, ids in parted.items()}
    first, last = next(iter(placed)), next(reversed(placed))
    placed[first] = [*before, *placed[first], *(id_ for id_ in others if id_ not in with_them)]
    placed[last] += [id_ for id_ in others if id_ in with_them]
    return placed
