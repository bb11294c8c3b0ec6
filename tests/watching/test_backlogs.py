"""What waits at sources: a worker's look, a measurement, and what feeders have written since."""

from __future__ import annotations

from dataclasses import replace

import pytest

from scribengin.connectors.contract import Backlog
from scribengin.local.contract import EndView, QueryView
from scribengin.watching.backlogs import OLD_S, Backlogs
from scribengin.watching.flow_figures import figures_of, flow_as_json
from scribengin.watching.progress import TierProgress
from scribengin.watching.telemetry import Board


class Clock:
    def __init__(self) -> None:
        self.s = 1_000.0

    def __call__(self) -> float:
        return self.s


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def board(clock: Clock) -> Board:
    board = Board(clock)
    board.meet({("c", "in"): (("b", "out"),)})
    feeder_says(board, 0, 0)
    return board


def reader_says(board: Board, state: str, **end: object) -> None:
    query = QueryView("kept", state, sources={"in": EndView(**end)}, lag_bytes=end.get("lag_bytes"), lag_s=end.get("lag_s"))  # type: ignore[arg-type]
    board.take(TierProgress(flow="c", tier="main", run=1, version=1, at=board.now(), phase="running", queries=(query,)))


def feeder_says(board: Board, rows: int, size: int, run: int = 1) -> None:
    query = QueryView("out", "running", sinks={"out": EndView(rows, bytes=size)})
    board.take(TierProgress(flow="b", tier="main", run=run, version=1, at=board.now(), phase="running", queries=(query,)))


def test_a_look_of_a_worker_that_is_well_is_taken_as_it_is(board: Board) -> None:
    feeder_says(board, 10, 100)
    reader_says(board, "running", lag_bytes=50, looked_s=1.0)
    feeder_says(board, 20, 200)
    assert board.tiers("c")["main"].progress.queries[0].sources["in"].lag_bytes == 50
    assert board.unreported_s("c", "in") == 1.0


@pytest.mark.parametrize("state", ["recovering", "failed", "starting", "paused", "stopped"])
def test_where_the_worker_does_not_look_what_feeders_write_waits_too(board: Board, clock: Clock, state: str) -> None:
    feeder_says(board, 10, 100)
    reader_says(board, "running", lag_rows=5, lag_bytes=50, lag_s=2.0, looked_s=0.0)
    reader_says(board, state, lag_rows=5, lag_bytes=50, lag_s=2.0, looked_s=0.0)
    clock.s += 3
    feeder_says(board, 1_010, 100_100)
    found = board.tiers("c")["main"].progress.queries[0]
    assert (found.sources["in"].lag_rows, found.sources["in"].lag_bytes, found.sources["in"].lag_s) == (1_005, 100_050, 5.0)
    assert (found.lag_rows, found.lag_bytes, found.lag_s) == (1_005, 100_050, 5.0)
    assert board.unreported_s("c", "in") is None
    figures = figures_of("c", board.tiers("c"), clock())
    assert figures is not None
    assert (figures.lag_bytes, figures.delay_s) == (100_050, 5.0)
    said = flow_as_json("c", board.tiers("c"), clock())
    assert said["tiers"][0]["queries"][0]["sources"]["in"]["lag"]["bytes"] == 100_050


def test_a_measurement_counts_from_when_it_was_made(board: Board, clock: Clock) -> None:
    feeder_says(board, 10, 100)
    reader_says(board, "recovering", lag_bytes=50, looked_s=0.0)
    clock.s += 5
    feeder_says(board, 20, 200)
    board.measure("c", {"in": Backlog(3, 7_000, None, 4.0)}, clock())
    clock.s += 1
    feeder_says(board, 30, 300)
    (end,) = board.tiers("c")["main"].progress.queries[0].sources.values()
    assert (end.lag_files, end.lag_bytes, end.lag_s) == (3, 7_100, 5.0)


def test_a_worker_that_looks_again_is_believed_again(board: Board, clock: Clock) -> None:
    reader_says(board, "recovering", lag_bytes=50, looked_s=0.0)
    board.measure("c", {"in": Backlog(bytes=7_000)}, clock())
    clock.s += 2
    reader_says(board, "running", lag_bytes=9, looked_s=0.0)
    assert board.tiers("c")["main"].progress.queries[0].sources["in"].lag_bytes == 9
    assert board.waits("c")["in"][1].bytes == 9


