"""A master's packages over HTTP, and nothing else of a master."""

from __future__ import annotations

import http.server
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from scribengin.packages.store import PackageStore


@contextmanager
def serving(packages: PackageStore, *, spoil: bool = False) -> Iterator[str]:
    """Its address. `spoil`: what it hands out is not what its hash says."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            file = packages.file(self.path.removeprefix("/v1/packages/"))
            data = file.read_bytes() + (b" " if spoil else b"") if file.is_file() else b""
            self.send_response(200 if data else 404)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, format: str, *args: object) -> None:
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.02,))
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
