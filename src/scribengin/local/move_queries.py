"""Moves queries from the tiers where they ran to those where they are going to run, when the tier layout of a flow was changed.

It runs under the leases, before any lineage is opened. The steps, in this order:

1. Finish what the old queries have decided.
2. Record the planned migration.
3. Withdraw it if replays were requested meanwhile; otherwise confirm the record.
4. Take over the state that continues in another tier.
5. Leave the lineages whose folders are needed.
6. Copy the logs of the sources.
7. Begin the new lineages where the old ones ended.
8. Store the state there.
9. Make the new lineages the owners of the sinks.
10. Mark the lineages that were left.
11. Record the new tier layout.
12. Delete the record of the migration.

A start that finds a confirmed record completes it first, whatever the flow looks like by then. It deletes a record that is not confirmed,
and starts over.
"""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import asdict, replace
from functools import partial
from typing import TYPE_CHECKING, Any

from scribengin.core import faults, storage
from scribengin.core.errors import Refused
from scribengin.core.time_text import now_text
from scribengin.local.prepare import open_sinks
from scribengin.local.stored_queries import letters_waiting, logs_of, reached, read_stored
from scribengin.local.summaries import SUMMARY, continue_table
from scribengin.plan.channels import clusters
from scribengin.plan.diff import label_of, letters
from scribengin.plan.flow_diff import flow_changes
from scribengin.plan.model import Plan, QueryPlan
from scribengin.plan.query_moves import DRAIN
from scribengin.plan.tier_flows import CHANNEL
from scribengin.plan.topology import topology_of
from scribengin.spec.model import Sink
from scribengin.state.columns import ChannelFolder
from scribengin.state.decisions import Decisions, decision_as_json, decision_from_json, input_hash
from scribengin.state.folder import StateFolder
from scribengin.state.lease import take_lease
from scribengin.state.lineage import Lineage, attach_state, begin_moved, detach_state, finish_rewind, leave, new_id, read_lineage
from scribengin.state.publishing import recover_query
from scribengin.state.replays import settle
from scribengin.state.source_log import SourceLog
from scribengin.state.topology import Journal, MovedLineage, StoredTopology, read_topology, tiers_with_state, write_moved, write_topology

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from pathlib import Path

    from scribengin.connectors.contract import SinkConnector as OpenSink
    from scribengin.local.prepare import PreparedFlow
    from scribengin.local.stored_queries import StoredFlow
    from scribengin.plan.diff import ChannelChange, PlanChanges, QueryChange, StoredQuery
    from scribengin.plan.query_moves import MovedQuery, Moves
    from scribengin.spec.model import Flow
    from scribengin.state.folder import QueryFolder
    from scribengin.state.lease import Lease
    from scribengin.state.topology import KnownChannel


def changes_and_moves(prepared: PreparedFlow, *, drained: bool = False) -> tuple[PlanChanges, Moves]:
    """The changes that running the plan would make, and the moves that belong to them. Raises Refused while a move is in progress.

    Args:
        prepared: The flow.
        drained: See `plan_moves`.
    """
    name = prepared.name
    if Journal(prepared.root, name).there:
        raise Refused(
            f'flow "{name}": a state migration to another tier layout is in progress or was interrupted',
            remedy="wait until it ends; if it was interrupted, the next run completes it",
            code="move-unfinished",
        )
    stored = read_stored(prepared.root, prepared.plan)
    known = partial(reached, prepared.root, name)
    return flow_changes(prepared.plan, stored.topology, stored.live, stored.past, known, drained=drained)


def migrate(prepared: PreparedFlow, leases: Mapping[str, Lease]) -> None:
    """Adapt the state to the tier layout of the flow. The caller holds the leases of the tiers that are going to run.

    Takes for a moment the leases of other tiers that are involved.

    Args:
        prepared: The flow.
        leases: Tier → its lease.

    Raises:
        Refused: One of the other tiers runs, or the flow cannot continue in the present layout; the error has the reason and the remedy.
    """
    with ExitStack() as stack:
        taken = dict(leases)

        def take(tier: str) -> Lease:
            if tier not in taken:
                taken[tier] = stack.enter_context(take_lease(StateFolder(prepared.root, prepared.name, tier)))
            return taken[tier]

        journal = Journal(prepared.root, prepared.name)
        if (unfinished := journal.read()) is not None:
            for tier in _tiers(unfinished):
                take(tier)
            unfinished = journal.read()  # another process that held the leases may have completed it
        if unfinished is not None and journal.is_confirmed(unfinished):
            _carry_out(prepared, unfinished, take)
        elif unfinished is not None:
            journal.remove()  # nothing of it is done, and replays that were requested meanwhile were not considered
        for there in tiers_with_state(prepared.root, prepared.name):
            for folder in there.queries():
                if folder.rewind.exists():
                    take(there.tier)
                    finish_rewind(folder)
        changes, moves = changes_and_moves(prepared)
        topology = topology_of(prepared.plan).after(read_topology(prepared.root, prepared.name))
        if moves.refusals or any(channel.fate == "refused" for channel in changes.channels):
            raise first_refusal(prepared.name, changes)
        if not moves.arrivals:
            write_topology(prepared.root, prepared.name, topology)
            return
        body = _decided(prepared, moves, topology)
        _recover(prepared, moves.arrivals, take)
        for tier in _tiers(body):
            take(tier)
        journal.write(body)
        faults.reached("move.noted")
        _give_way(prepared, journal, body)
        journal.confirm(body)
        faults.reached("move.planned")
        _carry_out(prepared, body, take)


