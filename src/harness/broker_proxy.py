"""A TCP proxy in front of a Kafka broker. It can delay requests of one kind, or drop their answers, as a failing network does.

It knows only this part of the protocol: a request begins with its length, followed by two bytes for its kind, two for the version and four
for the correlation id; a broker answers the requests of a connection in order.
"""

from __future__ import annotations

import socket
import struct
import threading
from collections import deque
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, BinaryIO, Literal

if TYPE_CHECKING:
    from types import TracebackType

PRODUCE, LIST_OFFSETS, INIT_PRODUCER_ID, ADD_PARTITIONS, END_TXN, WRITE_TXN_MARKERS = 0, 2, 22, 24, 26, 27
"""kinds of requests (API keys); WRITE_TXN_MARKERS is sent between brokers"""
_HOST = "127.0.0.1"
_ENDED_WITHIN_S = 10.0


@dataclass(slots=True)
class Rule:
    """What happens to requests of kind `kind` that contain `about`, until a request of kind `until` that contains it is received.

    Attributes:
        act: `hold`: the requests wait, and with them all later ones of their connections. `mute`: the broker receives them, but the
            connection is closed instead of passing its answer on. `note`: they pass.
        struck: The number of requests that matched.
    """

    act: Literal["hold", "mute", "note"]
    kind: int
    about: bytes
    until: int | None = None
    struck: int = 0
    over: bool = False


@dataclass(slots=True)
class BrokerProxy:
    """Listens on 127.0.0.1, with one port for each port of the broker; all ports have the same rules. A context manager."""

    _rules: list[Rule] = field(default_factory=list)
    _changed: threading.Condition = field(default_factory=threading.Condition)
    _listeners: list[socket.socket] = field(default_factory=list)
    _sockets: set[socket.socket] = field(default_factory=set)
    _threads: list[threading.Thread] = field(default_factory=list)
    _closed: bool = False

    def before(self, port: int) -> int:
        """Listen for a port of the broker; returns the port of the proxy."""
        listener = socket.create_server((_HOST, 0))
        self._listeners.append(listener)
        self._begin(self._accept, listener, port)
        return int(listener.getsockname()[1])

    def add(self, rule: Rule) -> Rule:
        """Add a rule."""
        with self._changed:
            self._rules.append(rule)
        return rule

    def lift(self, *rules: Rule) -> None:
        """End rules: requests that wait for them pass, and so do later ones."""
        with self._changed:
            for rule in rules:
                rule.over = True
            self._changed.notify_all()

    def lift_all(self) -> None:
        """End all rules."""
        self.lift(*self._rules)

    def struck(self, rule: Rule, times: int = 1, *, within_s: float = 120.0) -> bool:
        """Wait until a rule has matched `times` requests. Returns False if it has not within that time."""
        with self._changed:
            return self._changed.wait_for(lambda: rule.struck >= times, within_s)

    def close(self) -> None:
        """Close all connections and ports."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
            for each in (*self._listeners, *self._sockets):
                with suppress(OSError):
                    each.shutdown(socket.SHUT_RDWR)
                each.close()
        for thread in self._threads:
            thread.join(_ENDED_WITHIN_S)

    def __enter__(self) -> BrokerProxy:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def _begin(self, act: object, *arguments: object) -> None:
        thread = threading.Thread(target=act, args=arguments, daemon=True)  # type: ignore[arg-type]
        self._threads.append(thread)
        thread.start()

    def _accept(self, listener: socket.socket, port: int) -> None:
        while True:
            try:
                client, _ = listener.accept()
            except OSError:
                return
            try:
                broker = socket.create_connection((_HOST, port), timeout=5)
            except OSError:  # the broker is not running
                client.close()
                continue
            broker.settimeout(None)
            for each in (client, broker):
                each.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            with self._changed:
                if self._closed:
                    client.close()
                    broker.close()
                    return
                self._sockets |= {client, broker}
            muted: deque[bool] = deque()
            self._begin(self._requests, client, broker, muted)
            self._begin(self._answers, client, broker, muted)

    def _requests(self, client: socket.socket, broker: socket.socket, muted: deque[bool]) -> None:
        with client.makefile("rb") as stream:
            while (frame := _frame(stream)) is not None:
                mute = self._passed(frame)
                muted.append(mute)
                try:
                    broker.sendall(frame)
                except OSError:
                    break
        self._cut(client, broker)

    def _answers(self, client: socket.socket, broker: socket.socket, muted: deque[bool]) -> None:
        with broker.makefile("rb") as stream:
            while (frame := _frame(stream)) is not None:
                if muted.popleft():
                    break
                try:
                    client.sendall(frame)
                except OSError:
                    break
        self._cut(client, broker)

    def _passed(self, frame: bytes) -> bool:
        """Wait while a rule holds the request; returns True if its answer must be dropped."""
        (kind,) = struct.unpack_from(">h", frame, 4)
        with self._changed:
            for rule in self._rules:
                if rule.until == kind and rule.about in frame:
                    rule.over = True
                    self._changed.notify_all()
            found = [rule for rule in self._rules if not rule.over and rule.kind == kind and rule.about in frame]
            for rule in found:
                rule.struck += 1
            self._changed.notify_all()
            for rule in found:
                if rule.act == "hold":
                    self._changed.wait_for(lambda rule=rule: rule.over or self._closed)  # type: ignore[misc]
            return any(rule.act == "mute" for rule in found)

    def _cut(self, *ends: socket.socket) -> None:
        for each in ends:
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
            each.close()
            with self._changed:
                self._sockets.discard(each)


def _frame(stream: BinaryIO) -> bytes | None:
    """The next request or answer, with its length in front; None if the connection has ended."""
    try:
        head = stream.read(4)
        if len(head) < 4:
            return None
        (size,) = struct.unpack(">i", head)
        body = stream.read(size)
    except (OSError, ValueError):
        return None
    return head + body if len(body) == size else None
