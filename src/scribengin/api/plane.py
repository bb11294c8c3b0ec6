"""The context of the API's handlers: the parts of a master that it serves, and one request with its caller."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec
from starlette.responses import Response

from scribengin.api.audit import AuditLog
from scribengin.api.idempotency import ABANDONED_S, SLOW_ABANDONED_S, ExpectingRegistry, Once, StoredAnswer, WriteClaim
from scribengin.api.node_pages import NodePages
from scribengin.api.tokens import Tokens
from scribengin.api.views import RegistryView, check_flow, labels_of
from scribengin.client.problems import CODE, MEDIA_TYPE, Fault, PointedError, encode, to_problem
from scribengin.client.transport import KEY, REVISION
from scribengin.control import flow_records
from scribengin.control.workflows import Workflows
from scribengin.core.errors import Refused, ScribenginError, Unreachable
from scribengin.registry.contract import SessionState
from scribengin.registry.record_io import names
from scribengin.registry.tree import DESIRED

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from starlette.requests import Request

    from scribengin.api.auth import Authentication, Who
    from scribengin.api.planner import Planner
    from scribengin.control.worker_reports import WorkerWatch
    from scribengin.packages.store import PackageStore
    from scribengin.registry.contract import Registry

T = TypeVar("T")
AGAIN = "Idempotency-Replayed"


@dataclass(frozen=True, slots=True)
class Plane:
    """The parts of a master that its API uses.

    Attributes:
        registry: its client of the registry.
        packages: the packages of this host.
        planner: executes queries about the state of flows.
        state: the root folder of the states of new flows.
        gate: authenticates requests.
        leads: returns True if this master leads.
        audit: the audit log.
        logs: worker → paths of its output on this host.
    """

    registry: Registry
    packages: PackageStore
    planner: Planner
    state: str
    gate: Authentication
    leads: Callable[[], bool]
    audit: AuditLog = field(default_factory=lambda: AuditLog(None))
    logs: Callable[[str], Sequence[str]] = field(default=lambda _worker: ())
    watch: WorkerWatch | None = None
    """the reports of workers; None: this master collects none"""
    glance: Callable[[], Mapping[str, Any]] = field(default=lambda: {"id": ""})
    """returns this master's own status, in the form of `MasterView`"""
    nodes: NodePages = field(init=False)
    tokens: Tokens = field(init=False)
    once: Once = field(init=False)
    workflows: Workflows = field(init=False)

    asks_nodes: NodePages | None = None
    """its client for nodes; None: a client that has no key for any node"""

    def __post_init__(self) -> None:
        object.__setattr__(self, "once", Once(self.registry))
        object.__setattr__(self, "nodes", self.asks_nodes or NodePages(self.registry))
        object.__setattr__(self, "tokens", Tokens(self.registry))
        object.__setattr__(self, "workflows", Workflows(self.registry))

    def revision(self) -> int:
        """The newest revision that this master's client has seen; 0 if the registry does not answer now."""
        if self.registry.session().link is not SessionState.CONNECTED:
            return 0
        try:
            return self.registry.sync(at_least=0)
        except Unreachable:
            return 0


