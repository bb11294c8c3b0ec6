"""Doors to a server: one that hears what goes in, and says something else where a test wants that."""

from __future__ import annotations

from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler
from typing import TYPE_CHECKING

import httpx2

from tests.served import served_by

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    Said = tuple[int, bytes]
    """status and body"""
    Instead = Callable[[str, bytes, Callable[[str, bytes], Said]], Said | None]
    """What the door says to (path, body), None: what the server does, which it may ask: `ask(path, body)` by the method that came."""


def as_it_is(path: str, body: bytes, ask: Callable[[str, bytes], Said]) -> Said | None:
    """The server's own answers."""
    return None


def not_to(ending: str) -> Instead:
    """Nobody may go to paths that end so."""
    return lambda path, _, __: (403, b"") if path.partition("?")[0].endswith(ending) else None


@contextmanager
def listener(address: str, instead: Instead = as_it_is) -> Iterator[tuple[str, list[tuple[str, str | None, bytes]]]]:
    """A door to a server that notes what goes in: (path, Content-Encoding, body)."""
    heard: list[tuple[str, str | None, bytes]] = []

    class Door(BaseHTTPRequestHandler):
        def _pass_on(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            heard.append((self.path.partition("?")[0], self.headers.get("Content-Encoding"), body))
            status, said = instead(self.path, body, self._ask) or self._ask(self.path, body)
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(said)))
            self.end_headers()
            self.wfile.write(said)

        def _ask(self, path: str, body: bytes) -> Said:
            names = ("Content-Type", "Content-Encoding")
            headers = {name: self.headers[name] for name in names if name in self.headers}
            answer = client.request(self.command, f"{address}{path}", content=body, headers=headers)
            return answer.status_code, answer.content

        do_GET = do_HEAD = do_PUT = do_POST = do_DELETE = _pass_on  # noqa: N815

        def log_message(self, format: str, *args: object) -> None:
            pass

    with httpx2.Client(timeout=60, trust_env=False) as client, served_by(Door) as own:
        yield own, heard
