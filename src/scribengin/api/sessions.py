"""`/v1/session`: the user of a browser, and its session. A session is opened with a token, and is a cookie that scripts cannot read."""

from collections.abc import Callable
from typing import Annotated, Any

from fastapi import APIRouter, Request
from starlette.responses import Response

from scribengin.api.auth import Role, check_own_page, session_cookie, session_of
from scribengin.api.plane import ApiRequest, Plane
from scribengin.api.tokens import SESSION_S, OpenedSession
from scribengin.client.models import OpenSession, SessionView
from scribengin.core.errors import Refused


def session_routes(plane: Plane, may: Callable[[Role], Any]) -> APIRouter:
    """The routes; `may` returns the dependency that admits callers with a role."""
    routes = APIRouter(prefix="/v1/session", tags=["session"])

    @routes.get("", response_model=SessionView)
    def show_session(asked: Annotated[ApiRequest, may(Role.VIEWER)]) -> Response:
        """The caller, and its access rights."""
        who = asked.who
        return asked.answer(_view(who.name, who.role, who.labels, signed_in=bool(session_of(asked.request))))

    @routes.post("", response_model=SessionView)
    def open_session(wanted: OpenSession, request: Request) -> Response:
        """Open a session of a browser with a token. The answer sets a cookie."""
        address = request.client.host if request.client is not None else ""

        def opened() -> OpenedSession:
            check_own_page(request)
            plane.registry.sync()
            return plane.tokens.open_session(wanted.token.strip())

        try:
            made = opened()
        except Refused as error:
            plane.audit.write("", address, "open session", "", error.code)
            raise
        plane.audit.write(made.who.name, address, "open session", "", "done")
        asked = ApiRequest(plane, made.who, request)
        answer = asked.answer(_view(made.who.name, made.who.role, made.who.labels, signed_in=True, until=made.until))
        answer.set_cookie(
            session_cookie(request), made.secret, max_age=SESSION_S, httponly=True, samesite="strict", secure=request.url.scheme == "https"
        )
        return answer

    @routes.delete("", status_code=204)
    def close_session(request: Request) -> Response:
        """End the browser's session. Its cookie is deleted."""
        check_own_page(request)
        if session := session_of(request):
            plane.tokens.close_session(session)
        answer = Response(status_code=204)
        answer.delete_cookie(session_cookie(request), httponly=True, samesite="strict", secure=request.url.scheme == "https")
        return answer

    return routes


def _view(name: str, role: Role, labels: Any, *, signed_in: bool, until: str = "") -> SessionView:
    return SessionView(name, role.name.lower(), dict(labels), signed_in, until)  # type: ignore[arg-type]
