"""Texts of flow files: that of a version, and one that is checked and planned before it is applied."""

from collections.abc import Callable
from typing import Annotated, Any

import msgspec
from fastapi import APIRouter, Path
from starlette.responses import Response

from scribengin.api.plane import ApiRequest
from scribengin.api.planned import planned
from scribengin.api.planner import ask_planner, records_for
from scribengin.api.state_queries import StateQuery, role_of
from scribengin.client.change_models import Topology
from scribengin.client.flow_text_models import CheckedText, CheckText, FlowFileView, FlowText, PlannedText, PlanText
from scribengin.client.models import FLOW_NAME, Submit
from scribengin.client.problems import Fault, PointedError
from scribengin.control import flow_records
from scribengin.control.file_differences import file_differences
from scribengin.registry.tree import SPEC

_NEWEST = 10**9


def flow_text_routes(may: Callable[[Any], Any]) -> APIRouter:
    """The routes; `may` returns the dependency that admits callers with a role."""
    routes = APIRouter(prefix="/v1", tags=["flows"])

    @routes.get("/flows/{flow}/versions/{version}/text", response_model=FlowText)
    def show_text(
        flow: str, version: Annotated[int, Path(ge=1, le=_NEWEST)], asked: Annotated[ApiRequest, may(role_of("text"))]
    ) -> Response:
        """The flow file of a version, without secrets, and the line of each node."""
        asked.check_flow(flow)
        query = StateQuery("text", flow, {"version": version}, (flow,), {flow: version})
        records = records_for(asked.registry, query)
        found = asked.plane.planner.ask_once(query, records, records.get(SPEC(flow, str(version)).path))
        return asked.answer(msgspec.convert({"flow": flow, "version": version, **found}, FlowText))

    @routes.get("/flows/{flow}/file", response_model=FlowFileView)
    def show_file(flow: str, asked: Annotated[ApiRequest, may(role_of("file"))]) -> Response:
        """The flow file of the desired version, as submitted and as it is now on this host, and where what runs differs from it: another
        version, resources, numbers of workers and rate limits that commands have set."""
        asked.check_flow(flow)
        version = flow_records.read_flow(asked.registry, flow).desired.version
        found = ask_planner(asked.plane, StateQuery("file", flow, {"version": version}, (flow,), {flow: version}))
        differences = file_differences(asked.registry, flow, version, found["tiers"])
        return asked.answer(FlowFileView(flow, version, found["path"], found["text"], found["now"], differences))

    @routes.post("/flow-files/check", response_model=CheckedText)
    def check_text(wanted: CheckText, asked: Annotated[ApiRequest, may(role_of("check-text"))]) -> Response:
        """All problems of the text of a flow file, each with its line, and the flow's graph if it has no errors. Nothing is executed or
        stored."""
        found = ask_planner(asked.plane, StateQuery("check-text", "", {"text": wanted.text}))
        return asked.answer(msgspec.convert(found, CheckedText))

    @routes.post("/flow-files/plan", response_model=PlannedText)
    def plan_text(wanted: PlanText, asked: Annotated[ApiRequest, may(role_of("pack"))]) -> Response:
        """Make a package of the text of a flow file alone, store it, and plan its submission: the answer has what to send to
        `PUT /v1/flows/{flow}`. A text that names code or files beside it is refused."""
        if not FLOW_NAME.fullmatch(wanted.flow):
            fault = Fault(
                "flow-name", f'"{wanted.flow}" is not a valid name of a flow', f"a name matches {FLOW_NAME.pattern}", pointer="/flow"
            )
            raise PointedError((fault,))
        packed = ask_planner(asked.plane, StateQuery("pack", wanted.flow, {"text": wanted.text, "base": wanted.base}))
        submit = Submit(packed["package"], packed["path"], packed["base"])
        plan, _ = planned(asked, Topology((submit,)))
        return asked.answer(PlannedText(submit, plan.shown()))

    return routes
