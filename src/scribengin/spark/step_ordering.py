"""Chooses the cheapest order of a record's tests from observations. Deterministic except for sampling.

The cost of a test is measured on passes over whole blocks. How tests overlap (a test that drops only what an earlier one has dropped is
useless after it) is measured on a sample: a few records of some blocks are given to all tests, for at most 2 % of the tests' own time, the
choice of the order included. Only the first sampling, when nothing is known, is not limited so. Each sampled record gives a *mask*: bit i
is set if test i keeps the record. The masks show which share of the records left by earlier tests each test drops; with the costs this
gives the cost of an order per record.

The next test is always the one with the lowest cost per dropped share. A new order must be 5 % cheaper than the present one. Older records
have less and less weight; if a test keeps another share than the masks predict, the masks are dropped and sampled again.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from math import sqrt
from random import Random
from time import perf_counter_ns
from typing import TYPE_CHECKING, Any

from scribengin.spark.program import UtilitiesNode

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from scribengin.spark.program import Program
    from scribengin.spark.task_report import TaskReport


ENOUGH = 256
"""masks that are collected at once if nothing is known; later sampling is limited by `SHARE`"""
WINDOW = 1024.0
"""the total weight of the masks that are kept"""
PACE_ROWS = 65_536.0
"""the number of records whose costs count, for each test"""
SHARE = 0.02
"""the share of the tests' time that sampling may take"""
FEW, MANY = 16, 128
"""the fewest and the most records of a later sample"""
MASKS, _LIGHT = 1024, 0.05
"""the most masks that are kept, and the least weight of one: many tests can have as many masks as there are records"""
BETTER = 0.95
"""the cost of a new order, at most, as a share of the present order's cost"""
TOLD_ROWS = 256
"""the number of records after which a test's share is compared with the prediction"""
_MARGIN = 0.05
_CALM_BLOCKS = 64
"""the blocks between two times that the masks are dropped"""
_TIMED_FIRST, _TIMED_EVERY = 8, 32
"""blocks of a task whose passes are timed: the first ones, then every 32nd"""
_LOOKED_EVERY = 4
"""every how many blocks of a task the shares are compared with the predictions"""
_LEAST_TIMED = 32
"""the fewest rows of a pass that is timed"""


@dataclass(slots=True)
class Evidence:
    """Observations: for each test the number of records tested and the time it took, and mask → weight."""

    asked: list[float]
    ns: list[float]
    masks: dict[int, float] = field(default_factory=dict)

    @staticmethod
    def nothing(tests: int) -> Evidence:
        """Empty evidence for this number of tests."""
        return Evidence([0.0] * tests, [0.0] * tests)

    @property
    def weight(self) -> float:
        """The total weight of all masks."""
        return sum(self.masks.values())

    def cost_ns(self, test: int) -> float:
        """The estimated cost of one record, in nanoseconds."""
        return self.ns[test] / self.asked[test] if self.asked[test] else 0.0

    def keeps(self, test: int) -> float | None:
        """The share of all records that the test keeps; None if unknown."""
        weight = self.weight
        return sum(each for mask, each in self.masks.items() if mask >> test & 1) / weight if weight else None

    def timed(self, test: int, rows: int, ns: float) -> None:
        """Add a timed pass of a test over `rows` rows. If it took much longer than earlier passes, something else delayed it: at most four
        times the known cost counts, so that costs that really rise are still followed quickly. If it took much less, the earlier passes
        were delayed, and their weight is reduced."""
        known = self.cost_ns(test)
        if ns < known * rows / 3:
            part = min(1.0, rows / self.asked[test])
            self.ns[test] *= part
            self.asked[test] *= part
        self.ns[test] += min(ns, 4 * known * rows) if known else ns
        self.asked[test] += rows
        if self.asked[test] > PACE_ROWS:
            self.ns[test] /= 2
            self.asked[test] /= 2

    def noted(self, masks: Sequence[int]) -> None:
        """Add masks of sampled records."""
        for mask in masks:
            self.masks[mask] = self.masks.get(mask, 0.0) + 1.0
        self.shrink(WINDOW)

    def shrink(self, weight: float) -> None:
        """Limit the total weight of the masks."""
        have = self.weight
        if have > weight:
            self.masks = {mask: each * weight / have for mask, each in self.masks.items() if each * weight / have > 1e-3}

    def over(self, older: Evidence) -> Evidence:
        """This evidence, completed with as much of the older as fits into the limits."""
        room = max(0.0, WINDOW - self.weight)
        have = older.weight
        share = min(1.0, room / have) if have else 0.0
        masks = dict(self.masks)
        for mask, each in older.masks.items():
            masks[mask] = masks.get(mask, 0.0) + each * share
        made = Evidence(list(self.asked), list(self.ns), _heaviest(masks))
        for test, (asked, ns) in enumerate(zip(older.asked, older.ns, strict=True)):
            part = min(1.0, max(0.0, PACE_ROWS - self.asked[test]) / asked) if asked else 0.0
            made.asked[test] += asked * part
            made.ns[test] += ns * part
        return made

    def plus(self, other: Evidence) -> Evidence:
        """The sum of both, for two tasks of one Batch."""
        masks = dict(self.masks)
        for mask, each in other.masks.items():
            masks[mask] = masks.get(mask, 0.0) + each
        asked, ns = ([a + b for a, b in zip(getattr(self, name), getattr(other, name), strict=True)] for name in ("asked", "ns"))
        return Evidence(asked, ns, masks)

    def as_json(self) -> dict[str, Any]:
        """The form in write receipts and decisions."""
        return {
            "asked": [round(each, 1) for each in self.asked],
            "ns": [round(each, 1) for each in self.ns],
            "masks": {str(mask): round(each, 3) for mask, each in sorted(self.masks.items())},
        }

    @staticmethod
    def from_json(data: Mapping[str, Any]) -> Evidence:
        """Read what `as_json` wrote."""
        return Evidence(list(data["asked"]), list(data["ns"]), {int(mask): each for mask, each in data["masks"].items() if each})


