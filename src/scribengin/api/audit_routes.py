"""`/v1/audit`: the audit log of this master. For admins."""

from collections.abc import Callable
from dataclasses import replace
from typing import Annotated, Any

from fastapi import APIRouter, Query
from starlette.responses import Response

from scribengin.api.auth import Role
from scribengin.api.plane import ApiRequest
from scribengin.client.models import AuditEntries

_LONGEST = 200
_MOST_LINES = 1_000


def audit_routes(may: Callable[[Role], Any]) -> APIRouter:
    """The routes; `may` returns the dependency that admits callers with a role."""
    routes = APIRouter(prefix="/v1/audit", tags=["health"])

    @routes.get("", response_model=AuditEntries)
    def show_audit_log(
        asked: Annotated[ApiRequest, may(Role.ADMIN)],
        limit: Annotated[int, Query(ge=1, le=_MOST_LINES)] = 100,
        who: Annotated[str, Query(max_length=_LONGEST)] = "",
        flow: Annotated[str, Query(max_length=_LONGEST)] = "",
    ) -> Response:
        """The changes that were requested from this master, newest first: only those of the caller `who`, and of the target `flow`. Each
        master has an audit log of its own."""
        asked.check_all()
        found = asked.plane.audit.read(limit, who=who, target=flow)
        return asked.answer(replace(found, master=str(asked.plane.glance()["id"])))

    return routes
