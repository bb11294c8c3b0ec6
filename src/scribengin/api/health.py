"""`/livez`, `/readyz`, `/v1/masters`: whether this master lives, whether it can do its part, and which ones there are."""

from collections.abc import Callable
from typing import Annotated, Any

import msgspec
from fastapi import APIRouter
from starlette.responses import Response

from scribengin.api.access import Role
from scribengin.api.plane import ApiRequest, Plane
from scribengin.api.views import masters_of
from scribengin.client.host_models import Health, MasterRow
from scribengin.core.errors import Unreachable
from scribengin.registry.contract import SessionState


def health_routes(plane: Plane, may: Callable[[Role], Any]) -> APIRouter:
    """The routes; for the first two nobody is asked who he is."""
    routes = APIRouter(tags=["health"])

    @routes.get("/livez", response_model=Health)
    async def live() -> Response:
        """This process answers."""
        return Response(msgspec.json.encode(Health("ok", plane.leads(), 0)), media_type="application/json")

    @routes.get("/readyz", response_model=Health)
    def ready() -> Response:
        """This master and its registry answer; 503 where one of them does not."""
        if plane.registry.session().link is not SessionState.CONNECTED:
            raise Unreachable("the registry does not answer this master", remedy="is ZooKeeper up? the master goes on when it is")
        return Response(msgspec.json.encode(Health("ok", plane.leads(), plane.registry.sync())), media_type="application/json")

    @routes.get("/v1/masters", response_model=list[MasterRow])
    def list_masters(asked: Annotated[ApiRequest, may(Role.VIEWER)]) -> Response:
        """The masters that there are; any of them answers for all, one of them leads."""
        return asked.answer(masters_of(asked.registry))

    return routes
