"""`/v1/peers`, other control planes whose flows are connected to those here, and `/v1/ends`, which these read."""

from collections.abc import Callable
from typing import Annotated, Any

import msgspec
from fastapi import APIRouter, Query
from starlette.responses import Response

from scribengin.api.auth import Role
from scribengin.api.plane import ApiRequest
from scribengin.api.state_routing import sent_to_leader
from scribengin.client.models import AllEnds, PeerRow, SetPeer, Written
from scribengin.control.peering import set_peer
from scribengin.control.peers import list_peers, remove_peer
from scribengin.registry.contract import Registry

_LONGEST = 200


def peer_routes(may: Callable[[Role], Any]) -> APIRouter:
    """The routes; `may` returns the dependency that admits callers with a role."""
    routes = APIRouter(prefix="/v1", tags=["peers"])

    @routes.get("/ends", response_model=AllEnds)
    def all_ends(asked: Annotated[ApiRequest, may(Role.VIEWER)], flow: Annotated[list[str] | None, Query()] = None) -> Response:
        """Read by the masters of another control plane: where flows read and write, and their states; for named flows also their backlogs
        and how far they are acknowledged. Only the leader knows the backlogs: other masters redirect to it."""
        watch = asked.plane.watch
        if watch is None or not flow:
            return asked.answer(asked.view.ends(flow or ()))
        return sent_to_leader(watch, asked.request) or asked.answer(asked.view.ends(flow, watch.looks))

    @routes.get("/peers", response_model=list[PeerRow])
    def peers(asked: Annotated[ApiRequest, may(Role.VIEWER)]) -> Response:
        """The peers, whether they answer, and which of their flows are connected to flows here."""
        asked.check_all()
        return asked.answer(_rows(asked))

    @routes.put("/peers/{peer}", response_model=PeerRow)
    def write_peer(peer: str, to: SetPeer, asked: Annotated[ApiRequest, may(Role.ADMIN)]) -> Response:
        """Set the addresses of a peer; the leader polls it from then on."""

        def act(registry: Registry) -> PeerRow:
            asked.check_all()
            set_peer(registry, peer, masters=to.masters, aliases=to.aliases, by=asked.who.name)
            return next(row for row in _rows(asked) if row.peer == peer)

        return asked.write("set peer", peer[:_LONGEST], act, to)

    @routes.delete("/peers/{peer}", response_model=Written)
    def delete_peer(peer: str, asked: Annotated[ApiRequest, may(Role.ADMIN)]) -> Response:
        """Remove a peer. From then on its flows do not throttle flows here."""

        def act(registry: Registry) -> Written:
            asked.check_all()
            remove_peer(registry, peer)
            return Written(asked.plane.revision())

        return asked.write("remove peer", peer[:_LONGEST], act)

    return routes


def _rows(asked: ApiRequest) -> list[PeerRow]:
    return msgspec.convert(list_peers(asked.registry, asked.plane.workflows), list[PeerRow])
