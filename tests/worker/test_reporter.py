"""A worker that tells the master how its tier goes, over real HTTP, while masters come and go."""

from __future__ import annotations

import logging
import threading
import time
from contextlib import ExitStack, contextmanager
from types import SimpleNamespace
from typing import TYPE_CHECKING

import pytest
import structlog
import uvicorn
from fastapi import FastAPI
from fastapi.responses import JSONResponse

from harness.manual_clock import ManualClock
from scribengin.api.progress import router
from scribengin.control.alerting import AlertDispatcher
from scribengin.control.worker_reports import WorkerWatch
from scribengin.core.errors import Refused, ScribenginError
from scribengin.local.contract import QueryView, RunView
from scribengin.registry.lease import RegistryLease
from scribengin.registry.memory import MemoryStore
from scribengin.registry.tree import LEASE
from scribengin.watching.progress import ProgressBuilder
from scribengin.watching.telemetry import Board
from scribengin.worker import progress
from scribengin.worker.progress import Reporter

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from scribengin.registry.contract import Registry

LOG = structlog.wrap_logger(None, wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))


class Master:
    """A master's pages, on a port of its own."""

    def __init__(self, registry: Registry) -> None:
        self.board = Board()
        self.leads = True
        self.watch = WorkerWatch(registry, self.board, AlertDispatcher(registry, self.board, LOG), lambda: self.leads)
        app = FastAPI()
        app.include_router(router(self.watch))
        app.add_exception_handler(ScribenginError, lambda _request, error: JSONResponse({"code": error.code}, status_code=409))  # type: ignore[attr-defined]
        self._server = uvicorn.Server(uvicorn.Config(app, port=0, log_config=None, lifespan="off"))
        self._thread = threading.Thread(target=self._server.run, daemon=True)
        self._thread.start()
        until(lambda: self._server.started, "the server")
        self.url = f"http://127.0.0.1:{self._server.servers[0].sockets[0].getsockname()[1]}"

    def heard(self) -> int:
        """Batches, as its board knows."""
        tiers = self.board.tiers("tweets")
        return tiers["main"].progress.queries[0].batches if tiers else -1

    def close(self) -> None:
        self._server.should_exit = True
        self._thread.join(60)


def until(what: Callable[[], object], said: str, wait_s: float = 120) -> None:
    deadline = time.monotonic() + wait_s
    while not what():
        assert time.monotonic() < deadline, f"never came: {said}"
        time.sleep(0.02)


def view(batches: int) -> RunView:
    return RunView("tweets", "running", 1.0, (QueryView("kept", "running", batches=batches),))


@contextmanager
def plane() -> Iterator[tuple[ExitStack, Registry, RegistryLease]]:
    registry = MemoryStore().client()
    with ExitStack() as stack:
        lease = RegistryLease(registry, LEASE("tweets", "main").path, {"run": 1})
        stack.callback(lease.close)
        assert lease.acquire()
        yield stack, registry, lease


def reporter(leader: Callable[[], str], claim: str) -> Reporter:
    return Reporter(ProgressBuilder("tweets", "main", 1, 1), leader, lambda: claim)


def test_the_newest_is_told_and_after_a_take_over_the_next_master_hears_it() -> None:
    with plane() as (stack, registry, lease):
        first = Master(registry)
        leading, may, asked = [first.url], threading.Event(), threading.Event()

        def leader() -> str:
            asked.set()
            may.wait(120)
            return leading[0]

        may.set()
        tells = reporter(leader, lease.claim)
        stack.callback(tells.close)
        tells.show(view(1))
        until(lambda: first.heard() == 1, "the first")
        first.close()
        may.clear()
        asked.clear()
        begun = time.monotonic()
        tells.show(view(2))
        assert asked.wait(120), "the next master is looked for"
        for batches in range(3, 50):
            tells.show(view(batches))
        assert time.monotonic() - begun < 100, "nobody is kept waiting while the answer to that hangs"
        second = Master(registry)
        stack.callback(second.close)
        leading[0] = second.url
        may.set()
        until(lambda: second.heard() == 49, "the newest, at the next master")


def test_a_standby_sends_no_worker_away_for_good_and_takes_nothing_itself() -> None:
    with plane() as (stack, registry, lease):
        standby = Master(registry)
        stack.callback(standby.close)
        standby.leads = False
        asked: list[str] = []
        tells = reporter(lambda: asked.append("") or standby.url, lease.claim)  # type: ignore[func-returns-value]
        stack.callback(tells.close)
        tells.show(view(1))
        until(lambda: len(asked) == 2, "the second try, for the first was in vain")
        assert standby.heard() == -1
        standby.leads = True
        until(lambda: standby.heard() == 1, "it leads now")


def test_a_worker_keeps_the_pace_that_the_master_asks_for() -> None:
    with plane() as (stack, registry, lease):
        master = Master(registry)
        stack.callback(master.close)
        master.board.pace_s = lambda: 3.0  # type: ignore[method-assign]
        tells = reporter(lambda: master.url, lease.claim)
        stack.callback(tells.close)
        heard, begun = set[int](), time.monotonic()
        for batches in range(1, 80):
            tells.show(view(batches))
            heard.add(master.heard())
            time.sleep(0.05)
        seconds = time.monotonic() - begun
        assert len(heard - {-1}) <= seconds / 3.0 + 2


def test_who_does_not_hold_the_lease_is_not_heard() -> None:
    with plane() as (stack, registry, lease):
        master = Master(registry)
        stack.callback(master.close)
        data = progress.encode(ProgressBuilder("tweets", "main", 1, 1).build(view(1), 0.0))
        for claim in ("", "somebody"):
            with pytest.raises(Refused, match="does not hold the lease"):
                master.watch.take("tweets", "main", claim, data)
        assert master.heard() == -1
        master.watch.take("tweets", "main", lease.claim, data)
        assert master.heard() == 1


def test_what_is_not_new_is_told_every_ten_seconds_only(monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[float] = []
    clock = ManualClock()
    monkeypatch.setattr(progress, "EVERY_S", 0.01)
    monkeypatch.setattr(progress, "time", SimpleNamespace(monotonic=clock))
    monkeypatch.setattr(Reporter, "_sent", lambda _self, _http, _address, what: told.append(clock()) or True)
    looks: list[float] = []
    look = Reporter._progress
    monkeypatch.setattr(Reporter, "_progress", lambda self: looks.append(clock()) or look(self))
    tells = reporter(lambda: "http://127.0.0.1:1", "")
    begun = clock()
    for second in range(25):
        seen = len(looks)

        def looks_on(seen: int = seen) -> bool:
            tells.show(view(1))
            return len(looks) >= seen + 3

        until(looks_on, f"its looks of second {second}")
        clock.advance(seconds=1.0)
    tells.close()
    assert [at - begun for at in told[:3]] == [0.0, 10.0, 20.0]
    assert len(told) == 4, "and the last, as it ends"
