"""A master's pages, served beside it on a port of this machine."""

from __future__ import annotations

import socket
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING

import uvicorn
from fastapi import FastAPI
from fastapi.responses import JSONResponse

from scribengin.api.progress import router
from scribengin.core.errors import ScribenginError, Unreachable

if TYPE_CHECKING:
    from collections.abc import Iterator

    from fastapi import Request

    from scribengin.control.watch import Watch

_HOST = "127.0.0.1"
_NOT_FOUND = ("flow-unknown", "alert-unknown")


class _Server(uvicorn.Server):
    def install_signal_handlers(self) -> None:
        """Signals are the program's."""


@contextmanager
def open_port() -> Iterator[socket.socket]:
    """A port that is free, bound, for `serve`."""
    with socket.socket() as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((_HOST, 0))
        yield listener


def address_of(listener: socket.socket) -> str:
    """Where it answers."""
    host, port = listener.getsockname()
    return f"http://{host}:{port}"


@contextmanager
def served(watch: Watch, listener: socket.socket) -> Iterator[None]:
    """Answers until the block ends."""
    app = FastAPI(title="Scribengin", docs_url=None, redoc_url=None)
    app.include_router(router(watch))
    app.add_exception_handler(ScribenginError, _told)
    server = _Server(uvicorn.Config(app, log_config=None, lifespan="off"))
    thread = threading.Thread(target=server.run, args=([listener],), name="pages", daemon=True)
    thread.start()
    try:
        yield
    finally:
        server.should_exit = True
        thread.join(10)


def _told(_request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, ScribenginError)
    status = 404 if error.code in _NOT_FOUND else 503 if isinstance(error, Unreachable) else 403 if error.code == "claim-wrong" else 409
    said = {"status": status, "title": error.message, "detail": error.message, "remedy": error.remedy, "code": error.code}
    return JSONResponse(said, status_code=status, media_type="application/problem+json")
