"""Checks that every source and sink of a flow exists: its place, login, topic, table, and its owner. Connects to all of them at once;
changes nothing."""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Literal

from scribengin.connectors import catalog
from scribengin.connectors.abilities import checks_place
from scribengin.core.errors import EnvironmentFault, Refused, ScribenginError, Unreachable
from scribengin.core.limited import limited
from scribengin.core.problems import Problem
from scribengin.local.move_queries import changes_and_moves
from scribengin.local.preflight import claimants, placing_errors, unlike_files, unmatched_patterns, with_trash_remedy
from scribengin.local.prepare import sink_place, source_place
from scribengin.plan.tier_flows import CHANNEL

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from scribengin.connectors.contract import Claimant, ConnectorContext
    from scribengin.local.prepare import Prepared, PreparedFlow
    from scribengin.spec.model import Sink, Source


Reached = Literal["ok", "wrong", "unreached", "unchecked"]
"""`unchecked`: the connector cannot check it without a run"""
_SERVERS = ("path", "url", "server", "bootstrap")
_NAMED = ("topic", "topics", "pattern", "keyspace", "table", "index")
_TRANSIENT = (Unreachable, EnvironmentFault)


@dataclass(frozen=True, slots=True)
class NodeReach:
    """The result of the check of one source or sink. `says` is for people; `problem` describes what is wrong, or could not be reached."""

    flow: str
    node: str
    role: Literal["source", "sink"]
    type: str
    place: str
    state: Reached
    says: str
    problem: Problem | None = None

    def as_json(self) -> dict[str, Any]:
        """The result as one JSON object, without the problem."""
        names = ("flow", "node", "role", "type", "place", "state", "says")
        return {name: getattr(self, name) for name in names}


@dataclass(frozen=True, slots=True)
class NodePlace:
    """A source or sink with what is needed to check it on another host. Its pickle contains secrets."""

    node: str
    role: Literal["source", "sink"]
    type: str
    context: ConnectorContext


@dataclass(frozen=True, slots=True)
class PlaceReach:
    """The result of the check of one source or sink on another host: `NodeReach` without the flow's file. `remedy` is empty if it is ok."""

    node: str
    role: Literal["source", "sink"]
    state: Reached
    says: str
    remedy: str = ""


def node_places(prepared: PreparedFlow) -> list[NodePlace]:
    """The sources and sinks of the flow, for `check_node_places`. Channels between tiers are left out."""
    found: list[NodePlace] = []
    for flow in (tier.plan.flow for tier in prepared.tiers):
        found += (NodePlace(each.id, "source", each.type, source_place(flow, each.id)) for each in flow.sources.values())
        found += (NodePlace(each.id, "sink", each.type, sink_place(flow, each.id)) for each in flow.sinks.values())
    return [place for place in found if place.type != CHANNEL]


def check_node_places(places: Sequence[NodePlace], *, within_s: float) -> list[PlaceReach]:
    """Check these sources and sinks from this process, all at once. Which flow owns a sink's place is not checked.

    Args:
        places: Sources and sinks, of `node_places`.
        within_s: One that has not answered after so many seconds is `unreached`.
    """
    with ThreadPoolExecutor(max(1, len(places))) as pool:
        return list(pool.map(partial(_reach_of, within_s=within_s), places))


def _reach_of(place: NodePlace, *, within_s: float) -> PlaceReach:
    check = partial(_check_source, place) if place.role == "source" else partial(_check_sink, place, None)
    reach = partial(PlaceReach, place.node, place.role)
    try:
        says = limited(check, within_s)
    except ScribenginError as error:
        return reach("unreached" if isinstance(error, _TRANSIENT) else "wrong", error.message, error.remedy)
    except Exception as error:  # an error of the client itself; it must not hide the other results
        return reach("unreached", f"{type(error).__name__}: {error}", "check that its server is running")
    return reach("ok" if says else "unchecked", says or "cannot be checked before a run")


def check_places(prepared: PreparedFlow, *, within_s: float) -> list[NodeReach]:
    """Check every source and sink of the flow, all at once.

    Args:
        prepared: The flow.
        within_s: A node that has not answered after so many seconds is `unreached`.

    Returns:
        One result for each node, sources first. Errors of Scribengin's own connectors are part of the results, and never raised.
    """
    looks = [*_looks(prepared)]
    found: list[NodeReach | None] = [None] * len(looks)

    def check(nth: int) -> None:
        found[nth] = looks[nth][1]()

    # daemon threads: a client that waits longer for a server must not delay the end of this process
    threads = [threading.Thread(target=check, args=(nth,), daemon=True) for nth in range(len(looks))]
    for thread in threads:
        thread.start()
    deadline = time.monotonic() + within_s
    for thread in threads:
        thread.join(max(0.0, deadline - time.monotonic()))
    reached = [each or silent(within_s) for each, (silent, _) in zip(found, looks, strict=True)]
    wrong = {error.node: error for error in unlike_files(prepared)}
    reached = [_of_files(prepared, each, wrong[each.node]) if each.role == "source" and each.node in wrong else each for each in reached]
    empty = unmatched_patterns(prepared)
    return [
        replace(each, says=f"{each.says}, and no file matches", problem=empty[each.node])
        if each.role == "source" and each.state == "ok" and each.node in empty
        else each
        for each in reached
    ]


