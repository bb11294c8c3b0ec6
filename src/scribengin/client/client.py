"""`Client`: the REST API as typed calls, over any number of masters; raises the errors that the same call would raise in the master."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal
from urllib.parse import quote

import httpx2
import msgspec

from scribengin.client import problems
from scribengin.client.answer_client import AnswerClient
from scribengin.client.host_client import HostClient
from scribengin.client.host_models import Health
from scribengin.client.models import (
    AppliedFlow,
    FlowEvent,
    FlowRow,
    FlowView,
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
from scribengin.client.transport import number_in, part
from scribengin.core.errors import ScribenginError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from scribengin.registry.kinds import Goal

_AGAIN_S = 0.5
_PIECE_BYTES = 2**20
_SILENT_S = 45.0
"""a stream of events sends a sign of life every 15 s"""


class Client(AnswerClient, HostClient):
    """All calls of the API; `Transport` describes how requests are sent."""

    def flows(self, labels: Mapping[str, str] | None = None) -> list[FlowRow]:
        """All flows by name, or those with all these labels."""
        which = "&".join(f"label={quote(f'{name}={value}', safe='')}" for name, value in (labels or {}).items())
        return self._get(f"/v1/flows{'?' * bool(which)}{which}", list[FlowRow])

    def flow(self, name: str) -> FlowView:
        """A flow's desired state, status and workers. Raises Refused if there is no such flow."""
        return self._get(f"/v1/flows/{part(name)}", FlowView)

    def tasks(self, name: str) -> list[TaskRow]:
        """The tasks of a flow's tiers, as their workers last wrote them."""
        return self._get(f"/v1/flows/{part(name)}/tasks", list[TaskRow])

    def versions(self, name: str) -> list[VersionRow]:
        """The versions of a flow, newest first."""
        return self._get(f"/v1/flows/{part(name)}/versions", list[VersionRow])

    def submit(
        self,
        name: str,
        flow: Submit,
        *,
        plan: str = "",
        accept: Literal["again", "lost"] | None = None,
        columns: bool = False,
        expected: int | None = None,
    ) -> AppliedFlow:
        """Submit the flow's next version with the desired state running; submitting the same again changes nothing. Its package must have
        been `upload`ed.

        Raises InputError with every problem of the flow; Refused `plan-needed` if the flow exists and neither the hash of its `plan`, nor
        `accept`, nor `expected` is given, and as `apply_topology`. `expected`, here and below: only if the desired state was written by
        this revision (`FlowView.wanted.revision`; 0: only if there is no such flow).
        """
        wanted = SubmitFlow(flow.package, flow.path, flow.base, plan, accept, columns)
        return self._write("PUT", f"/v1/flows/{part(name)}", wanted, AppliedFlow, expected)

    def want(self, name: str, goal: Goal, *, expected: int | None = None) -> Written:
        """Set the desired state of a flow; setting it again retries what has failed."""
        return self._write("PUT", f"/v1/flows/{part(name)}/wanted", Want(goal), Written, expected)

    def rollback(
        self,
        name: str,
        version: int,
        *,
        only: bool = False,
        accept: Literal["again", "lost"] | None = None,
        columns: bool = False,
        expected: int | None = None,
    ) -> WentBack:
        """Return to an earlier version, code and flow together. Flows that were submitted as one with it return too, unless `only`. Raises
        Refused as `apply_topology`."""
        return self._write("POST", f"/v1/flows/{part(name)}/rollback", Rollback(version, only, accept, columns), WentBack, expected)

    def delete(self, name: str, *, expected: int | None = None) -> Written:
        """Delete a stopped flow."""
        return self._write("DELETE", f"/v1/flows/{part(name)}", None, Written, expected)

    def overview(self) -> list[dict[str, Any]]:
        """Metrics of all flows, as reported to the leading master: a line for each."""
        return self._get("/v1/metrics", list[dict[str, Any]])

    def metrics(self, name: str, *, since: float | None = None, step_s: int = 1) -> dict[str, Any]:
        """Metrics of a flow now and since then (seconds since 1970; None: the last ten minutes); docs/monitor.md describes them."""
        begin = "" if since is None else f"&since={since}"
        return self._get(f"/v1/flows/{part(name)}/metrics?step={step_s}{begin}", dict[str, Any])

    def attempts(self, name: str) -> list[dict[str, Any]]:
        """The processes that served its tiers, newest first: where each ran, what it did, what failed in it, and why it ended."""
        return self._get(f"/v1/flows/{part(name)}/attempts", list[dict[str, Any]])

    def intake(self, name: str) -> dict[str, Any]:
        """Whether producers may send more: `intake` is open, slow or refusing."""
        return self._get(f"/v1/flows/{part(name)}/intake", dict[str, Any])

    def alerts(self, name: str) -> list[dict[str, Any]]:
        """The alerts of a flow and their states."""
        return self._get(f"/v1/flows/{part(name)}/alerts", list[dict[str, Any]])

    def test_alerts(self, name: str, alert: str | None = None) -> list[dict[str, Any]]:
        """Send a test to the targets of all its alerts, or of one; returns the result of each."""
        which = "" if alert is None else f"?alert={part(alert)}"
        answer = self._ask("POST", f"/v1/flows/{part(name)}/alerts/test{which}")
        return msgspec.json.decode(answer.content, type=list[dict[str, Any]])

    def apply(
        self,
        name: str,
        flow: Submit,
        data: bytes,
        *,
        plan: str = "",
        accept: Literal["again", "lost"] | None = None,
        expected: int | None = None,
    ) -> AppliedFlow:
        """`submit`, with the bytes of its package, which are uploaded if the answering master does not have them."""
        for _ in range(len(self.masters)):
            if not self.has_package(flow.package):
                self.upload(flow.package, data)
            try:
                return self.submit(name, flow, plan=plan, accept=accept, expected=expected)
            except ScribenginError as error:
                if error.code != "package-missing":  # the master that has it fell silent, and another one was asked
                    raise
        return self.submit(name, flow, plan=plan, accept=accept, expected=expected)

    def download(self, id: str) -> Iterator[bytes]:
        """The bytes of a package in pieces, for `PackageStore.put`, which checks it. Raises Refused if the master does not have it."""
        with self._answer("GET", f"/v1/packages/{part(id)}") as answer:
            yield from answer.iter_bytes(_PIECE_BYTES)

    def events(self, after: int = 0) -> Iterator[Event]:
        """Yield changes of flows as they happen, without end: first the names of all (`flows`), then a `flow` or `deleted` event for each
        flow that has changed since `after`, the `id` of an event, and for each later change.

        If the master falls silent, another one is asked and the stream continues; some events may then come twice (compare `revision`).
        Raises the same errors as the other calls.
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
        """The value at a path of the registry, and the names below it."""
        return self._get(f"/v1/registry/{quote(path)}", RecordView)

    def write_record(self, path: str, value: dict[str, Any], *, version: int | None) -> Written:
        """Write a record that people may write; `version` is the one that was read, None if there must be no record.

        Raises Refused if people may not write it, ScribenginError if it has another version.
        """
        return self._write("PUT", f"/v1/registry/{quote(path)}", RecordWrite(value, version), Written, None)

    def ready(self) -> Health:
        """Check readiness. Raises Unreachable if no master can do its part."""
        return self._get("/readyz", Health)


@dataclass(frozen=True, slots=True)
class Event:
    """One event of the stream. `flows` has the `names` of all flows; `flow` and `deleted` concern one. Pass `id` to resume."""

    kind: Literal["flows", "flow", "deleted"]
    id: int
    names: tuple[str, ...] = ()
    change: FlowEvent | None = None


def _events(lines: Iterable[str]) -> Iterator[Event]:
    """Parse server-sent events of the known kinds."""
    fields: dict[str, str] = {}
    for line in lines:
        if line:
            name, _, value = line.partition(":")
            fields[name] = value.removeprefix(" ")
            continue
        kind, id_, data = fields.get("event"), number_in(fields.get("id")), fields.get("data", "").encode()
        if kind == "flows":
            yield Event("flows", id_, names=msgspec.json.decode(data, type=tuple[str, ...]))
        elif kind in ("flow", "deleted"):
            yield Event("flow" if kind == "flow" else "deleted", id_, change=msgspec.json.decode(data, type=FlowEvent))
        fields = {}
