"""A master with the flows that a test of the console needs: their records in the registry, and the reports of their workers."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from scribengin.client.models import Submit
from scribengin.control import flow_requests
from scribengin.control.world import FlowSeen, ObservedTier, Wish, World
from scribengin.local.contract import EndView, QueryView
from scribengin.registry.lease import Election
from scribengin.registry.record_io import Stored, put, read_record
from scribengin.registry.records import AlertSettings, Desired, StatusRecord, TierSpec
from scribengin.registry.tree import DESIRED, STATUS
from scribengin.watching.progress import TierProgress

if TYPE_CHECKING:
    from tests.api.conftest import Bench, Served

_PATH = "/data"
BEHIND = QueryView(
    "kept",
    "running",
    seconds=60.0,
    rows_in=400,
    rows_out=380,
    dead=3,
    rows_per_s=412.0,
    lag_rows=12_345,
    lag_s=95.0,
    falls_behind=True,
    slowest=("enrich", 0.81),
    sources={"orders": EndView(400, 412.4, lag_rows=12_345, lag_s=95.0)},
    sinks={"kept": EndView(380, 380.5)},
)
"""the report of a query that falls behind"""


@dataclass
class Scene:
    """Flows of a master of the bench."""

    bench: Bench
    master: Served
    token: str | None = None
    """an editor's, if the master requires one"""
    seen: dict[str, FlowSeen] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._election = Election(self.bench.person, {"id": "m", "http": self.master.url})
        assert self._election.acquire()

    @property
    def url(self) -> str:
        """The address of the console."""
        return self.master.url

    def flow(self, name: str, state: str = "running", reason: str = "", next_: str = "", *, labels: dict[str, str] | None = None) -> None:
        """A flow whose desired state is running, in that state; its package is nowhere."""
        submission = flow_requests.Submission(name, "0" * 64, "flow.yaml", _PATH, {"main": TierSpec()}, labels=labels or {})
        flow_requests.apply(self.bench.person, submission, state=lambda _: _PATH, by="ann")
        self.status(name, state, reason, next_)

    def numbers(self, state: str = "running", reason: str = "", next_: str = "") -> str:
        """The bench's flow, with its package. Returns its name."""
        self.submit(self.bench.flow)
        self.status("numbers", state, reason, next_)
        return "numbers"

    def submit(self, text: str) -> None:
        """The next version of flow numbers."""
        package = self.bench.package(text)
        submit = Submit(package.id, "flow.yaml", str(self.bench.folder))
        self.bench.client(token=self.token).apply("numbers", submit, package.data, accept="again")

    def desired(self, name: str) -> Desired:
        """The desired state of a flow."""
        return self._desired(name).record

    def status(self, name: str, state: str, reason: str = "", next_: str = "") -> None:
        """What the leading master reports about a flow, about its newest desired state."""
        wanted = self._desired(name)
        about = {"reason": reason, "next": next_, "version": 1, "generation": wanted.entry.changed, "goal": wanted.record.state}
        record = StatusRecord(state=state, since="2026-11-29T08:00:00+00:00", **about)  # type: ignore[arg-type]
        self.bench.person.commit(put(self.bench.person, STATUS(name), record))
        self.seen[name] = FlowSeen(name, Wish(1, "running", 1), {"main": ObservedTier("main")}, record, watched=AlertSettings())
        assert self.master.plane.watch is not None
        self.master.plane.watch.seen(World(0.0, self.seen), self._election.term)

    def _desired(self, name: str) -> Stored[Desired]:
        found = read_record(self.bench.person, DESIRED(name))
        assert isinstance(found, Stored)
        return found

    def reports(self, name: str, query: QueryView | None = None, **figures: Any) -> None:
        """A worker's report on the only tier of a flow."""
        assert self.master.plane.watch is not None
        queries = (query or QueryView("kept", "running", seconds=60.0, **figures),)
        self.master.plane.watch.board.take(TierProgress(flow=name, tier="main", run=1, version=1, at=0.0, phase="running", queries=queries))
