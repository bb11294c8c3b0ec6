"""A flow with its utilities spread over tiers: each, or a run of them where there are fewer tiers, in one of its own.

In a row each tier hands what it keeps to the next. As branches each has all rows, and the last tier brings together what all have kept.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from scribengin.connectors import catalog
from scribengin.core.errors import Refused
from scribengin.core.problems import did_you_mean
from scribengin.core.units import parse_duration_s
from scribengin.plan.check import check_flow
from scribengin.plan.columns import find
from scribengin.plan.graph import Graph
from scribengin.plan.resolve import resolve
from scribengin.spec.dump import dump_flow
from scribengin.spec.model import Merge, Step, Tier, Utilities
from scribengin.spec.parse import parse_flow

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from scribengin.core.problems import Problem
    from scribengin.spec.model import Flow

CODE = "spread"
_NAME = 63
"""characters of an id"""


@dataclass(frozen=True, slots=True)
class Branches:
    """How rows of parallel branches find one another: the columns that name a record, and how far apart in time its copies may be."""

    key: tuple[str, ...]
    time: str
    within_s: float


@dataclass(frozen=True, slots=True)
class Spread:
    """`flow` is cut; `runs`: tier → the utilities that run there, in their order. `step` is what they were in one piece."""

    flow: Flow
    step: str
    runs: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    consolidates: str = ""
    """the tier in which branches meet"""

    def lines(self) -> list[str]:
        """For people."""
        told = [f"tier {tier}: {', '.join(names)}" for tier, names in self.runs.items()]
        return [*told, f"tier {self.consolidates}: what all of them keep"] if self.consolidates else told


def spread(flow: Flow, tiers: int, branches: Branches | None = None) -> Spread:
    """The flow with its step of utilities in so many tiers, at most one for each; with `branches` the last one brings them together.

    What `flow` does is the same but for two things: a utility's dead letters and counts bear the name of the step that it is part of now,
    and of free tests each tier's are asked without those of others, so that a record may be dead that another's test would have dropped.
    Raises Refused where there is nothing to spread, or it cannot be said how.
    """
    if flow.tiers:
        raise Refused(f"flow {flow.name} is cut already", remedy="take `tiers` out, or leave --spread out", code=CODE)
    steps = [step for step in flow.steps.values() if isinstance(step.action, Utilities)]
    if len(steps) != 1:
        what = "no step of utilities" if not steps else f"{len(steps)} steps of utilities: {', '.join(step.id for step in steps)}"
        raise Refused(f"flow {flow.name} has {what}; --spread takes one", remedy="say with `tiers` what runs where", code=CODE)
    (step,) = steps
    assert isinstance(step.action, Utilities)
    if branches is not None:
        _check_branches(flow, step, step.action, branches)
    parts = min(tiers - (branches is not None), len(step.action.references))
    if parts < 2:
        return Spread(flow, step.id)
    runs = _runs(step.action, parts)
    names = [_name(step.id, str(number)) for number in range(1, parts + 1 + (branches is not None))]
    made = _in_a_row(step, runs) if branches is None else _branched(step, runs, branches)
    twice = sorted((made.keys() - {step.id}) & (flow.steps.keys() | flow.sources.keys() | flow.sinks.keys()))
    if twice:
        raise Refused(f'"{twice[0]}" would be a part of step "{step.id}", and is a node already', remedy="rename that node", code=CODE)
    placed = _placed(flow, step, list(made), names)
    cut = replace(
        flow,
        steps={id_: part for each in flow.steps.values() for id_, part in (made if each is step else {each.id: each}).items()},
        tiers={tier: Tier(tier, tuple(ids)) for tier, ids in placed.items()},
    )
    told = {tier: run.names for tier, run in zip(names, runs, strict=False)}
    return Spread(cut, step.id, told, "" if branches is None else names[-1])


def spread_text(made: Spread, name: str) -> tuple[str, list[Problem]]:
    """The flow file of what `spread` has made, which messages call `name`, and every problem in it: what is cut must keep rules that one
    piece need not."""
    types = {"source_types": catalog.source_types(), "sink_types": catalog.sink_types(internal=True)}
    text = dump_flow(made.flow, source_types=types["source_types"], sink_types=types["sink_types"])
    parsed = parse_flow(text, name, folder=made.flow.folder, code=made.flow.code, environment=os.environ, **types)
    checked = [] if parsed.flow is None else check_flow(parsed.flow, parsed.places, broken=parsed.broken, unread=parsed.unread, **types)
    return text, list(dict.fromkeys([*parsed.problems, *checked]))


def read_branches(text: str) -> Branches:
    """`id ts 10m`, and `id+user ts 10m` for a key of several columns. Raises Refused for anything else.

    >>> read_branches("id+user ts 10m")
    Branches(key=('id', 'user'), time='ts', within_s=600.0)
    """
    parts = text.split()
    try:
        key, time, within = parts
        return Branches(tuple(key.split("+")), time, parse_duration_s(within))
    except ValueError as error:
        message = f'"{text}" does not say how branches meet: {error}' if len(parts) == 3 else f'"{text}" does not say how branches meet'
        raise Refused(message, remedy="write key, time column and span, such as --branches 'id ts 10m'", code=CODE) from error


def _check_branches(flow: Flow, step: Step, action: Utilities, branches: Branches) -> None:
    if action.order != "free":
        message = f'step "{step.id}" has `order: fixed`: a utility may need what the one before it has made'
        raise Refused(message, remedy="leave the branches out, or write order: free where all of them only test", code=CODE)
    graph = Graph(flow)
    streams = [source for source in flow.sources.values() if source.id in graph.upstream([step.id]) and not source.static]
    if bare := [source.id for source in streams if source.watermark is None]:
        message = f'source "{bare[0]}" has no watermark: branches would wait for each other for ever'
        raise Refused(message, remedy=f"give it one, such as watermark: ts 10m, or spread {step.id} in a row", code=CODE)
    columns = resolve(graph).of(step.inputs[0]) or ()
    for name in (*branches.key, branches.time):
        column = find(columns, name)
        if column is None:
            near = did_you_mean(name, (each.name for each in columns)) or f"it has {', '.join(each.name for each in columns)}"
            raise Refused(f'step "{step.id}" reads no column "{name}", by which branches could meet', remedy=near, code=CODE)
        if column.nullable:
            message = f'column "{name}" may be null: a row without it would never meet its copies of the other branches'
            raise Refused(message, remedy=f"declare it: {name} {column.type or 'TYPE'} NOT NULL; or spread {step.id} in a row", code=CODE)


def _runs(action: Utilities, parts: int) -> list[Utilities]:
    """Runs of utilities, as equal in length as can be, longer ones first."""
    count = len(action.references)
    bounds = [0]
    for part in range(parts):
        bounds.append(bounds[-1] + count // parts + (part < count % parts))
    return [
        replace(action, references=action.references[first:end], functions=action.functions[first:end]) for first, end in pairwise(bounds)
    ]


def _in_a_row(step: Step, runs: Sequence[Utilities]) -> dict[str, Step]:
    """The last one keeps the step's id, and with it its readers."""
    made: dict[str, Step] = {}
    inputs = step.inputs
    for run in runs[:-1]:
        id_ = _id(step, run, made)
        made[id_] = Step(id_, inputs, run, on_error=step.on_error)
        inputs = (id_,)
    return made | {step.id: replace(step, inputs=inputs, action=runs[-1])}


