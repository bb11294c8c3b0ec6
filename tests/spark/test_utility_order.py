"""The order that utilities find: near the best one, steady, and after a change of the data soon another. The clock is counted, not read."""

from __future__ import annotations

from itertools import permutations
from random import Random
from typing import TYPE_CHECKING, Any

import pytest

from scribengin.core.types import parse_schema
from scribengin.spark.chunk import Chunk, UnknownOrigin
from scribengin.spark.step_ordering import Chooser, Evidence, best_order, expected_ns, learned
from scribengin.spark.task_report import TaskReport
from scribengin.spark.utilities import Free, Utility
from scribengin.spark.watchdog import Watchpoint
from scribengin.state.contract import Counts

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    Row = dict[str, Any]

SCHEMA = parse_schema("kept STRING")
NAMES = ["slow", "middle", "quick"]


class Clock:
    """Nanoseconds that only tests spend."""

    def __init__(self) -> None:
        self.ns = 0

    def __call__(self) -> int:
        return self.ns


class Costly:
    """Keeps a record whose `kept` holds its letter; `cost_ns` may change."""

    def __init__(self, clock: Clock, letter: str, cost_ns: int) -> None:
        self.clock, self.letter, self.cost_ns = clock, letter, cost_ns

    def __call__(self, row: Mapping[str, Any]) -> bool:
        self.clock.ns += self.cost_ns
        return self.letter in row["kept"]


class Stream:
    """Batches of blocks, each Batch one task; what is learned goes from one to the next as receipts and decisions carry it."""

    def __init__(self, costs: Sequence[int], *, seed: int = 1) -> None:
        self.clock = Clock()
        self.functions = [Costly(self.clock, letter, cost) for letter, cost in zip("abc", costs, strict=False)]
        self.names = NAMES[: len(costs)]
        self.left: dict[str, Mapping[str, Any]] = {}
        self.chance = Random(seed)
        self.orders: list[tuple[int, ...]] = []

    @property
    def order(self) -> list[str]:
        """By which the next Batch begins."""
        return list(self.left["u"]["order"])

    def batch(self, rows: Sequence[Row], block: int = 1000) -> int:
        """What the Batch has cost."""
        begun = self.clock.ns
        utilities = [
            Utility(name, f"u.{name}", function, None, Counts(), Watchpoint(name, 30.0))
            for name, function in zip(self.names, self.functions, strict=True)
        ]
        chooser = Chooser.of(self.names, self.left.get("u", {}), clock_ns=self.clock)
        chooser._chance = self.chance
        step = Free(utilities, SCHEMA, None, {}, chooser=chooser, clock_ns=self.clock)  # type: ignore[arg-type]
        for first in range(0, len(rows), block):
            part = list(rows[first : first + block])
            list(step(Chunk(UnknownOrigin(), None, rows=part)))
            self.orders.append(step.chooser.order)
        self.left = learned(self.left, [TaskReport(orders={"u": step.figures()})])
        return self.clock.ns - begun

    def fixed(self, rows: Sequence[Row], order: Sequence[int]) -> int:
        """What the rows cost in that order and no other."""
        begun = self.clock.ns
        for row in rows:
            all(self.functions[index](row) for index in order)
        return self.clock.ns - begun


def drawn(count: int, keeps: Sequence[float], chance: Random, joint: Callable[[list[bool]], None] | None = None) -> list[Row]:
    rows = []
    for _ in range(count):
        verdicts = [chance.random() < share for share in keeps]
        if joint is not None:
            joint(verdicts)
        rows.append({"kept": "".join(letter for letter, kept in zip("abc", verdicts, strict=False) if kept)})
    return rows


def test_written_worst_first_they_cost_half_at_most_and_a_tenth_more_than_the_best_at_most() -> None:
    stream = Stream([900, 300, 60])
    rows = drawn(60_000, [0.9, 0.5, 0.1], Random(2))
    spent = stream.batch(rows)
    each = {order: stream.fixed(rows, order) for order in permutations(range(3))}
    assert spent <= 1.1 * min(each.values())
    assert 2 * spent <= each[0, 1, 2]
    assert stream.order == ["quick", "middle", "slow"]


