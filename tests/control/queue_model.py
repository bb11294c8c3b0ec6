"""A tier as a queue: rows arrive, Batches read them at a rate for each executor, and a change of its size costs a restart."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from random import Random
from typing import TYPE_CHECKING, Any

from scribengin.control.autoscale import RULES, LoadHistory, LoadSample, ScalingRules, add_sample, decide_size, tier_load

if TYPE_CHECKING:
    from collections.abc import Callable

    from scribengin.registry.records import AutoscaleSpec

    Load = Callable[[float], float]
    """seconds since the beginning → rows that arrive in a second"""


KINDS: dict[str, dict[str, Any]] = {
    "rows and ages": {},
    "ages only": {"counts_rows": False},
    "rows only": {"ages": False},
    "slow restarts": {"restart_s": 90.0},
    "short Batches and noise": {"overhead_s": 0.3, "noise": 0.3},
    "a third of the work is measured": {"measured": 0.35},
}
"""name → what differs from the model"""


@dataclass
class QueueModel:
    """One tier. `run` lets time pass; `changes` has each change of its size, `lags` the lag at each second."""

    load: Load
    settings: AutoscaleSpec
    executors: int = 1
    cores: int = 2
    rate: float = 1_000.0
    """rows that an executor reads in a second"""
    noise: float = 0.1
    """the standard deviation of that rate, and of the arriving rows, as a share of them"""
    overhead_s: float = 2.0
    """the time of a Batch that does not depend on its rows"""
    longest_s: float = 20.0
    """the most time that the rows of a Batch take"""
    restart_s: float = 30.0
    seed: int = 1
    rules: ScalingRules = RULES
    measured: float = 1.0
    """the share of the work of tasks that is measured"""
    counts_rows: bool = True
    ages: bool = True
    changes: list[tuple[float, int, str]] = field(default_factory=list)
    lags: list[float] = field(default_factory=list)
    sizes: list[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.random = Random(self.seed)
        self.first = self.executors
        self.now = 0.0
        self.queue: deque[list[float]] = deque()
        """(second of arrival, rows that wait)"""
        self.number = 1
        self.each = 0.0
        self.up_at = 0.0
        self.batch: tuple[float, float] | None = None
        """(begin, end) of the current Batch; its rows are taken from the queue at its end"""
        self.taken = 0.0
        self.history: LoadHistory = ()
        self._restart()

    def run(self, seconds: float) -> QueueModel:
        """Let time pass."""
        for _ in range(int(seconds)):
            self.now += 1.0
            self._arrive()
            if self.now >= self.up_at:
                self._work()
                self.history = add_sample(self.history, self._sample(), self.rules)
                self._decide()
            self.lags.append(self.lag_s)
            self.sizes.append(self.executors)
        return self

    @property
    def lag_s(self) -> float:
        return self.now - self.queue[0][0] if self.queue else 0.0

    def _restart(self) -> None:
        self.rows, self.busy_s, self.work_s, self.batch = 0.0, 0.0, 0.0, None

    def _noisy(self, value: float) -> float:
        return max(0.0, value * self.random.gauss(1.0, self.noise))

    def _arrive(self) -> None:
        if (rows := self._noisy(self.load(self.now))) >= 1:
            self.queue.append([self.now, rows])

    def _work(self) -> None:
        if self.batch is not None and self.now >= self.batch[1]:
            begin, end = self.batch
            left = self.taken
            while left > 0 and self.queue:
                part = min(left, self.queue[0][1])
                left -= part
                self.queue[0][1] -= part
                if self.queue[0][1] <= 0:
                    self.queue.popleft()
            self.rows += self.taken
            self.busy_s += end - begin
            self.work_s += self.taken / self.rate * self.cores * self.measured
            self.batch = None
        if self.batch is None and self.queue:
            speed = max(1.0, self._noisy(self.rate * self.executors))
            self.taken = min(sum(rows for _, rows in self.queue), speed * self.longest_s)
            self.batch = (self.now, self.now + self.overhead_s + self.taken / speed)

    def _sample(self) -> LoadSample:
        busy_s = self.busy_s + (self.now - self.batch[0] if self.batch is not None else 0.0)
        waiting = round(sum(rows for _, rows in self.queue)) if self.counts_rows else None
        return LoadSample(
            self.now,
            self.number,
            round(self.rows),
            {"q": busy_s},
            self.work_s,
            waiting,
            self.lag_s if self.ages or waiting is None else None,
        )

    def _decide(self) -> None:
        changed_s = self.now - self.changes[-1][0] if self.changes else None
        load = tier_load(self.history, self.now, self.settings.lag_s, self.rules)
        decision = decide_size(
            self.settings, self.executors, self.cores, load, changed_s=changed_s, each_rows_per_s=self.each, rules=self.rules
        )
        self.each = decision.each_rows_per_s or self.each
        if decision.executors != self.executors:
            self.changes.append((self.now, decision.executors, decision.why))
            self.executors = decision.executors
            self.number += 1
            self.up_at = self.now + self.restart_s
            self._restart()


def most_in_a_cool_down(model: QueueModel) -> int:
    """The most changes in any time of a cool-down."""
    times = [at for at, *_ in model.changes]
    return max((sum(begin <= at <= begin + RULES.cool_down_s for at in times) for begin in times), default=0)
