"""Routes that plan before they act (submit several flows, roll back, set positions, scale, limit), and operations."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Annotated, Any

import msgspec
from fastapi import APIRouter
from starlette.responses import Response

from scribengin.api.auth import Role
from scribengin.api.plane import ApiRequest
from scribengin.api.planned import planned
from scribengin.api.planner import ask_planner
from scribengin.api.state_queries import StateQuery, role_of
from scribengin.client.change_models import (
    AppliedTopology,
    Going,
    Happened,
    Limits,
    OperationRow,
    Position,
    Rewind,
    Scale,
    Scaled,
    SetLimit,
    SetOffset,
    Topology,
)
from scribengin.client.models import AppliedFlow, Rollback, WentBack, Written
from scribengin.client.problems import Fault, PointedError
from scribengin.control import flow_records, flow_requests, operation_requests, topology
from scribengin.control.event_history import read_happened
from scribengin.control.rate_limits import read_limits, set_limit
from scribengin.control.resources import scale, set_workers
from scribengin.control.submission import Applied
from scribengin.core.errors import Refused
from scribengin.core.time_text import WRITE_MOMENT, not_a_time, parse_moment
from scribengin.registry.contract import Registry
from scribengin.registry.records import Operation


def verb_routes(may: Callable[[Role], Any]) -> APIRouter:
    """The routes; `may` returns the dependency that admits callers with a role."""
    routes = APIRouter(prefix="/v1", tags=["flows"])

    @routes.post("/topology/plan", response_model=AppliedTopology)
    def plan_topology(wanted: Topology, asked: Annotated[ApiRequest, may(role_of("topology"))]) -> Response:
        """The changes that submitting these flows would make, how each takes effect, and the plan's hash. Changes nothing."""
        plan, _ = planned(asked, wanted)
        return asked.answer(AppliedTopology(plan.shown()))

    @routes.post("/topology", response_model=AppliedTopology)
    def submit_topology(wanted: Topology, asked: Annotated[ApiRequest, may(role_of("topology"))]) -> Response:
        """Submit each as the next version of its flow, with the desired state running: all of them, or none. Submitting the same again
        changes nothing."""

        def act(registry: Registry) -> AppliedTopology:
            plan, submissions = planned(asked, wanted)
            topology.check_agreed(plan, expected=wanted.plan, accept=wanted.accept)
            done = topology.write_topology(
                registry,
                submissions,
                plan,
                state=lambda _: asked.plane.state,
                by=asked.who.name,
                accept=wanted.accept,
                workflows=asked.plane.workflows,
                columns=wanted.columns,
            )
            applied = tuple(AppliedFlow(each.flow, each.version, each.changed) for each in done)
            return AppliedTopology(plan.shown(), applied)

        return asked.write("apply", "+".join(submit.path for submit in wanted.flows)[:200], act, wanted, slow=True)

    @routes.post("/flows/{flow}/rollback", response_model=WentBack)
    def roll_back(flow: str, to: Rollback, asked: Annotated[ApiRequest, may(role_of("rollback"))]) -> Response:
        """Return to an earlier version, code and flow together, in the present desired state."""

        def act(registry: Registry) -> WentBack:
            asked.check_flow(flow)
            back = flow_requests.rollback_versions(registry, flow, to.version, only=to.only)
            for name in back:
                asked.check_flow(name)
            said = {"version": to.version, "only": to.only}
            try:
                found = ask_planner(asked.plane, StateQuery("rollback", flow, said, tuple(back), back))
            except Refused as error:
                if error.code != "package-missing":
                    raise
                # the flow's workers fetch the package from elsewhere, and refuse a state that does not fit it
                found = {"flows": [], "hash": ""}
            plan = msgspec.convert(found, topology.PlannedTopology)
            topology.check_agreed(plan, accept=to.accept)
            renew = {each.flow: [(anew.tier, anew.query) for anew in each.anew] for each in plan.flows if each.anew}
            recut = {each.flow: each.recut for each in plan.flows if each.recut is not None}
            how = to.accept or "again"
            changed = flow_requests.rollback(
                registry,
                flow,
                to.version,
                by=asked.who.name,
                only=to.only,
                renew=renew,
                how=how,
                recut=recut,
                workflows=asked.plane.workflows,
                columns=to.columns,
            )
            return WentBack(changed)

        return asked.write(f"rollback to {to.version}", flow, act, to)

    @routes.get("/operations", response_model=list[OperationRow])
    def all_operations(asked: Annotated[ApiRequest, may(Role.VIEWER)]) -> Response:
        """The operations of all flows, newest first for each flow."""
        asked.check_all()
        return asked.answer([*operation_requests.rows_of(asked.registry), *operation_requests.list_operations(asked.registry)])

    @routes.get("/flows/{flow}/happened", response_model=list[Happened])
    def happened(flow: str, asked: Annotated[ApiRequest, may(Role.VIEWER)]) -> Response:
        """The event history of a flow, newest first: changes of its state with their cause, versions, operations; the last hundred."""
        asked.check_flow(flow)
        return asked.answer(list(read_happened(asked.registry, flow)))

    @routes.get("/flows/{flow}/operations", response_model=list[OperationRow])
    def operations(flow: str, asked: Annotated[ApiRequest, may(Role.VIEWER)]) -> Response:
        """The operations of a flow, newest first."""
        asked.check_flow(flow)
        own = operation_requests.list_operations(asked.registry, flow)
        return asked.answer([*operation_requests.rows_of(asked.registry, flow, asked.view.seen), *own])

    @routes.delete("/flows/{flow}/operations/{id_}", response_model=Written)
    def cancel(flow: str, id_: str, asked: Annotated[ApiRequest, may(Role.OPERATOR)]) -> Response:
        """Cancel an operation that has not changed anything yet."""

        def act(registry: Registry) -> Written:
            asked.check_flow(flow)
            if flow in (members := operation_requests.members_of(registry, id_)):
                for each in members:
                    asked.check_flow(each)
                operation_requests.cancel_workflow_operation(registry, id_)
                return Written(asked.plane.revision())
            operation_requests.cancel(registry, flow, id_, by=asked.who.name)
            return Written(asked.plane.revision())

        return asked.write(f"cancel operation {id_}"[:200], flow, act)

    @routes.get("/flows/{flow}/offsets", response_model=list[Position])
    def offsets(flow: str, asked: Annotated[ApiRequest, may(role_of("offsets"))]) -> Response:
        """How far each query has read each source."""
        asked.check_flow(flow)
        return asked.answer(_query_answer(asked, "offsets", flow))

    @routes.post("/flows/{flow}/offsets", response_model=Going)
    def set_offset(flow: str, to: SetOffset, asked: Annotated[ApiRequest, may(role_of("set"))]) -> Response:
        """Set the position of a source while the flow is stopped."""
        said = {"source": to.source, "position": to.position, "query": to.query}
        return _go(asked, flow, "set", said, to, yes=to.yes)

    @routes.post("/flows/{flow}/rewind", response_model=Going)
    def rewind(flow: str, to: Rewind, asked: Annotated[ApiRequest, may(role_of("rewind"))]) -> Response:
        """Rewind a flow, so that it reads rows again; its workers end, go back, and restart."""
        if (to.to_time is None) == (to.to_batch is None):
            raise PointedError((Fault("body", "either to_time or to_batch is needed", "give one of them", pointer="/to_batch"),))
        said = {"to_time": _time(to.to_time), "to_batch": to.to_batch, "query": to.query}
        return _go(asked, flow, "rewind", said, to, yes=to.yes)

    @routes.post("/flows/{flow}/scale", response_model=Scaled)
    def scale_flow(flow: str, to: Scale, asked: Annotated[ApiRequest, may(role_of("spread"))]) -> Response:
        """Give a flow, or a tier of it, other resources; positions and state are kept."""

        def act(registry: Registry) -> Scaled:
            asked.check_flow(flow)
            tiers = [] if to.tier is None else [to.tier]
            given = {"cores": to.cores, "memory_bytes": to.memory_bytes, "executors": to.executors}
            done = Applied(flow, flow_records.read_flow(registry, flow).desired.version, changed=False)
            beside = to.partitions is not None or to.workers is not None
            if not beside or any(value is not None for value in given.values()):
                done = scale(registry, flow, tiers, **given, by=asked.who.name)
            if to.workers is not None:
                done = replace(done, changed=set_workers(registry, flow, tiers, to.workers) or done.changed)
            found = None
            if to.partitions is not None:
                found = _query_answer(asked, "spread", flow, {"tiers": tiers, "partitions": to.partitions})
            id_ = None if found is None else operation_requests.begin(registry, flow, msgspec.convert(found, Operation), by=asked.who.name)
            return Scaled(flow, done.version, done.changed or id_ is not None, id_)

        return asked.write("scale", flow, act, to, slow=True)

    @routes.get("/flows/{flow}/limit", response_model=Limits)
    def limits(flow: str, asked: Annotated[ApiRequest, may(Role.VIEWER)]) -> Response:
        """The rate limits of the flow, its sources and its edges."""
        asked.check_flow(flow)
        flow_records.read_flow(asked.registry, flow)
        return asked.answer(read_limits(asked.registry, flow).as_json())

    @routes.put("/flows/{flow}/limit", response_model=Limits)
    def limit(flow: str, to: SetLimit, asked: Annotated[ApiRequest, may(role_of("limit"))]) -> Response:
        """Set a rate limit of the flow, a source or an edge: it applies from the next Batch, without a restart."""

        def act(registry: Registry) -> Limits:
            asked.check_flow(flow)
            section, name = _query_answer(asked, "limit", flow, {"target": to.target})
            found = set_limit(registry, flow, section, name, rows_per_s=to.rows_per_s, bytes_per_s=to.bytes_per_s)
            return Limits(flow, found.of)

        return asked.write("limit", flow, act, to, slow=True)

    return routes


