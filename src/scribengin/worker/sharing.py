"""The connection between the workers of a tier: the one that holds the lease listens; helpers connect, and stage the portions that they are
assigned.

The lease holder writes its address and a key into the tier's state, readable by this user only, and helpers prove that they have the key.
No record is sent over the connection: portions name streams, and the answers are reports. It is not encrypted.

A helper sends a heartbeat every two seconds. A helper that is silent for `SILENT_S` is dropped, and its portion is staged by the worker
that assigned it.
"""

from __future__ import annotations

import secrets
import socket
import threading
import time
from contextlib import suppress
from dataclasses import dataclass, field
from multiprocessing import AuthenticationError
from multiprocessing.connection import Connection, answer_challenge, deliver_challenge
from typing import TYPE_CHECKING, Any

from scribengin.core.net import LOOPBACK
from scribengin.core.records import seal, unseal
from scribengin.core.storage import make_folder, read_or_none, replace

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from scribengin.spark.portions import Helper, Portion, Staged, Stager

REACHED_AT = "SCRIBENGIN_REACHED_AT"
"""in a worker's environment: the address of its host for workers of other hosts"""
SILENT_S = 20.0
"""seconds of silence after which a helper that stages is dropped"""
_ALIVE_S = 2.0
_LOOK_S = 1.0
"""seconds between two checks for a lease holder, and for a new one"""
_CONNECT_S = 5.0
_KIND, _FORMAT = "workers", 1


@dataclass(eq=False)
class _Connected:
    """One helper, from the view of the worker that assigns portions. One thread at a time uses it, for one Batch."""

    connection: Connection
    digests: Mapping[str, str]
    left: Callable[[_Connected], None]
    busy: bool = False
    asked: bool = False
    """it stages a portion, and has not answered"""
    gone: bool = False

    def begin(self, portion: Portion) -> None:
        self.asked = True
        try:
            self.connection.send(("stage", portion))
        except OSError:
            self.leave()

    def answer(self) -> Staged | None:
        heard_s = time.monotonic()
        while not self.gone and time.monotonic() - heard_s < SILENT_S:
            with suppress(EOFError, OSError):
                if not self.connection.poll(_LOOK_S):
                    continue
                kind, said = self.connection.recv()
                heard_s = time.monotonic()
                if kind == "alive":
                    continue
                self.asked = False
                staged: Staged | None = said if kind == "staged" else None
                return staged
            self.leave()
        self.leave()
        return None

    def drop(self) -> None:
        if self.asked:
            self.leave()
        self.busy = self.asked = False

    def leave_if_ended(self) -> None:
        """Close the connection if an idle helper has ended: it sends nothing else while it is idle."""
        try:
            ended = self.connection.poll()
        except OSError:
            ended = True
        if ended:
            self.leave()

    def leave(self) -> None:
        """Close the connection: this shows the helper that its answer is no longer needed."""
        if not self.gone:
            self.gone = True
            with suppress(OSError):
                self.connection.close()
            self.left(self)


