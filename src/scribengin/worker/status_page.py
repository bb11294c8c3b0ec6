"""A worker's status: its flow and tier, lease and master, its nodes, its upstream and downstream tiers, and the backlogs between them."""

from __future__ import annotations

import json
import os
import socket
import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any

from scribengin.control.html_page import page
from scribengin.core.errors import Unreachable
from scribengin.core.net import LOOPBACK
from scribengin.local.acks import topology_of
from scribengin.registry.contract import RegistryEntry
from scribengin.registry.lease import LEADER
from scribengin.registry.records import tier_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from scribengin.control.world import RunId
    from scribengin.local.contract import QueryView, RunView
    from scribengin.local.prepare import PreparedFlow
    from scribengin.registry.contract import Registry
    from scribengin.registry.lease import RegistryLease
    from scribengin.registry.records import Report
    from scribengin.state.channel_acks import QueryTopology


# The page of the status: read-only, on a free port of the loopback, `/` for people and `/json` for programs. It shows no secrets.


_PATHS = {"/": "text/html; charset=utf-8", "/json": "application/json"}
_IDLE_S = 10.0


@contextmanager
def serve_page(look: Callable[[], Mapping[str, Any]]) -> Iterator[str]:
    """Serve the present value of `look` until the block ends. Yields the address, `http://127.0.0.1:PORT`. `look` is only called for a
    request."""

    class Handler(BaseHTTPRequestHandler):
        timeout = _IDLE_S
        server_version, sys_version = "scribengin", ""

        def do_GET(self) -> None:
            kind = _PATHS.get(self.path)
            # a page of another site whose name resolves to this address must not read this page in a user's browser
            here = (self.headers.get("Host") or "").rpartition(":")[0] in (LOOPBACK, "localhost")
            if kind is None or not here:
                self.send_error(404 if kind is None else 421)
                return
            found = look()
            body = json.dumps(found).encode() if self.path == "/json" else page(found).encode()
            self.send_response(200)
            for name, value in {"Content-Type": kind, "Content-Length": str(len(body)), "Cache-Control": "no-store"}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *_: object) -> None:
            """Does nothing: requests are not logged in the worker's log."""

    with ThreadingHTTPServer((LOOPBACK, 0), Handler) as server:
        server.daemon_threads = True
        thread = threading.Thread(target=server.serve_forever, name="page", daemon=True)
        thread.start()
        try:
            yield f"http://{LOOPBACK}:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()


class Glance:
    """The worker's status, computed for each request. One thread may read it while another sets it: each part is one value."""

    def __init__(self, registry: Registry, id_: RunId, lease: RegistryLease, version: int) -> None:
        self._registry = registry
        self._id = id_
        self._lease = lease
        self._version = version
        self.state = "starting"
        """the last reported state"""
        self.flow: PreparedFlow | None = None
        """the flow as last planned"""
        self._topology: tuple[PreparedFlow, QueryTopology] | None = None
        self.view: RunView | None = None
        """the view of the current attempt; None between two attempts"""
        self.helping: Callable[[], Mapping[str, int]] = dict
        """returns the number of helpers; for a helper, the number of portions staged, and whether it stages now"""

    def topology(self) -> QueryTopology | None:
        """The queries and channels of the flow as last planned; None before."""
        flow, known = self.flow, self._topology
        if flow is None:
            return None
        if known is None or known[0] is not flow:
            known = self._topology = flow, topology_of(flow.plan, flow.root)
        return known[1]

    def hear(self, report: Report) -> None:
        """Record the worker's report of its state."""
        self.state = report.state

    def as_json(self) -> dict[str, Any]:
        """The status as JSON. It costs one request to the registry, for the leader."""
        held = self._lease.held()
        return {
            "worker": str(self._id),
            "flow": self._id.flow,
            "tier": self._id.tier,
            "version": self._version,
            "state": self.state,
            "process": {"pid": os.getpid(), "host": socket.gethostname()},
            "lease": {"held": held, "term": self._lease.term.number if held else None},
            "master": self._master(),
            **self.helping(),
            **self._graph(),
            **_figures(self.view),
        }

    def _master(self) -> dict[str, Any] | None:
        """The leader's record; None if there is none, or the registry does not answer."""
        try:
            there = self._registry.read(LEADER)
        except Unreachable:
            return None
        return {name: there.value.get(name) for name in ("id", "host", "http")} if isinstance(there, RegistryEntry) else None

    def _graph(self) -> dict[str, Any]:
        """The tier's nodes, and the upstream and downstream tiers with their channels; empty before the flow is planned."""
        if self.flow is None:
            return {"nodes": [], "reads_from": [], "hands_to": []}
        name = tier_of(self._id.tier)
        plan = next(tier for tier in self.flow.plan.tiers if tier.tier == name)
        ends = {source.id: source.type for source in plan.flow.sources.values()}
        ends |= {sink.id: sink.type for sink in plan.flow.sinks.values()}
        nodes = {
            node.id: {"node": node.id, "type": ends.get(node.id), "stage": node.stage, "from": list(node.inputs)}
            for query in plan.queries
            for node in query.placed
        }
        channels = self.flow.plan.channels
        return {
            "nodes": list(nodes.values()),
            "reads_from": [{"tier": each.feeding, "channel": each.id} for each in channels if each.reading == name],
            "hands_to": [{"tier": each.reading, "channel": each.id} for each in channels if each.feeding == name],
        }


def _figures(view: RunView | None) -> dict[str, Any]:
    if view is None:
        return {"queries": [], "gates": []}
    return {"queries": [_query(query) for query in view.queries], "gates": [gate.as_json() for gate in view.gates]}


def _query(query: QueryView) -> Mapping[str, Any]:
    return {
        "query": query.name,
        "state": query.state,
        "batches": query.batches,
        "rows_in": query.rows_in,
        "rows_out": query.rows_out,
        "dead": query.dead,
        "rows_per_s": round(query.rows_per_s, 1),
        "restarts": query.restarts,
        "lag": query.lag_as_json(),
        "message": query.message,
    }
