"""`/v1/workflows`: connected flows as one graph, and the desired state of all of them."""

from collections.abc import Callable
from typing import Annotated, Any

from fastapi import APIRouter
from starlette.responses import Response

from scribengin.api.auth import Role
from scribengin.api.plane import ApiRequest
from scribengin.api.state_routing import sent_to_leader
from scribengin.client.models import WantWorkflow, WorkflowBegun, WorkflowRow, WorkflowView
from scribengin.control import flow_records
from scribengin.control.operation_requests import begin_workflow_operation
from scribengin.registry.contract import Registry


def workflow_routes(may: Callable[[Role], Any]) -> APIRouter:
    """The routes; `may` returns the dependency that admits callers with a role."""
    routes = APIRouter(prefix="/v1/workflows", tags=["workflows"])

    @routes.get("", response_model=list[WorkflowRow])
    def list_workflows(asked: Annotated[ApiRequest, may(Role.VIEWER)]) -> Response:
        """Flows that are connected by a folder or a topic, under the name of the first of them; a flow without connections is in none."""
        return asked.answer(asked.view.workflows())

    @routes.get("/{flow}", response_model=WorkflowView)
    def show_workflow(flow: str, asked: Annotated[ApiRequest, may(Role.VIEWER)]) -> Response:
        """The workflow of any of its flows, as a graph: the flows with their states, their connections, and the backlogs there. Only the
        leader knows the backlogs: other masters redirect to it."""
        asked.check_flow(flow)
        watch = asked.plane.watch
        if watch is None or watch.leads():
            return asked.answer(asked.view.workflow(flow, waits_of(asked)))
        return sent_to_leader(watch, asked.request) or asked.answer(asked.view.workflow(flow))

    @routes.put("/{flow}/wanted", response_model=WorkflowBegun)
    def want_workflow(flow: str, want: WantWorkflow, asked: Annotated[ApiRequest, may(Role.OPERATOR)]) -> Response:
        """Set the desired state of all flows of the workflow that a flow is in: one after the other, from the sources down; to resume, from
        the sinks up. The answer names the operation that does it."""

        def act(registry: Registry) -> WorkflowBegun:
            asked.check_flow(flow)
            flow_records.read_flow(registry, flow)
            found = asked.plane.workflows.of(flow)
            if set(asked.view.workflow_of(flow).flows) != set(found.flows):
                asked.check_all()
            return WorkflowBegun(found.name, begin_workflow_operation(registry, found, want.state, by=asked.who.name), found.flows)

        return asked.write(f"{want.state} workflow", flow, act, want)

    return routes


def waits_of(asked: ApiRequest) -> Callable[[str], Any]:
    """Returns a function: flow → source → its backlog, as reported to this master."""
    watch = asked.plane.watch
    return (lambda _flow: {}) if watch is None else watch.waits
