"""`/v1/flows`: submit flows, look at them, say what is wanted of them."""

from collections.abc import Callable
from typing import Annotated, Any

from fastapi import APIRouter, Query
from starlette.responses import Response

from scribengin.api.access import Role
from scribengin.api.logs import MOST_LINES, read_logs
from scribengin.api.plane import Asked
from scribengin.client.models import (
    FLOW_NAME,
    PACKAGE_ID,
    AppliedFlow,
    FlowRow,
    FlowView,
    LogLines,
    Submit,
    TaskRow,
    VersionRow,
    Want,
    Written,
)
from scribengin.client.problems import Fault, PointedError
from scribengin.control import admin, reading
from scribengin.registry.contract import Registry


def flow_routes(may: Callable[[Role], Any]) -> APIRouter:
    """The routes; `may` lets in who has a role."""
    routes = APIRouter(prefix="/v1/flows", tags=["flows"])

    @routes.get("", response_model=list[FlowRow])
    def list_flows(asked: Annotated[Asked, may(Role.VIEWER)], label: Annotated[list[str] | None, Query()] = None) -> Response:
        """All flows, or those with all these labels (`label=team=shop`), by name: what is wanted of each, how it stands, and why."""
        wanted = dict(_label(text) for text in label or ())
        if any(asked.who.labels.get(name, value) != value for name, value in wanted.items()):
            return asked.answer([])
        return asked.answer(asked.view.flows(wanted))

    @routes.get("/{flow}", response_model=FlowView)
    def show_flow(flow: str, asked: Annotated[Asked, may(Role.VIEWER)]) -> Response:
        """What is wanted of a flow, how it stands, and who serves its tiers. `ETag` is the revision of what is wanted."""
        asked.check_flow(flow)
        view = asked.view.flow(flow)
        return asked.answer(view, headers={"ETag": f'"{view.wanted.revision}"'})

    @routes.put("/{flow}", response_model=AppliedFlow)
    def submit_flow(flow: str, wanted: Submit, asked: Annotated[Asked, may(Role.EDITOR)]) -> Response:
        """Make a flow of a package the next version of this flow, and want it to run; the same again changes nothing."""

        def act(registry: Registry) -> AppliedFlow:
            if not FLOW_NAME.fullmatch(flow):
                fault = Fault("flow-name", f'"{flow}" can be no flow\'s name', f"a name matches {FLOW_NAME.pattern}")
                raise PointedError((fault,))
            check_submit(wanted)
            planned, _ = asked.plane.planner.plan(wanted)
            if planned.flow != flow:
                fault = Fault(
                    "flow-name", f'{wanted.path} is flow "{planned.flow}", not "{flow}"', f"PUT /v1/flows/{planned.flow}", pointer="/path"
                )
                raise PointedError((fault,))
            asked.check_new(flow, planned.labels)
            applied = admin.apply(registry, planned, state=lambda _: asked.plane.state, by=asked.who.name)
            return AppliedFlow(applied.flow, applied.version, applied.changed)

        return asked.write("apply", flow, act, wanted, slow=True)

    @routes.get("/{flow}/tasks", response_model=list[TaskRow])
    def show_tasks(flow: str, asked: Annotated[Asked, may(Role.VIEWER)]) -> Response:
        """What each task of the flow's tiers reads and writes, and how far it is, as its worker wrote it last."""
        asked.check_flow(flow)
        return asked.answer(asked.view.tasks(flow))

    @routes.get("/{flow}/versions", response_model=list[VersionRow])
    def show_versions(flow: str, asked: Annotated[Asked, may(Role.VIEWER)]) -> Response:
        """The versions of a flow, the newest first."""
        asked.check_flow(flow)
        return asked.answer(asked.view.versions(flow))

    @routes.put("/{flow}/wanted", response_model=Written)
    def want_flow(flow: str, want: Want, asked: Annotated[Asked, may(Role.OPERATOR)]) -> Response:
        """Say what is wanted of a flow now; asked again what failed is tried again."""

        def act(registry: Registry) -> Written:
            asked.check_flow(flow)
            return Written(admin.want(registry, flow, want.state, by=asked.who.name))

        return asked.write(want.state, flow, act, want)

    @routes.delete("/{flow}", response_model=Written)
    def delete_flow(flow: str, asked: Annotated[Asked, may(Role.EDITOR)]) -> Response:
        """Forget a flow that is stopped. Its outputs, its state and its packages stay."""

        def act(registry: Registry) -> Written:
            asked.check_flow(flow)
            admin.delete(registry, flow)
            return Written(asked.plane.revision())

        return asked.write("delete", flow, act)

    @routes.get("/{flow}/logs", response_model=list[LogLines])
    def show_logs(
        flow: str,
        asked: Annotated[Asked, may(Role.VIEWER)],
        tier: str | None = None,
        lines: Annotated[int, Query(ge=1, le=MOST_LINES)] = 50,
    ) -> Response:
        """What the newest worker of each tier has printed, and the tiers' run logs, as far as they lie on this master's host."""
        asked.check_flow(flow)
        workers = {row.tier: row.worker for row in asked.view.flow(flow).tiers if tier in (None, row.tier)}
        return asked.answer(read_logs(reading.state_of(asked.registry, flow), flow, workers, asked.plane.logs, lines))

    return routes


def check_submit(wanted: Submit, pointer: str = "") -> None:
    """Raise InputError for what cannot be planned; `pointer` is where it stands in the body."""
    faults = []
    if not PACKAGE_ID.fullmatch(wanted.package):
        said = f"{pointer}/package is no SHA-256"
        faults.append(Fault("body", said, "write 64 hexadecimal digits, as `scribengin package` shows them", pointer=f"{pointer}/package"))
    if not wanted.base.startswith("/") or "\0" in wanted.base:
        said = f"{pointer}/base is no absolute path"
        faults.append(Fault("body", said, "name the folder where relative paths start", pointer=f"{pointer}/base"))
    if faults:
        raise PointedError(tuple(faults))


def _label(text: str) -> tuple[str, str]:
    """Raises InputError for what is no `name=value`."""
    name, sign, value = text.partition("=")
    if not sign or not name:
        raise PointedError((Fault("parameter", f"label: {text!r} is no label", "write label=NAME=VALUE"),))
    return name, value
