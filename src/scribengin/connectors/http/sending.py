"""Requests of a Batch: some at once, again what the server asks to see again, in halves what it does not take as a whole."""

from __future__ import annotations

import random
import time
from collections import deque
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from scribengin.core import faults
from scribengin.core.errors import Unreachable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from scribengin.connectors.http.endpoint import Endpoint, RequestOutcome
    from scribengin.connectors.http.progress import RequestProgress
    from scribengin.connectors.http.staged import RowsRequest

_WAIT_S, _MOST_WAIT_S = 0.2, 15.0
_BUSY_TRIES = 5
"""so often a request is tried again that another with its key seems to be in the way of; then it is refused"""


@dataclass(slots=True)
class Rest:
    """Until when the server wants to be left alone (monotonic); kept from Batch to Batch and from try to try."""

    until: float = 0.0


@dataclass(slots=True)
class _Waiting:
    """A request that is to be sent, not before `at`."""

    request: RowsRequest
    at: float = 0.0
    tries: int = 0


@dataclass(slots=True)
class HttpSender:
    """One Batch. `refuse(request, reason, message)` is called for each row that the server never takes, in the caller's thread."""

    endpoint: Endpoint
    progress: RequestProgress
    rest: Rest
    connections: int
    patience_s: float
    key: Callable[[RowsRequest], str]
    refuse: Callable[[RowsRequest, str, str], None]
    between: Callable[[], None]
    """called now and then; raises where this is not ours to do any more"""
    _ready: deque[_Waiting] = field(default_factory=deque)
    _flying: dict[Future[RequestOutcome], _Waiting] = field(default_factory=dict)
    _moved: float = 0.0

    def send(self, requests: Iterable[RowsRequest]) -> None:
        """Send all that were not answered yet; returns when each is taken or refused. Raises Unreachable where for `patience_s` none came
        through."""
        self._moved = time.monotonic()
        self._spare_the_server()
        with ThreadPoolExecutor(self.connections, "scribengin-http") as pool:
            try:
                for request in requests:
                    self._add(request)
                    while len(self._ready) + len(self._flying) > self.connections:
                        self._step(pool)
                while self._ready or self._flying:
                    self._step(pool)
            except BaseException:
                self._end()
                raise

    def _add(self, request: RowsRequest) -> None:
        """What of a request was not answered before."""
        answer = self.progress.of(request)
        if answer is not None:
            if answer.reason:
                self.refuse(request, answer.reason, answer.message)
            return
        if len(request) > 1 and self.progress.was_halved(request):
            for half in request.halves():
                self._add(half)
            return
        self._ready.append(_Waiting(request))

    def _step(self, pool: ThreadPoolExecutor) -> None:
        now = time.monotonic()
        if now >= self.rest.until:
            self._start(pool, now)
        self.between()
        next_s = max(self.rest.until, min((waiting.at for waiting in self._ready), default=0.0)) - now
        if not self._flying:
            time.sleep(max(0.0, min(1.0, next_s)))
            return
        done, _ = wait(self._flying, timeout=min(1.0, next_s) if next_s > 0 else 1.0, return_when=FIRST_COMPLETED)
        for future in done:
            self._take(self._flying.pop(future), future.result())

    def _start(self, pool: ThreadPoolExecutor, now: float) -> None:
        """As many as may be under way; where that is one, no other goes before one that waits."""
        waits = list[_Waiting]()
        while self._ready and len(self._flying) < self.connections and not (waits and self.connections == 1):
            waiting = self._ready.popleft()
            if waiting.at > now:
                waits.append(waiting)
            else:
                self._flying[pool.submit(self.endpoint.send, waiting.request, self.key(waiting.request))] = waiting
        self._ready.extendleft(reversed(waits))

    def _take(self, sent: _Waiting, outcome: RequestOutcome) -> None:
        request = sent.request
        if outcome.kind == "taken":
            self._moved = time.monotonic()
            self.progress.note(request)
            faults.reached("offer.sent")
        elif outcome.kind == "again" or (outcome.kind == "busy" and sent.tries < _BUSY_TRIES):
            self._wait(sent, outcome)
        elif len(request) > 1:
            self._moved = time.monotonic()
            self._ready.extendleft(_Waiting(half, tries=sent.tries) for half in reversed(request.halves()))
        else:
            self._moved = time.monotonic()
            self.progress.note(request, outcome.reason, outcome.message)
            self.refuse(request, outcome.reason, outcome.message)

    def _wait(self, sent: _Waiting, outcome: RequestOutcome) -> None:
        now = time.monotonic()
        if outcome.after_s:
            self.rest.until = max(self.rest.until, now + outcome.after_s)
            self._spare_the_server(outcome.message)
        if now - self._moved >= self.patience_s:
            raise Unreachable(
                f'sink "{self.endpoint.node}": {outcome.message} (no request came through for {now - self._moved:.0f} s)',
                remedy="look whether the server is up and well; a flow that runs tries again by itself",
                code="http-away",
                node=self.endpoint.node,
            )
        most = min(_MOST_WAIT_S, _WAIT_S * 2**sent.tries)
        again = _Waiting(sent.request, now + most * random.uniform(0.5, 1.0), sent.tries + 1)
        self._ready.appendleft(again) if self.connections == 1 else self._ready.append(again)

    def _spare_the_server(self, message: str = "") -> None:
        """Wait elsewhere where the server asks for more than our patience."""
        left = self.rest.until - time.monotonic()
        if left > self.patience_s:
            raise Unreachable(
                f'sink "{self.endpoint.node}": {message or self.endpoint}; the server wants to be left alone for another {left:.0f} s',
                remedy="a flow that runs tries again by itself, and sends nothing before that",
                code="http-away",
                node=self.endpoint.node,
            )

    def _end(self) -> None:
        """Hear the answers to what is under way: what came through is not sent again."""
        done, _ = wait(self._flying)
        for future in done:
            if future.exception() is None and future.result().kind == "taken":
                self.progress.note(self._flying[future].request)
