"""`/v1/flows`: submit flows, read them, and set their desired state."""

from collections.abc import Callable
from typing import Annotated, Any

from fastapi import APIRouter, Query
from starlette.responses import Response

from scribengin.api.auth import Role
from scribengin.api.logs import MOST_LINES, read_logs
from scribengin.api.plane import ApiRequest
from scribengin.api.planned import check_submit, planned
from scribengin.client.change_models import Topology
from scribengin.client.models import (
    FLOW_NAME,
    AppliedFlow,
    FlowRow,
    FlowView,
    LogLines,
    Submit,
    SubmitFlow,
    TaskRow,
    VersionRow,
    Want,
    Written,
)
from scribengin.client.problems import Fault, PointedError
from scribengin.control import flow_records, flow_requests, topology
from scribengin.core.errors import Refused
from scribengin.registry.contract import Registry


def flow_routes(may: Callable[[Role], Any]) -> APIRouter:
    """The routes; `may` returns the dependency that admits callers with a role."""
    routes = APIRouter(prefix="/v1/flows", tags=["flows"])

    @routes.get("", response_model=list[FlowRow])
    def list_flows(asked: Annotated[ApiRequest, may(Role.VIEWER)], label: Annotated[list[str] | None, Query()] = None) -> Response:
        """All flows by name, or those with all these labels (`label=team=shop`): the desired state of each, its status, and the reason."""
        wanted = dict(_label(text) for text in label or ())
        if any(asked.who.labels.get(name, value) != value for name, value in wanted.items()):
            return asked.answer([])
        return asked.answer(asked.view.flows(wanted))

    @routes.get("/{flow}", response_model=FlowView)
    def show_flow(flow: str, asked: Annotated[ApiRequest, may(Role.VIEWER)]) -> Response:
        """A flow's desired state, status and workers. `ETag` is the revision of the desired state."""
        asked.check_flow(flow)
        view = asked.view.flow(flow)
        return asked.answer(view, headers={"ETag": f'"{view.wanted.revision}"'})

    @routes.put("/{flow}", response_model=AppliedFlow)
    def submit_flow(flow: str, wanted: SubmitFlow, asked: Annotated[ApiRequest, may(Role.EDITOR)]) -> Response:
        """Submit a flow from a package as the next version of this flow, with the desired state running; submitting the same again changes
        nothing.

        If the flow exists, the request must confirm that it replaces the present version: with `plan`, the hash of the plan that was
        reviewed, with `accept`, or with If-Match and the flow's ETag. If rows would be read again or lost, only `plan` or `accept` confirm
        it.
        """
        submit = Submit(wanted.package, wanted.path, wanted.base)
        headers = asked.request.headers

        def act(registry: Registry) -> AppliedFlow:
            if not FLOW_NAME.fullmatch(flow):
                fault = Fault("flow-name", f'"{flow}" is not a valid name of a flow', f"a name matches {FLOW_NAME.pattern}")
                raise PointedError((fault,))
            check_submit(submit)
            plan, submissions = planned(asked, Topology((submit,), wanted.plan, wanted.accept))
            if (name := submissions[0].flow) != flow:
                fault = Fault("flow-name", f'{wanted.path} is flow "{name}", not "{flow}"', f"PUT /v1/flows/{name}", pointer="/path")
                raise PointedError((fault,))
            known = wanted.plan or wanted.accept or "If-Match" in headers or "If-None-Match" in headers
            if plan.flows[0].version and plan.flows[0].effect is not None and not known:
                raise Refused(
                    f"flow {flow} exists, in version {plan.flows[0].version}, and this request would change it without a confirmation",
                    remedy=f'send "plan": "{plan.hash}" (from POST /v1/topology/plan), "accept", or If-Match with the ETag of the flow',
                    code="plan-needed",
                )
            topology.check_agreed(plan, expected=wanted.plan, accept=wanted.accept)
            state, by = asked.plane.state, asked.who.name
            [done] = topology.write_topology(
                registry,
                submissions,
                plan,
                state=lambda _: state,
                by=by,
                accept=wanted.accept,
                workflows=asked.plane.workflows,
                columns=wanted.columns,
            )
            return AppliedFlow(done.flow, done.version, done.changed)

        return asked.write("apply", flow, act, wanted, slow=True)

    @routes.get("/{flow}/tasks", response_model=list[TaskRow])
    def show_tasks(flow: str, asked: Annotated[ApiRequest, may(Role.VIEWER)]) -> Response:
        """The input, output and progress of each task of the flow's tiers, as its worker last wrote them."""
        asked.check_flow(flow)
        return asked.answer(asked.view.tasks(flow))

    @routes.get("/{flow}/versions", response_model=list[VersionRow])
    def show_versions(flow: str, asked: Annotated[ApiRequest, may(Role.VIEWER)]) -> Response:
        """The versions of a flow, newest first."""
        asked.check_flow(flow)
        return asked.answer(asked.view.versions(flow))

    @routes.put("/{flow}/wanted", response_model=Written)
    def want_flow(flow: str, want: Want, asked: Annotated[ApiRequest, may(Role.OPERATOR)]) -> Response:
        """Set the desired state of a flow; setting it again retries what has failed."""

        def act(registry: Registry) -> Written:
            asked.check_flow(flow)
            return Written(flow_requests.want(registry, flow, want.state, by=asked.who.name))

        return asked.write(want.state, flow, act, want)

    @routes.delete("/{flow}", response_model=Written)
    def delete_flow(flow: str, asked: Annotated[ApiRequest, may(Role.EDITOR)]) -> Response:
        """Delete a stopped flow. Its outputs, its state and its packages stay."""

        def act(registry: Registry) -> Written:
            asked.check_flow(flow)
            flow_requests.delete(registry, flow)
            return Written(asked.plane.revision())

        return asked.write("delete", flow, act)

    @routes.get("/{flow}/logs", response_model=list[LogLines])
    def show_logs(
        flow: str,
        asked: Annotated[ApiRequest, may(Role.VIEWER)],
        tier: str | None = None,
        lines: Annotated[int, Query(ge=1, le=MOST_LINES)] = 50,
    ) -> Response:
        """The last output of the newest worker of each tier, and the tiers' run logs. Nodes are asked for the files on their hosts; if one
        does not answer, `problem` says why."""
        asked.check_flow(flow)
        tiers = [row for row in asked.view.flow(flow).tiers if tier in (None, row.tier)]
        plane = asked.plane
        return asked.answer(read_logs(flow_records.state_of(asked.registry, flow), flow, tiers, plane.logs, plane.nodes, lines))

    return routes


def _label(text: str) -> tuple[str, str]:
    """The name and value of a label in a query parameter. Raises InputError if the text is not of the form `name=value`."""
    name, sign, value = text.partition("=")
    if not sign or not name:
        raise PointedError((Fault("parameter", f"label: {text!r} is not a valid label", "write label=NAME=VALUE"),))
    return name, value
