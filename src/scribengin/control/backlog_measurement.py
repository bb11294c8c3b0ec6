"""Measures the backlog of sources of flows whose workers do not report it: one flow at a time, in a thread of the leading master."""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from scribengin.core.errors import ScribenginError

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping

    from structlog.typing import FilteringBoundLogger

    from scribengin.connectors.contract import Backlog
    from scribengin.watching.telemetry import Board


_FIRST_S, _LAST_S = 3.0, 30.0
"""seconds between two measurements of a flow: while the backlog changes, and if it has not changed for long"""
_SHARE = 10
"""the pause of a flow is at least this number times the duration of its measurement: each one costs a process"""


@dataclass(slots=True)
class _Turn:
    due: float = 0.0
    """by the monotonic clock"""
    pace_s: float = _FIRST_S
    last: Mapping[str, tuple[int | None, int | None, int | None]] | None = None
    told: str = ""


class Measuring:
    """Measures flows in turn. `want` is for the master's thread. `close` ends the thread after the current measurement."""

    def __init__(
        self,
        measure: Callable[[str], tuple[Mapping[str, Backlog], str]],
        board: Board,
        log: FilteringBoundLogger,
        leads: Callable[[], bool] = lambda: True,
    ) -> None:
        """Create it without a thread; `want` starts one.

        Args:
            measure: flow → the backlog of each of its sources that can be measured, and a text for people why others cannot. Raises a
                ScribenginError if none can be measured.
            board: where the results are stored.
            log: where a failure is logged.
            leads: returns True if this master leads; a standby measures nothing.
        """
        self._measure = measure
        self._leads = leads
        self._board = board
        self._log = log
        self._turns: dict[str, _Turn] = {}
        self._changed = threading.Condition()
        self._closed = False
        self._thread: threading.Thread | None = None

    def want(self, flows: Collection[str]) -> None:
        """Set the flows that are measured periodically."""
        with self._changed:
            if self._closed or self._turns.keys() == set(flows):
                return
            self._turns = {flow: self._turns.get(flow, _Turn()) for flow in flows}
            if self._thread is None and flows:
                self._thread = threading.Thread(target=self._run, name="measuring", daemon=True)
                self._thread.start()
            self._changed.notify()

    def close(self) -> None:
        """Stop measuring."""
        with self._changed:
            self._closed, self._turns = True, {}
            self._changed.notify()

    def _run(self) -> None:
        while True:
            with self._changed:
                flow = self._next()
                if flow is None:
                    return
                turn = self._turns[flow]
            began, at = time.monotonic(), self._board.now()
            why = ""
            try:
                found, why = self._measure(flow)
            except ScribenginError as error:
                found, why = {}, error.message
            except Exception:  # a bug: it is logged, and the other flows are still measured
                self._log.exception("measuring", flow=flow)
                found = {}
            self._board.measure(flow, found, at)
            if why and why != turn.told:
                self._log.warning("the backlog of a flow cannot be measured", flow=flow, why=why)
            turn.told = why
            amounts = {source: (waits.rows, waits.files, waits.bytes) for source, waits in found.items()}
            turn.pace_s = _FIRST_S if found and amounts != turn.last else min(_LAST_S, turn.pace_s * 2)
            turn.last = amounts
            turn.due = time.monotonic() + max(turn.pace_s, _SHARE * (time.monotonic() - began))

    def _next(self) -> str | None:
        """The flow that is due; waits until there is one. None after `close`."""
        while not self._closed:
            if not self._leads():
                self._turns = {}
            now = time.monotonic()
            flow = min(self._turns, key=lambda name: self._turns[name].due, default=None)
            if flow is not None and self._turns[flow].due <= now:
                return flow
            self._changed.wait(None if flow is None else self._turns[flow].due - now)
        return None
