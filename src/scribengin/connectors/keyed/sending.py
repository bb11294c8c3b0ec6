"""Sends the rows of a Batch to the store: some requests concurrently, each of a size that the store answers quickly, with retries on
request."""

from __future__ import annotations

import time
from collections import deque
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from scribengin.core import faults
from scribengin.core.errors import Unreachable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from scribengin.connectors.keyed.contract import KeyedRows, KeyedStore, WriteAnswer

FIRST_ROWS = 1_000
_LEAST_ROWS, _MOST_ROWS = 10, 20_000
_SLOW_S, _FAST_S = 4.0, 0.5
"""a request that takes longer halves the size of the next, one that takes less doubles it"""
_MOST_BYTES = 8 << 20
_WAIT_S, _MOST_WAIT_S = 0.1, 10.0
PATIENCE_S = 60.0
"""how long a store may temporarily refuse everything; then the Query ends, and restarts automatically"""


@dataclass(slots=True)
class RequestPace:
    """The number of rows in a request; kept across Batches."""

    rows: int = FIRST_ROWS

    def heed(self, sent: int, seconds: float, rows: KeyedRows) -> None:
        """Called after a request with that many rows."""
        if seconds > _SLOW_S:
            self.rows = max(_LEAST_ROWS, min(self.rows, sent // 2))
        elif seconds < _FAST_S and sent >= self.rows:
            by_size = _MOST_BYTES * sent // max(1, rows.columns.nbytes)
            self.rows = max(_LEAST_ROWS, min(_MOST_ROWS, 2 * self.rows, by_size))

    def shrink(self, sent: int) -> None:
        """A request with that many rows was too large. One that was sent before the reduction does not increase the size again."""
        self.rows = max(1, min(self.rows, sent // 2))


@dataclass(slots=True)
class _Waiting:
    """Rows to be sent, not before `at`."""

    rows: KeyedRows
    at: float = 0.0
    wait_s: float = _WAIT_S


@dataclass(slots=True)
class KeyedSender:
    """For one Batch. `refuse(rows, index, reason, message)` is called for each row that the store never accepts, in the caller's thread."""

    store: KeyedStore
    pace: RequestPace
    connections: int
    refuse: Callable[[KeyedRows, int, str, str], None]
    between: Callable[[], None]
    """called now and then; raises if this process may not send any more"""
    most: int
    """no row of this flow has a version above"""
    strange: Callable[[int], None]
    """called with a stored version that is above; raises"""
    _ready: deque[_Waiting] = field(default_factory=deque)
    _flying: dict[Future[tuple[WriteAnswer, float]], _Waiting] = field(default_factory=dict)
    _moved: float = 0.0

    def send(self, rows: Iterable[KeyedRows]) -> None:
        """Send all rows; returns when each is accepted or refused. Raises Unreachable if the store accepts nothing for a minute."""
        pool = ThreadPoolExecutor(self.connections, "scribengin-send")
        self._moved = time.monotonic()
        try:
            for each in rows:
                self._ready.append(_Waiting(each))
                while len(self._ready) > 1:
                    self._step(pool)
            while self._ready or self._flying:
                self._step(pool)
        finally:
            # requests in progress do no harm: they are sent again unchanged
            pool.shutdown(wait=False, cancel_futures=True)

    def _start(self, pool: ThreadPoolExecutor) -> bool:
        """Send the next waiting part; False if nothing may be sent yet."""
        now = time.monotonic()
        for index, waiting in enumerate(self._ready):
            if waiting.at > now:
                continue
            del self._ready[index]
            first = waiting.rows.part(0, self.pace.rows)
            if len(waiting.rows) > len(first):
                rest = waiting.rows.part(len(first), len(waiting.rows) - len(first))
                self._ready.insert(index, _Waiting(rest, waiting.at, waiting.wait_s))
            self._flying[pool.submit(self._timed, first)] = _Waiting(first, waiting.at, waiting.wait_s)
            return True
        return False

    def _timed(self, rows: KeyedRows) -> tuple[WriteAnswer, float]:
        begun = time.monotonic()
        return self.store.send(rows), time.monotonic() - begun

    def _step(self, pool: ThreadPoolExecutor) -> None:
        while len(self._flying) < self.connections and self._start(pool):
            pass
        self.between()
        if not self._flying:
            time.sleep(max(0.0, min(waiting.at for waiting in self._ready) - time.monotonic()))
            return
        done, _ = wait(self._flying, timeout=1.0, return_when=FIRST_COMPLETED)
        for future in done:
            self._take(self._flying.pop(future), *future.result())

    def _take(self, sent: _Waiting, answer: WriteAnswer, seconds: float) -> None:
        now = time.monotonic()
        if answer.too_large:
            if len(sent.rows) == 1:
                self.refuse(sent.rows, 0, "too-large", f"{self.store} rejected a request with only this row: it is too large")
                return
            self.pace.shrink(len(sent.rows))
            self._ready.appendleft(_Waiting(sent.rows))
            return
        if answer.above > self.most:
            self.strange(answer.above)
        for index, reason, message in answer.refused:
            self.refuse(sent.rows, index, reason, message)
        if len(answer.again) < len(sent.rows):
            self._moved = now
            faults.reached("offer.sent")
        if not answer.again:
            self.pace.heed(len(sent.rows), seconds, sent.rows)
            return
        if now - self._moved > PATIENCE_S:
            raise Unreachable(
                f"{self.store} has accepted no rows for {now - self._moved:.0f} s" + (f": {answer.why}" if answer.why else ""),
                remedy="check whether the store is overloaded or full; a running flow retries automatically",
                code="store-overloaded",
            )
        self.pace.shrink(len(sent.rows))
        for first, count in _runs(answer.again):
            self._ready.append(_Waiting(sent.rows.part(first, count), now + sent.wait_s, min(2 * sent.wait_s, _MOST_WAIT_S)))


def _runs(indexes: Iterable[int]) -> list[tuple[int, int]]:
    """(first, count) of runs of consecutive indexes.

    >>> _runs([0, 1, 2, 7, 9, 10])
    [(0, 3), (7, 1), (9, 2)]
    """
    runs: list[tuple[int, int]] = []
    for index in sorted(indexes):
        if runs and sum(runs[-1]) == index:
            runs[-1] = (runs[-1][0], runs[-1][1] + 1)
        else:
            runs.append((index, 1))
    return runs