def _give_way(prepared: PreparedFlow, journal: Journal, body: Mapping[str, Any]) -> None:
    """Withdraw the move if dead letters wait for a replay after all. A replay command needs no lease: it writes its request, and then looks
    for the journal, so that one of the two sees the other.

    Replays that are committed are recorded, before the logs that show it are left.
    """
    for each in body["leaving"]:
        folder = StateFolder(prepared.root, prepared.name, each["tier"]).query(each["query"])
        if each["to"] and (count := letters_waiting(folder)):
            journal.remove()
            says = f'{letters(count)} to be replayed in "{label_of(each["tier"], each["query"])}", requested a moment ago'
            raise Refused(f'flow "{prepared.name}": {says}', remedy=DRAIN, code="tiers-changed")
        settle(folder)


def first_refusal(flow: str, changes: PlanChanges) -> Refused:
    """The first refusal, as `plan` reports it."""
    refused: list[tuple[str, QueryChange | ChannelChange]] = [("query", each) for each in changes.queries]
    refused += [("channel", each) for each in changes.channels]
    what, change = next(each for each in refused if each[1].fate == "refused")
    return Refused(f'flow "{flow}", {what} "{change.label}": {change.says}', remedy=change.remedy, code="tiers-changed")


# --- the plan of a move ---


def _decided(prepared: PreparedFlow, moves: Moves, topology: StoredTopology) -> dict[str, Any]:
    """The body of the journal: JSON, with everything that `_carry_out` needs besides the flow's own sinks."""
    owner = prepared.tiers[0].folder.read_owner()
    stored = read_stored(prepared.root, prepared.plan)
    arrivals = []
    for arrival in moves.arrivals:
        query = arrival.query
        begun = Lineage(
            new_id(),
            owner,
            query.name,
            query.fingerprint,
            query.state_fingerprint,
            query.sources,
            now_text(),
            _parent(stored, arrival),
            dict(query.parts),
            {source: donor.position for source, donor in arrival.donors.items()},
            "moved" if arrival.after else "anew",
            dict(arrival.passed),
            first=0 if arrival.state is None or arrival.state.last_batch is None else arrival.state.last_batch,
        )
        logs = {source: [donor.query.tier, donor.query.name, donor.query.lineage, donor.source] for source, donor in arrival.donors.items()}
        adopts = {sink: list(lineages) for sink, lineages in arrival.adopts.items()}
        each: dict[str, Any] = {"tier": arrival.tier, "query": query.name, "lineage": asdict(begun), "logs": logs, "adopts": adopts}
        if (state := arrival.state) is not None:
            each |= {"state": [state.tier, state.name, state.lineage], "last": _last_in_the_state(prepared, state, begun)}
        arrivals.append(each | {"tables": _tables(prepared.plan.flow, arrival)})
    known = {channel.id: channel for cuts in (topology, stored.topology or topology) for channel in cuts.channels if not channel.gone}
    live = {query.key: query for query in stored.live}
    carried = {each.state.key: [node.id for node in each.query.nodes if node.stateful] for each in moves.arrivals if each.state is not None}
    leaving = []
    for key, to in moves.leaving.items():
        sinks = {sink: dict(known[sink].sink) for sink in live[key].sinks if sink in known}
        names = [f"{tier}.{name}" for tier, name in to]
        stateful = carried.get(key, [])
        leaving.append({"tier": key[0], "query": key[1], "lineage": live[key].lineage, "to": names, "sinks": sinks, "stateful": stateful})
    return {"arrivals": arrivals, "leaving": leaving, "topology": topology.as_json()}


