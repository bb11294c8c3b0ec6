"""Routes that read the state of a flow: the provenance of a record, the audit, its summaries; and its graph. A separate process reads; if
the state is on the host of another master, the client is redirected there."""

from collections.abc import Callable, Mapping
from typing import Annotated, Any

import msgspec
from fastapi import APIRouter, Query
from starlette.responses import Response

from scribengin.api.access import Role
from scribengin.api.plane import ApiRequest, Plane
from scribengin.api.planner import ask_at, ask_planner, locate_query, records_for
from scribengin.api.sent_on import sent_to, sent_to_leader
from scribengin.api.state_queries import StateQuery, role_of
from scribengin.client.answer_models import (
    Audit,
    FlowGraph,
    GraphCounts,
    Summaries,
    Way,
)
from scribengin.connectors.contract import Backlog
from scribengin.registry.tree import DESIRED
from scribengin.watching.live_graph import with_live

_LONGEST = 8192
Text = Annotated[str, Query(max_length=_LONGEST)]


def answer_routes(may: Callable[[Role], Any]) -> APIRouter:
    """The routes; `may` returns the dependency that admits callers with a role."""
    routes = APIRouter(prefix="/v1/flows/{flow}", tags=["flows"])

    @routes.get("/trace", response_model=Way)
    def trace(
        flow: str, record: Annotated[str, Query(min_length=1, max_length=_LONGEST)], asked: Annotated[ApiRequest, may(role_of("trace"))]
    ) -> Response:
        """The sinks and dead letters that a record reached, hop by hop; `record` is its id, or a prefix of it. At most 1,000 are listed; a
        note says if there are more. The topics are searched for the record of an upstream flow from which it was made (`came`), and for its
        records in downstream flows (`went`); a flow of a peer is `PEER/FLOW`."""
        met = [each for each in asked.view.whole_workflow(flow).meetings if each.feeding == flow]

        def read_by(found: dict[str, Any]) -> dict[str, Any]:
            def readers(went: Mapping[str, Any]) -> list[dict[str, str]]:
                there = [each for each in met if each.sink == went["sink"]]
                return [{"flow": each.reading, "record": f"{each.source}/{went['place']}"} for each in there]

            return {**found, "went": [{**each, "readers": readers(each)} for each in found["went"]]}

        return from_state(asked, "trace", flow, {"record": record}, Way, read_by)

    @routes.get("/audit", response_model=Audit)
    def audit(flow: str, asked: Annotated[ApiRequest, may(role_of("audit"))]) -> Response:
        """Read outputs, dead letters and ledger again, and check whether everything balances. The request takes as long as that, 100
        seconds at most."""
        return from_state(asked, "audit", flow, {}, Audit)

    @routes.get("/summary", response_model=Summaries)
    def summary(flow: str, asked: Annotated[ApiRequest, may(role_of("summary"))], sink: Text = "") -> Response:
        """The tables of the flow's summary sinks, or of one, at the last decided Batch; also while the flow runs and after a failover."""
        return from_state(asked, "summary", flow, {"sink": sink}, Summaries)

    @routes.get("/graph/counts", response_model=GraphCounts)
    def graph_counts(flow: str, asked: Annotated[ApiRequest, may(role_of("graph-counts"))]) -> Response:
        """The number of rows that passed along each arrow of the graph in the last run, and their outcome at each node, from the ledger."""
        return from_state(asked, "graph-counts", flow, {}, GraphCounts)

    @routes.get("/graph", response_model=FlowGraph)
    def flow_graph(flow: str, asked: Annotated[ApiRequest, may(role_of("graph"))]) -> Response:
        """Sources, steps, sinks, the arrows between them, the tiers where they run and the channels between those. Each has its live
        figures if the answering master has them: the leader does."""
        asked.check_flow(flow)
        watch = asked.plane.watch
        if (moved := sent_to_leader(watch, asked.request)) is not None:
            return moved
        query = StateQuery("graph", flow, flows=(flow,))
        records = records_for(asked.registry, query)
        found = asked.plane.planner.ask(query, records)
        told = watch.last_report(flow) if watch is not None else None
        rows = {row.tier: row for row in asked.view.flow(flow).tiers}
        tiers = [
            {**tier, "worker": rows[tier["tier"]].worker, "state": rows[tier["tier"]].state} if tier["tier"] in rows else tier
            for tier in found["tiers"]
        ]
        version = records[DESIRED(flow).path]["version"]
        whole = {**with_live(found, told), "version": version, "tiers": tiers, "told": told is not None}
        return asked.answer(msgspec.convert(whole, FlowGraph))

    return routes


def from_state(
    asked: ApiRequest,
    what: str,
    flow: str,
    said: Mapping[str, Any],
    kind: type[Any],
    more: Callable[[dict[str, Any]], dict[str, Any]] = lambda found: found,
) -> Response:
    """The result of a query about the flow's state, together with the values that `more` adds, or a redirect to the master on the host of
    the state."""
    asked.check_flow(flow)
    query = StateQuery(what, flow, said, (flow,))
    location = locate_query(asked.plane, query, masters=True)
    if location.master:
        return sent_to(location.master, asked.request)
    return asked.answer(msgspec.convert(more(ask_at(asked.plane, location.node, query)), kind))


def measured_backlogs(plane: Plane, flow: str) -> tuple[dict[str, Backlog], str]:
    """For `control.measuring`: the backlog of the flow's sources, measured on the host that has its state; if it has none yet, here.

    Returns:
        Source → its backlog; and why the backlog of others is not known.

    Raises:
        ScribenginError: The backlog cannot be measured, for example if the only host that has the state is unavailable.
    """
    found = ask_planner(plane, StateQuery("backlogs", flow, flows=(flow,)))
    waits = {source: Backlog(**there) for source, said in found.items() if (there := said["backlog"]) is not None}
    return waits, "; ".join(f"{source}: {said['why_not']}" for source, said in found.items() if said["why_not"])
