"""The FastAPI application: its routes, and the one form of all its errors."""

import re
from collections.abc import Callable
from importlib.metadata import version
from typing import Any

from fastapi import Depends, FastAPI, Request
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.responses import Response

from scribengin.api.agents import agent_routes
from scribengin.api.audit_routes import audit_routes
from scribengin.api.auth import Role, session_of
from scribengin.api.console_files import console_routes
from scribengin.api.events import event_routes
from scribengin.api.flow_routes import flow_routes
from scribengin.api.flow_texts import flow_text_routes
from scribengin.api.groups import group_routes
from scribengin.api.health import health_routes, master_routes
from scribengin.api.lifecycle_routes import verb_routes
from scribengin.api.nodes import node_routes
from scribengin.api.openapi import described
from scribengin.api.packages import package_routes
from scribengin.api.peers import peer_routes
from scribengin.api.plane import ApiRequest, Plane
from scribengin.api.progress import router
from scribengin.api.quotas import quota_routes
from scribengin.api.records import record_routes
from scribengin.api.request_limits import BodyLimit
from scribengin.api.sessions import session_routes
from scribengin.api.state_routes import answer_routes, letter_routes
from scribengin.api.token_routes import token_routes
from scribengin.api.workflows import workflow_routes
from scribengin.client.problems import CODE, MEDIA_TYPE, Fault, PointedError, ProblemDetails, encode, to_problem
from scribengin.client.transport import REVISION
from scribengin.core.errors import Refused, ScribenginError

_NUMBER = re.compile("[0-9]{1,18}")
_LONGEST = 200


def make_app(plane: Plane) -> FastAPI:
    """The application that serves a master's API."""
    app = FastAPI(
        title="Scribengin",
        version=version("scribengin"),
        openapi_url="/v1/openapi.json",
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
        responses={"default": {"model": ProblemDetails, "description": "What is wrong, and what to do"}},
        generate_unique_id_function=lambda route: route.name,
    )
    may = _gate(plane)
    app.include_router(flow_routes(may))
    app.include_router(verb_routes(may))
    app.include_router(flow_text_routes(may))
    app.include_router(letter_routes(may))
    app.include_router(answer_routes(may))
    app.include_router(group_routes(may))
    app.include_router(workflow_routes(may))
    app.include_router(package_routes(may))
    app.include_router(record_routes(may))
    app.include_router(quota_routes(may))
    app.include_router(peer_routes(may))
    app.include_router(event_routes(may, plane.registry, plane.watch))
    app.include_router(health_routes(plane, may))
    app.include_router(node_routes(may))
    app.include_router(agent_routes(may))
    app.include_router(token_routes(may))
    app.include_router(audit_routes(may))
    app.include_router(master_routes(may))
    app.include_router(session_routes(plane, may))
    app.include_router(console_routes())
    if plane.watch is not None:
        app.include_router(router(plane.watch, [may(Role.VIEWER, by_labels=True)], [may(Role.OPERATOR, by_labels=True)]))
    app.add_middleware(BodyLimit)
    for kind in (ScribenginError, HTTPException, RequestValidationError, Exception):
        app.add_exception_handler(kind, _Told(plane))
    made = app.openapi
    app.openapi = lambda: described(made())  # type: ignore[method-assign]
    return app


def _gate(plane: Plane) -> Callable[..., Any]:
    """Returns a function: role → the dependency that admits callers with this role, and gives the handler an `ApiRequest`. `by_labels`: the
    dependency also checks whether the caller may see the flow in the path, or all flows, because the handler does not."""

    def may(role: Role, *, by_labels: bool = False) -> Any:
        def asked(request: Request) -> ApiRequest:
            name, address = "", request.client.host if request.client is not None else ""
            try:
                if "Authorization" in request.headers or session_of(request):
                    plane.registry.sync()  # so that a revoked token is no longer valid, whichever master has revoked it
                who = plane.gate.who(request)
                name = who.name
                who.check(role)
            except Refused as error:
                plane.audit.write(name, address, f"{request.method} {request.url.path}"[:_LONGEST], "", error.code)
                raise
            seen = request.headers.get(REVISION, "")
            plane.registry.sync()  # so that this caller sees what any caller has been told is written
            if _NUMBER.fullmatch(seen):
                plane.registry.sync(at_least=int(seen))
            this = ApiRequest(plane, who, request)
            if by_labels and who.labels:
                flow = request.path_params.get("flow")
                this.check_all() if flow is None else this.check_flow(flow)
            return this

        return Depends(asked)

    return may


class _Told:
    """The handler of all errors: answers with a problem."""

    def __init__(self, plane: Plane) -> None:
        self._plane = plane

    def __call__(self, request: Request, error: Exception) -> Response:
        problem = to_problem(_as_ours(request, error))
        headers = {REVISION: str(self._plane.revision()), CODE: problem.code}
        if isinstance(error, HTTPException):
            headers |= dict(error.headers or {})
        if problem.status == 503:
            headers["Retry-After"] = "1"
        if problem.status == 401:
            headers["WWW-Authenticate"] = "Bearer"
        return Response(encode(problem), problem.status, headers, MEDIA_TYPE)


def _as_ours(request: Request, error: Exception) -> ScribenginError:
    """An error as one of this project's errors."""
    where = f"{request.method} {request.url.path}"
    if isinstance(error, ScribenginError):
        return error
    if isinstance(error, RequestValidationError):
        return PointedError(tuple(map(_fault, error.errors())))
    if isinstance(error, HTTPException):
        if isinstance(error.__cause__, ScribenginError):
            return error.__cause__
        if error.status_code == 404:
            return Refused(f"there is nothing at {where}", remedy="GET /v1/openapi.json lists all routes", code="not-found")
        if error.status_code == 405:
            allowed = (error.headers or {}).get("Allow", "others")
            return Refused(f"{where} is not allowed", remedy=f"allowed methods: {allowed}", code="method")
        return PointedError((Fault("body", str(error.detail), "send JSON, in UTF-8"),))
    text = f"this is a bug in Scribengin: {type(error).__name__}"
    return ScribenginError(text, remedy="report it, with the lines of the master's log", code="bug")


def _fault(error: Any) -> Fault:
    """One finding of FastAPI as a fault."""
    where, *path = error["loc"]
    pointer = "".join(f"/{str(part).replace('~', '~0').replace('/', '~1')}" for part in path)
    if where == "body":
        if error["type"] == "json_invalid":
            return Fault("body", f"the body is not valid JSON: {error['ctx']['error']}", "send JSON, in UTF-8")
        said = f"the body: {error['msg']}" if not pointer else error["msg"]
        return Fault("body", f"{pointer} {said}".strip(), "GET /v1/openapi.json shows the expected form", pointer=pointer)
    return Fault("parameter", f"{where} {'.'.join(map(str, path))}: {error['msg']}", "GET /v1/openapi.json shows the expected form")
