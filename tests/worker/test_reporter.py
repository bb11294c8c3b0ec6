"""A worker that tells the master how its tier goes, over real HTTP, while masters come and go."""

from __future__ import annotations

import logging
import threading
import time
from contextlib import ExitStack, contextmanager
from itertools import pairwise
from typing import TYPE_CHECKING

import pytest
import structlog
import uvicorn
from fastapi import FastAPI
from fastapi.responses import JSONResponse

from scribengin.api.progress import router
from scribengin.control.bell import Bell
from scribengin.control.watch import Watch
from scribengin.core.errors import Refused, ScribenginError
from scribengin.local.contract import QueryView, RunView
from scribengin.registry.lease import Lease
from scribengin.registry.memory import MemoryStore
from scribengin.registry.tree import LEASE
from scribengin.watching.board import Board
from scribengin.watching.progress import Teller
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
        self.watch = Watch(registry, self.board, Bell(registry, self.board, LOG), lambda: self.leads)
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
        self._thread.join(10)


def until(what: Callable[[], object], said: str, wait_s: float = 40) -> None:
    deadline = time.monotonic() + wait_s
    while not what():
        assert time.monotonic() < deadline, f"never came: {said}"
        time.sleep(0.02)


def view(batches: int) -> RunView:
    return RunView("tweets", "running", 1.0, (QueryView("kept", "running", batches=batches),))


@contextmanager
def plane() -> Iterator[tuple[ExitStack, Registry, Lease]]:
    registry = MemoryStore().client()
    with ExitStack() as stack:
        lease = Lease(registry, LEASE("tweets", "main").path, {"run": 1})
        stack.callback(lease.close)
        assert lease.acquire()
        yield stack, registry, lease


def reporter(leader: Callable[[], str], claim: str) -> Reporter:
    return Reporter(Teller("tweets", "main", 1, 1), leader, lambda: claim)


def test_the_newest_is_told_and_after_a_take_over_the_next_master_hears_it() -> None:
    with plane() as (stack, registry, lease):
        first = Master(registry)
        leading = [first.url]
        tells = reporter(lambda: leading[0], lease.claim)
        stack.callback(tells.close)
        tells.show(view(1))
        until(lambda: first.heard() == 1, "the first")
        first.close()
        for batches in range(2, 50):
            begun = time.monotonic()
            tells.show(view(batches))
            assert time.monotonic() - begun < 0.1, "nobody is kept waiting"
        second = Master(registry)
        stack.callback(second.close)
        leading[0] = second.url
        until(lambda: second.heard() == 49, "the newest, at the next master")


def test_a_standby_sends_no_worker_away_for_good_and_takes_nothing_itself() -> None:
    with plane() as (stack, registry, lease):
        standby = Master(registry)
        stack.callback(standby.close)
        standby.leads = False
        tells = reporter(lambda: standby.url, lease.claim)
        stack.callback(tells.close)
        tells.show(view(1))
        time.sleep(1.5)  # that nothing comes can only be waited for
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
        data = progress.encode(Teller("tweets", "main", 1, 1).tell(view(1), 0.0))
        for claim in ("", "somebody"):
            with pytest.raises(Refused, match="not who holds the lease"):
                master.watch.take("tweets", "main", claim, data)
        assert master.heard() == -1
        master.watch.take("tweets", "main", lease.claim, data)
        assert master.heard() == 1


def test_what_is_not_new_is_told_every_ten_seconds_only(monkeypatch: pytest.MonkeyPatch) -> None:
    told = []
    monkeypatch.setattr(progress, "AT_LEAST_EVERY_S", 1.5)
    monkeypatch.setattr(progress, "EVERY_S", 0.1)
    monkeypatch.setattr(Reporter, "_sent", lambda _self, _http, _address, what: told.append((time.monotonic(), what)) or True)
    tells = reporter(lambda: "http://127.0.0.1:1", "")
    begun = time.monotonic()
    while time.monotonic() - begun < 4.0:
        tells.show(view(1))
        time.sleep(0.05)
    gaps = [after - before for (before, _), (after, _) in pairwise(told)]
    assert len(told) <= 4
    assert min(gaps) >= 1.4
    tells.close()
