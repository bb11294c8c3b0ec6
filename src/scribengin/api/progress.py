"""Progress and metrics of flows: workers report to the leading master, which serves them. A standby redirects to the leader."""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
from fastapi import APIRouter, Request
from fastapi.responses import Response
from starlette.concurrency import run_in_threadpool
from starlette.requests import ClientDisconnect

from scribengin.api.state_routing import sent_to
from scribengin.control.worker_reports import WorkerWatch
from scribengin.core.errors import Refused, Unreachable
from scribengin.watching.progress import MOST_BYTES, PACE

_TEXT = "text/plain; version=0.0.4; charset=utf-8"
_TREND_SAMPLES = 60


def router(watch: WorkerWatch, viewer: Sequence[Any] = (), operator: Sequence[Any] = ()) -> APIRouter:
    """The routes of progress and metrics. Errors are ScribenginErrors, for the app's own handler.

    A worker's POST has the claim of its lease in place of a token: `Authorization: Claim HEX`.

    Args:
        watch: the reports of workers to this master.
        viewer: dependencies (`Depends(…)`) of the routes that read.
        operator: dependencies of the routes that act.
    """
    routes = APIRouter(tags=["watching"])

    def elsewhere(request: Request) -> Response | None:
        """A redirect to the leader; None if this master leads. Raises Unreachable if no leader can be reached."""
        if watch.leads():
            return None
        address = watch.leader()
        if not address:
            raise Unreachable(
                "no leading master can be reached from here",
                remedy="repeat the request in a moment; make a leader on another host reachable: "
                "scribengin server master --registry ADDRESS --listen HOST --tls-certificate FILE --tls-key FILE",
                code="leader-missing",
            )
        return sent_to(address, request)

    @routes.post("/v1/flows/{flow}/tiers/{tier}/progress", status_code=204, summary="Report the progress of a tier, as its worker")
    async def progress(flow: str, tier: str, request: Request) -> Response:
        if (moved := await run_in_threadpool(elsewhere, request)) is not None:
            return moved
        kind, _, claim = request.headers.get("authorization", "").partition(" ")
        data = bytearray()
        try:
            async for piece in request.stream():
                data += piece
                if len(data) > MOST_BYTES:
                    raise Refused(f"this is more than {MOST_BYTES:,} bytes", remedy="send a smaller report", code="body-large")
        except ClientDisconnect:  # the worker was killed while it reported: none reads the answer
            return Response(status_code=204)
        await run_in_threadpool(watch.take, flow, tier, claim.strip() if kind == "Claim" else "", bytes(data))
        return Response(status_code=204, headers={PACE: f"{watch.board.pace_s():g}"})

    @routes.get("/v1/flows/{flow}/metrics", dependencies=viewer, summary="Metrics of a flow, now and over time")
    def metrics(flow: str, request: Request, since: float | None = None, step: int = 1) -> Response:
        """`since`: seconds since 1970, the last ten minutes by default; `step`: the minimal length of a sample, in seconds."""
        return elsewhere(request) or _json(watch.metrics(flow, since, step))

    @routes.get("/v1/flows/{flow}/attempts", dependencies=viewer, summary="The processes that served a flow, and why they ended")
    def attempts(flow: str, request: Request) -> Response:
        return elsewhere(request) or _json(watch.attempts(flow))

    @routes.get("/v1/flows/{flow}/intake", dependencies=viewer, summary="Whether producers may send more")
    def intake(flow: str, request: Request) -> Response:
        """`open`, `slow` or `refusing`, with the delay and the time to catch up; `Retry-After` if it is not open."""
        if (moved := elsewhere(request)) is not None:
            return moved
        answer = watch.intake(flow)
        headers = {"Retry-After": str(round(answer.retry_s) or 1)} if answer.intake != "open" else {}
        return _json(answer.as_json(), headers)

    @routes.get("/v1/flows/{flow}/alerts", dependencies=viewer, summary="The alerts of a flow and their states")
    def alerts(flow: str, request: Request) -> Response:
        return elsewhere(request) or _json(watch.alerts(flow))

    @routes.post("/v1/flows/{flow}/alerts/test", dependencies=operator, summary="Send a test to the targets of the flow's alerts")
    def test_alerts(flow: str, request: Request, alert: str | None = None) -> Response:
        """Test all alerts, or one; the answer comes when all targets have answered, or their time is over."""
        return elsewhere(request) or _json(watch.test_alerts(flow, alert))

    @routes.get("/v1/metrics", dependencies=viewer, summary="Metrics of all flows now")
    def overview(request: Request) -> Response:
        return elsewhere(request) or _json(watch.overview())

    @routes.get("/v1/metrics/trends", dependencies=viewer, summary="The backlog of all flows over the last ten minutes")
    def trends(request: Request) -> Response:
        return elsewhere(request) or _json(watch.trends(_TREND_SAMPLES))

    @routes.get("/metrics", dependencies=viewer, summary="For Prometheus", response_class=Response)
    def exposition() -> Response:
        return Response(watch.exposition(), media_type=_TEXT)

    return routes


def _json(value: Any, headers: Mapping[str, str] | None = None) -> Response:
    """The value as a JSON answer; numbers that JSON cannot represent (infinity) become null."""
    return Response(msgspec.json.encode(value), media_type="application/json", headers=dict(headers or {}))
