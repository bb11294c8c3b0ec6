"""An HTTP server that stores each received request, its key and its rows, durably before it answers. It may be killed at any time.

It does not ignore a request whose key it has received before, so that a reader of its data sees duplicates (`Request`, `once`).
"""

from __future__ import annotations

import gzip
import http.client
import json
import os
import sys
import threading
from contextlib import closing, suppress
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from scribengin.core.storage import make_folder
from scribengin.core.zstd import decompress
from scribengin.embedded.server import HOST, LoneServer, check_port, start_server

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

NAME = "HTTP server that keeps keys"
_READY_WITHIN_S = 60.0
_FILE = "requests.jsonl"


@dataclass(frozen=True, slots=True)
class Request:
    """A received request. `to` is its path, without the first slash and the query."""

    to: str
    key: str
    rows: list[dict[str, Any]]


class KeyServer(LoneServer):
    """One server, as a process of its own."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder, NAME, files="http")

    @property
    def uri(self) -> str:
        """The address for clients."""
        return f"http://{self.address}"

    def start(self) -> None:
        """Start the server if it is not running, and wait until it answers. Raises EnvironmentFault."""
        if self._server is not None and self._server.alive():
            return
        check_port(self._port, NAME)
        make_folder(self.folder)
        command: list[str | Path] = [sys.executable, "-m", __name__, self.folder / _FILE, str(self._port)]
        self._server = start_server(NAME, command, pid_file=self._pid_file, log=self.log)
        self._server.wait_ready(self.answers, _READY_WITHIN_S)

    def answers(self, *, timeout_s: float = 1.0) -> bool:
        """True if the server answers."""
        with (
            suppress(OSError, http.client.HTTPException),
            closing(http.client.HTTPConnection(HOST, self._port, timeout=timeout_s)) as connection,
        ):
            connection.request("GET", "/")
            return connection.getresponse().status == http.client.OK
        return False

    def requests(self, to: str) -> list[Request]:
        """The requests to a path, in the order of their arrival; also while the server is not running."""
        file = self.folder / _FILE
        lines = file.read_bytes().split(b"\n")[:-1] if file.exists() else []  # a kill may have cut the last line off
        return [each for line in lines if (each := msgspec.json.decode(line, type=Request)).to == to]


def once(requests: Iterable[Request]) -> list[Request]:
    """The requests that a server with deduplication would keep: the first one of each key."""
    first: dict[str, Request] = {}
    for each in requests:
        first.setdefault(each.key, each)
    return list(first.values())


def rows_in(headers: Mapping[str, str], body: bytes) -> list[dict[str, Any]]:
    """The rows of a request. The names in `headers` are in lower case."""
    encoding = headers.get("content-encoding")
    body = gzip.decompress(body) if encoding == "gzip" else decompress(body) if encoding == "zstd" else body
    if headers["content-type"] == "application/x-ndjson":
        return [json.loads(line) for line in body.splitlines()]
    found = json.loads(body)
    return found if isinstance(found, list) else [found]


class _Kept:
    """The file with the requests, which is created or continued."""

    def __init__(self, path: Path) -> None:
        self._lock = threading.Lock()
        self._file = path.open("ab")
        self._file.truncate(path.read_bytes().rfind(b"\n") + 1)  # a line that was cut off by a kill was never answered

    def add(self, request: Request) -> None:
        """Store a request durably."""
        line = msgspec.json.encode(request) + b"\n"
        with self._lock:
            self._file.write(line)
            self._file.flush()
            os.fsync(self._file.fileno())


def _handler(kept: _Kept) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True

        def do_POST(self) -> None:
            headers = {name.lower(): value for name, value in self.headers.items()}
            body = self.rfile.read(int(headers["content-length"]))
            if len(body) < int(headers["content-length"]):  # the sender was killed
                self.close_connection = True
                return
            key = headers.get("idempotency-key")
            if key is not None:
                kept.add(Request(self.path.partition("?")[0].removeprefix("/"), key, rows_in(headers, body)))
            self._answer(http.client.BAD_REQUEST if key is None else http.client.OK)

        def do_GET(self) -> None:
            self._answer(http.client.OK)

        def _answer(self, status: int) -> None:
            self.send_response(status)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def handle(self) -> None:
            with suppress(ConnectionError):
                super().handle()

        def log_message(self, format: str, *arguments: object) -> None:
            pass

    return Handler


def main(file: str, port: str) -> None:
    """Serve until the process is ended from outside."""
    server = ThreadingHTTPServer((HOST, int(port)), _handler(_Kept(Path(file))))
    server.daemon_threads = True
    server.serve_forever()


if __name__ == "__main__":
    main(*sys.argv[1:])
