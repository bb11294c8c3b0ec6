"""Breadth-first search over all states that a model can reach. It finds shortest counter-examples, dead ends and endless cycles.

A model is any object with `initial()`, `successors(state)` and `goal(state)`; its states are hashable. A successor is `(label, state)`. A
label starts with one of three kinds: `STEP` is an action of the protocol, `REPAIR` an action of its environment (a task is started again),
`FAULT` a fault. Instead of a state, a successor may contain a text: the promise that the step has broken.
"""

from __future__ import annotations

from array import array
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterable, Sequence

STEP, REPAIR, FAULT = 0, 1, 2

Label = tuple[int, str, int]
"""(kind, code, actor)"""


class Model(Protocol):
    """A model that can be searched."""

    def initial(self) -> Hashable:
        """The initial state."""

    def successors(self, state: Any) -> Iterable[tuple[Label, Any]]:
        """Every step that a process can take from a state, with the next state, or with the text of a broken promise."""

    def goal(self, state: Any) -> bool:
        """True if everything that should happen has happened."""


@dataclass(frozen=True, slots=True)
class SearchReport:
    """The result of a search. `broken` is empty if every promise holds; else `trace` is a shortest path to the violation.

    With `cycle`, the last `cycle` labels of the trace can be repeated forever.
    """

    states: int
    steps: int
    depth: int
    broken: str = ""
    trace: tuple[Label, ...] = ()
    cycle: int = 0


class TooLarge(Exception):
    """The search has found more states than allowed."""


def search(model: Model, *, limit: int = 5_000_000, liveness: bool = True) -> SearchReport:
    """Visit all states; stop at the first violation of safety, which is one of the nearest.

    With `liveness`, also check that a path without further faults leads from every state to a goal, and that no endless cycle consists of
    `STEP`s only. Needs some 400 bytes per state.

    Args:
        model: The model.
        limit: The maximum number of states; TooLarge is raised above it.
        liveness: Whether to check liveness too.
    """
    start = model.initial()
    number = {start: 0}
    came_from: list[tuple[int, Label]] = [(-1, (STEP, "", 0))]
    goals = bytearray([model.goal(start)])
    edges, sources, kinds = array("l"), array("l"), bytearray()
    queue = deque([start])
    at = 0
    while queue:
        state = queue.popleft()
        for label, following in model.successors(state):
            if isinstance(following, str):
                trace = (*_way(came_from, at), label)
                return SearchReport(len(number), len(edges), len(trace), following, trace)
            to = number.get(following)
            if to is None:
                to = number[following] = len(number)
                if to >= limit:
                    raise TooLarge(f"more than {limit} states")
                came_from.append((at, label))
                goals.append(model.goal(following))
                queue.append(following)
            if liveness and to != at:
                edges.append(to)
                sources.append(at)
                kinds.append(label[0])
        at += 1
    depth = len(_way(came_from, len(number) - 1))
    seen = SearchReport(len(number), len(edges), depth)
    if not liveness:
        return seen
    stuck = _first_dead_end(len(number), sources, edges, kinds, goals)
    if stuck is not None:
        trace = _way(came_from, stuck)
        return SearchReport(seen.states, seen.steps, len(trace), "from here no way leads to the goal without a further fault", trace)
    cycle = _first_cycle(len(number), sources, edges, kinds)
    if cycle:
        trace = _way(came_from, cycle[0])
        around = _labels_around(model, cycle, number)
        return SearchReport(seen.states, seen.steps, len(trace) + len(around), "this can go on for ever", (*trace, *around), len(around))
    return seen


def _way(came_from: Sequence[tuple[int, Label]], state: int) -> tuple[Label, ...]:
    labels = []
    while state > 0:
        state, label = came_from[state]
        labels.append(label)
    return tuple(reversed(labels))


def _first_dead_end(count: int, sources: array[int], edges: array[int], kinds: bytearray, goals: bytearray) -> int | None:
    """Search backwards from the goals, without faults; returns the nearest state to the start from which no goal is reached, or None."""
    before: list[list[int]] = [[] for _ in range(count)]
    for source, to, kind in zip(sources, edges, kinds, strict=True):
        if kind != FAULT:
            before[to].append(source)
    reached = bytearray(goals)
    todo = [state for state in range(count) if goals[state]]
    while todo:
        for source in before[todo.pop()]:
            if not reached[source]:
                reached[source] = 1
                todo.append(source)
    found = reached.find(0)
    return None if found < 0 else found


def _first_cycle(count: int, sources: array[int], edges: array[int], kinds: bytearray) -> list[int]:
    """The states of a shortest cycle of `STEP`s, beginning with the one nearest to the start; empty if there is none.

    States that no `STEP` enters are removed repeatedly; the remaining ones contain a cycle.
    """
    after: list[list[int]] = [[] for _ in range(count)]
    entered = [0] * count
    for source, to, kind in zip(sources, edges, kinds, strict=True):
        if kind == STEP:
            after[source].append(to)
            entered[to] += 1
    free = [state for state in range(count) if not entered[state]]
    while free:
        for to in after[free.pop()]:
            entered[to] -= 1
            if not entered[to]:
                free.append(to)
    for state in (state for state in range(count) if entered[state]):
        way = {state: -1}
        queue = deque([state])
        while queue:
            here = queue.popleft()
            for to in after[here]:
                if to == state:
                    cycle = [here]
                    while way[cycle[-1]] >= 0:
                        cycle.append(way[cycle[-1]])
                    return cycle[::-1]
                if to not in way:
                    way[to] = here
                    queue.append(to)
    return []


def _labels_around(model: Model, cycle: Sequence[int], number: dict[Any, int]) -> tuple[Label, ...]:
    wanted = set(cycle)
    states = {at: state for state, at in number.items() if at in wanted}
    labels = []
    for here, to in zip(cycle, [*cycle[1:], cycle[0]], strict=True):
        labels.append(
            next(label for label, following in model.successors(states[here]) if label[0] == STEP and number.get(following) == to)
        )
    return tuple(labels)
