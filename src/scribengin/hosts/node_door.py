"""The HTTP service of a node, read-only: its status, its workers' output, and their status pages, which only their host can reach. Masters
and users call it. For masters it also reads the states of flows that are on this host."""

from __future__ import annotations

import hmac
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.responses import HTMLResponse, Response
from starlette.routing import Route

from scribengin.api.auth import Authentication, Role
from scribengin.api.logs import MOST_LINES, last_lines
from scribengin.api.planner import records_for
from scribengin.api.request_limits import BodyLimit
from scribengin.api.state_queries import StateQuery, registered
from scribengin.api.views import check_flow
from scribengin.client.problems import CODE, MEDIA_TYPE, encode, to_problem
from scribengin.client.worker_page import read_worker_page
from scribengin.control.flow_records import state_of
from scribengin.control.html_page import page
from scribengin.control.node_bindings import node_as_json
from scribengin.control.world import RunId
from scribengin.core.errors import Refused, ScribenginError, Unreachable
from scribengin.registry.contract import RegistryEntry
from scribengin.registry.lease import LEADER
from scribengin.registry.record_io import Stored, read_record
from scribengin.registry.tree import DESIRED, REPORT, SPARE_REPORT

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from starlette.requests import Request

    from scribengin.api.auth import Proves
    from scribengin.api.planner import Planner
    from scribengin.api.serving import Listen
    from scribengin.core.secret import Secret
    from scribengin.hosts.node_process import NodeProcess
    from scribengin.packages.store import PackageStore
    from scribengin.registry.contract import Registry

_NO_STORE = {"Cache-Control": "no-store"}


class NodeGlance:
    """The status of a node, computed for each request. `logs`: worker → paths of its output here."""

    def __init__(
        self,
        registry: Registry,
        name: str,
        process: NodeProcess,
        packages: PackageStore,
        logs: Callable[[str], Sequence[str]],
        about: Mapping[str, Any],
        planner: Planner,
        folders: Callable[[], Sequence[Mapping[str, Any]]] = tuple,
    ) -> None:
        """Create it for a running node process.

        Args:
            registry: where the node's records are.
            name: the name of the node.
            process: its node process.
            packages: its packages.
            logs: worker → paths of its output here.
            about: the constant values of the process: pid, registry.
            planner: reads states that are on this host.
            folders: returns the sinks' folders that the host maintains.
        """
        self._registry = registry
        self.name = name
        self._process = process
        self._packages = packages
        self._logs = logs
        self._about = about
        self._planner = planner
        self._folders = folders

    def as_json(self) -> dict[str, Any]:
        """The node's state as JSON. Raises Unreachable if the registry does not answer."""
        known = node_as_json(self._registry, self.name)
        there = self._registry.read(LEADER)
        leader = {name: there.value.get(name) for name in ("id", "host", "http")} if isinstance(there, RegistryEntry) else None
        seen = self._process.glance()
        workers = [{**each, "page": f"/workers/{each['worker']}"} for each in seen["workers"]]
        used = {name: sum(each[name] or 0 for each in seen["workers"] if each["state"] in ("starting", "running")) for name in _CAPACITY}
        return {
            "node": self.name,
            **self._about,
            **{name: known[name] for name in ("state", "host", "since", "home", "spark", "mapped")},
            "lease": seen["lease"],
            "master": leader,
            "capacity": {name: {"has": known[name] or None, "given": used[name]} for name in _CAPACITY},
            "workers": workers,
            "folders": list(self._folders()),
            "orders": seen["orders"],
            "packages": [{"id": each.id, "size": each.size} for each in self._packages.packages()],
        }

    def logs(self, worker: str, lines: int) -> list[dict[str, Any]]:
        """The last lines of a worker's output here, and of its tier's run log if that is known to be on this host. Raises Refused if the
        name is not valid."""
        id_ = _parsed(worker)
        files = [Path(path) for path in self._logs(worker)]
        with suppress(ScribenginError):  # the flow's records are damaged, or gone: the worker's own log is still shown
            if DESIRED.fits(id_.flow):
                files.append(Path(state_of(self._registry, id_.flow)) / id_.flow / id_.tier / "tmp/run.log")
        return [{"file": str(path), "lines": last_lines(path, lines)} for path in files if path.is_file()]

    def worker(self, worker: str) -> dict[str, Any]:
        """The status page of a worker here. Raises Refused if there is none, Unreachable if it does not answer."""
        id_ = _parsed(worker)
        if worker not in {each["worker"] for each in self._process.glance()["workers"]}:
            raise Refused(f"node {self.name} has no worker {worker}", remedy="see: scribengin node list", code="worker-unknown")
        for branch in (REPORT, SPARE_REPORT):
            report = read_record(self._registry, branch(id_.flow, id_.tier))
            if not isinstance(report, Stored) or report.record.run != id_.number:
                continue
            if (said := read_worker_page(report.record.http, worker)) is not None:
                return said
        raise Unreachable(
            f"worker {worker} does not answer on its page", remedy=f"it may be starting or ending: scribengin logs {id_.flow}"
        )

    def has_state(self, flow: str) -> bool:
        """True if the folder of a flow's state is on this host. Raises Refused if there is no such flow."""
        check_flow(self._registry, flow)
        return Path(state_of(self._registry, flow), flow).is_dir()

    def ask(self, query: StateQuery) -> Any:
        """The answer to a query about a flow's state that is on this host. Raises as `Planner.ask`."""
        registered(query.verb)
        self._registry.sync(at_least=query.revision)
        records = records_for(self._registry, query)
        for package in {submit.package for submit in query.submits}:
            self._planner.fetch(package)
        return self._planner.ask(query, records)


_CAPACITY = ("cores", "memory_bytes")