@dataclass(frozen=True, slots=True)
class ApiRequest:
    """One request to a master, and its caller."""

    plane: Plane
    who: Who
    request: Request

    @property
    def registry(self) -> Registry:
        """The master's registry."""
        return self.plane.registry

    @property
    def view(self) -> RegistryView:
        """The registry as models of the API, limited to what this caller may see."""
        return RegistryView(self.registry, self.who.labels, self.plane.workflows)

    @property
    def address(self) -> str:
        """The address from which the request comes."""
        return self.request.client.host if self.request.client is not None else ""

    def check_flow(self, flow: str) -> None:
        """Raise Refused if the name of a flow is not valid, or the caller may not see the flow."""
        check_flow(self.registry, flow)
        if self.who.labels and not self.who.may_see(labels_of(self.registry, flow)):
            raise flow_records.unknown_flow(
                flow, [name for name in names(self.registry, "flows") if self.who.may_see(labels_of(self.registry, name))]
            )

    def check_new(self, flow: str, new: Mapping[str, str]) -> None:
        """Raise Refused if the caller may not submit a version with the labels `new`: it lacks the caller's labels, or the flow exists and
        the caller may not see it."""
        there = self.registry.read(DESIRED(flow).path) is not None
        if not self.who.may_see(new) or (there and not self.who.may_see(labels_of(self.registry, flow))):
            labels = ", ".join(f"{label}={value}" for label, value in self.who.labels.items())
            raise Refused(
                f"{self.who.name} has access only to flows with {labels}, and {flow} is not one of them",
                remedy="use a token that has no labels",
                code="role-lacking",
            )

    def check_all(self) -> None:
        """Raise Refused if the caller may see only some flows, for a request that concerns all of them."""
        if self.who.labels:
            raise Refused(
                f"{self.who.name} has access only to flows with certain labels; this request concerns all flows",
                remedy="use a token that has no labels",
                code="role-lacking",
            )

    def answer(self, value: Any, *, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
        """The value as a JSON answer, with the registry's revision.

        Args:
            value: the value.
            status: the HTTP status.
            headers: further headers.
        """
        return self._response(StoredAnswer(status, msgspec.json.encode(value)), dict(headers or {}))

    def write(
        self, what: str, target: str, act: Callable[[Registry], object], body: object = None, *, slow: bool = False, secret: bool = False
    ) -> Response:
        """Execute a write, and answer with its result: once only if the request has an idempotency key, and recorded in the audit log.

        Args:
            what: the change, for the audit log.
            target: what is changed, for the audit log. If it is a flow, and the request has If-Match, the registry that is passed to `act`
                enforces
                it.
            act: does the write; its result is the answer.
            body: the body of the request, by which a repeated request is recognised.
            slow: it plans a flow, and may take minutes.
            secret: its answer is not stored, so that a key does not repeat it.
        """
        key = None if secret else self.request.headers.get(KEY)
        try:
            registry = self._expecting(target)
            begun = None
            if key is not None:
                abandoned_s = SLOW_ABANDONED_S if slow else ABANDONED_S
                begun = self.plane.once.begin(self.who.name, key, self._asked(body), abandoned_s=abandoned_s)
            if isinstance(begun, StoredAnswer):
                self._note(what, target, "done" if begun.status < 400 else "refused", again=True)
                return self._response(begun, {AGAIN: "true"})
        except ScribenginError as error:
            self._note(what, target, error.code)
            raise
        return self._do(what, target, lambda: act(registry), begun)

    def note(self, what: str, target: str, outcome: str) -> None:
        """Write a line of the audit log, for a request that does not use `write`. `outcome`: `done`, or the code of the problem."""
        self._note(what, target, outcome)

    def _do(self, what: str, target: str, act: Callable[[], object], claim: WriteClaim | None) -> Response:
        try:
            answer = StoredAnswer(200, msgspec.json.encode(act()))
        except ScribenginError as error:
            problem = to_problem(error)
            self._note(what, target, problem.code)
            if claim is not None:
                with suppress(ScribenginError):
                    if problem.status < 500:
                        claim.settle(StoredAnswer(problem.status, encode(problem)))
                    else:
                        claim.drop()
            raise
        except BaseException:
            self._note(what, target, "bug")
            raise
        self._note(what, target, "done")
        if claim is not None:
            # the write is done; if its answer cannot be stored, a repetition executes it again, and it is idempotent
            with suppress(ScribenginError):
                claim.settle(answer)
        return self._response(answer, {})

    def _response(self, answer: StoredAnswer, headers: dict[str, str]) -> Response:
        said = {REVISION: str(self.plane.revision()), **headers}
        if answer.status < 400:
            return Response(answer.body, answer.status, said, "application/json")
        code = msgspec.json.decode(answer.body)["code"]
        return Response(answer.body, answer.status, said | {CODE: code}, MEDIA_TYPE)

    def _asked(self, body: object) -> str:
        url = self.request.url
        conditions = [self.request.headers.get(name, "") for name in ("If-Match", "If-None-Match")]
        return msgspec.json.encode([self.request.method, url.path, url.query, conditions, body]).decode()

    def _note(self, what: str, target: str, outcome: str, *, again: bool = False) -> None:
        self.plane.audit.write(self.who.name, self.address, what, target, outcome, revision=self.plane.revision(), again=again)

    def _expecting(self, flow: str) -> Registry:
        headers = self.request.headers
        match, none = headers.get("If-Match"), headers.get("If-None-Match")
        if match is None and none is None:
            return self.registry
        if none is not None:
            if none.strip() != "*" or match is not None:
                raise PointedError(
                    (Fault("parameter", "If-None-Match accepts only *, and not together with If-Match", "send one of the two headers"),)
                )
            revision = 0
        else:
            text = (match or "").strip().strip('"')
            if not text.isdecimal() or not text.isascii():
                raise PointedError(
                    (Fault("parameter", f"If-Match: {match!r} is not an ETag of a flow", 'send "REVISION", as the ETag header gave it'),)
                )
            revision = int(text)
        try:
            path = DESIRED(flow).path
        except ValueError:
            return self.registry
        return ExpectingRegistry(self.registry, path, revision)
