"""Answers that send who asks to another master, with the same question."""

from __future__ import annotations

from typing import TYPE_CHECKING

from starlette.responses import RedirectResponse

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.responses import Response

    from scribengin.control.watch import WorkerWatch


def sent_to(master: str, request: Request) -> Response:
    """The way to the master at that address."""
    query = f"?{request.url.query}" if request.url.query else ""
    return RedirectResponse(f"{master.rstrip('/')}{request.url.path}{query}", status_code=307)


def sent_to_leader(watch: WorkerWatch | None, request: Request) -> Response | None:
    """The way to the master that was told how flows go, where that is another one; None where this one leads, or none can be reached."""
    if watch is None or watch.leads() or not (leader := watch.leader()):
        return None
    return sent_to(leader, request)
