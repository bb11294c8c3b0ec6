"""How flows go: what workers tell the leading master, and what it says of it. A standby sends who asks to the leader."""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
from fastapi import APIRouter, Request
from fastapi.responses import Response
from starlette.concurrency import run_in_threadpool

from scribengin.api.sent_on import sent_to
from scribengin.control.watch import WorkerWatch
from scribengin.core.errors import Refused, Unreachable
from scribengin.watching.progress import MOST_BYTES, PACE

_TEXT = "text/plain; version=0.0.4; charset=utf-8"


def router(watch: WorkerWatch, viewer: Sequence[Any] = (), operator: Sequence[Any] = ()) -> APIRouter:
    """The routes; `watch` is this master's. Errors are ScribenginErrors, for the app's own handler.

    A worker's POST names the claim of its lease in place of a token: `Authorization: Claim HEX`. `viewer` and `operator` are dependencies
    (`Depends(…)`) of all that look, and of what does something.
    """
    routes = APIRouter(tags=["watching"])

    def elsewhere(request: Request) -> Response | None:
        """Where this master does not lead: the way to the one that does."""
        if watch.leads():
            return None
        address = watch.leader()
        if not address:
            raise Unreachable(
                "no master leads now that can be reached from here",
                remedy="ask again in a moment; a leader on another host lets others reach it: "
                "scribengin master --registry ADDRESS --listen HOST --tls-certificate FILE --tls-key FILE",
                code="leader-missing",
            )
        return sent_to(address, request)

    @routes.post("/v1/flows/{flow}/tiers/{tier}/progress", status_code=204, summary="A worker says how its tier goes")
    async def progress(flow: str, tier: str, request: Request) -> Response:
        if (moved := await run_in_threadpool(elsewhere, request)) is not None:
            return moved
        kind, _, claim = request.headers.get("authorization", "").partition(" ")
        data = bytearray()
        async for piece in request.stream():
            data += piece
            if len(data) > MOST_BYTES:
                raise Refused(f"this is more than {MOST_BYTES:,} bytes", remedy="a tier says less of itself", code="body-large")
        await run_in_threadpool(watch.take, flow, tier, claim.strip() if kind == "Claim" else "", bytes(data))
        return Response(status_code=204, headers={PACE: f"{watch.board.pace_s():g}"})

    @routes.get("/v1/flows/{flow}/metrics", dependencies=viewer, summary="How a flow goes now, and went")
    def metrics(flow: str, request: Request, since: float | None = None, step: int = 1) -> Response:
        """`since`: seconds since 1970, the last ten minutes by default; `step`: how long a sample is at least, in seconds."""
        return elsewhere(request) or _json(watch.metrics(flow, since, step))

    @routes.get("/v1/flows/{flow}/attempts", dependencies=viewer, summary="The processes that served it, and why they ended")
    def attempts(flow: str, request: Request) -> Response:
        return elsewhere(request) or _json(watch.attempts(flow))

    @routes.get("/v1/flows/{flow}/intake", dependencies=viewer, summary="Whether producers may go on")
    def intake(flow: str, request: Request) -> Response:
        """`open`, `slow` or `refusing`, with the delay and the time to catch up; `Retry-After` where it is not open."""
        if (moved := elsewhere(request)) is not None:
            return moved
        answer = watch.intake(flow)
        headers = {"Retry-After": str(round(answer.retry_s) or 1)} if answer.intake != "open" else {}
        return _json(answer.as_json(), headers)

    @routes.get("/v1/flows/{flow}/alerts", dependencies=viewer, summary="Its alerts, and how each stands")
    def alerts(flow: str, request: Request) -> Response:
        return elsewhere(request) or _json(watch.alerts(flow))

    @routes.post("/v1/flows/{flow}/alerts/test", dependencies=operator, summary="Send a test through the targets of its alerts")
    def test_alerts(flow: str, request: Request, alert: str | None = None) -> Response:
        """Of all, or of one; it answers when all of them did, or their time is over."""
        return elsewhere(request) or _json(watch.test_alerts(flow, alert))

    @routes.get("/v1/metrics", dependencies=viewer, summary="How all flows go now")
    def overview(request: Request) -> Response:
        return elsewhere(request) or _json(watch.overview())

    @routes.get("/metrics", dependencies=viewer, summary="For Prometheus", response_class=Response)
    def exposition() -> Response:
        return Response(watch.exposition(), media_type=_TEXT)

    return routes


def _json(value: Any, headers: Mapping[str, str] | None = None) -> Response:
    """What no JSON can say (infinity) is null."""
    return Response(msgspec.json.encode(value), media_type="application/json", headers=dict(headers or {}))
