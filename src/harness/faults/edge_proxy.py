"""A TCP proxy in front of a gateway that fails as networks do: it refuses, swallows, loses answers, or delays them."""

from __future__ import annotations

import selectors
import socket
import threading
import time
from contextlib import suppress
from typing import Literal, Self

ProxyMode = Literal["pass", "refuse", "swallow", "mute", "slow"]
"""`pass`: as if there were no proxy. `refuse`: connections are reset. `swallow`: bytes are taken, and nothing reaches the other side, as
with a cable that was pulled. `mute`: the gateway gets requests, and the connection is closed instead of passing its answer on. `slow`:
answers are passed on after `delay_s`."""
_BLOCK = 256 * 1024


class EdgeProxy:
    """Listens on 127.0.0.1 before a port. A context manager; `mode` may be changed at any time.

    Args:
        port: Of the gateway.

    Attributes:
        port: Of the proxy.
        mode: What it does with connections, also with those that are open.
        delay_s: For `slow`.
        muted: The number of answers that were lost.
    """

    def __init__(self, port: int) -> None:
        self.target = port
        self.mode: ProxyMode = "pass"
        self.delay_s = 0.0
        self.muted = 0
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._listener.getsockname()[1])
        self._sockets: set[socket.socket] = set()
        self._lock = threading.Lock()
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._accept, name=f"proxy {port}", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._closed.set()
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self.cut()
        self._thread.join(5)

    def cut(self) -> None:
        """Close all connections that are open."""
        with self._lock:
            sockets = list(self._sockets)
        for each in sockets:
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)

    def _accept(self) -> None:
        while not self._closed.is_set():
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            if self.mode == "refuse":
                _reset(client)
                continue
            threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        while self.mode == "swallow" and not self._closed.wait(0.05):
            pass
        try:
            gateway = socket.create_connection(("127.0.0.1", self.target), timeout=5)
        except OSError:
            _reset(client)
            return
        gateway.settimeout(None)
        with self._lock:
            self._sockets |= {client, gateway}
        try:
            self._pass(client, gateway)
        except OSError:
            pass
        finally:
            with self._lock:
                self._sockets -= {client, gateway}
            for each in (client, gateway):
                _reset(each)

    def _pass(self, client: socket.socket, gateway: socket.socket) -> None:
        with selectors.DefaultSelector() as selector:
            for each in (client, gateway):
                selector.register(each, selectors.EVENT_READ)
            while not self._closed.is_set() and self.mode != "refuse":
                if self.mode == "swallow":
                    self._closed.wait(0.05)
                    continue
                for key, _ in selector.select(0.1):
                    source = key.fileobj
                    assert isinstance(source, socket.socket)
                    data = source.recv(_BLOCK)
                    if not data:
                        return
                    if source is client:
                        gateway.sendall(data)
                        continue
                    if self.mode == "mute":
                        self.muted += 1
                        return
                    if self.mode == "slow":
                        until_s = time.monotonic() + self.delay_s
                        while self.mode == "slow" and time.monotonic() < until_s and not self._closed.wait(0.05):
                            pass
                    client.sendall(data)


def _reset(connection: socket.socket) -> None:
    with suppress(OSError):
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
    connection.close()