def _branched(step: Step, runs: Sequence[Utilities], branches: Branches) -> dict[str, Step]:
    made: dict[str, Step] = {}
    for run in runs:
        id_ = _id(step, run, made)
        made[id_] = Step(id_, step.inputs, run, on_error=step.on_error)
    first, *others = made
    meets = Merge("intersect", branches.key, branches.time, branches.within_s)
    for number, other in enumerate(others[:-1], 1):  # Spark joins two streams at a time
        id_ = _name(step.id, f"meet_{number}")
        made[id_] = Step(id_, (first, other), meets)
        first = id_
    return made | {step.id: replace(step, inputs=(first, others[-1]), action=meets, schema=None)}


def _id(step: Step, run: Utilities, taken: Mapping[str, Any]) -> str:
    name = _name(step.id, run.names[0][: _NAME // 2])
    return name if name not in taken and name != step.id else _name(name, str(len(taken) + 1))


def _name(begin: str, end: str) -> str:
    """Both as one id; where they are too long the first one is cut."""
    return f"{begin[: _NAME - len(end) - 1]}_{end}"


def _placed(flow: Flow, step: Step, made: Sequence[str], names: Sequence[str]) -> dict[str, list[str]]:
    """Tier → nodes: what feeds the utilities in the first, with it what has nothing to do with them, all else in the last."""
    graph = Graph(flow)
    before = [id_ for id_ in graph.order if id_ in graph.upstream([step.id]) and id_ != step.id and id_ in flow.steps]
    placed = {tier: [id_] for tier, id_ in zip(names, [*made[: len(names) - 1], made[-1]], strict=True)}
    others = [id_ for id_ in graph.order if id_ not in before and id_ != step.id and id_ not in flow.sources]
    with_them = graph.upstream([id_ for id_ in others if step.id in graph.upstream([id_])])
    aside = [id_ for id_ in others if id_ not in with_them]
    placed[names[0]] = [*before, *placed[names[0]], *aside]
    others = [id_ for id_ in others if id_ in with_them]
    placed[names[-1]] = [*made[len(names) - 1 : -1], *placed[names[-1]], *others]
    return placed
