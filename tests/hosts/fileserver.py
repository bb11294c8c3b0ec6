"""A master's packages over HTTP, and nothing else of a master."""

from __future__ import annotations

import http.server
from contextlib import contextmanager
from typing import TYPE_CHECKING

from tests.served import served_by

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

    with served_by(Handler) as address:
        yield address