def test_the_next_batch_begins_with_what_the_last_one_knew() -> None:
    stream = Stream([900, 300, 60])
    stream.batch(drawn(2_000, [0.9, 0.5, 0.1], Random(3)))
    stream.orders.clear()
    stream.batch(drawn(1_000, [0.9, 0.5, 0.1], Random(4)))
    assert stream.orders == [(2, 1, 0)]


def test_a_test_that_drops_what_another_has_dropped_already_comes_late() -> None:
    def same(verdicts: list[bool]) -> None:
        verdicts[1] = verdicts[0]

    stream = Stream([100, 200, 300])
    stream.batch(drawn(20_000, [0.3, 0.3, 0.6], Random(5), same))
    assert stream.order == ["slow", "quick", "middle"]  # each alone, the second would come before the third


@pytest.mark.parametrize(("rows", "block"), [(20_000, 1000), (1000, 1000), (60, 60), (12, 5)])
def test_a_change_of_the_data_is_followed_within_ten_batches(rows: int, block: int) -> None:
    stream, chance = Stream([300, 300, 300]), Random(6)
    for _ in range(max(3, 600 // rows)):
        stream.batch(drawn(rows, [0.9, 0.5, 0.1], chance), block)
    assert stream.order[0] == "quick"
    batches, later = 0, drawn(2000, [0.1, 0.5, 0.9], chance)
    while stream.fixed(later, [NAMES.index(name) for name in stream.order]) > 1.1 * stream.fixed(later, (0, 1, 2)):
        stream.batch(drawn(rows, [0.1, 0.5, 0.9], chance), block)
        batches += 1
        assert batches <= max(10, 1000 // rows), "not followed"


def test_a_test_that_becomes_dear_is_moved() -> None:
    stream, chance = Stream([100, 100, 100]), Random(7)
    for _ in range(3):
        stream.batch(drawn(20_000, [0.5, 0.5, 0.1], chance))
    assert stream.order[0] == "quick"
    stream.functions[2].cost_ns = 5_000
    for _ in range(10):
        stream.batch(drawn(20_000, [0.5, 0.5, 0.1], chance))
    assert stream.order[-1] == "quick"


def test_tests_that_are_alike_do_not_change_places_for_ever() -> None:
    stream = Stream([300, 300, 300])
    for _ in range(20):
        stream.batch(drawn(10_000, [0.5, 0.5, 0.5], Random(8)))
    changes = sum(one != other for one, other in zip(stream.orders, stream.orders[1:], strict=False))
    assert changes <= 6


def test_sampling_costs_a_twentieth_at_most_once_the_order_is_known() -> None:
    stream, chance = Stream([2000, 300, 10]), Random(9)
    stream.batch(drawn(10_000, [0.9, 0.5, 0.05], chance))
    rows = drawn(100_000, [0.9, 0.5, 0.05], chance)
    assert stream.batch(rows) <= 1.05 * stream.fixed(rows, (2, 1, 0))


def test_a_pass_that_was_held_up_once_changes_no_order() -> None:
    evidence = Evidence.nothing(2)
    evidence.noted([0b01] * 50 + [0b10] * 50)
    for _ in range(20):
        evidence.timed(0, 1000, 100_000.0)
        evidence.timed(1, 1000, 120_000.0)
    before = best_order(evidence)
    evidence.timed(0, 50, 50_000_000.0)
    assert best_order(evidence) == before == (0, 1)
    assert expected_ns(evidence, (0, 1)) < expected_ns(evidence, (1, 0))


def test_what_many_tests_have_taught_stays_small() -> None:
    names, chance, left = [f"t{index}" for index in range(16)], Random(3), dict[str, Any]()
    for _ in range(20):
        tasks = [Chooser.of(names, left.get("u", {}), clock_ns=lambda: 0) for _ in range(2)]
        for task in tasks:
            task._budget_ns = 1e9
            rows = task.sample(1700)
            task.sampled([[chance.random() < 0.5 for _ in rows] for _ in names], [100 * len(rows)] * 16, 0)
        left = dict(learned(left, [TaskReport(orders={"u": task.figures()}) for task in tasks]))
    masks = left["u"]["known"]["evidence"]["masks"]
    assert 256 <= len(masks) <= 1024
    assert min(masks.values()) > 0