def _heaviest(masks: dict[int, float]) -> dict[int, float]:
    left = {mask: each for mask, each in masks.items() if each >= _LIGHT}
    return left if len(left) <= MASKS else dict(sorted(left.items(), key=lambda item: (-item[1], item[0]))[:MASKS])


def shares(evidence: Evidence, order: Sequence[int]) -> list[tuple[float, float]]:
    """For each position in an order: (weight of the masks that reach it, share of these that the test there keeps)."""
    left = dict(evidence.masks)
    found = []
    for test in order:
        weight = sum(left.values())
        left = {mask: each for mask, each in left.items() if mask >> test & 1}
        found.append((weight, (sum(left.values()) + 0.5) / (weight + 1.0)))
    return found


def expected_ns(evidence: Evidence, order: Sequence[int]) -> float:
    """The estimated cost of a record in that order, in nanoseconds."""
    whole = evidence.weight or 1.0
    reached = [weight / whole for weight, _ in shares(evidence, order)]
    return sum(evidence.cost_ns(test) * share for test, share in zip(order, reached, strict=True))


def best_order(evidence: Evidence) -> tuple[int, ...]:
    """The cheapest order, chosen test by test on the rows that earlier tests keep; the order of the flow file if tests do not differ."""
    left, waiting, order = dict(evidence.masks), list(range(len(evidence.asked))), []
    while waiting:
        weight = sum(left.values())

        def rank(test: int, left: dict[int, float] = left, weight: float = weight) -> float:
            dropped = sum(each for mask, each in left.items() if not mask >> test & 1)
            return evidence.cost_ns(test) * (weight + 1.0) / (dropped + 0.5)

        test = min(waiting, key=rank)
        waiting.remove(test)
        order.append(test)
        left = {mask: each for mask, each in left.items() if mask >> test & 1}
    return tuple(order)


def is_surprising(told: Sequence[Sequence[int]], foretold: Sequence[tuple[float, float]]) -> bool:
    """True if observations differ from the prediction more than chance explains. `told`: for each position (tested, kept) records;
    `foretold`: see `shares`."""
    for (asked, kept), (weight, share) in zip(told, foretold, strict=True):
        off = _MARGIN + 4 * sqrt(share * (1 - share) * (1 / max(1, asked) + 1 / (weight + 1)))
        if asked >= TOLD_ROWS and abs(kept / asked - share) > off:
            return True
    return False


