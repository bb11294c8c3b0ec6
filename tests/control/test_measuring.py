"""The thread that has it measured what waits: who is measured, how often, and what comes of a failure."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, cast

from scribengin.connectors.contract import Backlog
from scribengin.control.backlog_measurement import Measuring
from scribengin.control.worker_reports import WorkerWatch
from scribengin.core.errors import Refused
from scribengin.local.contract import EndView, QueryView
from scribengin.watching.progress import TierProgress
from scribengin.watching.telemetry import Board
from tests.control.hands import LOG, until

if TYPE_CHECKING:
    from collections.abc import Mapping

    from scribengin.control.alerting import AlertDispatcher
    from scribengin.registry.contract import Registry


class Places:
    """What is measured: `rows` of each flow; None: it cannot be."""

    def __init__(self) -> None:
        self.rows: dict[str, int | None] = {}
        self.asked: list[str] = []
        self.let = threading.Event()
        self.let.set()

    def __call__(self, flow: str) -> tuple[Mapping[str, Backlog], str]:
        self.let.wait()
        self.asked.append(flow)
        rows = self.rows[flow]
        if rows is None:
            raise Refused("its host is away")
        return {"in": Backlog(rows=rows)}, ""


def test_flows_that_are_wanted_are_measured_and_one_that_cannot_be_holds_no_other_up() -> None:
    places, board = Places(), Board()
    places.rows = {"gone": None, "b": 5}
    measuring = Measuring(places, board, LOG)
    measuring.want(["gone", "b"])
    until(lambda: "in" in board.waits("b") and "gone" in places.asked, "both were asked")
    assert board.waits("b")["in"][1].rows == 5
    assert board.waits("gone") == {}
    measuring.close()


def test_what_is_not_wanted_any_more_and_what_a_standby_would_measure_is_not() -> None:
    places, board, leads, asked = Places(), Board(), threading.Event(), threading.Event()
    places.rows = {"a": 1, "b": 2}

    def is_leading() -> bool:
        leading = leads.is_set()
        asked.set()
        return leading

    measuring = Measuring(places, board, LOG, is_leading)
    measuring.want(["a"])
    asked.wait()
    leads.set()
    measuring.want(["b"])
    until(lambda: "in" in board.waits("b"), "b is measured")
    assert "a" not in places.asked
    measuring.close()


def test_a_bug_in_a_measurement_ends_nothing() -> None:
    places, board = Places(), Board()
    places.rows = {"b": 2}
    measuring = Measuring(places, board, LOG)
    measuring.want(["unknown", "b"])
    until(lambda: "in" in board.waits("b"), "b is measured")
    assert places.asked == ["unknown", "b"]
    measuring.close()


def test_closing_waits_for_nothing_and_measures_nothing_more() -> None:
    places, board = Places(), Board()
    places.rows = {"b": 2}
    places.let.clear()
    measuring = Measuring(places, board, LOG)
    measuring.want(["b"])
    measuring.close()
    places.let.set()
    measuring.want(["b"])
    assert places.asked in ([], ["b"])


def test_of_a_source_that_its_worker_has_not_looked_at_a_watch_knows_what_was_measured_or_nothing() -> None:
    board = Board()
    watch = WorkerWatch(cast("Registry", None), board, cast("AlertDispatcher", None))
    query = QueryView("kept", "running", sources={"in": EndView(looked_s=0.0)})
    board.take(TierProgress(flow="b", tier="main", run=1, version=1, at=board.now(), phase="running", queries=(query,)))
    assert watch.waits("b") == {}
    board.measure("b", {"in": Backlog(rows=5)}, board.now())
    assert watch.waits("b")["in"].rows == 5