class NodeGate:
    """Authenticates requests to a node: masters by the key of this node, users as at a master."""

    def __init__(self, registry: Registry, listen: Listen, key: Secret | None, tokens: Proves) -> None:
        self._registry = registry
        self._key = key
        self._gate = Authentication(tokens, asks=listen.asks or not listen.local, local=listen.local)

    def check_master(self, request: Request) -> None:
        """Check a request that costs much time and memory, and shows the bytes of records: only masters may send it, or operators if no key
        distinguishes masters from users. Raises Refused."""
        if self._key is None:
            self.check(request, Role.OPERATOR)
        elif not self._is_master(request):
            raise Refused("only masters may request this", remedy="use a master: scribengin offsets show NAME", code="role-lacking")

    def _is_master(self, request: Request) -> bool:
        kind, _, token = request.headers.get("Authorization", "").partition(" ")
        shown = token.strip().encode()
        return self._key is not None and kind.lower() == "bearer" and hmac.compare_digest(shown, self._key.reveal().encode())

    def check(self, request: Request, role: Role = Role.VIEWER) -> None:
        """Check that the caller is a master, or has this role for all flows. Raises Refused as `Authentication.who`; `role-lacking` for a
        token with access to some flows only."""
        if self._is_master(request):
            return
        if "Authorization" in request.headers:
            self._registry.sync()  # so that a revoked token is no longer valid
        who = self._gate.who(request)
        who.check(role)
        if who.labels:
            raise Refused(
                f"{who.name} has access only to flows with certain labels; this request concerns all flows",
                remedy="use a master, or a token that has no labels",
                code="role-lacking",
            )


def check_door(listen: Listen, *, has_key: bool) -> None:
    """Raise Refused if other hosts could reach a node, but no caller could authenticate: the registry has no password, and there is no
    token."""
    if not listen.local and not has_key:
        raise Refused(
            f"{listen.host} can be reached from other hosts, but no token exists: the registry has no password and no token",
            remedy="make one in this node's registry and pass it to the masters as SCRIBENGIN_TOKEN: "
            "scribengin token add NAME --role operator --registry ADDRESS",
            code="listen-open",
        )


def node_app(glance: NodeGlance, gate: NodeGate) -> Starlette:
    """The HTTP application of a node: `/` and `/json` of the node; `/workers/NAME`, `/workers/NAME/json`, `/workers/NAME/logs?lines=N` of
    its workers; `/states/FLOW`, and POST `/states` for masters: queries about states that are here."""

    def route(answer: Callable[[Request], Response]) -> Callable[[Request], Response]:
        def asked(request: Request) -> Response:
            gate.check(request)
            return answer(request)

        return asked

    def name(request: Request) -> str:
        return str(request.path_params["worker"])

    def lines(request: Request) -> int:
        text = request.query_params.get("lines", "50")
        return min(max(int(text), 1), MOST_LINES) if text.isascii() and text.isdecimal() and len(text) < 9 else 50

    pages: dict[str, Callable[[Request], Response]] = {
        "/": lambda _request: HTMLResponse(page(glance.as_json(), title=f"node {glance.name}"), headers=_NO_STORE),
        "/json": lambda _request: _json(glance.as_json()),
        "/workers/{worker}": lambda request: HTMLResponse(
            page(_without_address(glance.worker(name(request))), json=f"{request.url.path}/json"), headers=_NO_STORE
        ),
        "/workers/{worker}/json": lambda request: _json(glance.worker(name(request))),
        "/workers/{worker}/logs": lambda request: _json(glance.logs(name(request), lines(request))),
    }

    async def ask(request: Request) -> Response:
        await run_in_threadpool(gate.check_master, request)
        data = await request.body()
        try:
            query = msgspec.json.decode(data, type=StateQuery)
        except msgspec.DecodeError as error:
            raise Refused(
                f"the request is not valid: {error}", remedy="send a request of the form that masters send", code="body"
            ) from None
        return _json(await run_in_threadpool(glance.ask, query))

    pages["/states/{flow}"] = lambda request: _json(glance.has_state(str(request.path_params["flow"])))
    routes = [Route(path, route(answer), methods=["GET"]) for path, answer in pages.items()]
    routes.append(Route("/states", ask, methods=["POST"]))
    told = {ScribenginError: _error_response, HTTPException: _error_response, Exception: _error_response}
    return Starlette(routes=routes, middleware=[Middleware(BodyLimit)], exception_handlers=told)


def _json(value: Any) -> Response:
    return Response(msgspec.json.encode(value), media_type="application/json", headers=_NO_STORE)


def _without_address(said: Mapping[str, Any]) -> dict[str, Any]:
    """The status of a worker without its own address, which cannot be used on other hosts."""
    return {name: value for name, value in said.items() if name != "http"}


def _error_response(request: Request, error: Exception) -> Response:
    if isinstance(error, HTTPException) and isinstance(error.__cause__, ScribenginError):
        error = error.__cause__
    elif isinstance(error, HTTPException):
        error = Refused(f"there is nothing at {request.url.path}", remedy="a node serves / and /json", code="not-found")
    elif not isinstance(error, ScribenginError):
        error = ScribenginError(f"this is a bug in Scribengin: {type(error).__name__}", remedy="report it", code="bug")
    problem = to_problem(error)
    headers = {CODE: problem.code} | ({"WWW-Authenticate": "Bearer"} if problem.status == 401 else {})
    return Response(encode(problem), problem.status, headers, MEDIA_TYPE)


def _parsed(worker: str) -> RunId:
    found = RunId.parse(worker)
    if found is None:
        raise Refused(f'"{worker}" is not a valid name of a worker', remedy="write FLOW.TIER-N", code="worker-unknown")
    return found
