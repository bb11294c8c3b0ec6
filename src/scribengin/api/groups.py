"""`/v1/groups`: the groups of all flows, their members, and the state in which sinks find them; members are disabled and enabled."""

from collections.abc import Callable
from typing import Annotated, Any

import msgspec
from fastapi import APIRouter
from starlette.responses import Response

from scribengin.api.auth import Role
from scribengin.api.plane import ApiRequest
from scribengin.api.state_routing import sent_to_leader
from scribengin.api.views import labels_of
from scribengin.client.models import GroupRow, SetMember
from scribengin.control.groups import GroupSeen, find_group, group_as_json, read_groups, set_member
from scribengin.registry.contract import Registry


def group_routes(may: Callable[[Role], Any]) -> APIRouter:
    """The routes; `may` returns the dependency that admits callers with a role."""
    routes = APIRouter(prefix="/v1/groups", tags=["groups"])

    @routes.get("", response_model=list[GroupRow])
    def list_groups(asked: Annotated[ApiRequest, may(Role.VIEWER)]) -> Response:
        """The groups that flows name, or that have a record in the registry; only those of the flows that this caller may see."""
        return _leader(asked) or asked.answer([_row(asked, group) for group in read_groups(asked.registry, _visible(asked)).values()])

    @routes.get("/{group}", response_model=GroupRow)
    def show_group(group: str, asked: Annotated[ApiRequest, may(Role.VIEWER)]) -> Response:
        """One group."""
        return _leader(asked) or asked.answer(_row(asked, find_group(asked.registry, group, _visible(asked))))

    @routes.put("/{group}/members/{member}", response_model=GroupRow)
    def change_member(group: str, member: str, to: SetMember, asked: Annotated[ApiRequest, may(Role.OPERATOR)]) -> Response:
        """Disable a member, enable it, or set its cost: for all flows that name the group, from their next Batch on. A Batch that is
        already decided for a member still goes there."""

        def act(registry: Registry) -> GroupRow:
            asked.check_all()
            set_member(registry, group, member, out=to.out, why=to.why, cost=to.cost, by=asked.who.name)
            return _row(asked, find_group(registry, group))

        return asked.write("group", f"groups/{group}"[:200], act, to)

    return routes


def _leader(asked: ApiRequest) -> Response | None:
    """A redirect to the leader, which has the state of members; None if this master has it."""
    return sent_to_leader(asked.plane.watch, asked.request)


def _visible(asked: ApiRequest) -> Callable[[str], bool] | None:
    """A function that returns True for flows that the caller may see. None: the caller may see all flows, and also groups that only the
    registry names."""
    return (lambda flow: asked.who.may_see(labels_of(asked.registry, flow))) if asked.who.labels else None


def _row(asked: ApiRequest, group: GroupSeen) -> GroupRow:
    watch = asked.plane.watch
    return msgspec.convert(group_as_json(group, lambda flow: None if watch is None else watch.last_report(flow)), GroupRow)
