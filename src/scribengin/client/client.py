"""`Client`: the REST API as typed calls, over any number of masters; raises the errors that the same call would raise in the master."""

from __future__ import annotations

import time
import uuid
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, Self, TypeVar
from urllib.parse import quote

import httpx2
import msgspec

from scribengin.client import problems
from scribengin.client.host_client import HostClient
from scribengin.client.models import (
    AppliedFlow,
    FlowEvent,
    FlowRow,
    FlowView,
    Health,
    PackageRow,
    RecordView,
    RecordWrite,
    Rollback,
    Submit,
    SubmitFlow,
    TaskRow,
    VersionRow,
    Want,
    WentBack,
    Written,
)
from scribengin.core.errors import Refused, ScribenginError, Unreachable

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from pathlib import Path
    from types import TracebackType

    from scribengin.core.secret import Secret
    from scribengin.registry.kinds import Goal

T = TypeVar("T")
REVISION, KEY, USER = "Scribengin-Revision", "Idempotency-Key", "Scribengin-User"
_CONNECT_S = 5.0
_READ_S = 120.0
"""an answer may take as long as a flow's planning"""
_SILENT_S = 45.0
"""a stream of events gives a sign of life each 15 s"""
_AGAIN_S = 0.5
_BUSY_S = 30.0
_PIECE_BYTES = 2**20