def test_a_worker_that_has_not_looked_yet_changes_nothing(board: Board, clock: Clock) -> None:
    board.measure("c", {"in": Backlog(bytes=7_000)}, clock())
    clock.s += 1
    feeder_says(board, 1, 10)
    reader_says(board, "running", looked_s=0.0)
    assert board.tiers("c")["main"].progress.queries[0].sources["in"].lag_bytes == 7_010
    assert board.waits("c")["in"][1].bytes == 7_010


def test_a_look_grows_old_in_a_long_batch_and_where_the_worker_is_silent(board: Board, clock: Clock) -> None:
    reader_says(board, "running", lag_bytes=50, looked_s=0.0)
    clock.s += OLD_S + 1
    feeder_says(board, 10, 1_000)
    assert board.tiers("c")["main"].progress.queries[0].sources["in"].lag_bytes == 1_050
    assert (board.unreported_s("c", "in") or 0) > OLD_S


def test_a_look_that_is_told_again_does_not_swallow_what_came_since(board: Board, clock: Clock) -> None:
    reader_says(board, "recovering", lag_bytes=50, looked_s=0.0)
    clock.s += 2
    feeder_says(board, 10, 1_000)
    reader_says(board, "recovering", lag_bytes=50, looked_s=2.0)
    assert board.tiers("c")["main"].progress.queries[0].sources["in"].lag_bytes == 1_050


def test_a_feeder_that_starts_again_counts_from_nothing(board: Board) -> None:
    feeder_says(board, 10, 1_000)
    reader_says(board, "recovering", lag_bytes=50, looked_s=0.0)
    feeder_says(board, 3, 30, run=2)
    assert board.waits("c")["in"][1].bytes == 80


def test_what_nobody_has_looked_at_is_not_known(board: Board, clock: Clock) -> None:
    feeder_says(board, 10, 1_000)
    assert board.waits("c") == {}
    board.measure("c", {"in": Backlog()}, clock())
    assert board.waits("c") == {}
    board.measure("c", {"in": Backlog(rows=0)}, clock())
    clock.s += 4
    feeder_says(board, 12, 1_200)
    assert board.waits("c") == {"in": (4.0, Backlog(rows=2, oldest_s=4.0))}


def test_a_feeder_that_joins_counts_from_then_on() -> None:
    backlogs = Backlogs()
    backlogs.wrote("b", "out", 10, 100)
    backlogs.note("c", "in", Backlog(rows=1), 5.0, worker=False)
    backlogs.meet({("c", "in"): (("b", "out"),)})
    assert backlogs.waits("c", 5.0)["in"][1] == Backlog(rows=1)
    backlogs.wrote("b", "out", 2, 20)
    assert backlogs.waits("c", 5.0)["in"][1] == replace(Backlog(), rows=3)


def test_of_feeders_that_join_and_leave_only_what_they_write_meanwhile_counts() -> None:
    backlogs = Backlogs()
    both, one = (("b", "out"), ("d", "out")), (("b", "out"),)
    backlogs.meet({("c", "in"): one})
    backlogs.note("c", "in", Backlog(rows=1), 5.0, worker=False)
    backlogs.wrote("d", "out", 1_000, 0)
    backlogs.wrote("b", "out", 2, 0)
    backlogs.meet({("c", "in"): both})
    assert backlogs.waits("c", 5.0)["in"][1].rows == 3
    backlogs.wrote("d", "out", 4, 0)
    assert backlogs.waits("c", 5.0)["in"][1].rows == 7
    backlogs.retain(["b", "c"])
    backlogs.meet({("c", "in"): one})
    backlogs.wrote("b", "out", 10, 0)
    assert backlogs.waits("c", 5.0)["in"][1].rows == 17


def test_flows_that_are_gone_are_forgotten(board: Board, clock: Clock) -> None:
    board.measure("c", {"in": Backlog(rows=1)}, clock())
    board.retain(["b"])
    assert board.waits("c") == {}