class Chooser:
    """The order of one task's tests, and the task's observations of them. `older` is what was known when it began."""

    def __init__(
        self,
        names: Sequence[str],
        older: Evidence,
        order: Sequence[int],
        *,
        chance: Random | None = None,
        clock_ns: Callable[[], int] = perf_counter_ns,
    ) -> None:
        self._names = list(names)
        self._older = older
        self._own = Evidence.nothing(len(names))
        self.order = tuple(order)
        self._chance = chance or Random()
        self._clock_ns = clock_ns
        self._forgot = False
        self._budget_ns = 0.0
        self._calm = _CALM_BLOCKS
        self._blocks = 0
        self._told = [[0, 0] for _ in names]
        self._foretold = shares(older, self.order)
        self._known = older.weight

    @staticmethod
    def of(names: Sequence[str], learned: Mapping[str, Any], *, clock_ns: Callable[[], int] = perf_counter_ns) -> Chooser:
        """A chooser with the observations of earlier Batches for the same tests; without evidence if the tests have changed."""
        if list(learned.get("names", ())) != list(names) or "known" not in learned:
            return Chooser(names, Evidence.nothing(len(names)), range(len(names)), clock_ns=clock_ns)
        known = learned["known"]
        order = [names.index(name) for name in learned["order"]]
        chooser = Chooser(names, Evidence.from_json(known["evidence"]), order, clock_ns=clock_ns)
        chooser._budget_ns = float(known["budget_ns"])
        return chooser

    def evidence(self) -> Evidence:
        """All present evidence."""
        return self._own.over(self._older)

    def sample(self, rows: int) -> list[int]:
        """The indexes of a block's rows on which all tests are to run; mostly none."""
        size = 0
        if self._known < ENOUGH:
            size = ENOUGH - int(self._known)
        elif self._budget_ns > 0:
            each_ns = sum(self._cost_ns(test) for test in range(len(self._names))) or 1.0
            affordable = int(self._budget_ns / each_ns)
            size = min(MANY, affordable) if affordable >= FEW else 0
        size = min(size, rows)
        return sorted(self._chance.sample(range(rows), size)) if size else []

    def sampled(self, answers: Sequence[Sequence[bool]], spent_ns: Sequence[int], begun_ns: int) -> None:
        """Add the results of a sample.

        Args:
            answers: `answers[i]`: the results of test i for the sample.
            spent_ns: `spent_ns[i]`: the time that test i took.
            begun_ns: When the sampling began.
        """
        masks = [sum(1 << test for test, kept in enumerate(column) if kept) for column in zip(*answers, strict=True)]
        self._own.noted(masks)
        for test, ns in enumerate(spent_ns):
            if len(masks) >= FEW or not self._cost_ns(test):
                self._own.timed(test, len(masks), ns)
        paid = self._known >= ENOUGH
        self._choose()
        self._budget_ns -= (self._clock_ns() - begun_ns) * paid

    def times(self, rows: int) -> bool:
        """True if the next block, which has `rows` rows, should be timed: the first ones are, then some."""
        self._blocks += 1
        return rows >= _LEAST_TIMED and (self._blocks <= _TIMED_FIRST or self._blocks % _TIMED_EVERY == 0)

    def passed(self, place: int, asked: int, kept: int, ns: int | None) -> None:
        """Record that a block has passed a test.

        Args:
            place: The test's position in the order.
            asked: The records tested.
            kept: The records kept.
            ns: The time that it took; None if it was not timed.
        """
        test = self.order[place]
        if ns is not None and asked >= _LEAST_TIMED:
            self._own.timed(test, asked, ns)
        self._budget_ns += SHARE * (ns if ns is not None else asked * self._cost_ns(test))
        told = self._told[place]
        told[0] += asked
        told[1] += kept

    def block_is_through(self) -> None:
        """Drop the masks if the new rows differ from what they predicted."""
        self._calm += 1
        if self._blocks % _LOOKED_EVERY or not any(asked >= TOLD_ROWS for asked, _ in self._told):
            return
        if self._known and self._calm >= _CALM_BLOCKS and is_surprising(self._told, self._foretold):
            self._forget()
        self._told = [[0, 0] if asked >= TOLD_ROWS else [asked, kept] for asked, kept in self._told]

    def figures(self) -> dict[str, Any]:
        """The observations of the task; see `learned`."""
        seen = {"forgot": self._forgot, "told": self._told, "budget_ns": round(self._budget_ns), "evidence": self._own.as_json()}
        return {"names": self._names, "order": list(self.order), **seen}

    def _forget(self) -> None:
        self._calm = 0
        self._forgot = True
        self._older = Evidence(self._older.asked, self._older.ns)
        self._own.masks = {}
        self._known = 0.0
        self._told = [[0, 0] for _ in self._names]

    def _cost_ns(self, test: int) -> float:
        return self._own.cost_ns(test) or self._older.cost_ns(test)

    def _choose(self) -> None:
        known = self.evidence()
        self._known = known.weight
        best = best_order(known)
        if best != self.order and expected_ns(known, best) < BETTER * expected_ns(known, self.order):
            self.order = best
            self._told = [[0, 0] for _ in self._names]
        self._foretold = shares(known, self.order)


# Passes what a Batch has learned of utilities from its tasks' reports to its decision, and from there to the next Batch.


def with_orders(program: Program, orders: Mapping[str, Mapping[str, Any]]) -> Program:
    """A stage that was compiled before, with the newest evidence."""
    nodes = tuple(
        replace(node, learned=orders.get(node.node, {})) if isinstance(node, UtilitiesNode) and node.free else node
        for node in program.nodes
    )
    return replace(program, nodes=nodes)


def learned(before: Mapping[str, Mapping[str, Any]], reports: Iterable[TaskReport]) -> dict[str, Mapping[str, Any]]:
    """Step of utilities → what its tasks have learned.

    Each has `names` in the order of the flow file and `ns`, the cost of a record in each; in free order also `order`, with which the next
    Batch begins, `keeps`, the share of all records that each keeps, and `known`, which only the next Batch uses.

    Args:
        before: What the previous Batch recorded; it is kept for a step without a report.
        reports: The reports of the tasks.
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
    # each task of the next Batch may spend its part of the time that these have saved
    saved_ns = min(max(0, sum(task["budget_ns"] for task in tasks)) / len(tasks), MANY * sum(costs))
    return {
        "names": names,
        "order": [names[test] for test in order],
        "ns": [round(cost, 1) if cost else None for cost in costs],
        "keeps": [None if each is None else round(each, 4) for each in keeps],
        "known": {"evidence": together.as_json(), "told": _recent(told), "budget_ns": round(saved_ns)},
    }


def _recent(told: list[list[int]]) -> list[list[int]]:
    """The counts; those with enough records start again from 0."""
    return [[0, 0] if asked >= TOLD_ROWS else [asked, kept] for asked, kept in told]