class Client(HostClient):
    """Any of `masters` (`http://HOST:PORT`) will do: each answers for all of them. Where one does not answer the next one is asked.

    The revision that was seen last goes with each call, so that a call through another master sees what this client has written. A write
    carries a key of its own: asked again of another master, because the first one fell silent, it is done once.

    Not for several threads at once.
    """

    def __init__(self, masters: Sequence[str], *, token: Secret | None = None, user: str = "", certificates: Path | None = None) -> None:
        """`user` is who asks, for masters that ask for no token. `certificates`: a PEM file of those that sign the masters' own."""
        if not masters:
            raise Refused("no master is named", remedy="name one: --master http://HOST:PORT", code="master-missing")
        self.masters = [address_of(master) for master in masters]
        self.revision = 0
        headers = {"Accept": f"application/json, {problems.MEDIA_TYPE}"}
        if token is not None:
            headers["Authorization"] = f"Bearer {token.reveal()}"
        if user:
            headers[USER] = quote(user)
        timeout = httpx2.Timeout(_READ_S, connect=_CONNECT_S)
        verify = True if certificates is None else _tls(certificates)
        self._http = httpx2.Client(headers=headers, timeout=timeout, verify=verify, trust_env=False)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """End its connections."""
        self._http.close()

    def flows(self, labels: Mapping[str, str] | None = None) -> list[FlowRow]:
        """All flows, or those with all these labels, by name."""
        which = "&".join(f"label={quote(f'{name}={value}', safe='')}" for name, value in (labels or {}).items())
        return self._get(f"/v1/flows{'?' * bool(which)}{which}", list[FlowRow])

    def flow(self, name: str) -> FlowView:
        """What is wanted of a flow, how it stands, and who serves its tiers. Raises Refused where there is no such flow."""
        return self._get(f"/v1/flows/{_part(name)}", FlowView)

    def tasks(self, name: str) -> list[TaskRow]:
        """The tasks of a flow's tiers, as their workers wrote them last."""
        return self._get(f"/v1/flows/{_part(name)}/tasks", list[TaskRow])

    def versions(self, name: str) -> list[VersionRow]:
        """The versions of a flow, the newest first."""
        return self._get(f"/v1/flows/{_part(name)}/versions", list[VersionRow])

    def submit(
        self, name: str, flow: Submit, *, plan: str = "", accept: Literal["again", "lost"] | None = None, expected: int | None = None
    ) -> AppliedFlow:
        """Make it the flow's next version, and want it to run; the same again changes nothing. Its package was `upload`ed before.

        Raises InputError with every problem of the flow; Refused `plan-needed` where the flow is there, and neither the hash of its `plan`,
        nor `accept`, nor `expected` is said, and as `apply_topology`. `expected`, here and below: only while what is wanted of the flow was
        written by this revision (`FlowView.wanted.revision`; 0: while there is no such flow).
        """
        wanted = SubmitFlow(flow.package, flow.path, flow.base, plan, accept)
        return self._write("PUT", f"/v1/flows/{_part(name)}", wanted, AppliedFlow, expected)

    def want(self, name: str, goal: Goal, *, expected: int | None = None) -> Written:
        """Say what is wanted of a flow now; asked again what failed is tried again."""
        return self._write("PUT", f"/v1/flows/{_part(name)}/wanted", Want(goal), Written, expected)

    def rollback(
        self,
        name: str,
        version: int,
        *,
        only: bool = False,
        accept: Literal["again", "lost"] | None = None,
        expected: int | None = None,
    ) -> WentBack:
        """Want another version that there was, code and flow together; flows that were submitted as one with it go back too, unless
        `only`. Raises Refused as `apply_topology`."""
        return self._write("POST", f"/v1/flows/{_part(name)}/rollback", Rollback(version, only, accept), WentBack, expected)

    def delete(self, name: str, *, expected: int | None = None) -> Written:
        """Forget a flow that is stopped."""
        return self._write("DELETE", f"/v1/flows/{_part(name)}", None, Written, expected)

    def overview(self) -> list[dict[str, Any]]:
        """How all flows go now, as the leading master was told: a line for each."""
        return self._get("/v1/metrics", list[dict[str, Any]])

    def metrics(self, name: str, *, since: float | None = None, step_s: int = 1) -> dict[str, Any]:
        """How a flow goes now, and went since then (seconds since 1970; None: the last ten minutes); docs/metrics.md says what is in it."""
        begin = "" if since is None else f"&since={since}"
        return self._get(f"/v1/flows/{_part(name)}/metrics?step={step_s}{begin}", dict[str, Any])

    def attempts(self, name: str) -> list[dict[str, Any]]:
        """The processes that served its tiers, the newest first: what each has done, what failed in it, why it ended."""
        return self._get(f"/v1/flows/{_part(name)}/attempts", list[dict[str, Any]])

    def intake(self, name: str) -> dict[str, Any]:
        """Whether producers may go on: `intake` is open, slow or refusing."""
        return self._get(f"/v1/flows/{_part(name)}/intake", dict[str, Any])

    def alerts(self, name: str) -> list[dict[str, Any]]:
        """The alerts of a flow, and how each stands."""
        return self._get(f"/v1/flows/{_part(name)}/alerts", list[dict[str, Any]])

    def test_alerts(self, name: str, alert: str | None = None) -> list[dict[str, Any]]:
        """Send a test through the targets of all its alerts, or of one; what came of each."""
        which = "" if alert is None else f"?alert={_part(alert)}"
        answer = self._ask("POST", f"/v1/flows/{_part(name)}/alerts/test{which}")
        return msgspec.json.decode(answer.content, type=list[dict[str, Any]])

    def has_package(self, id: str) -> bool:
        """Whether the master that answers has the package of that SHA-256."""
        try:
            self._ask("HEAD", f"/v1/packages/{_part(id)}")
        except ScribenginError as error:
            if error.code == "package-missing":
                return False
            raise
        return True

    def upload(self, id: str, data: bytes) -> PackageRow:
        """Bring a package to the master that answers. Raises Refused where `data` is not what its hash says: nothing is kept there."""
        answer = self._ask("PUT", f"/v1/packages/{_part(id)}", content=data, headers={"Content-Type": "application/zip"})
        return msgspec.json.decode(answer.content, type=PackageRow)

    def apply(self, name: str, flow: Submit, data: bytes, *, expected: int | None = None) -> AppliedFlow:
        """`submit`, with the bytes of its package, which are sent where the master that answers does not have them."""
        for _ in range(len(self.masters)):
            if not self.has_package(flow.package):
                self.upload(flow.package, data)
            try:
                return self.submit(name, flow, expected=expected)
            except ScribenginError as error:
                if error.code != "package-missing":  # the master that has it fell silent, and another one was asked
                    raise
        return self.submit(name, flow, expected=expected)

    def download(self, id: str) -> Iterator[bytes]:
        """A package, in pieces, for `PackageStore.put`, which checks it. Raises Refused where the master does not have it."""
        with self._answer("GET", f"/v1/packages/{_part(id)}") as answer:
            yield from answer.iter_bytes(_PIECE_BYTES)

    def events(self, after: int = 0) -> Iterator[Event]:
        """What becomes of flows, as it becomes, without end: first the names of all (`flows`), then a `flow` or `deleted` event for each
        that has changed since `after`, the `id` of an event, and for each change from now on.

        Where the master falls silent another one is asked, and the stream goes on; some events may come twice then (`revision` tells).
        Raises as all else.
        """
        while True:
            headers = {"Accept": f"text/event-stream, {problems.MEDIA_TYPE}", "Last-Event-ID": str(after)}
            try:
                with self._answer("GET", "/v1/events", headers=headers, read_s=_SILENT_S) as answer:
                    for event in _events(answer.iter_lines()):
                        after = event.id
                        yield event
            except httpx2.TransportError:
                time.sleep(_AGAIN_S)

    def record(self, path: str = "") -> RecordView:
        """What stands at a path of the registry, and the names below."""
        return self._get(f"/v1/registry/{quote(path)}", RecordView)

    def write_record(self, path: str, value: dict[str, Any], *, version: int | None) -> Written:
        """Write a record that people may write; `version` is the one that was read, None where nothing may be there.

        Raises Refused where people may not write it, ScribenginError where it has another version.
        """
        return self._write("PUT", f"/v1/registry/{quote(path)}", RecordWrite(value, version), Written, None)

    def ready(self) -> Health:
        """Raises Unreachable where no master can do its part."""
        return self._get("/readyz", Health)

    def _get(self, path: str, kind: type[T]) -> T:
        return msgspec.json.decode(self._ask("GET", path).content, type=kind)

    def _write(self, method: str, path: str, body: Any, kind: type[T], expected: int | None) -> T:
        headers = {KEY: uuid.uuid4().hex, "Content-Type": "application/json"}
        if expected is not None:
            headers |= {"If-Match": f'"{expected}"'} if expected else {"If-None-Match": "*"}
        content = b"" if body is None else msgspec.json.encode(body)
        deadline = time.monotonic() + _BUSY_S
        while True:
            try:
                return msgspec.json.decode(self._ask(method, path, content=content, headers=headers).content, type=kind)
            except ScribenginError as error:  # the master that fell silent may still be at it; its answer is given, or it is done again
                if error.code != "key-busy" or time.monotonic() >= deadline:
                    raise
                time.sleep(_AGAIN_S)

    def _ask(self, method: str, path: str, **more: Any) -> httpx2.Response:
        with self._answer(method, path, **more) as answer:
            answer.read()
            return answer

    @contextmanager
    def _answer(
        self, method: str, path: str, *, headers: dict[str, str] | None = None, content: bytes | None = None, read_s: float = _READ_S
    ) -> Iterator[httpx2.Response]:
        """Of the first master that answers; it is asked first the next time. Raises what it tells, Unreachable where none answers."""
        silent: list[str] = []
        for master in list(self.masters):
            sent = {**(headers or {}), **({REVISION: str(self.revision)} if self.revision else {})}
            try:
                answer = self._send(method, master + path, sent, content, read_s)
            except httpx2.TransportError as error:
                silent.append(f"{master}: {error or type(error).__name__}")
                continue
            try:
                self.revision = max(self.revision, _number(answer.headers.get(REVISION)))
                if answer.is_success:
                    self._prefer(master)
                    yield answer
                    return
                said = problems.decode(answer.read(), answer.status_code, answer.headers.get(problems.CODE, "answer"))
            finally:
                answer.close()
            told = problems.to_error(said)
            if not isinstance(told, Unreachable) or len(self.masters) == 1:
                self._prefer(master)
                raise told
            silent.append(f"{master}: {told.message}")
        raise Unreachable(
            f"no master answers ({'; '.join(silent)})",
            remedy="is one up? scribengin up, or name others: --master URL,URL",
            code="master-unreachable",
        )

    def _send(self, method: str, url: str, headers: dict[str, str], content: bytes | None, read_s: float) -> httpx2.Response:
        """Of what only the leader knows a standby names it: that one is asked, with the same token."""
        timeout = httpx2.Timeout(read_s, connect=_CONNECT_S)

        def send(url: str) -> httpx2.Response:
            request = self._http.build_request(method, url, headers=headers, content=content, timeout=timeout)
            return self._http.send(request, stream=True)

        answer = send(url)
        leader = answer.headers.get("location", "")
        if answer.status_code == 307 and leader.startswith(("http://", "https://")):
            answer.close()
            answer = send(leader)
        return answer

    def _prefer(self, master: str) -> None:
        self.masters.remove(master)
        self.masters.insert(0, master)