class HelperPool:
    """The helpers of a tier, for the worker that holds its lease; implements `spark.portions.Helpers`. It must be closed."""

    def __init__(self, tier: Path, host: str = LOOPBACK) -> None:
        """Start to listen for helpers.

        Args:
            tier: the folder of the tier's state.
            host: an address of this machine, at which helpers on other hosts can reach it.
        """
        self._place = tier / _NAME
        self._key = secrets.token_bytes(32)
        self._lock = threading.RLock()
        self._connected: list[_Connected] = []
        self._socket = socket.create_server((host, 0))
        make_folder(tier)
        body = {"host": host, "port": self._socket.getsockname()[1], "key": self._key.hex()}
        replace(self._place, seal(_KIND, _FORMAT, body), private=True)
        threading.Thread(target=self._accept, name="helpers", daemon=True).start()

    def __len__(self) -> int:
        """The present number of helpers."""
        with self._lock:
            self._forget_those_that_left()
            return len(self._connected)

    def take(self, query: str, digest: str) -> list[Helper]:
        """Reserve the free helpers for a Batch of a query; see `spark.portions.Helpers.take`."""
        with self._lock:
            self._forget_those_that_left()
            free = [each for each in self._connected if not each.busy and each.digests.get(query) == digest]
            for each in free:
                each.busy = True
            return list(free)

    def close(self) -> None:
        """Close all connections: helpers stop their work, and look for the next lease holder."""
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()
        with self._lock:
            there = list(self._connected)
        for each in there:
            each.leave()

    def _accept(self) -> None:
        while True:
            try:
                there, _ = self._socket.accept()
            except OSError:
                return
            threading.Thread(target=self._greet, args=(there,), name="helper", daemon=True).start()

    def _greet(self, there: socket.socket) -> None:
        """Accept a connection that proves to have the key; close others."""
        connection = _connection(there)
        try:
            deliver_challenge(connection, self._key)
            answer_challenge(connection, self._key)
            digests = connection.recv() if connection.poll(_CONNECT_S) else None
        except (AuthenticationError, EOFError, OSError):
            digests = None
        if digests is None:
            connection.close()
            return
        with self._lock:
            self._connected.append(_Connected(connection, digests, self._left))

    def _forget_those_that_left(self) -> None:
        """Remove helpers that have ended. The caller holds the lock, so that none is reserved meanwhile."""
        for each in [each for each in self._connected if not each.busy]:
            each.leave_if_ended()

    def _left(self, helper: _Connected) -> None:
        with self._lock, suppress(ValueError):
            self._connected.remove(helper)


_NAME = "workers.json"


@dataclass
class HelpingWorker:
    """A worker that helps: finds the worker that holds the tier's lease, and stages the portions that it assigns.

    Attributes:
        tier: the folder of the tier's state.
        stager: does the work.
        staged: number of portions that it has staged.
        at_work: it is staging a portion.
    """

    tier: Path
    stager: Stager
    staged: int = 0
    at_work: bool = False
    _at: bytes | None = field(default=None)

    def help(self, stop: threading.Event, tell: Callable[[], None] = lambda: None) -> None:
        """Help until `stop` is set and the current portion is staged. `tell` is called about once a second while idle."""
        while not stop.is_set():
            tell()
            self._at = read_or_none(self.tier / _NAME)
            connection = None if self._at is None else self._connected(self._at)
            if connection is None:
                stop.wait(_LOOK_S)
                continue
            with connection, suppress(EOFError, OSError):
                self._serve(connection, stop, tell)

    def _connected(self, said: bytes) -> Connection | None:
        body: dict[str, Any] = unseal(said, _KIND, _FORMAT, self.tier / _NAME)
        key = bytes.fromhex(body["key"])
        try:
            connection = _connection(socket.create_connection((body["host"], body["port"]), timeout=_CONNECT_S))
        except OSError:  # that worker has ended; the next lease holder writes its own address
            return None
        try:
            answer_challenge(connection, key)
            deliver_challenge(connection, key)
            connection.send(self.stager.digests)
        except (AuthenticationError, EOFError, OSError):
            connection.close()
            return None
        return connection

    def _serve(self, connection: Connection, stop: threading.Event, tell: Callable[[], None]) -> None:
        while not stop.is_set():
            tell()
            if connection.poll(_LOOK_S):
                _, portion = connection.recv()
                self._stage(connection, portion)
            elif read_or_none(self.tier / _NAME) != self._at:
                return  # another worker holds the lease now

    def _stage(self, connection: Connection, portion: Portion) -> None:
        """Stage a portion in a thread, while this thread sends heartbeats and checks whether the answer is still needed."""
        answers: list[tuple[str, Any]] = []

        def work() -> None:
            try:
                answers.append(("staged", self.stager.stage(portion)))
            except Exception as error:
                answers.append(("failed", f"{type(error).__name__}: {error}"))

        thread = threading.Thread(target=work, name="portion")
        thread.start()
        self.at_work = True
        try:
            while thread.is_alive():
                thread.join(_ALIVE_S)
                if connection.poll():  # nothing is sent to a helper that stages: the connection was closed
                    connection.recv()
                connection.send(("alive", None))
        except (EOFError, OSError):
            self.stager.cancel()
            thread.join()
            raise
        finally:
            self.at_work = False
        self.staged += answers[0][0] == "staged"
        connection.send(answers[0])


def _connection(there: socket.socket) -> Connection:
    there.settimeout(None)
    return Connection(there.detach())
