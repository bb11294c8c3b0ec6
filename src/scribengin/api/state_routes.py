"""Routes that read the state of a flow: the provenance of a record, the audit, its summaries; and its graph. A separate process reads; if
the state is on the host of another master, the client is redirected there."""

from collections.abc import Callable, Mapping
from dataclasses import asdict
from typing import Annotated, Any

import msgspec
from fastapi import APIRouter, Depends, Path, Query
from starlette.responses import Response

from scribengin.api.auth import Role
from scribengin.api.plane import ApiRequest, Plane
from scribengin.api.planner import ask_at, ask_planner, locate_query, records_for
from scribengin.api.state_queries import StateQuery, role_of
from scribengin.api.state_routing import sent_to, sent_to_leader
from scribengin.client.state_models import (
    Audit,
    Batches,
    BatchView,
    FlowGraph,
    GraphCounts,
    LetterCounts,
    LetterPage,
    LetterRepaired,
    LettersPurged,
    LettersReplayed,
    NodeSample,
    PurgeLetters,
    PurgeUndone,
    RepairLetter,
    ReplayLetters,
    Summaries,
    UndoPurge,
    Way,
)
from scribengin.connectors.contract import Backlog
from scribengin.control import flow_records
from scribengin.core.errors import Refused
from scribengin.core.time_text import WRITE_MOMENT, not_a_time, parse_moment
from scribengin.registry.tree import DESIRED, SPEC
from scribengin.watching.flow_figures import with_live

_LONGEST = 8192
MOST_BATCHES = 1000
"""in one answer: so many of each query always keep their counts"""
MOST_ROWS = 1000
"""of a preview"""
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

    @routes.get("/batches", response_model=Batches)
    def batches(
        flow: str,
        asked: Annotated[ApiRequest, may(role_of("batches"))],
        query: Text = "",
        limit: Annotated[int, Query(ge=1, le=MOST_BATCHES)] = 10,
    ) -> Response:
        """The last decided Batches of all queries together, or of one, newest first; also while the flow runs. Batches of an earlier
        lineage are left out."""
        return from_state(asked, "batches", flow, {"query": query, "limit": limit}, Batches)

    @routes.get("/batches/{batch}", response_model=BatchView)
    def batch(
        flow: str, batch: Annotated[int, Path(ge=0, le=2**53)], asked: Annotated[ApiRequest, may(role_of("batch"))], query: Text = ""
    ) -> Response:
        """One decided Batch of a query (of the only one, if none is named) with its decision, its receipts and its part of the ledger."""
        return from_state(asked, "batch", flow, {"query": query, "batch": batch}, BatchView)

    @routes.get("/graph/counts", response_model=GraphCounts)
    def graph_counts(flow: str, asked: Annotated[ApiRequest, may(role_of("graph-counts"))]) -> Response:
        """The number of rows that passed along each arrow of the graph in the last run, and their outcome at each node, from the ledger."""
        return from_state(asked, "graph-counts", flow, {}, GraphCounts)

    @routes.get("/nodes/{node}/preview", response_model=NodeSample)
    def preview(
        flow: str,
        node: Annotated[str, Path(max_length=_LONGEST)],
        asked: Annotated[ApiRequest, may(role_of("preview"))],
        rows: Annotated[int, Query(ge=1, le=MOST_ROWS)] = 20,
        sample: Annotated[int, Query(ge=1, le=MOST_ROWS)] = 20,
    ) -> Response:
        """The columns and some rows of a node, in and out, as the flow makes them of the first `sample` records of its sources. Nothing is
        written or acknowledged, as with `scribengin preview`. It runs the flow's functions, and Spark if a step needs it: this takes some
        seconds."""
        return from_state(asked, "preview", flow, {"node": node, "rows": rows, "sample": sample}, NodeSample)

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
        wanted = records[DESIRED(flow).path]["version"]
        found = asked.plane.planner.ask_once(query, records, records[SPEC(flow, str(wanted)).path])
        told = watch.last_report(flow) if watch is not None else None
        rows = {row.tier: row for row in asked.view.flow(flow).tiers}
        tiers = [
            {**tier, "worker": rows[tier["tier"]].worker, "state": rows[tier["tier"]].state} if tier["tier"] in rows else tier
            for tier in found["tiers"]
        ]
        whole = {**with_live(found, told), "version": wanted, "tiers": tiers, "told": told is not None}
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
    """The answer to a query about a flow's state, or a redirect to the master on the host of the state.

    Args:
        asked: the request.
        what: the name of the query.
        flow: the flow.
        said: the arguments of the query.
        kind: the model of the answer.
        more: adds values to the result before it is converted to `kind`.
    """
    asked.check_flow(flow)
    query = StateQuery(what, flow, said, (flow,))
    location = locate_query(asked.plane, query, masters=True)
    if location.master:
        return sent_to(location.master, asked.request)
    return asked.answer(msgspec.convert(more(ask_at(asked.plane, location.node, query)), kind))


