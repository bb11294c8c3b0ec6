"""`/v1/workflows`: flows that meet, as one graph, and what is wanted of all of them."""

from collections.abc import Callable
from typing import Annotated, Any

from fastapi import APIRouter
from starlette.responses import Response

from scribengin.api.access import Role
from scribengin.api.plane import ApiRequest
from scribengin.api.sent_on import sent_to_leader
from scribengin.client.workflow_models import WantWorkflow, WorkflowBegun, WorkflowRow, WorkflowView
from scribengin.control import reading
from scribengin.control.workflow_operate import begin
from scribengin.registry.contract import Registry


def workflow_routes(may: Callable[[Role], Any]) -> APIRouter:
    """The routes; `may` lets in who has a role."""
    routes = APIRouter(prefix="/v1/workflows", tags=["workflows"])

    @routes.get("", response_model=list[WorkflowRow])
    def list_workflows(asked: Annotated[ApiRequest, may(Role.VIEWER)]) -> Response:
        """Flows that meet at a folder or a topic, by the name of the first of them; a flow that meets no other is in none."""
        return asked.answer(asked.view.workflows())

    @routes.get("/{flow}", response_model=WorkflowView)
    def show_workflow(flow: str, asked: Annotated[ApiRequest, may(Role.VIEWER)]) -> Response:
        """The workflow of any of its flows, as a graph: the flows as they stand, where they meet, and what waits there. What waits the
        leader alone was told: other masters send you there."""
        asked.check_flow(flow)
        watch = asked.plane.watch
        if watch is None or watch.leads():
            return asked.answer(asked.view.workflow(flow, waits_of(asked)))
        return sent_to_leader(watch, asked.request) or asked.answer(asked.view.workflow(flow))

    @routes.put("/{flow}/wanted", response_model=WorkflowBegun)
    def want_workflow(flow: str, want: WantWorkflow, asked: Annotated[ApiRequest, may(Role.OPERATOR)]) -> Response:
        """Say what is wanted of all flows of the workflow that a flow is in: they are asked one after the other, from the sources down, to
        resume from the sinks up; the answer names the operation that does it."""

        def act(registry: Registry) -> WorkflowBegun:
            asked.check_flow(flow)
            reading.read_flow(registry, flow)
            found = asked.plane.workflows.of(flow)
            if set(asked.view.workflow_of(flow).flows) != set(found.flows):
                asked.check_all()
            return WorkflowBegun(found.name, begin(registry, found, want.state, by=asked.who.name), found.flows)

        return asked.write(f"{want.state} workflow", flow, act, want)

    return routes


def waits_of(asked: ApiRequest) -> Callable[[str], Any]:
    """Flow → source → what waits there, as this master was told."""
    watch = asked.plane.watch
    return (lambda _flow: {}) if watch is None else watch.waits
