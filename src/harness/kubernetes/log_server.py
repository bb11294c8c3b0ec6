"""The logs of a node's containers, served as a kubelet serves them: the API server fetches them for `GET …/pods/NAME/log`."""

from __future__ import annotations

import ssl
import threading
import time
from contextlib import suppress
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING
from urllib.parse import parse_qs, urlsplit

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from harness.kubernetes.kubelet import ScriptedKubelet

_POLL_S = 0.2


class LogServer:
    """An HTTPS server on a free port of 127.0.0.1."""

    def __init__(self, kubelet: ScriptedKubelet, certificate: tuple[Path, Path]) -> None:
        """Start it.

        Args:
            kubelet: the kubelet whose logs it serves.
            certificate: the files of its certificate and key.
        """
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(*certificate)

        class Handler(_LogHandler):
            pass

        Handler.kubelet = kubelet
        self._server = _TlsServer(context, Handler)
        self.port: int = self._server.server_address[1]
        self._thread = threading.Thread(target=self._server.serve_forever, name=f"logs-{kubelet.name}", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stop serving."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


class _TlsServer(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False

    def __init__(self, context: ssl.SSLContext, handler: type[BaseHTTPRequestHandler]) -> None:
        super().__init__(("127.0.0.1", 0), handler)
        self.socket = context.wrap_socket(self.socket, server_side=True, do_handshake_on_connect=False)

    def handle_error(self, request: object, client_address: object) -> None:
        """Clients that go away are no fault."""


class _LogHandler(BaseHTTPRequestHandler):
    kubelet: ScriptedKubelet

    def do_GET(self) -> None:
        """Answer `/containerLogs/{namespace}/{pod}/{container}`, with `tailLines`, `limitBytes`, `previous` and `follow`."""
        asked = urlsplit(self.path)
        query = {name: values[-1] for name, values in parse_qs(asked.query).items()}
        match asked.path.split("/")[1:]:
            case ["containerLogs", namespace, pod, container] if not self.kubelet.frozen:
                try:
                    runner = self.kubelet.runner(pod, namespace)
                except LookupError as error:
                    self.send_error(HTTPStatus.NOT_FOUND, str(error))
                    return
                path, _ = runner.log_of(container, previous=query.get("previous") == "true")
                if path is None:
                    self.send_error(HTTPStatus.NOT_FOUND, f"container {container} has no log")
                    return
                self._send(path, query, lambda: runner.log_of(container)[1])
            case _:
                self.send_error(HTTPStatus.NOT_FOUND)

    def _send(self, path: Path, query: dict[str, str], running: Callable[[], bool]) -> None:
        self.send_response(HTTPStatus.OK)
        self.send_header("Content-Type", "text/plain")
        self.end_headers()
        left = int(query["limitBytes"]) if "limitBytes" in query else None
        with path.open("rb") as log, suppress(OSError):
            data = log.read()
            if "tailLines" in query:
                count = int(query["tailLines"])
                data = b"".join(data.splitlines(keepends=True)[-count:]) if count else b""
            while True:
                part = data if left is None else data[:left]
                self.wfile.write(part)
                left = None if left is None else left - len(part)
                if query.get("follow") != "true" or left == 0:
                    return
                ended = not running()
                data = log.read()
                if not data and ended:
                    return
                if not data:
                    time.sleep(_POLL_S)

    def log_message(self, format: str, *arguments: object) -> None:
        """Requests are not logged."""
