"""`/livez`, `/readyz`, `/v1/masters`: this master's liveness and readiness, and the list of masters."""

from collections import Counter
from collections.abc import Callable
from typing import Annotated, Any

import msgspec
from fastapi import APIRouter
from starlette.responses import Response

from scribengin.api.auth import Role
from scribengin.api.plane import ApiRequest, Plane
from scribengin.api.views import masters_of
from scribengin.client.models import Health, MasterRow, MasterView, RegistryLink
from scribengin.core.errors import Unreachable
from scribengin.registry.contract import SessionState
from scribengin.registry.zookeeper_servers import server_states

# `/v1/master`: a status summary of this master.


def master_routes(may: Callable[[Role], Any]) -> APIRouter:
    """The routes; `may` returns the dependency that admits callers with a role."""
    routes = APIRouter(tags=["health"])

    @routes.get("/v1/master", response_model=MasterView)
    def show_master(asked: Annotated[ApiRequest, may(Role.VIEWER)]) -> Response:
        """This master: whether it leads, its Term, its last reconciliation and last decisions, flows by state; masters, nodes."""
        return asked.answer(_view(asked))

    @routes.get("/v1/registry-servers", response_model=RegistryLink)
    def show_registry(asked: Annotated[ApiRequest, may(Role.VIEWER)]) -> Response:
        """The session of this master in the registry, and what each server of ZooKeeper says about itself. Takes up to two seconds."""
        asked.check_all()
        session = asked.registry.session()
        return asked.answer(RegistryLink(session.link.value, round(session.left_s, 1), server_states(session.servers)))

    return routes


def _view(asked: ApiRequest) -> MasterView:
    asked.check_all()
    states = Counter(row.state for row in asked.view.flows())
    about = {"leads": asked.plane.leads(), "term": None, "revision": asked.plane.revision(), **asked.plane.glance()}
    lists = {"masters": masters_of(asked.registry), "nodes": asked.view.nodes()}
    return msgspec.convert(msgspec.to_builtins({**about, "states": dict(sorted(states.items())), **lists}), MasterView)


def health_routes(plane: Plane, may: Callable[[Role], Any]) -> APIRouter:
    """The routes; the first two require no token."""
    routes = APIRouter(tags=["health"])

    @routes.get("/livez", response_model=Health)
    async def live() -> Response:
        """This process answers."""
        return Response(msgspec.json.encode(Health("ok", plane.leads(), 0)), media_type="application/json")

    @routes.get("/readyz", response_model=Health)
    def ready() -> Response:
        """This master and its registry answer; 503 if one of them does not."""
        if plane.registry.session().link is not SessionState.CONNECTED:
            raise Unreachable(
                "the registry does not answer this master", remedy="check that ZooKeeper is up; the master continues when it is"
            )
        return Response(msgspec.json.encode(Health("ok", plane.leads(), plane.registry.sync())), media_type="application/json")

    @routes.get("/v1/masters", response_model=list[MasterRow])
    def list_masters(asked: Annotated[ApiRequest, may(Role.VIEWER)]) -> Response:
        """All masters; each can answer requests, one of them leads."""
        return asked.answer(masters_of(asked.registry))

    return routes
