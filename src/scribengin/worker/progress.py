"""A worker reports the progress of its tier to the leading master: the newest view, over HTTP, in a thread. Failures here never block the
worker: a report that could not be sent is replaced by a newer one."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING

import httpx2

from scribengin.core.errors import ScribenginError
from scribengin.core.net import trusted
from scribengin.watching.progress import PACE, encode, is_news

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from scribengin.local.contract import RunView
    from scribengin.watching.progress import ProgressBuilder, TierProgress

EVERY_S, AT_LEAST_EVERY_S = 1.0, 10.0
"""seconds between two reports with news, unless the master requests a longer pause; and between two without news"""
_BACK_OFF_S = (1.0, 2.0, 5.0)
"""seconds to wait after failures in a row; the last value applies to all further ones, so that a new leader gets a report within ten
seconds"""
_TIMEOUT_S = 5.0


class Reporter:
    """Sends views of a tier to the leading master. `show` may be called at any rate, from one thread; `close` ends the thread.

    Args:
        builder: makes reports of views.
        leader: returns the address of the leading master; empty if there is none.
        claim: returns the claim in the tier's lease.
        certificates: a PEM file with the issuers of the masters' certificates.
        clock: the time in seconds since the epoch.
    """

    def __init__(
        self,
        builder: ProgressBuilder,
        leader: Callable[[], str],
        claim: Callable[[], str],
        *,
        certificates: Path | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._builder = builder
        self._leader = leader
        self._claim = claim
        self._verify = trusted(certificates)
        self._clock = clock
        self._lock = threading.Lock()
        self._newest: RunView | None = None
        self._shown_at = 0.0
        self._pace_s = EVERY_S
        self._awake = threading.Event()
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._run, name="progress", daemon=True)
        self._thread.start()

    def show(self, view: RunView) -> None:
        """Set the present view of the tier. It replaces a view that was not sent yet."""
        with self._lock:
            self._builder.note(view, self._clock())
            self._newest, self._shown_at = view, time.monotonic()
        self._awake.set()

    def close(self) -> None:
        """Send the last view, if the master answers at once, and end the thread."""
        self._closed.set()
        self._awake.set()
        self._thread.join(_TIMEOUT_S + 1.0)

    def _run(self) -> None:
        told: TierProgress | None = None
        told_at, failures, address = -AT_LEAST_EVERY_S, 0, ""
        with httpx2.Client(timeout=_TIMEOUT_S, trust_env=False, verify=self._verify) as http:
            while True:
                ends = self._closed.is_set()
                progress = self._progress()
                now = time.monotonic()
                if progress is not None and (ends or now - told_at >= AT_LEAST_EVERY_S or is_news(told, progress)):
                    address = address or self._leader_address()
                    if address and self._sent(http, address, progress):
                        told, told_at, failures = progress, now, 0
                    else:
                        address, failures = "", failures + 1
                if ends:
                    return
                wait_s = _BACK_OFF_S[min(failures, len(_BACK_OFF_S)) - 1] if failures else self._pace_s
                self._closed.wait(wait_s)
                if not failures:
                    self._awake.wait(AT_LEAST_EVERY_S)
                    self._awake.clear()

    def _progress(self) -> TierProgress | None:
        with self._lock:
            if self._newest is None:
                return None
            return self._builder.build(self._newest, self._clock(), time.monotonic() - self._shown_at)

    def _leader_address(self) -> str:
        try:
            return self._leader().rstrip("/")
        except ScribenginError:
            return ""

    def _sent(self, http: httpx2.Client, address: str, progress: TierProgress) -> bool:
        """Send a report. Returns True if the leading master has accepted it."""
        url = f"{address}/v1/flows/{progress.flow}/tiers/{progress.tier}/progress"
        headers = {"Authorization": f"Claim {self._claim()}", "Content-Type": "application/json"}
        try:
            answer = http.post(url, content=encode(progress), headers=headers)
            self._pace_s = min(AT_LEAST_EVERY_S, max(EVERY_S, float(answer.headers.get(PACE, EVERY_S))))
        except (httpx2.HTTPError, httpx2.InvalidURL, OSError, ValueError):
            return False
        return answer.is_success