def _of_files(prepared: PreparedFlow, reached: NodeReach, error: ScribenginError) -> NodeReach:
    """The result for a source that exists, but whose first file no run would read."""
    if reached.state != "ok" or error.place is None:
        return reached
    return replace(
        reached,
        state="wrong",
        says=error.message,
        problem=Problem(error.code, error.place, error.message, prepared.named(error.remedy)),
    )


_Look = tuple["Callable[[float], NodeReach]", "Callable[[], NodeReach]"]
"""(returns the result if there is no answer within so many seconds, does the check)"""


def _looks(prepared: PreparedFlow) -> Iterator[_Look]:
    who = _claimants(prepared)
    for role in ("source", "sink"):
        for tier in prepared.tiers:
            flow = tier.plan.flow
            nodes: list[Source | Sink] = [*flow.sources.values()] if role == "source" else [*flow.sinks.values()]
            for node in nodes:
                if node.type != CHANNEL:
                    shape = partial(NodeReach, prepared.name, node.id, role, node.type, _where(node))
                    look = partial(_source_of_tier, tier, node.id)
                    if role == "sink":
                        look = partial(_sink_of_tier, prepared, tier, node.id, who.get((tier.plan.tier, node.id)))
                    yield partial(_silent, tier, node.id, shape), partial(_looked, prepared, tier, node.id, shape, look)


def _claimants(prepared: PreparedFlow) -> dict[tuple[str, str], Claimant]:
    """(tier, sink) → the owner as which a run would claim its place, as far as the state shows it."""
    try:
        _, moves = changes_and_moves(prepared)
    except Refused:
        return {}  # `plan` and `run` report that of the state; the check of the places does not depend on it
    return claimants(prepared, {arrival.key for arrival in moves.arrivals}) or {}


def _where(node: Source | Sink) -> str:
    """The place of a node's data, for people: `broker1:9092, topic kept`."""
    given = node.options
    server = next((given[name] for name in _SERVERS if name in given), "")
    named = [f"{name} {_listed(given[name])}" for name in _NAMED if given.get(name)]
    return ", ".join([*filter(None, [_listed(server).partition("?")[0]]), *named])


def _listed(value: object) -> str:
    return ", ".join(map(str, value)) if isinstance(value, (list, tuple)) else str(value)


def _silent(tier: Prepared, node: str, shape: Callable[..., NodeReach], within_s: float) -> NodeReach:
    said = f"no answer within {within_s:g} s"
    problem = Problem("unreachable", tier.place_of(node), f'"{node}": {said}', "check that its server is running", "warning")
    return shape("unreached", said, problem)


def _looked(prepared: PreparedFlow, tier: Prepared, node: str, shape: Callable[..., NodeReach], look: Callable[[], str]) -> NodeReach:
    try:
        with placing_errors(tier, node):
            says = look()
    except ScribenginError as error:
        transient = isinstance(error, _TRANSIENT)
        place = error.place or tier.place_of(node)
        problem = Problem(error.code, place, error.message, prepared.named(error.remedy), "warning" if transient else "error")
        return shape("unreached" if transient else "wrong", error.message, problem)
    except Exception as error:  # an error of the client itself, which a run would get too; it must not hide the other results
        said = f'"{node}" cannot be checked: {type(error).__name__}: {error}'
        return shape("unreached", said, Problem("unreachable", tier.place_of(node), said, "run the flow to see the full error", "warning"))
    return shape("ok" if says else "unchecked", says or "cannot be checked before a run")


def _source_of_tier(tier: Prepared, id_: str) -> str:
    flow = tier.plan.flow
    return _check_source(NodePlace(id_, "source", flow.sources[id_].type, source_place(flow, id_)))


def _sink_of_tier(prepared: PreparedFlow, tier: Prepared, id_: str, claimant: Claimant | None) -> str:
    flow = tier.plan.flow
    with with_trash_remedy(prepared.root, prepared.name):
        return _check_sink(NodePlace(id_, "sink", flow.sinks[id_].type, sink_place(flow, id_)), claimant)


def _check_source(place: NodePlace) -> str:
    if "no_place" in catalog.source_types(internal=True)[place.type].abilities:
        return "generates its rows"
    if catalog.check_source_place(place.type, place.context):
        return "exists"
    source = catalog.open_source(place.type, place.context)
    if checks_place(source):
        source.check_place()
    else:
        source.reader()
    if source.schema is None:
        source.resolve_schema()
    return "answers and is readable"


def _check_sink(place: NodePlace, claimant: Claimant | None) -> str:
    if "no_place" in catalog.sink_types(internal=True)[place.type].abilities:
        return "needs no external system"
    if catalog.check_sink_place(place.type, place.context, claimant):
        return "is writable"
    sink = catalog.open_sink(place.type, place.context)
    if not checks_place(sink):
        return ""
    sink.check_place()
    return "answers"