def _last_in_the_state(prepared: PreparedFlow, state: StoredQuery, begun: Lineage) -> dict[str, Any] | None:
    """The decision of the last Batch of a state that continues, changed to one of the new lineage; None before the first Batch.

    Its rows are left out, because the old lineage has written them. If Spark has not committed the Batch yet, it takes the records into the
    state again by this decision.
    """
    folder = StateFolder(prepared.root, prepared.name, state.tier).query(state.name)
    last = Decisions(folder.decisions).newest()
    if last is None:
        return None
    batch = replace(last.batch, query=begun.query, lineage=begun.id, term=0)
    streams = {each.source: tuple(SourceLog(folder.sources, each.source).range(each.start, each.end)) for each in last.sources}
    made_from = input_hash(batch, last.sources, streams, last.plan)
    kept = replace(last, batch=batch, input_hash=made_from, receipts=(), dead=(), counts={}, behind={}, trails=(), taken={}, noticed=())
    return decision_as_json(replace(kept, offers=(), refused=None))


def _tables(flow: Flow, arrival: MovedQuery) -> dict[str, list[str]]:
    """Summary → tier, query and lineage whose table it continues."""
    return {
        sink: [query.tier, query.name, query.lineage]
        for sink, lineages in arrival.adopts.items()
        if sink in flow.sinks and flow.sinks[sink].type == SUMMARY
        for query in arrival.after
        if query.lineage in lineages
    }


def _parent(stored: StoredFlow, arrival: MovedQuery) -> str:
    """The lineage in the folder of the new one; otherwise that of a query that it replaces; empty if there is neither."""
    here = [query for query in (*stored.past, *stored.live) if query.key == arrival.key]
    return here[-1].lineage if here else next((query.lineage for query in arrival.after), "")


def _tiers(body: Mapping[str, Any]) -> list[str]:
    """The tiers that take part: those that queries enter or leave, and those whose logs are copied."""
    givers = [tier for each in body["arrivals"] for tier, *_ in each["logs"].values()]
    return list(dict.fromkeys([*(each["tier"] for each in (*body["arrivals"], *body["leaving"])), *givers]))


def _recover(prepared: PreparedFlow, arrivals: Iterable[MovedQuery], take: Callable[[str], Lease]) -> None:
    """Publish what the old queries have decided at the sinks that are taken over, and check that these still belong to them."""
    owner = prepared.tiers[0].folder.read_owner()
    done: dict[tuple[str, str], dict[str, OpenSink]] = {}
    for arrival in arrivals:
        for query in arrival.after:
            own = [sink for sink in arrival.adopts if sink in query.sinks]
            opened = _open(prepared, arrival.tier, own, query)
            done[query.key] = done.get(query.key, {}) | opened
    stored = {query.key: query for arrival in arrivals for query in arrival.after}
    for key, sinks in done.items():
        folder = StateFolder(prepared.root, prepared.name, key[0]).query(key[1])
        for sink in sinks.values():
            sink.prepare(owner=owner, lineage=stored[key].lineage)
        recover_query(folder, sinks, lineage=stored[key].lineage, lease=take(key[0]))
        faults.reached("move.recovered")


def _open(prepared: PreparedFlow, tier: str, sinks: Iterable[str], query: StoredQuery) -> dict[str, OpenSink]:
    """Open sinks of a planned tier, with the work folder of the stored query that wrote to them."""
    plan = prepared.plan.tier(tier)
    chosen = {sink: plan.flow.sinks[sink] for sink in sinks}
    flow = replace(plan.flow, sinks=chosen)
    before = replace(plan.queries[0], name=query.name, sinks=tuple(chosen), fingerprint=query.fingerprint)
    return open_sinks(flow, replace(plan, flow=flow, queries=(before,)), StateFolder(prepared.root, prepared.name, query.tier))


def open_left_sinks(
    flow: Flow, root: Path, folder: QueryFolder, tier: str, own: Iterable[str], channels: Mapping[str, Mapping[str, Any]]
) -> dict[str, OpenSink]:
    """Open the sinks of a query that a move has ended, to read their output: sinks of the flow with its present options, channels with
    their earlier ones.

    Args:
        flow: The flow.
        root: The state folder.
        folder: The folder of the query's state.
        tier: The query's tier.
        own: The ids of its sinks; those that the flow no longer has are left out.
        channels: Channel id → the options that the move has recorded.
    """
    sinks = {id_: flow.sinks[id_] for id_ in own if id_ in flow.sinks}
    for id_, options in channels.items():
        given = dict(options)
        if given["kind"] == "folder":
            given.setdefault("path", str(ChannelFolder.of(root, flow.name, id_).data.absolute()))
        else:
            given["config"] = clusters(flow).get(str(given.get("bootstrap")), {})
        sinks[id_] = Sink(id_, (), CHANNEL, given)
    whole = replace(flow, sinks=sinks, tiers={}, edges={})
    query = QueryPlan(folder.name, (), tuple(sinks), (), (), 0.0, "whole batch", "", "", "")
    return open_sinks(whole, Plan(whole, (query,), tier), StateFolder(root, flow.name, tier))


# --- the steps of a move ---


