"""`/v1/quotas`: shared quotas of flows with a label."""

from collections.abc import Callable
from dataclasses import replace
from typing import Annotated, Any

import msgspec
from fastapi import APIRouter
from starlette.responses import Response

from scribengin.api.auth import Role
from scribengin.api.plane import ApiRequest
from scribengin.client.change_models import QuotaRow, SetQuota
from scribengin.client.models import Written
from scribengin.control.quota_records import list_quotas, remove_quota, set_quota
from scribengin.registry.contract import Registry

_LONGEST = 200


def quota_routes(may: Callable[[Role], Any]) -> APIRouter:
    """The routes; `may` returns the dependency that admits callers with a role."""
    routes = APIRouter(prefix="/v1/quotas", tags=["quotas"])

    @routes.get("", response_model=list[QuotaRow])
    def quotas(asked: Annotated[ApiRequest, may(Role.VIEWER)]) -> Response:
        """All quotas, each with the present use by its flows. A caller with access to some flows only sees those of its labels, with those
        flows."""
        rows = _rows(asked.registry)
        if asked.who.labels:
            mine = {f"{label}={value}" for label, value in asked.who.labels.items()}
            rows = [_seen(asked, row) for row in rows if row.quota in mine]
        return asked.answer(rows)

    @routes.put("/{quota}", response_model=QuotaRow)
    def write_quota(quota: str, to: SetQuota, asked: Annotated[ApiRequest, may(Role.ADMIN)]) -> Response:
        """Create or update the quota of flows with a label (`label=value`). Running flows continue; a flow that does not fit waits from now
        on."""

        def act(registry: Registry) -> QuotaRow:
            asked.check_all()
            by, off = asked.who.name, to.off
            set_quota(registry, quota, cores=to.cores, memory_bytes=to.memory_bytes, rows_per_s=to.rows_per_s, off=off, by=by)
            return next(row for row in _rows(registry) if row.quota == quota)

        return asked.write("set quota", quota[:_LONGEST], act, to)

    @routes.delete("/{quota}", response_model=Written)
    def delete_quota(quota: str, asked: Annotated[ApiRequest, may(Role.ADMIN)]) -> Response:
        """Remove the quota of flows with that label."""

        def act(registry: Registry) -> Written:
            asked.check_all()
            remove_quota(registry, quota)
            return Written(asked.plane.revision())

        return asked.write("remove quota", quota[:_LONGEST], act)

    return routes


def _seen(asked: ApiRequest, row: QuotaRow) -> QuotaRow:
    seen = asked.view.seen([each.flow for each in row.flows])
    return replace(row, flows=tuple(each for each in row.flows if each.flow in seen))


def _rows(registry: Registry) -> list[QuotaRow]:
    return msgspec.convert(list_quotas(registry), list[QuotaRow])
