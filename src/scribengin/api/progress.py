"""How flows go: what workers tell the leading master, and what it says of it. A standby sends who asks to the leader."""

from collections.abc import Sequence
from typing import Any

from fastapi import APIRouter, Request
from fastapi.responses import JSONResponse, RedirectResponse, Response

from scribengin.control.watch import Watch
from scribengin.core.errors import Refused, Unreachable
from scribengin.watching.progress import MOST_BYTES

_TEXT = "text/plain; version=0.0.4; charset=utf-8"


def router(watch: Watch, viewer: Sequence[Any] = (), operator: Sequence[Any] = ()) -> APIRouter:
    """The routes; `watch` is this master's. Errors are ScribenginErrors, for the app's own handler.

    A worker's POST names the claim of its lease in place of a token: `Authorization: Claim HEX`. `viewer` and `operator` are dependencies
    (`Depends(…)`) of all that look, and of what does something; `/metrics` takes neither.
    """
    routes = APIRouter(tags=["watching"])

    def elsewhere(request: Request) -> Response | None:
        """Where this master does not lead: the way to the one that does."""
        if watch.leads():
            return None
        address = watch.leader()
        if not address:
            raise Unreachable("no master leads now", remedy="ask again in a moment", code="leader-missing")
        query = f"?{request.url.query}" if request.url.query else ""
        return RedirectResponse(f"{address.rstrip('/')}{request.url.path}{query}", status_code=307)

    @routes.post("/v1/flows/{flow}/tiers/{tier}/progress", status_code=204, summary="A worker says how its tier goes")
    async def progress(flow: str, tier: str, request: Request) -> Response:
        from starlette.concurrency import run_in_threadpool

        if (moved := await run_in_threadpool(elsewhere, request)) is not None:
            return moved
        kind, _, claim = request.headers.get("authorization", "").partition(" ")
        data = bytearray()
        async for piece in request.stream():
            data += piece
            if len(data) > MOST_BYTES:
                raise Refused(f"this is more than {MOST_BYTES:,} bytes", remedy="a tier says less of itself", code="body-large")
        await run_in_threadpool(watch.take, flow, tier, claim.strip() if kind == "Claim" else "", bytes(data))
        return Response(status_code=204)

    @routes.get("/v1/flows/{flow}/metrics", dependencies=viewer, summary="How a flow goes now, and went")
    def metrics(flow: str, request: Request, since: float | None = None, step: int = 1) -> Response:
        """`since`: seconds since 1970, the last ten minutes by default; `step`: how long a sample is at least, in seconds."""
        return elsewhere(request) or JSONResponse(watch.metrics(flow, since, step))

    @routes.get("/v1/flows/{flow}/intake", dependencies=viewer, summary="Whether producers may go on")
    def intake(flow: str, request: Request) -> Response:
        """`open`, `slow` or `refusing`, with the delay and the time to catch up; `Retry-After` where it is not open."""
        if (moved := elsewhere(request)) is not None:
            return moved
        answer = watch.intake(flow)
        headers = {"Retry-After": str(round(answer.retry_s) or 1)} if answer.intake != "open" else {}
        return JSONResponse(answer.as_json(), headers=headers)

    @routes.get("/v1/flows/{flow}/alerts", dependencies=viewer, summary="Its alerts, and how each stands")
    def alerts(flow: str, request: Request) -> Response:
        return elsewhere(request) or JSONResponse(watch.alerts(flow))

    @routes.post("/v1/flows/{flow}/alerts/test", dependencies=operator, summary="Send a test through the targets of its alerts")
    def test_alerts(flow: str, request: Request, alert: str | None = None) -> Response:
        """Of all, or of one; it answers when all of them did, or their time is over."""
        return elsewhere(request) or JSONResponse(watch.test_alerts(flow, alert))

    @routes.get("/v1/metrics", dependencies=viewer, summary="How all flows go now")
    def overview(request: Request) -> Response:
        return elsewhere(request) or JSONResponse(watch.overview())

    @routes.get("/metrics", summary="For Prometheus", response_class=Response)
    def exposition() -> Response:
        return Response(watch.exposition(), media_type=_TEXT)

    return routes
