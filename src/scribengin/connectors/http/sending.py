"""Sends the requests of a Batch concurrently, repeats those that the server does not accept yet, and splits requests that are refused as a
whole into halves."""

from __future__ import annotations

import os
import random
import time
from collections import deque
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import msgspec

from scribengin.core import faults
from scribengin.core.errors import Unreachable
from scribengin.core.storage import explained, make_folder, read_or_none

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from pathlib import Path
    from types import TracebackType

    from scribengin.connectors.http.endpoint import Endpoint, RequestOutcome
    from scribengin.connectors.http.staged import RowsRequest


# The answered requests of a decided Batch are recorded next to its staged rows as the answers arrive, so that a later attempt sends only
# the others.
#
# Each answer is one line, appended in one write and not synced: after a power failure some requests are sent again, with the same keys.


NAME = "answered"


class AnsweredRows(msgspec.Struct, frozen=True, array_like=True):
    """The rows `first` to `first + rows` (exclusive) of a task output. With a `reason`, the server never accepts them."""

    unit: int
    first: int
    rows: int
    reason: str = ""
    message: str = ""


class RequestProgress:
    """The recorded answers of one Batch. A context manager that closes its file."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / NAME
        self._file: int | None = None
        found = (read_or_none(self._path) or b"").splitlines()
        self._answers: dict[tuple[int, int, int], AnsweredRows] = {}
        self._split: set[tuple[int, int]] = set()
        """(task output, first row) of each answered request"""
        for line in found:
            try:
                self._remember(msgspec.json.decode(line, type=AnsweredRows))
            except msgspec.DecodeError:
                continue  # the line was truncated: the request is sent again
        self.resumed = len(self._answers)
        """number of requests that were answered by an earlier attempt"""

    def __enter__(self) -> RequestProgress:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if self._file is not None:
            os.close(self._file)

    def of(self, request: RowsRequest) -> AnsweredRows | None:
        """The recorded answer to exactly this request; None if there is none."""
        return self._answers.get((request.unit, request.first, len(request)))

    def was_halved(self, request: RowsRequest) -> bool:
        """True if a request that is part of this one was answered, so that this one was split."""
        return any((request.unit, row) in self._split for row in range(request.first, request.first + len(request)))

    def note(self, request: RowsRequest, reason: str = "", message: str = "") -> None:
        """Record the answer to a request; `reason` and `message` are empty if it was accepted."""
        answer = AnsweredRows(request.unit, request.first, len(request), reason, message)
        self._remember(answer)
        with explained(f"{self._path} cannot be written"):
            if self._file is None:
                make_folder(self._path.parent)
                self._file = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
            os.write(self._file, msgspec.json.encode(answer) + b"\n")

    def _remember(self, answer: AnsweredRows) -> None:
        self._answers[answer.unit, answer.first, answer.rows] = answer
        self._split.add((answer.unit, answer.first))


_WAIT_S, _MOST_WAIT_S = 0.2, 15.0
_BUSY_TRIES = 5
"""maximum number of retries while another request with the same key seems to be in progress; then the request is refused"""


@dataclass(slots=True)
class Rest:
    """The time (monotonic) until which the server asked to wait; kept across Batches and attempts."""

    until: float = 0.0


@dataclass(slots=True)
class _Waiting:
    """A request to send, not before the time `at` (monotonic)."""

    request: RowsRequest
    at: float = 0.0
    tries: int = 0


@dataclass(slots=True)
class HttpSender:
    """Sends the requests of one Batch. `refuse(request, reason, message)` is called, in the caller's thread, for each row that the server
    never accepts."""

    endpoint: Endpoint
    progress: RequestProgress
    rest: Rest
    connections: int
    patience_s: float
    key: Callable[[RowsRequest], str]
    refuse: Callable[[RowsRequest, str, str], None]
    between: Callable[[], None]
    """called regularly; raises if this process may not send any more"""
    _ready: deque[_Waiting] = field(default_factory=deque)
    _flying: dict[Future[RequestOutcome], _Waiting] = field(default_factory=dict)
    _moved: float = 0.0

    def send(self, requests: Iterable[RowsRequest]) -> None:
        """Send all requests that were not answered before; returns when each is accepted or refused. Raises Unreachable if none succeeds
        for `patience_s` seconds."""
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
        """Queue a request, or the parts of it that were not answered before."""
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
        """Start as many requests as may be in progress. With only one connection, no request overtakes a waiting one."""
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
                f'sink "{self.endpoint.node}": {outcome.message} (no request succeeded for {now - self._moved:.0f} s)',
                remedy="check that the server is up and healthy; a running flow retries automatically",
                code="http-away",
                node=self.endpoint.node,
            )
        most = min(_MOST_WAIT_S, _WAIT_S * 2**sent.tries)
        again = _Waiting(sent.request, now + most * random.uniform(0.5, 1.0), sent.tries + 1)
        self._ready.appendleft(again) if self.connections == 1 else self._ready.append(again)

    def _spare_the_server(self, message: str = "") -> None:
        """Raise Unreachable if the server asked to wait longer than `patience_s`: the wait is then left to the restart."""
        left = self.rest.until - time.monotonic()
        if left > self.patience_s:
            raise Unreachable(
                f'sink "{self.endpoint.node}": {message or self.endpoint}; the server asked to wait for another {left:.0f} s',
                remedy="a running flow retries automatically after that time",
                code="http-away",
                node=self.endpoint.node,
            )

    def _end(self) -> None:
        """Wait for the answers to requests in progress, so that accepted ones are not sent again."""
        done, _ = wait(self._flying)
        for future in done:
            if future.exception() is None and future.result().kind == "taken":
                self.progress.note(self._flying[future].request)
