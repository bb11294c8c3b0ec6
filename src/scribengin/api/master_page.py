"""`/` and `/v1/master`: this master at a glance, for people and for programs."""

from collections import Counter
from collections.abc import Callable
from typing import Annotated, Any

import msgspec
from fastapi import APIRouter
from starlette.responses import HTMLResponse, Response

from scribengin.api.access import Role
from scribengin.api.plane import ApiRequest
from scribengin.api.views import masters_of
from scribengin.client.host_models import MasterView
from scribengin.client.transport import REVISION
from scribengin.control.html_page import page


def master_routes(may: Callable[[Role], Any]) -> APIRouter:
    """The routes; `may` lets in who has a role."""
    routes = APIRouter(tags=["health"])

    @routes.get("/v1/master", response_model=MasterView)
    def show_master(asked: Annotated[ApiRequest, may(Role.VIEWER)]) -> Response:
        """This master: whether it leads, its Term, its last look and what it has decided last, flows by state; masters, nodes."""
        return asked.answer(_view(asked))

    @routes.get("/", response_class=HTMLResponse, include_in_schema=False)
    def show_page(asked: Annotated[ApiRequest, may(Role.VIEWER)]) -> Response:
        """The same for people."""
        view = _view(asked)
        said = msgspec.to_builtins(view)
        headers = {REVISION: str(view.revision), "Cache-Control": "no-store"}
        return HTMLResponse(page(said, title=f"master {view.id}", json="/v1/master"), headers=headers)

    return routes


def _view(asked: ApiRequest) -> MasterView:
    asked.check_all()
    states = Counter(row.state for row in asked.view.flows())
    about = {"leads": asked.plane.leads(), "term": None, "revision": asked.plane.revision(), **asked.plane.glance()}
    lists = {"masters": masters_of(asked.registry), "nodes": asked.view.nodes()}
    return msgspec.convert(msgspec.to_builtins({**about, "states": dict(sorted(states.items())), **lists}), MasterView)
