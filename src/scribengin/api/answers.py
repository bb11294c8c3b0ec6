"""Routes that look into the state of a flow: the way of a record, the audit, its summaries; and its graph.

A process of its own looks; where the state lies on the host of another master the client is sent there.
"""

from collections.abc import Callable, Mapping
from typing import Annotated, Any

import msgspec
from fastapi import APIRouter, Query
from starlette.responses import Response

from scribengin.api.access import Role
from scribengin.api.elsewhere import find_state, node_with_state
from scribengin.api.node_pages import NodeQuestion
from scribengin.api.plane import ApiRequest, Plane
from scribengin.api.sent_on import sent_to, sent_to_leader
from scribengin.client.answer_models import (
    Audit,
    FlowGraph,
    GraphCounts,
    Summaries,
    Way,
)
from scribengin.connectors.contract import Backlog
from scribengin.control import reading
from scribengin.core.errors import Refused
from scribengin.registry.contract import Registry
from scribengin.registry.tree import DESIRED, SPEC
from scribengin.watching.live_graph import with_live

_LONGEST = 8192
Text = Annotated[str, Query(max_length=_LONGEST)]


def answer_routes(may: Callable[[Role], Any]) -> APIRouter:
    """The routes; `may` lets in who has a role."""
    routes = APIRouter(prefix="/v1/flows/{flow}", tags=["flows"])

    @routes.get("/trace", response_model=Way)
    def trace(
        flow: str, record: Annotated[str, Query(min_length=1, max_length=_LONGEST)], asked: Annotated[ApiRequest, may(Role.VIEWER)]
    ) -> Response:
        """The sinks and dead letters that a record reached, hop by hop; `record` is its id, or how that begins. At most 1,000
        are told; a note says where there are more. What it was made of in a flow that feeds this one (`came`), and where flows that read
        it find it (`went`), is asked of the topics; a flow of a peer is `PEER/FLOW`."""
        met = [each for each in asked.view.whole_workflow(flow).meetings if each.feeding == flow]

        def read_by(found: dict[str, Any]) -> dict[str, Any]:
            def readers(went: Mapping[str, Any]) -> list[dict[str, str]]:
                there = [each for each in met if each.sink == went["sink"]]
                return [{"flow": each.reading, "record": f"{each.source}/{went['place']}"} for each in there]

            return {**found, "went": [{**each, "readers": readers(each)} for each in found["went"]]}

        return from_state(asked, "trace", flow, {"record": record}, Way, read_by)

    @routes.get("/audit", response_model=Audit)
    def audit(flow: str, asked: Annotated[ApiRequest, may(Role.VIEWER)]) -> Response:
        """Outputs, dead letters and ledger, read again: whether everything balances. Takes as long as that, 100 seconds at most."""
        return from_state(asked, "audit", flow, {}, Audit)

    @routes.get("/summary", response_model=Summaries)
    def summary(flow: str, asked: Annotated[ApiRequest, may(Role.VIEWER)], sink: Text = "") -> Response:
        """The tables of the flow's summary sinks, or of one, as of the last decided Batch; also while it runs, and after a take-over."""
        return from_state(asked, "summary", flow, {"sink": sink}, Summaries)

    @routes.get("/graph/counts", response_model=GraphCounts)
    def graph_counts(flow: str, asked: Annotated[ApiRequest, may(Role.VIEWER)]) -> Response:
        """How many rows passed along each arrow of the graph in the last run, and what became of them at each node: out of the ledger."""
        return from_state(asked, "graph-counts", flow, {}, GraphCounts)

    @routes.get("/graph", response_model=FlowGraph)
    def flow_graph(flow: str, asked: Annotated[ApiRequest, may(Role.VIEWER)]) -> Response:
        """Sources, steps, sinks, the arrows between them, the tiers where they run and the channels between those; each with how it goes,
        where the master that answers was told: the one that leads."""
        asked.check_flow(flow)
        watch = asked.plane.watch
        if (moved := sent_to_leader(watch, asked.request)) is not None:
            return moved
        found = asked.plane.planner.answer("graph", _records(asked.registry, flow), flow, {})
        told = watch.told(flow) if watch is not None else None
        rows = {row.tier: row for row in asked.view.flow(flow).tiers}
        tiers = [
            {**tier, "worker": rows[tier["tier"]].worker, "state": rows[tier["tier"]].state} if tier["tier"] in rows else tier
            for tier in found["tiers"]
        ]
        return asked.answer(msgspec.convert({**with_live(found, told), "tiers": tiers, "told": told is not None}, FlowGraph))

    return routes


def from_state(
    asked: ApiRequest,
    what: str,
    flow: str,
    said: Mapping[str, Any],
    kind: type[Any],
    more: Callable[[dict[str, Any]], dict[str, Any]] = lambda found: found,
) -> Response:
    """What `answer_process` says of the flow's state, wherever that lies, with what `more` adds to it."""
    asked.check_flow(flow)
    plane = asked.plane
    try:
        there = find_state(asked.registry, flow)
    except Refused as error:  # no master is up there; a node may be
        node = ""
        if error.code == "state-elsewhere":  # of two errors that of the nodes says more
            node = node_with_state(asked.registry, flow, plane.nodes.has_state)
        if not node:
            raise
        return asked.answer(msgspec.convert(more(_found_at(plane, node, what, flow, said)), kind))
    if there:
        return sent_to(there, asked.request)
    return asked.answer(msgspec.convert(more(_found_at(plane, "", what, flow, said)), kind))


def measured_backlogs(plane: Plane, flow: str) -> tuple[dict[str, Backlog], str]:
    """For `control.measuring`: what waits at the flow's sources, measured on the host that has its state; where it has none yet, here.

    Returns:
        Source → its backlog; and why the backlog of others is not known.

    Raises:
        ScribenginError: Nobody can say it, such as where the only host that has the state is away.
    """
    node = node_with_state(plane.registry, flow, plane.nodes.has_state)
    found = _found_at(plane, node, "backlogs", flow, {})
    waits = {source: Backlog(**there) for source, said in found.items() if (there := said["backlog"]) is not None}
    return waits, "; ".join(f"{source}: {said['why_not']}" for source, said in found.items() if said["why_not"])


def _found_at(plane: Plane, node: str, what: str, flow: str, said: Mapping[str, Any]) -> Any:
    """What `answer_process` finds in the flow's state, on a node or, where that is empty, on this host."""
    if node:
        return plane.nodes.look_into(node, NodeQuestion(what, flow, (flow,), plane.revision(), plane.state, arguments=said, answer=True))
    return plane.planner.answer(what, _records(plane.registry, flow), flow, said)


def _records(registry: Registry, flow: str) -> dict[str, Mapping[str, Any]]:
    """What is wanted of the flow, and the version that is."""
    desired = reading.read_flow(registry, flow).desired
    spec = reading.version_of(registry, flow, desired.version)
    return {DESIRED(flow).path: desired.dump(), SPEC(flow, str(desired.version)).path: spec.dump()}
