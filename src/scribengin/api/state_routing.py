"""Finds the host that has the state of a flow, and the master or node there that can answer."""

from __future__ import annotations

import os
import socket
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import httpx2
from anyio import from_thread
from starlette.responses import RedirectResponse, Response

from scribengin.client.problems import CODE
from scribengin.client.transport import REVISION
from scribengin.control import flow_records
from scribengin.control.masters import certificates_of, masters_by_host
from scribengin.core.errors import Refused, ScribenginError, Unreachable
from scribengin.core.net import trusted
from scribengin.registry.contract import RegistryEntry
from scribengin.registry.record_io import Stored, names, read_record
from scribengin.registry.tree import HOST, HOSTS, LEASE, RUN
from scribengin.state.places import is_elsewhere

if TYPE_CHECKING:
    from collections.abc import Callable

    from starlette.requests import Request

    from scribengin.control.worker_reports import WorkerWatch
    from scribengin.registry.contract import Registry


# Another master answers the same request.


_CONNECT_S, _READ_S = 3.0, 115.0
_FORWARDED = "Scribengin-Forwarded"
"""a header: the request comes from another master, which is not asked in turn"""
_KEPT = ("content-type", "retry-after", REVISION.lower(), CODE.lower())
"""headers of an answer that are handed on"""


def sent_to(master: str, request: Request) -> Response:
    """The answer of the master at that address. Clients are redirected to it; for a browser it is asked from here, since the web console
    may only send requests to the master that served it.

    Raises:
        Unreachable: it does not answer the request of a browser.
    """
    query = f"?{request.url.query}" if request.url.query else ""
    there = f"{master.rstrip('/')}{request.url.path}{query}"
    if request.headers.get("Sec-Fetch-Mode") in (None, "navigate"):
        return RedirectResponse(there, status_code=307)
    if _FORWARDED in request.headers:
        raise Unreachable("the lead goes to another master now", remedy="repeat the request in a moment", code="leader-missing")
    headers = {name: value for name, value in request.headers.items() if name not in ("content-length", "connection", "accept-encoding")}
    try:
        answer = httpx2.request(
            request.method,
            there,
            content=from_thread.run(request.body),
            headers={**headers, _FORWARDED: "1"},
            timeout=httpx2.Timeout(_READ_S, connect=_CONNECT_S),
            verify=trusted(certificates_of(os.environ)),
        )
    except httpx2.TransportError as error:
        raise Unreachable(
            f"the master at {master}, which has the answer, does not answer: {error}",
            remedy="repeat the request in a moment, or open the console there",
            code="leader-missing",
        ) from None
    return Response(answer.content, answer.status_code, {name: answer.headers[name] for name in _KEPT if name in answer.headers})


def sent_to_leader(watch: WorkerWatch | None, request: Request) -> Response | None:
    """The answer of the leader, which has the metrics of flows; None if this master leads, or if no leader can be reached."""
    if watch is None or watch.leads() or not (leader := watch.leader()):
        return None
    return sent_to(leader, request)


@dataclass(frozen=True, slots=True)
class StateLocation:
    """Where the state of a flow is: on the host of the master at that address, on a node, or, if both are empty, on this host."""

    master: str = ""
    node: str = ""


HERE = StateLocation()


def locate_state(
    registry: Registry, flow: str, has: Callable[[str, str], bool], *, masters: bool = False, within_s: float = 20.0
) -> StateLocation:
    """Find the state of a flow.

    Args:
        registry: the records of the flow and of the hosts.
        flow: the flow.
        has: called with node and flow; True if the node has the state. Raises an error if the node does not answer.
        masters: a master on the host of the flow's workers may be the result; nodes are then asked only if there is none.
        within_s: seconds after which no further node is asked.

    Returns:
        The location; HERE also if all hosts can reach the state, or it does not exist yet.

    Raises:
        ScribenginError: as `read_flow`.
        Refused: `state-elsewhere` if no node has it, and some do not answer or were not asked; with `masters` also if the state is on
            another host
            where no master can be reached.
    """
    state = flow_records.state_of(registry, flow)
    folder = Path(state, flow)
    if is_elsewhere(state) or folder.is_dir():
        return HERE
    unreached = None
    if masters:
        here = socket.gethostname()
        hosts = {host: tier for tier in names(registry, f"flows/{flow}/runs") if (host := _host_of(registry, flow, tier))}
        if here in hosts or not hosts:
            return HERE
        there = masters_by_host(registry)
        for host in hosts:
            if host in there:
                return StateLocation(master=there[host])
        host, tier = next(iter(hosts.items()))
        unreached = Refused(
            f"the state of flow {flow} is not on this host, {here}: there is no {folder}; its tier {tier} runs on {host}",
            remedy=f"keep states where all hosts can reach them, or start a master on {host}: "
            "scribengin server master --registry ADDRESS --listen HOST --tls-certificate FILE --tls-key FILE",
            code="state-elsewhere",
        )
    node = _node_with_state(registry, flow, folder, has, within_s)
    if not node and unreached is not None:
        raise unreached
    return StateLocation(node=node)


def _node_with_state(registry: Registry, flow: str, folder: Path, has: Callable[[str, str], bool], within_s: float) -> str:
    """The node that has the state; empty if the state does not exist yet. Raises Refused `state-elsewhere` if it may be on a node that does
    not answer."""
    tiers = [tier for tier in names(registry, f"flows/{flow}/runs") if RUN.fits(flow, tier)]
    runs = [run.record for tier in tiers if isinstance(run := read_record(registry, RUN(flow, tier)), Stored)]
    if not runs:
        return ""
    known = [node for node in names(registry, HOSTS) if HOST.fits(node) and isinstance(registry.read(HOST(node).path), RegistryEntry)]
    silent = []
    deadline = time.monotonic() + within_s
    for node in dict.fromkeys([*(run.node for run in runs), *known]):
        if time.monotonic() >= deadline:
            silent.append(f"{node} (not asked: other nodes took too long)")
            continue
        try:
            if has(node, flow):
                return node
        except ScribenginError as error:
            silent.append(f"{node} ({error.message})")
    if not silent:
        return ""
    raise Refused(
        f"the state of flow {flow} is not on this host, {socket.gethostname()}: there is no {folder}; it may be on {', '.join(silent)}",
        remedy="keep states where all hosts can reach them, or make the nodes reachable for this master: "
        "scribengin server node --name NODE --registry ADDRESS --listen HOST --tls-certificate FILE --tls-key FILE",
        code="state-elsewhere",
    )


def _host_of(registry: Registry, flow: str, tier: str) -> str:
    """The host of the tier's worker; if that has ended, the host of the node where it ran; empty if unknown."""
    if not RUN.fits(flow, tier):
        return ""
    lease = registry.read(LEASE(flow, tier).path)
    if isinstance(lease, RegistryEntry) and isinstance(lease.value.get("host"), str):
        return str(lease.value["host"])
    run = read_record(registry, RUN(flow, tier))
    node = run.record.node if isinstance(run, Stored) else ""
    host = read_record(registry, HOST(node)) if HOST.fits(node) else None
    return host.record.host if isinstance(host, Stored) else ""
