"""A worker's status page: read-only, on a free port of the loopback, `/` for people and `/json` for programs. It shows no secrets."""

from __future__ import annotations

import json
import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any

from scribengin.control.html_page import page
from scribengin.core.loopback import LOOPBACK

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

_PATHS = {"/": "text/html; charset=utf-8", "/json": "application/json"}
_IDLE_S = 10.0


@contextmanager
def serve_page(look: Callable[[], Mapping[str, Any]]) -> Iterator[str]:
    """Serve the present value of `look` until the block ends; yields the address, `http://127.0.0.1:PORT`. It costs nothing unless it is
    requested."""

    class Handler(BaseHTTPRequestHandler):
        timeout = _IDLE_S
        server_version, sys_version = "scribengin", ""

        def do_GET(self) -> None:
            kind = _PATHS.get(self.path)
            # a page of a foreign name that was made to point here is not to be read through somebody's browser
            here = (self.headers.get("Host") or "").rpartition(":")[0] in (LOOPBACK, "localhost")
            if kind is None or not here:
                self.send_error(404 if kind is None else 421)
                return
            found = look()
            body = json.dumps(found).encode() if self.path == "/json" else page(found).encode()
            self.send_response(200)
            for name, value in {"Content-Type": kind, "Content-Length": str(len(body)), "Cache-Control": "no-store"}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *_: object) -> None:
            """Does nothing: requests are not logged in the worker's log."""

    with ThreadingHTTPServer((LOOPBACK, 0), Handler) as server:
        server.daemon_threads = True
        thread = threading.Thread(target=server.serve_forever, name="page", daemon=True)
        thread.start()
        try:
            yield f"http://{LOOPBACK}:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()
