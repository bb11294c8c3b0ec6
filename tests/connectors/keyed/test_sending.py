"""How rows go to a keyed store: as many at once as it answers well, and again what it refuses for now. A test turns the clock."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from itertools import pairwise
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from harness.manual_clock import ManualClock
from scribengin.connectors.keyed import sink
from scribengin.connectors.keyed.contract import KeyedRows, WriteAnswer
from scribengin.connectors.keyed.sink import FIRST_ROWS, PATIENCE_S, KeyedSender, RequestPace
from scribengin.core.errors import Unreachable

if TYPE_CHECKING:
    from collections.abc import Callable

BEGIN = 1_750_000_000.0
QUICK, SLOW, FAIR = 0.1, 5.0, 1.0
"""seconds that a request takes"""


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> ManualClock:
    own = ManualClock(BEGIN)
    monkeypatch.setattr(sink, "time", SimpleNamespace(monotonic=own, sleep=lambda seconds: own.advance(seconds=seconds)))
    return own


@dataclass
class Store:
    """Answers as `says` does to (request, its rows), after `takes` seconds. What it has taken: `versions`, each as often as it came."""

    clock: ManualClock
    says: Callable[[int, KeyedRows], WriteAnswer] = lambda request, rows: WriteAnswer()
    takes: Callable[[int], float] = lambda request: QUICK
    requests: list[tuple[float, list[int]]] = field(default_factory=list)
    """(seconds since the beginning, versions) of each"""
    versions: list[int] = field(default_factory=list)

    def __str__(self) -> str:
        return "index tweets"

    def send(self, rows: KeyedRows) -> WriteAnswer:
        number = len(self.requests)
        self.requests.append((round(self.clock() - BEGIN, 3), list(range(rows.version, rows.version + len(rows)))))
        self.clock.advance(seconds=self.takes(number))
        answer = self.says(number, rows)
        if not answer.too_large:
            left = {*answer.again, *(index for index, _, _ in answer.refused)}
            self.versions += [rows.version + index for index in range(len(rows)) if index not in left]
        return answer

    @property
    def sizes(self) -> list[int]:
        return [len(versions) for _, versions in self.requests]


def rows_of(count: int, *, size: int = 10) -> KeyedRows:
    """Their versions begin with 0."""
    ids = [f"r{number}" for number in range(count)]
    return KeyedRows(ids, ids, 0, pa.RecordBatch.from_pydict({"doc": pa.array([b"x" * size] * count, pa.binary())}))


def sent(store: Any, rows: KeyedRows, *, pace: RequestPace | None = None, connections: int = 1) -> list[tuple[str, str]]:
    """(id, reason) of what was refused."""
    refused: list[tuple[str, str]] = []

    def refuse(rows: KeyedRows, index: int, reason: str, message: str) -> None:
        assert message
        refused.append((rows.ids[index], reason))

    def strange(version: int) -> None:
        raise LookupError(version)

    KeyedSender(store, pace or RequestPace(), connections, refuse, lambda: None, 1 << 40, strange).send([rows])
    return refused


def test_requests_grow_while_they_are_answered_quickly_and_the_next_batch_begins_where_this_one_came_to(clock: ManualClock) -> None:
    store, pace = Store(clock), RequestPace()
    sent(store, rows_of(70_000), pace=pace)
    assert store.sizes == [1_000, 2_000, 4_000, 8_000, 16_000, 20_000, 19_000]
    assert store.versions == [*range(70_000)]
    sent(store, rows_of(30_000), pace=pace)
    assert store.sizes[-2:] == [20_000, 10_000]


def test_requests_of_large_rows_grow_to_some_megabytes(clock: ManualClock) -> None:
    store = Store(clock)
    sent(store, rows_of(9_000, size=4_092))
    assert store.sizes[:3] == [1_000, 2_000, 2_048]


def test_a_short_request_says_nothing_of_how_large_one_may_be(clock: ManualClock) -> None:
    pace = RequestPace()
    sent(Store(clock), rows_of(FIRST_ROWS - 1), pace=pace)
    assert pace.rows == FIRST_ROWS


def test_slow_answers_halve_requests_down_to_a_few_rows_and_fair_ones_leave_them(clock: ManualClock) -> None:
    store = Store(clock, takes=lambda request: SLOW if request < 8 else FAIR)
    sent(store, rows_of(2_000))
    assert store.sizes == [1_000, 500, 250, 125, 62, 31, 15, 10, 7]
    assert store.versions == [*range(2_000)]


def test_a_request_that_is_too_large_is_halved_and_a_row_that_is_too_large_alone_is_refused(clock: ManualClock) -> None:
    store = Store(clock, says=lambda _, rows: WriteAnswer(too_large="r600" in rows.ids or len(rows) > 300))
    assert sent(store, rows_of(1_000)) == [("r600", "too-large")]
    assert store.sizes[:3] == [1_000, 500, 250]
    assert sorted(store.versions) == [version for version in range(1_000) if version != 600]


def test_a_late_answer_to_a_request_of_before_does_not_make_them_larger() -> None:
    pace = RequestPace()
    for size in (1_000, 500, 250, 1_000):
        pace.shrink(size)
    assert pace.rows == 125
    pace.heed(1_000, SLOW, rows_of(1_000))
    assert pace.rows == 125


def test_only_the_rows_that_are_refused_for_now_go_again_and_each_time_later(clock: ManualClock) -> None:
    left = {3: 7, 4: 2, 8: 1}
    """so often it is refused"""

    def says(_: int, rows: KeyedRows) -> WriteAnswer:
        again = [index for index, version in enumerate(range(rows.version, rows.version + len(rows))) if left.get(version)]
        for index in again:
            left[rows.version + index] -= 1
        return WriteAnswer([(5, "refused", "no number")] if len(rows) == 10 else (), again)

    store = Store(clock, says, takes=lambda _: 0.0)
    assert sent(store, rows_of(10)) == [("r5", "refused")]
    assert [each for each in store.requests if 8 in each[1]] == [(0.0, [*range(10)]), (0.1, [8])]
    waits = [at for at, versions in store.requests if 3 in versions]
    assert [round(later - at, 3) for at, later in pairwise(waits)] == [0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 6.4]
    assert sorted(store.versions) == [0, 1, 2, 3, 4, 6, 7, 8, 9], "each once, and the one that is refused for good not at all"


def test_a_store_that_takes_nothing_for_a_minute_ends_it_with_what_to_do(clock: ManualClock) -> None:
    store = Store(clock, says=lambda _, rows: WriteAnswer(again=range(len(rows)), why="the queue is full"), takes=lambda _: 0.0)
    with pytest.raises(Unreachable, match=r"index tweets has accepted no rows for 6[0-9] s: the queue is full") as told:
        sent(store, rows_of(12))
    assert told.value.code == "store-overloaded"
    assert told.value.remedy == "check whether the store is overloaded or full; a running flow retries automatically"
    assert PATIENCE_S < clock() - BEGIN < PATIENCE_S + 11
    first, *_, last = store.sizes
    assert first == 12
    assert last == 1, "less and less at once"
    times = [at for at, versions in store.requests if versions[0] == 0]
    assert max(later - at for at, later in pairwise(times)) <= 10.001


def test_a_store_that_takes_a_row_now_and_then_is_not_given_up(clock: ManualClock) -> None:
    """One of each request, which takes half a minute."""
    store = Store(clock, says=lambda _, rows: WriteAnswer(again=range(1, len(rows))), takes=lambda _: 30.0)
    sent(store, rows_of(9))
    assert sorted(store.versions) == [*range(9)]
    assert clock() - BEGIN > 4 * PATIENCE_S


def test_what_a_store_took_before_it_went_away_is_not_asked_for_again_in_this_try(clock: ManualClock) -> None:
    def says(request: int, rows: KeyedRows) -> WriteAnswer:
        if request == 2:
            raise Unreachable("away")
        return WriteAnswer()

    store = Store(clock, says)
    with pytest.raises(Unreachable, match="away"):
        sent(store, rows_of(9_000))
    assert store.sizes == [1_000, 2_000, 4_000]


def test_a_version_that_none_of_ours_has_yet_is_told_at_once(clock: ManualClock) -> None:
    with pytest.raises(LookupError, match=str((1 << 40) + 1)):
        sent(Store(clock, says=lambda *_: WriteAnswer(above=(1 << 40) + 1)), rows_of(3))
    sent(Store(clock, says=lambda *_: WriteAnswer(above=1 << 40)), rows_of(3))


def test_somebody_else_who_has_come_ends_it_between_two_requests(clock: ManualClock) -> None:
    store = Store(clock)

    def between() -> None:
        if store.requests:
            raise LookupError

    with pytest.raises(LookupError):
        KeyedSender(store, RequestPace(10), 1, lambda *_: None, between, 1 << 40, lambda _: None).send([rows_of(1_000)])  # type: ignore[arg-type]
    assert len(store.requests) <= 2


def test_so_many_requests_are_under_way_at_once_and_no_more() -> None:
    together, most, now, lock = threading.Barrier(3), 0, 0, threading.Lock()

    class Slow:
        def send(self, rows: KeyedRows) -> WriteAnswer:
            nonlocal most, now
            with lock:
                now += 1
                most = max(most, now)
            together.wait(timeout=120)
            with lock:
                now -= 1
            return WriteAnswer()

    sent(Slow(), rows_of(90), pace=RequestPace(10), connections=3)
    assert most == 3
