"""The status of a flow, from its state folders. Needs no lease, no Spark and no Java; works while the flow runs, and afterwards."""

from __future__ import annotations

import time
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from scribengin.connectors.channel.outbox import read_left
from scribengin.core.time_text import instant_text
from scribengin.local.acks import topology_of
from scribengin.local.ledger import query_rows
from scribengin.local.schema_drift import noticed_rows, read_noticed
from scribengin.local.sink_columns import accepted_rows
from scribengin.spec.model import Sink
from scribengin.state.channel_acks import Acks, ChannelBacklog, QueryKey
from scribengin.state.clocks import idle_nodes, watermark_holder
from scribengin.state.decisions import Decisions, moment
from scribengin.state.folder import StateFolder
from scribengin.state.lease import read_holder
from scribengin.state.ledger import read_totals
from scribengin.state.source_log import SourceLog
from scribengin.state.utility_orders import orders_as_json

if TYPE_CHECKING:
    from scribengin.local.prepare import PreparedFlow
    from scribengin.plan.channels import PlannedChannel
    from scribengin.plan.model import Plan, QueryPlan
    from scribengin.state.channel_acks import ChannelLink, FlowAcks, QueryTopology
    from scribengin.state.contract import Decision
    from scribengin.state.folder import QueryFolder
    from scribengin.state.ledger import Totals


_NEWEST = 100
"""the number of newest Batches for which the members of a group are counted"""


def read_standing(prepared: PreparedFlow, *, now_s: float | None = None) -> dict[str, Any]:
    """The object that `status --json` prints; `now_s` is seconds since 1970."""
    topology = topology_of(prepared.plan, prepared.root)
    standing = Acks(topology).read()
    totals = {key: read_totals(folder) for key, folder in topology.queries.items()}
    at_s = time.time() if now_s is None else now_s
    channels = {channel.id: channel for channel in prepared.plan.channels}
    noticed = (each for folder in topology.queries.values() for each in read_noticed(folder))
    return {
        "flow": prepared.name,
        "folder": str(prepared.folder),
        "tiers": [_tier(prepared, plan, topology, standing, totals, at_s) for plan in prepared.plan.tiers],
        "edges": [_edge(channels[link.channel], link, topology.queries[link.writer], standing, totals, at_s) for link in topology.links],
        "sources": _sources(prepared, standing),
        "dead": sum(each.dead for each in totals.values()),
        "noticed": noticed_rows(prepared.plan.flow, noticed),
        "accepted": accepted_rows(prepared.root, prepared.name, prepared.plan.flow.sinks),
    }


def _tier(
    prepared: PreparedFlow, plan: Plan, topology: QueryTopology, standing: FlowAcks, totals: dict[QueryKey, Totals], now_s: float
) -> dict[str, Any]:
    holder = read_holder(StateFolder(prepared.root, prepared.name, plan.tier))
    queries = []
    for query in plan.queries:
        key = QueryKey(plan.tier, query.name)
        at = standing.queries[key]
        rows = query_rows(totals[key].nodes, query.sources, query.sinks)
        queries.append(
            {
                "query": query.name,
                "state": "never ran" if not at.lineage else "stopped" if holder is None else "running",
                "batch": _number(at.decided),
                "decided_at": at.decided_at,
                "published": _number(at.published),
                "acknowledged": _number(at.acknowledged),
                "rows_in": rows.rows_in,
                "rows_out": rows.out,
                "dead": totals[key].dead,
                "lag": _lag(key, topology, standing, now_s),
            }
            | _of_newest(plan, query, topology.queries[key], None if holder is None else now_s)
        )
    return {"tier": plan.tier, "holder": None if holder is None else asdict(holder), "queries": queries}


def _of_newest(plan: Plan, query: QueryPlan, folder: QueryFolder, now_s: float | None) -> dict[str, Any]:
    """The order of utilities, if there are any, and the watermark, if the query keeps state."""
    newest = Decisions(folder.decisions).newest()
    if newest is None:
        return {}
    orders = {"orders": orders_as_json(newest.orders)} if newest.orders else {}
    return orders | ({"watermark": _watermark(plan, query, newest, now_s)} if newest.clocks else {})


def _watermark(plan: Plan, query: QueryPlan, newest: Decision, now_s: float | None) -> dict[str, Any]:
    """The progress of event time at each input, and which input holds back the others, by how much and since when. If nothing runs,
    `now_s` is None, and the result is as of the newest Batch."""
    at_s = moment(newest.decided_at).timestamp() if now_s is None else now_s
    nodes = {id_: plan.flow.node(id_) for id_ in newest.clocks if id_ in {*query.sources, *(node.id for node in query.nodes)}}
    marks = {id_: node.watermark for id_, node in nodes.items() if not isinstance(node, Sink) and node.watermark is not None}
    idle = idle_nodes(newest.clocks, {id_: round(mark.idle_s * 1e6) for id_, mark in marks.items() if mark.idle_s}, round(at_s * 1e6))
    held = watermark_holder(newest.clocks, idle)
    at_us = newest.times.get("watermark_us", 0)
    return {
        "at": instant_text(at_us) if at_us else None,
        "held_back_by": None if held is None else held.by,
        "behind_s": None if held is None or held.behind_us is None else round(held.behind_us / 1e6, 3),
        "silent_since": None if held is None else instant_text(held.silent_since_us),
        "idle": sorted(idle),
        "inputs": {
            id_: {
                "at": None if clock.newest_us is None else instant_text(clock.newest_us),
                "since_batch": clock.batch,
                "came_at": instant_text(clock.came_us),
            }
            for id_, clock in newest.clocks.items()
        },
    }


