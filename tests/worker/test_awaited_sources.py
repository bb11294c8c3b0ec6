"""A source that another flow is to make: the worker waits for it, and does not fail meanwhile."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

import pytest

from scribengin.control.world import RunId
from scribengin.core.errors import SourceMissing, Unreachable
from scribengin.local.contract import RunSettings
from scribengin.worker import attempt
from scribengin.worker.attempt import TierAttempt
from scribengin.worker.status_page import Glance

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from scribengin.worker.service import AttemptStatus


RAN: Any = object()


class Waiting(TierAttempt):
    """Spark takes no time."""

    warmed = 0

    def _prepared(self) -> Any:
        return object()

    def _path(self) -> Any:
        return None

    def _warmed(self, prepared: Any) -> Any:
        self.warmed += 1


def waiting(feeders: Callable[[], Sequence[str]]) -> Waiting:
    none: Any = None
    id_ = RunId("b", "main", 1)
    return Waiting(none, id_, none, none, none, Glance(none, id_, none, 1), feeders=feeders)


def run(flow: Waiting, stop: threading.Event, tell: Callable[[AttemptStatus], None]) -> Any:
    return flow._run_with(RunSettings(stop=stop), stop, tell)


@pytest.fixture
def missing(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Whether the topic is missing, look by look; from then on it is there."""
    looks: list[bool] = []

    def look(_prepared: Any) -> None:
        if looks and looks.pop(0):
            raise SourceMissing("there is no topic t1", remedy="make it")

    monkeypatch.setattr(attempt, "check_sources", look)
    monkeypatch.setattr(attempt, "run_flow", lambda *_, **__: RAN)
    monkeypatch.setattr(attempt, "_AWAIT_S", 0.0)
    return looks


def test_it_is_waited_for_while_spark_starts(missing: list[bool]) -> None:
    missing += [True, True]
    told: list[AttemptStatus] = []
    flow = waiting(lambda: ("a",))
    assert run(flow, threading.Event(), told.append) is RAN
    assert [(each.state, each.cause) for each in told] == [
        ("recovering", "there is no topic t1; a, which feeds this flow, may still create it")
    ] * 2
    assert flow.warmed == 3, "and then it runs"


def test_nobody_waits_once_it_is_to_stop(missing: list[bool]) -> None:
    missing += [True] * 100
    stop = threading.Event()
    assert run(waiting(lambda: ("a",)), stop, lambda _: stop.set()) is None
    assert len(missing) == 99


def _away() -> Sequence[str]:
    raise Unreachable("the registry is away")


@pytest.mark.parametrize("feeders", [tuple, _away], ids=["nobody", "not known"])
def test_what_no_flow_makes_is_an_error_at_once(missing: list[bool], feeders: Callable[[], Sequence[str]]) -> None:
    missing.append(True)
    with pytest.raises(SourceMissing):
        run(waiting(feeders), threading.Event(), lambda _: pytest.fail("it waits"))
