"""The web console's files: `/`, and what its page loads. They have no data, so that they need no token; the page asks the API."""

from __future__ import annotations

import gzip
import hashlib
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from mimetypes import guess_type
from typing import TYPE_CHECKING

from fastapi import APIRouter, Request
from starlette.responses import Response

from scribengin.core.errors import Refused

if TYPE_CHECKING:
    from importlib.resources.abc import Traversable

_FOLDER = "console"
_PAGE = "index.html"
_KINDS = {"js": "text/javascript; charset=utf-8", "css": "text/css; charset=utf-8", "html": "text/html; charset=utf-8"}
_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'"
)
_HEADERS = {
    "Content-Security-Policy": _POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cache-Control": "no-cache",
    "Vary": "Accept-Encoding",
}


@dataclass(frozen=True, slots=True)
class ConsoleFile:
    """A file of the console: its bytes, and compressed."""

    plain: bytes
    packed: bytes
    kind: str
    etag: str


def console_routes() -> APIRouter:
    """The routes of the console's files."""
    routes = APIRouter(include_in_schema=False)

    @routes.get("/")
    def page(request: Request) -> Response:
        return _answer(request, _PAGE)

    @routes.get("/console/{name:path}")
    def file(name: str, request: Request) -> Response:
        return _answer(request, name)

    return routes


@cache
def console_files() -> dict[str, ConsoleFile]:
    """Path → file, for all files of the console."""
    return dict(_below(files(__package__) / _FOLDER, ""))


def _below(folder: Traversable, prefix: str) -> list[tuple[str, ConsoleFile]]:
    found = []
    for each in sorted(folder.iterdir(), key=lambda each: each.name):
        name = prefix + each.name
        if each.is_dir():
            found += _below(each, f"{name}/")
        else:
            found.append((name, _read(name, each.read_bytes())))
    return found


def _read(name: str, plain: bytes) -> ConsoleFile:
    kind = _KINDS.get(name.rpartition(".")[2]) or guess_type(name)[0] or "text/plain; charset=utf-8"
    return ConsoleFile(plain, gzip.compress(plain, mtime=0), kind, f'"{hashlib.sha256(plain).hexdigest()[:24]}"')


def _answer(request: Request, name: str) -> Response:
    file = console_files().get(name)
    if file is None:
        raise Refused(f"the console has no file {name[:200]}", remedy="open the console at /", code="not-found")
    headers = {**_HEADERS, "ETag": file.etag, "Content-Type": file.kind}
    if file.etag in request.headers.get("If-None-Match", ""):
        return Response(status_code=304, headers=headers)
    if "gzip" in request.headers.get("Accept-Encoding", ""):
        return Response(file.packed, headers={**headers, "Content-Encoding": "gzip"})
    return Response(file.plain, headers=headers)
