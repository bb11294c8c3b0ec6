"""A worker's page: read-only, on a free port of the loopback, `/` for people and `/json` for programs. What it shows no secret is in."""

from __future__ import annotations

import html
import json
import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

HOST = "127.0.0.1"
_PATHS = {"/": "text/html; charset=utf-8", "/json": "application/json"}
_IDLE_S = 10.0
_STYLE = "body{font:14px/1.5 system-ui,sans-serif;margin:2em;max-width:60em}th{text-align:left;padding-right:2em;vertical-align:top}"


@contextmanager
def serve_page(look: Callable[[], Mapping[str, Any]]) -> Iterator[str]:
    """Serve what `look` gives at the moment, until the block ends; gives the address, `http://127.0.0.1:PORT`. Costs nothing but when it is
    asked."""

    class Handler(BaseHTTPRequestHandler):
        timeout = _IDLE_S
        server_version, sys_version = "scribengin", ""

        def do_GET(self) -> None:
            kind = _PATHS.get(self.path)
            # a page of a foreign name that was made to point here is not to be read through somebody's browser
            here = (self.headers.get("Host") or "").rpartition(":")[0] in (HOST, "localhost")
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
            """The worker's log is not for who has looked."""

    with ThreadingHTTPServer((HOST, 0), Handler) as server:
        server.daemon_threads = True
        thread = threading.Thread(target=server.serve_forever, name="page", daemon=True)
        thread.start()
        try:
            yield f"http://{HOST}:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()


def page(found: Mapping[str, Any]) -> str:
    """The same as HTML: a table of names and values, tables inside it where there are lists."""
    title = html.escape(str(found.get("worker", "")))
    link = '<p><a href="/json">the same as JSON</a></p>'
    return f"<!doctype html><title>{title}</title><style>{_STYLE}</style><h1>{title}</h1>{_table(found)}{link}\n"


def _table(found: Mapping[str, Any]) -> str:
    rows = (f"<tr><th>{html.escape(str(name))}</th><td>{_cell(value)}</td></tr>" for name, value in found.items())
    return f"<table>{''.join(rows)}</table>"


def _cell(value: Any) -> str:
    if isinstance(value, dict):
        return _table(value)
    if isinstance(value, list | tuple):
        return "".join(f"<div>{_cell(each)}</div>" for each in value) or "–"
    return "–" if value is None or value == "" else html.escape(str(value))
