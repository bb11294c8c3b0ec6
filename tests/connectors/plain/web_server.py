"""A server of HTTP that answers as a test wants and keeps what it has taken."""

from __future__ import annotations

import ssl
import threading
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any

from harness.key_server import rows_in
from scribengin.embedded.server import free_ports

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


@dataclass
class Came:
    """A request."""

    path: str
    method: str
    headers: dict[str, str]
    """names in small letters"""
    body: bytes
    rows: list[dict[str, Any]] = field(default_factory=list)

    @property
    def key(self) -> str:
        return self.headers["idempotency-key"]


@dataclass
class Answer:
    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)
    text: str = ""
    hang_up: bool = False
    """take it, and say nothing"""


class WebServer:
    """A context manager. `answers` says what to answer; what was answered with 2xx, or was taken before a hang-up, is in `taken`."""

    def __init__(self, port: int | None = None, certificate: Path | None = None) -> None:
        self.answers: Callable[[Came], Answer] = lambda _: Answer()
        self.came: list[Came] = []
        self.taken: list[Came] = []
        self.most_at_once = 0
        self._now = 0
        self._lock = threading.Lock()
        # no port that outgoing connections get: it may have to come back on it
        self._server = ThreadingHTTPServer(("127.0.0.1", port or free_ports(1)[0]), self._handler())
        self._server.daemon_threads = True
        if certificate is not None:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(certificate)
            self._server.socket = context.wrap_socket(self._server.socket, server_side=True)
        self.port = self._server.server_address[1]
        self.url = f"{'https' if certificate else 'http'}://127.0.0.1:{self.port}"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,))

    def __enter__(self) -> WebServer:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    def ids(self) -> Counter[int]:
        """Of rows that were taken, each as often as it came."""
        return Counter(row["id"] for came in self.taken for row in came.rows)

    def ids_once(self) -> Counter[int]:
        """The same at a server that honours keys."""
        return Counter(row["id"] for came in {came.key: came for came in self.taken}.values() for row in came.rows)

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        server = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            disable_nagle_algorithm = True

            def handle_one(self) -> None:
                with server._lock:
                    server._now += 1
                    server.most_at_once = max(server.most_at_once, server._now)
                try:
                    self._answer()
                finally:
                    with server._lock:
                        server._now -= 1

            def _answer(self) -> None:
                size = int(self.headers["content-length"])
                data = self.rfile.read(size)
                if len(data) < size:  # who sent it was killed
                    self.close_connection = True
                    return
                came = Came(self.path, self.command, {name.lower(): value for name, value in self.headers.items()}, data)
                came.rows = rows_in(came.headers, came.body)
                with server._lock:
                    server.came.append(came)
                answer = server.answers(came)
                if answer.hang_up or answer.status < 300:
                    with server._lock:
                        server.taken.append(came)
                if answer.hang_up:
                    self.close_connection = True
                    return
                self.send_response(answer.status)
                for name, value in ({"Content-Length": str(len(answer.text.encode()))} | answer.headers).items():
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(answer.text.encode())

            do_POST = do_PUT = do_PATCH = handle_one  # noqa: N815 (as the server asks for them)

            def log_message(self, *_: object) -> None:
                pass

            def handle(self) -> None:
                with suppress(ConnectionError):
                    super().handle()

        return Handler
