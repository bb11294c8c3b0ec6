"""Finds the host that has the state of a flow, and the master or node there that can be asked."""

from __future__ import annotations

import socket
import time
from pathlib import Path
from typing import TYPE_CHECKING

from scribengin.control import reading
from scribengin.control.masters import masters_by_host
from scribengin.core.errors import Refused, ScribenginError
from scribengin.registry.contract import RegistryEntry
from scribengin.registry.records import Stored, names, read_record
from scribengin.registry.tree import HOST, HOSTS, LEASE, RUN
from scribengin.state.places import is_elsewhere

if TYPE_CHECKING:
    from collections.abc import Callable

    from scribengin.registry.contract import Registry


def find_state(registry: Registry, flow: str) -> str:
    """Empty if the flow's state is on this host, or where all hosts can reach it, or does not exist yet; otherwise the address of a master
    on the host of its workers.

    Raises Refused `state-elsewhere` if it is on another host and no reachable master runs there, and as `read_flow`.
    """
    state = reading.state_of(registry, flow)
    folder = Path(state, flow)
    if is_elsewhere(state) or folder.is_dir():
        return ""
    here = socket.gethostname()
    hosts = {host: tier for tier in names(registry, f"flows/{flow}/runs") if (host := _host_of(registry, flow, tier))}
    if here in hosts or not hosts:
        return ""
    there = masters_by_host(registry)
    for host in hosts:
        if host in there:
            return there[host]
    host, tier = next(iter(hosts.items()))
    raise Refused(
        f"the state of flow {flow} is not on this host, {here}: there is no {folder}; its tier {tier} runs on {host}",
        remedy=f"keep states where all hosts can reach them, or start a master on {host}: "
        "scribengin server master --registry ADDRESS --listen HOST --tls-certificate FILE --tls-key FILE",
        code="state-elsewhere",
    )


def node_with_state(registry: Registry, flow: str, has: Callable[[str, str], bool], *, within_s: float = 20.0) -> str:
    """Empty as for `find_state`; otherwise a node that has the state. `has`: node, flow → whether it has the state; it raises an error if
    the node does not answer. After `within_s` seconds no further node is asked.

    Raises Refused `state-elsewhere` if no node has it, and some do not answer or were not asked; as `read_flow`.
    """
    state = reading.state_of(registry, flow)
    folder = Path(state, flow)
    if is_elsewhere(state) or folder.is_dir():
        return ""
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
    """The host of the tier's worker; if that has ended, the host of the node where it ran."""
    if not RUN.fits(flow, tier):
        return ""
    lease = registry.read(LEASE(flow, tier).path)
    if isinstance(lease, RegistryEntry) and isinstance(lease.value.get("host"), str):
        return str(lease.value["host"])
    run = read_record(registry, RUN(flow, tier))
    node = run.record.node if isinstance(run, Stored) else ""
    host = read_record(registry, HOST(node)) if HOST.fits(node) else None
    return host.record.host if isinstance(host, Stored) else ""
