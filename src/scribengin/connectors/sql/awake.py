"""Keeps a session from being ended as idle."""

from __future__ import annotations

import threading
from contextlib import suppress
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from types import TracebackType

    from scribengin.connectors.sql.contract import SqlSession


class Awake:
    """Sends a query now and then, from a thread of its own, within a session's transaction: databases end sessions that are silent for
    `silence_s`, because a suspended process blocks others, but producing the next row of a task output may take long. A suspended process
    sends no queries. Use the session only inside `with`."""

    def __init__(self, session: SqlSession, silence_s: float) -> None:
        self._session = session
        self._every_s = silence_s / 4
        self._lock = threading.Lock()
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._ask, name="awake", daemon=True)
        self._thread.start()

    def __enter__(self) -> SqlSession:
        self._lock.acquire()
        return self._session

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._lock.release()

    def end(self) -> SqlSession:
        """Stop the queries; the session may be used as before."""
        self._ended.set()
        self._thread.join()
        return self._session

    def _ask(self) -> None:
        while not self._ended.wait(min(self._every_s, threading.TIMEOUT_MAX)):
            with self._lock, suppress(Exception):  # the session's next row reports what is wrong with it
                self._session.execute("SELECT 1")
