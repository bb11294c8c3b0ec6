"""`/livez`, `/readyz`, `/v1/masters`: whether this master lives, whether it can do its part, and which ones there are."""

from collections.abc import Callable
from typing import Annotated, Any

import msgspec
from fastapi import APIRouter
from starlette.responses import Response

from scribengin.api.access import Role
from scribengin.api.plane import Asked, Plane
from scribengin.client.models import Health, MasterRow
from scribengin.core.errors import Unreachable
from scribengin.registry.contract import Link
from scribengin.registry.records import Stored, names, read_record
from scribengin.registry.tree import LEADER, MASTERS


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
        if plane.registry.session().link is not Link.CONNECTED:
            raise Unreachable("the registry does not answer this master", remedy="is ZooKeeper up? the master goes on when it is")
        return Response(msgspec.json.encode(Health("ok", plane.leads(), plane.registry.sync())), media_type="application/json")

    @routes.get("/v1/masters", response_model=list[MasterRow])
    def list_masters(asked: Annotated[Asked, may(Role.VIEWER)]) -> Response:
        """The masters that there are; any of them answers for all, one of them leads."""
        leader = read_record(asked.registry, LEADER())
        found = {}
        for name in names(asked.registry, "masters"):
            record = read_record(asked.registry, MASTERS(name))
            if isinstance(record, Stored):
                found[name] = MasterRow(name, record.record.http, leads=False, since=record.record.since)
        if isinstance(leader, Stored):
            name = leader.record.id
            found[name] = MasterRow(name, leader.record.http, leads=True, since=leader.record.since)
        return asked.answer([found[name] for name in sorted(found)])

    return routes