def _lag(key: QueryKey, topology: QueryTopology, standing: FlowAcks, now_s: float) -> dict[str, Any] | None:
    """The backlog of a query in all its channels together; None if it reads no channel."""
    read = [(link.channel, reading) for link in topology.links for reading in link.readers if reading.query == key]
    if not read:
        return None
    waiting = sum((standing.links[at].waiting for at in read if at in standing.links), start=ChannelBacklog())
    lag = _waiting(waiting, now_s)
    return {"rows": lag["rows"], "bytes": lag["bytes"], "seconds": lag["oldest_s"]}


def _edge(
    channel: PlannedChannel, link: ChannelLink, folder: QueryFolder, standing: FlowAcks, totals: dict[QueryKey, Totals], now_s: float
) -> dict[str, Any]:
    """The status of one edge. If several queries read the channel, the slowest one counts."""
    written = totals[link.writer].sinks.get(link.channel)
    rows = 0 if written is None else written.rows
    lineage = standing.queries[link.writer].lineage
    left = read_left(folder.work(link.channel), lineage) if lineage else None
    stored, dropped = (0, 0) if left is None else (left.rows, left.dropped_rows)
    links, waiting = standing.of(link), standing.waiting(link)
    # of the present lineage only: `rows` counts what it has written, without earlier lineages
    not_read = max((each.waiting_rows for each in links), default=0)
    not_committed = max((each.open_rows for each in links), default=0)
    return {
        "channel": channel.id,
        "edges": list(channel.names),
        "from": channel.feeding,
        "to": channel.reading,
        "place": channel.place,
        "durability": channel.edge.durability,
        "written": {"rows": rows, "batch": _number(standing.queries[link.writer].decided)},
        "read": {"rows": max(0, rows - dropped - not_read), "batch": _number(min((each.taken for each in links), default=-1))},
        "waiting": _waiting(waiting, now_s),
        "committed": {
            "rows": max(0, rows - dropped - not_committed),
            "batch": _number(min((each.committed for each in links), default=-1)),
        },
        "members": _members(channel, folder),
        "stored_rows": stored,
        "dropped_rows": dropped,
    }


def _waiting(waiting: ChannelBacklog, now_s: float) -> dict[str, Any]:
    oldest_s = round(max(0.0, now_s - moment(waiting.oldest_at).timestamp()), 3) if waiting.oldest_at else None
    return {"rows": waiting.rows, "batches": waiting.batches, "bytes": waiting.bytes, "oldest_s": oldest_s}


def _members(channel: PlannedChannel, folder: QueryFolder) -> list[dict[str, Any]]:
    """The members of the group that an edge writes to, with the number of the newest Batches that each received, and the last of them; []
    without a group."""
    if channel.edge.to is None:
        return []
    decisions = Decisions(folder.decisions)
    newest = decisions.newest()
    counts: dict[str, list[int]] = {}
    for decision in () if newest is None else decisions.since(max(0, newest.batch.number - _NEWEST + 1)):
        member = decision.behind.get(channel.id, {}).get("member")
        if member is not None:
            count = counts.setdefault(str(member), [0, -1])
            count[0], count[1] = count[0] + 1, decision.batch.number
    return [{"member": member, "batches": batches, "last_batch": last} for member, (batches, last) in sorted(counts.items())]


def _sources(prepared: PreparedFlow, standing: FlowAcks) -> list[dict[str, Any]]:
    """The sources that read from outside of the flow."""
    outside = set(prepared.plan.flow.sources)
    rows = []
    for plan in prepared.plan.tiers:
        state = StateFolder(prepared.root, prepared.name, plan.tier)
        for query in plan.queries:
            at = standing.queries[QueryKey(plan.tier, query.name)]
            for source in query.sources:
                if source not in outside or plan.flow.sources[source].type != prepared.plan.flow.sources[source].type:
                    continue
                log = SourceLog(state.query(query.name).sources, source)
                released = at.released.get(source, 0)
                streams = log.read(released - 1) if released and released <= log.length() else []
                rows.append(
                    {
                        "tier": plan.tier,
                        "query": query.name,
                        "source": source,
                        "read": at.read.get(source, 0),
                        "released": released,
                        "last_released": streams[-1].label if streams else "",
                    }
                )
    return rows


def _number(batch: int) -> int | None:
    return None if batch < 0 else batch