def measured_backlogs(plane: Plane, flow: str) -> tuple[dict[str, Backlog], str]:
    """The backlog of the flow's sources, measured on the host that has its state; if it has none yet, here.

    Returns:
        (source → its backlog, why the backlog of other sources is not known).

    Raises:
        ScribenginError: the backlog cannot be measured, for example because the only host that has the state is unavailable.
    """
    found = ask_planner(plane, StateQuery("backlogs", flow, flows=(flow,)))
    waits = {source: Backlog(**there) for source, said in found.items() if (there := said["backlog"]) is not None}
    return waits, "; ".join(f"{source}: {said['why_not']}" for source, said in found.items() if said["why_not"])


# Routes of the dead letters of a flow: list, repair, replay and purge, in a process on the host of the state.


MOST_LETTERS = 1000


def _chosen(
    query: Text = "", step: Text = "", reason: Text = "", prefix: Text = "", since: Text = "", until: Text = ""
) -> Mapping[str, str]:
    return {"query": query, "step": step, "reason": reason, "prefix": prefix, "since": _moment(since), "until": _moment(until)}


def _paged(after: Text = "", limit: Annotated[int, Query(ge=1, le=MOST_LETTERS)] = 100) -> Mapping[str, Any]:
    return {"after": after, "limit": limit}


Chosen = Annotated[Mapping[str, str], Depends(_chosen)]
Paged = Annotated[Mapping[str, Any], Depends(_paged)]


def letter_routes(may: Callable[[Role], Any]) -> APIRouter:
    """The routes; `may` returns the dependency that admits callers with a role."""
    routes = APIRouter(prefix="/v1/flows/{flow}/dead-letters", tags=["flows"])

    @routes.get("", response_model=LetterPage)
    def dead_letters(flow: str, asked: Annotated[ApiRequest, may(role_of("dead"))], chosen: Chosen, paged: Paged) -> Response:
        """The records that a step could not process, page by page: of a query, a step, a reason, or whose id begins with `prefix`. `after`
        is the value from the page before. A page may have few dead letters, or none, and still have `after`: request the next page. The
        bytes of records are for operators and above."""
        said = {**chosen, **paged, "bytes": asked.who.role >= Role.OPERATOR}
        return from_state(asked, "dead", flow, said, LetterPage)

    @routes.get("/counts", response_model=LetterCounts)
    def dead_letter_counts(flow: str, asked: Annotated[ApiRequest, may(role_of("dead-counts"))], chosen: Chosen) -> Response:
        """The number of dead letters by query, step and reason; the filters are those of a page."""
        return from_state(asked, "dead-counts", flow, chosen, LetterCounts)

    @routes.post("/replays", response_model=LettersReplayed)
    def replay(flow: str, body: ReplayLetters, asked: Annotated[ApiRequest, may(role_of("replay"))]) -> Response:
        """Replay dead letters: each only once, even if requested again. A worker replays them at its next check, or when it runs again."""
        return from_state(asked, "replay", flow, _request_arguments(body), LettersReplayed)

    @routes.post("/repairs", response_model=LetterRepaired)
    def repair(flow: str, body: RepairLetter, asked: Annotated[ApiRequest, may(role_of("repair"))]) -> Response:
        """Repair a dead letter in all queries that refused it in the same way. The repair is kept until the replay, if the flow would
        accept it. Without `columns`, `text` and `text_base64` nothing is changed: the answer shows what can be repaired."""
        return from_state(asked, "repair", flow, asdict(body), LetterRepaired)

    @routes.post("/purges", response_model=LettersPurged)
    def purge(flow: str, body: PurgeLetters, asked: Annotated[ApiRequest, may(role_of("purge"))]) -> Response:
        """Delete dead letters; their number stays in the ledger. The flow must be stopped, except for a `dry_run`."""
        asked.check_flow(flow)
        if not body.dry_run:
            flow_records.check_stopped(asked.registry, flow)
        return from_state(asked, "purge", flow, _request_arguments(body), LettersPurged)

    @routes.post("/purges/undo", response_model=PurgeUndone)
    def undo_purge(flow: str, body: UndoPurge, asked: Annotated[ApiRequest, may(role_of("undo-purge"))]) -> Response:
        """Restore the dead letters that the newest purge deleted, or the purge of that id; within 7 days. The flow must be stopped."""
        asked.check_flow(flow)
        flow_records.check_stopped(asked.registry, flow)
        return from_state(asked, "undo-purge", flow, asdict(body), PurgeUndone)

    return routes


def _request_arguments(body: ReplayLetters | PurgeLetters) -> dict[str, Any]:
    return asdict(body) | {"since": _moment(body.since), "until": _moment(body.until)}


def _moment(text: str) -> str:
    """A time, or an age, as a time in UTC; empty stays empty. Raises Refused if the text is neither."""
    try:
        return parse_moment(text).isoformat() if text else ""
    except ValueError:
        raise Refused(not_a_time(text), remedy=WRITE_MOMENT, code="time-unknown") from None