def _go(asked: ApiRequest, flow: str, what: str, said: Mapping[str, Any], body: object, *, yes: bool) -> Response:
    def act(registry: Registry) -> Going:
        asked.check_flow(flow)
        found = _query_answer(asked, what, flow, said)
        operation = msgspec.convert(found["operation"], Operation)
        id_ = operation_requests.begin(registry, flow, operation, by=asked.who.name) if yes else None
        return Going(flow, tuple(found["says"]), tuple(found["queries"]), id_)

    return asked.write(what, flow, act, body, slow=True)


def _query_answer(asked: ApiRequest, what: str, flow: str, arguments: Mapping[str, Any] | None = None) -> Any:
    """The answer to a query about a flow. Raises Refused if there is no such flow, and as `Planner.ask`."""
    flow_records.read_flow(asked.registry, flow)
    return ask_planner(asked.plane, StateQuery(what, flow, arguments or {}, (flow,)))


def _time(text: str | None) -> str | None:
    """A time in a request as ISO 8601; None stays None. Raises PointedError if it is not valid."""
    try:
        return None if text is None else parse_moment(text).isoformat()
    except ValueError:
        raise PointedError((Fault("body", f"/to_time: {not_a_time(text or '')}", WRITE_MOMENT, pointer="/to_time"),)) from None
