"""What the handlers of the API work with: the parts of a master that it serves, and one request with who asks."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec
from starlette.responses import Response

from scribengin.api.audit import AuditLog
from scribengin.api.expecting import ExpectingRegistry
from scribengin.api.node_pages import NodePages
from scribengin.api.once import ABANDONED_S, SLOW_ABANDONED_S, Once, StoredAnswer, WriteClaim
from scribengin.api.tokens import Tokens
from scribengin.api.views import RegistryView, check_flow, labels_of
from scribengin.client.problems import CODE, MEDIA_TYPE, Fault, PointedError, encode, to_problem
from scribengin.client.transport import KEY, REVISION
from scribengin.control import reading
from scribengin.control.workflows import Workflows
from scribengin.core.errors import Refused, ScribenginError, Unreachable
from scribengin.registry.contract import SessionState
from scribengin.registry.records import names
from scribengin.registry.tree import DESIRED

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from starlette.requests import Request

    from scribengin.api.access import Who
    from scribengin.api.gate import Authentication
    from scribengin.api.planning import Planner
    from scribengin.control.watch import WorkerWatch
    from scribengin.packages.store import PackageStore
    from scribengin.registry.contract import Registry

T = TypeVar("T")
AGAIN = "Idempotency-Replayed"


@dataclass(frozen=True, slots=True)
class Plane:
    """A master, as its API sees it. `state` is the root folder of the states of new flows, `leads` whether this master decides.

    `logs`: worker → paths of what it has printed, as far as that lies on this host.
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
    """what it was told of how flows go; None: nothing is asked of it"""
    glance: Callable[[], Mapping[str, Any]] = field(default=lambda: {"id": ""})
    """what this master says of itself, as `MasterView` has it"""
    nodes: NodePages = field(init=False)
    tokens: Tokens = field(init=False)
    once: Once = field(init=False)
    workflows: Workflows = field(init=False)

    asks_nodes: NodePages | None = None
    """how it asks nodes; None: as one that has no key for any"""

    def __post_init__(self) -> None:
        object.__setattr__(self, "once", Once(self.registry))
        object.__setattr__(self, "nodes", self.asks_nodes or NodePages(self.registry))
        object.__setattr__(self, "tokens", Tokens(self.registry))
        object.__setattr__(self, "workflows", Workflows(self.registry))

    def revision(self) -> int:
        """Of what this master's client has seen; 0 where the registry does not answer now."""
        if self.registry.session().link is not SessionState.CONNECTED:
            return 0
        try:
            return self.registry.sync(at_least=0)
        except Unreachable:
            return 0


@dataclass(frozen=True, slots=True)
class ApiRequest:
    """One request: of a master, by somebody."""

    plane: Plane
    who: Who
    request: Request

    @property
    def registry(self) -> Registry:
        """The master's."""
        return self.plane.registry

    @property
    def view(self) -> RegistryView:
        """Reads, of what this person may see."""
        return RegistryView(self.registry, self.who.labels, self.plane.workflows)

    @property
    def address(self) -> str:
        """Where the request comes from."""
        return self.request.client.host if self.request.client is not None else ""

    def check_flow(self, flow: str) -> None:
        """Raise Refused for a name that no flow can have, or of one that this person may not see."""
        check_flow(self.registry, flow)
        if self.who.labels and not self.who.may_see(labels_of(self.registry, flow)):
            raise reading.unknown_flow(
                flow, [name for name in names(self.registry, "flows") if self.who.may_see(labels_of(self.registry, name))]
            )

    def check_new(self, flow: str, new: Mapping[str, str]) -> None:
        """Raise Refused for a version with the labels `new` that this person may not submit: without his labels, or of a flow that is there
        and that he may not see."""
        there = self.registry.read(DESIRED(flow).path) is not None
        if not self.who.may_see(new) or (there and not self.who.may_see(labels_of(self.registry, flow))):
            labels = ", ".join(f"{label}={value}" for label, value in self.who.labels.items())
            raise Refused(
                f"{self.who.name} has flows with {labels} only, and {flow} is not one of them",
                remedy="ask with a token that has no labels",
                code="role-lacking",
            )

    def check_all(self) -> None:
        """Raise Refused for somebody who may see some flows only: this is about all of them."""
        if self.who.labels:
            raise Refused(
                f"{self.who.name} has flows with certain labels only; this is about all",
                remedy="ask with a token that has no labels",
                code="role-lacking",
            )

    def answer(self, value: Any, *, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
        """As JSON, with the registry's revision."""
        return self._response(StoredAnswer(status, msgspec.json.encode(value)), dict(headers or {}))

    def write(
        self, what: str, target: str, act: Callable[[Registry], object], body: object = None, *, slow: bool = False, secret: bool = False
    ) -> Response:
        """Do `act`, and answer with what it returns: once where the request has an idempotency key, and noted in the audit log.

        `target` is a flow: where the request has If-Match, the registry that `act` is given holds it to that.
        `slow`: it plans a flow, and so may take minutes. `secret`: its answer is written down nowhere, so that a key does not repeat it.
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
        """A line of the audit log, for what is no `write`."""
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
            with suppress(ScribenginError):  # it is done; that it cannot be noted makes a repetition do it again, and each converges
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
                    (Fault("parameter", "If-None-Match takes * only, and no If-Match beside it", "send the one or the other"),)
                )
            revision = 0
        else:
            text = (match or "").strip().strip('"')
            if not text.isdecimal() or not text.isascii():
                raise PointedError((Fault("parameter", f"If-Match: {match!r} is no ETag of a flow", 'send "REVISION", as ETag gave it'),))
            revision = int(text)
        try:
            path = DESIRED(flow).path
        except ValueError:
            return self.registry
        return ExpectingRegistry(self.registry, path, revision)