def _carry_out(prepared: PreparedFlow, body: Mapping[str, Any], take: Callable[[str], Lease]) -> None:
    """Perform all steps, each of which may be done already. Idempotent: it may be interrupted at any point and repeated."""
    root, flow = prepared.root, prepared.name
    for tier in _tiers(body):
        take(tier)
    folders = {(each["tier"], each["query"]): StateFolder(root, flow, each["tier"]).query(each["query"]) for each in body["arrivals"]}
    lineages = {key: _lineage(each) for key, each in zip(folders, body["arrivals"], strict=True)}
    tables = {key: each.get("tables", {}) for key, each in zip(folders, body["arrivals"], strict=True)}
    left = {(each["tier"], each["query"]): each for each in body["leaving"]}
    for each, folder in zip(body["arrivals"], folders.values(), strict=True):
        if given := each.get("state"):
            tier, query, lineage = given
            detach_state(StateFolder(root, flow, tier).query(query), lineage, folder)
    faults.reached("move.lifted")
    for key, folder in folders.items():
        if key in left:
            _mark(folder, left[key])
        leave(folder, lineages[key].id)
        faults.reached("move.left")
    for each, folder in zip(body["arrivals"], folders.values(), strict=True):
        for source, (tier, query, lineage, name) in each["logs"].items():
            _copy(logs_of(StateFolder(root, flow, tier).query(query), lineage) / name, folder.sources / source)
        faults.reached("move.copied")
    for key, folder in folders.items():
        begin_moved(folder, lineages[key])
        for sink, (tier, query, lineage) in tables[key].items():
            continue_table(folder, sink, lineages[key].id, (tier, query, lineage))
        faults.reached("move.begun")
    for each, folder in zip(body["arrivals"], folders.values(), strict=True):
        if each.get("state"):
            attach_state(folder)
        if last := each.get("last"):
            Decisions(folder.decisions).decide(decision_from_json(last))
    faults.reached("move.carried")
    topology = StoredTopology.from_json(body["topology"])
    channels = {channel.id: channel for channel in topology.channels if not channel.gone}
    for each in body["arrivals"]:
        _adopt(prepared, each, channels)
        faults.reached("move.adopted")
    for key, each in left.items():
        if key not in folders:
            _mark(StateFolder(root, flow, key[0]).query(key[1]), each)
    faults.reached("move.marked")
    write_topology(root, flow, topology)
    faults.reached("move.written")
    Journal(root, flow).remove()


def _lineage(arrival: Mapping[str, Any]) -> Lineage:
    body = arrival["lineage"]
    return Lineage(**body | {"sources": tuple(body["sources"])})


def _mark(folder: QueryFolder, left: Mapping[str, Any]) -> None:
    """Write the move record beside the lineage that is left, if it is still the one in the folder."""
    lineage = read_lineage(folder)
    if lineage is not None and lineage.id == left["lineage"]:
        write_moved(folder, MovedLineage(left["lineage"], tuple(left["to"]), left["sinks"], tuple(left.get("stateful", ()))))


def _copy(source: Path, target: Path) -> None:
    """Copy the records of a log, each durably. A record that exists already is the same, and is kept."""
    storage.make_folder(target)
    for name in storage.names_in(source):
        if (source / name).is_dir():
            _copy(source / name, target / name)
        elif (data := storage.read_or_none(source / name)) is not None:
            storage.put_if_absent(target / name, data)


def _adopt(prepared: PreparedFlow, arrival: Mapping[str, Any], channels: Mapping[str, KnownChannel]) -> None:
    """Make the new lineage the owner of the sinks' places. A sink that was removed from the flow gets no owner."""
    flow, root, name = prepared.plan.flow, prepared.root, arrival["tier"]
    folder = StateFolder(root, flow.name, name)
    plan = next((tier for tier in prepared.plan.tiers if tier.tier == name), None)
    own = {} if plan is None else open_sinks(plan.flow, plan, folder)
    earlier = [id_ for id_ in arrival["adopts"] if id_ not in own]  # the layout of the flow has changed since
    known = {id_: channels[id_].sink for id_ in earlier if id_ in channels}
    own |= open_left_sinks(flow, root, folder.query(arrival["query"]), name, earlier, known)
    for id_, lineages in arrival["adopts"].items():
        if id_ in own:
            _take_over(own[id_], _lineage(arrival), lineages)


def _take_over(sink: OpenSink, lineage: Lineage, earlier: Iterable[str]) -> None:
    """Claim the sink's place for the lineage, but only from one of the earlier ones. Raises Refused if another lineage owns it by now."""
    try:
        sink.prepare(owner=lineage.owner, lineage=lineage.id)
        return
    except Refused as error:
        refused = error
    for each in earlier:
        try:
            sink.prepare(owner=lineage.owner, lineage=each)
        except Refused:
            continue
        sink.prepare(owner=lineage.owner, lineage=lineage.id, adopt=True)
        return
    raise refused