@dataclass(frozen=True, slots=True)
class Event:
    """One of the stream. `flows` has the `names` of all flows; `flow` and `deleted` tell of one. `id` is where to resume."""

    kind: Literal["flows", "flow", "deleted"]
    id: int
    names: tuple[str, ...] = ()
    change: FlowEvent | None = None


def _events(lines: Iterable[str]) -> Iterator[Event]:
    """Server-sent events, of the kinds that are known here."""
    fields: dict[str, str] = {}
    for line in lines:
        if line:
            name, _, value = line.partition(":")
            fields[name] = value.removeprefix(" ")
            continue
        kind, id_, data = fields.get("event"), _number(fields.get("id")), fields.get("data", "").encode()
        if kind == "flows":
            yield Event("flows", id_, names=msgspec.json.decode(data, type=tuple[str, ...]))
        elif kind in ("flow", "deleted"):
            yield Event("flow" if kind == "flow" else "deleted", id_, change=msgspec.json.decode(data, type=FlowEvent))
        fields = {}


def address_of(text: str) -> str:
    """`http://HOST:PORT` of what a person writes; `http` where nothing is said. Raises Refused for what is no address.

    >>> address_of("localhost:8080/")
    'http://localhost:8080'
    """
    full = text.strip() if "://" in text else f"http://{text.strip()}"
    try:
        url = httpx2.URL(full)
    except httpx2.InvalidURL:
        url = httpx2.URL("")
    if url.scheme not in ("http", "https") or not url.host or url.path not in ("", "/") or url.query or url.userinfo:
        raise Refused(f'"{text}" is no address of a master', remedy="write http://HOST:PORT or https://HOST:PORT", code="master-address")
    return full.rstrip("/")


def _part(name: str) -> str:
    """As one segment of a path."""
    return quote(name, safe="")


def _number(text: str | None) -> int:
    return int(text) if text and text.isdigit() else 0


def _tls(certificates: Path) -> Any:
    import ssl

    return ssl.create_default_context(cafile=str(certificates))
