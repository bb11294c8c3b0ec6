"""The network between a registry and its clients: a TCP proxy that can cut off all of the clients, or some."""

from __future__ import annotations

import socket
import threading
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType

HOST = "127.0.0.1"
_PART_BYTES = 2**16
_ENDED_WITHIN_S = 10.0
_LOOK_S = 0.2

How = Literal["silent", "refused"]
HOWS: tuple[How, ...] = ("silent", "refused")
"""`silent`: data does not arrive until the wire is repaired, and no end is notified. `refused`: connections are reset."""


@dataclass(frozen=True, slots=True)
class _Cut:
    how: How
    hits: Callable[[int], bool]
    """returns True for the port of a client that is cut off"""


@dataclass(slots=True)
class ProxyWire:
    """Listens on `port` of 127.0.0.1, and connects clients with the port that `server` returns. A context manager that cuts all connections
    at its end."""

    server: Callable[[], int | None]
    """returns the port behind the wire; None if there is none now"""
    port: int = 0
    _cut: _Cut | None = None
    _changed: threading.Condition = field(default_factory=threading.Condition)
    _listener: socket.socket | None = None
    _pairs: dict[int, tuple[socket.socket, socket.socket]] = field(default_factory=dict)
    _threads: list[threading.Thread] = field(default_factory=list)
    _closed: bool = False

    def cut(self, how: How, hits: Callable[[int], bool]) -> None:
        """Cut connections off until `mend`."""
        with self._changed:
            self._cut = _Cut(how, hits)
            pairs = list(self._pairs.items())
        if how == "refused":
            for port, pair in pairs:
                if hits(port):
                    _shut(pair)

    def mend(self) -> None:
        """End the cut: delayed data and new connections pass."""
        with self._changed:
            self._cut = None
            self._changed.notify_all()

    def __enter__(self) -> ProxyWire:
        self._listener = socket.create_server((HOST, self.port))
        self.port = int(self._listener.getsockname()[1])
        self._begin(self._accept)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        with self._changed:
            self._closed, self._cut = True, None
            self._changed.notify_all()
            pairs = list(self._pairs.values())
        if self._listener is not None:
            with suppress(OSError):
                self._listener.shutdown(socket.SHUT_RDWR)
            self._listener.close()
        for pair in pairs:
            _shut(pair)
        for thread in self._threads:
            thread.join(_ENDED_WITHIN_S)

    def _begin(self, act: Callable[..., None], *arguments: object) -> None:
        self._threads = [thread for thread in self._threads if thread.is_alive()]
        thread = threading.Thread(target=act, args=arguments, daemon=True)
        self._threads.append(thread)
        thread.start()

    def _accept(self) -> None:
        assert self._listener is not None
        while True:
            try:
                client, (_, port) = self._listener.accept()
            except OSError:
                return
            self._begin(self._join, client, port)

    def _join(self, client: socket.socket, port: int) -> None:
        """Connect a client with the server, unless it is cut off."""
        behind = self.server()
        if not self._passes(port) or behind is None:
            client.close()
            return
        try:
            server = socket.create_connection((HOST, behind), timeout=_ENDED_WITHIN_S)
        except OSError:  # the server is not running
            client.close()
            return
        server.settimeout(None)
        pair = (client, server)
        for each in pair:
            each.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        with self._changed:
            if self._closed:
                _shut(pair)
                return
            self._pairs[port] = pair
        self._begin(self._pass_on, port, client, server)
        self._begin(self._pass_on, port, server, client)

    def _pass_on(self, port: int, reader: socket.socket, writer: socket.socket) -> None:
        with suppress(OSError):
            while (part := reader.recv(_PART_BYTES)) and self._passes(port):
                writer.sendall(part)
        _shut((reader, writer))
        with self._changed:
            self._pairs.pop(port, None)

    def _passes(self, port: int) -> bool:
        """Wait while the port is cut off silently. Returns False if it is refused."""
        with self._changed:
            while (cut := self._cut) is not None and not self._closed and cut.hits(port):
                if cut.how == "refused":
                    return False
                self._changed.wait(_LOOK_S)
            return not self._closed


def _shut(pair: tuple[socket.socket, socket.socket]) -> None:
    for each in pair:
        with suppress(OSError):
            each.shutdown(socket.SHUT_RDWR)
        each.close()
