"""`/v1/events`: changes of flows, as server-sent events.

An event describes a flow in its *present* state; several changes in a row may be one event. Its `id` is the revision of the change, and
events come in the order of revisions: a client that reconnects with the last one (`Last-Event-ID`, to this or any other master) gets an
event for each flow that has changed since. The first event of a stream, `flows`, names all existing flows, so that the client can drop
those that were deleted meanwhile.

So that no change is skipped, a change is sent when all changes before it are known: at the poll after the one that found it.

With `figures=true` the stream also has the figures of flows, as in `/v1/metrics`: events `figures`, without an id, first of all flows, then
of those whose figures have changed; and `beat` while there is nothing new. Figures are computed and encoded once for all streams. A master
that does not lead sends `null`.
"""

import asyncio
import threading
import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Annotated, Any

import msgspec
from fastapi import APIRouter, Header
from starlette.concurrency import run_in_threadpool
from starlette.responses import Response, StreamingResponse

from scribengin.api.auth import Role
from scribengin.api.plane import ApiRequest
from scribengin.api.views import labels_of, row_of
from scribengin.client.models import FlowEvent, FlowRow
from scribengin.client.problems import Fault, PointedError
from scribengin.control import flow_records
from scribengin.control.registry_cache import Mirror
from scribengin.control.worker_reports import WorkerWatch
from scribengin.core.errors import Refused, ScribenginError
from scribengin.registry.contract import Registry, RegistryEntry
from scribengin.registry.record_io import Stored, stored_as
from scribengin.registry.tree import DESIRED, STATUS

MOST_STREAMS = 200
_LOOK_S, _FIRST_S = 0.2, 0.02
_FIGURES_S, _SHARE = 2.0, 0.02
"""seconds between two looks at figures, at least; looks take no more than this share of a core"""
_BEAT_S, _FIGURES_BEAT_S = 15.0, 5.0
"""seconds between two heartbeats, for proxies that close silent connections, and for browsers, which take a silent one for lost"""


@dataclass(frozen=True, slots=True)
class FlowRevision:
    """A flow, and the revision of its newest change."""

    row: FlowRow
    revision: int
    labels: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class FlowsSnapshot:
    """All flows at the poll with this `number`. It includes all changes up to the revision `settled`, and perhaps later ones."""

    number: int
    settled: int
    flows: Mapping[str, FlowRevision] = field(default_factory=dict)


class Watcher:
    """Polls all flows while streams are open, once for all streams of a master. Its thread starts with the first stream."""

    def __init__(self, registry: Registry) -> None:
        self._registry = registry
        self._lock = threading.Lock()
        self._streams = 0
        self._thread: threading.Thread | None = None
        self._ended = threading.Event()
        self.picture: FlowsSnapshot | None = None

    def check(self) -> None:
        """Raise Refused if there are too many streams."""
        if self._streams >= MOST_STREAMS:
            raise Refused(f"{MOST_STREAMS} streams of events are open", remedy="close one, or use another master", code="too-many")

    def join(self) -> None:
        """Count one more open stream; the first one starts the watch."""
        with self._lock:
            self._streams += 1
            if self._thread is None:
                self._ended = threading.Event()
                self._thread = threading.Thread(target=self._watch, args=(self._ended,), name="events", daemon=True)
                self._thread.start()

    def leave(self) -> None:
        """Count one stream less; polling ends with the last one."""
        with self._lock:
            self._streams -= 1
            if self._streams == 0:
                self._ended.set()
                self._thread, self.picture = None, None

    def _watch(self, ended: threading.Event) -> None:
        mirror = Mirror(self._registry)
        number, before, settled, newest = 0, 0, 0, 0
        try:
            while not ended.is_set():
                if number == 0 or newest > settled or mirror.changed.is_set():
                    with suppress(ScribenginError):  # while the registry does not answer, the last snapshot is kept
                        reached = self._registry.sync()
                        mirror.refresh()
                        flows = {name: seen for name in mirror.children("flows") if (seen := _seen(mirror, name)) is not None}
                        number += 1
                        with self._lock:
                            if not ended.is_set():
                                self.picture = FlowsSnapshot(number, before, flows)
                        settled, before, newest = before, reached, max((seen.revision for seen in flows.values()), default=0)
                ended.wait(
                    _LOOK_S if number > 1 else 0.0
                )  # also after a change: within this time, the watch reports every change that `before` includes
        finally:
            mirror.close()


@dataclass(frozen=True, slots=True)
class EncodedFigures:
    """The figures of a flow as JSON. `number`: the look at which they were new."""

    number: int
    body: bytes
    steady: Mapping[str, Any]
    """the row without what changes with each look"""


class FiguresWatcher:
    """Encodes the figures of all flows, at most once in `_FIGURES_S` seconds for all streams. Thread-safe."""

    def __init__(self, watch: WorkerWatch | None) -> None:
        self._watch = watch
        self._lock = threading.Lock()
        self._looked = 0.0
        self._pause_s = _FIGURES_S
        self.number = 0
        self.flows: Mapping[str, EncodedFigures] | None = {}
        """None: this master does not lead"""

    def refresh(self) -> None:
        """Look at the figures again, if it is time. Not for an event loop: it may take 0.1 s."""
        with self._lock:
            if not self.is_due():
                return
            begun = time.monotonic()
            self.number += 1
            if self._watch is None or not self._watch.leads():
                self.flows = None
            else:
                before = self.flows or {}
                self.flows = {row["flow"]: self._encoded(row, before.get(row["flow"])) for row in self._watch.overview()}
            self._looked = time.monotonic()
            self._pause_s = max(_FIGURES_S, (self._looked - begun) / _SHARE)

    def is_due(self) -> bool:
        """True if it is time to look again."""
        return not self.number or time.monotonic() - self._looked >= self._pause_s

    def _encoded(self, row: dict[str, Any], before: EncodedFigures | None) -> EncodedFigures:
        now = row["now"]
        steady = row if now is None or now["silent"] else {**row, "now": {**now, "heard_s": 0}}
        if before is not None and before.steady == steady:
            return before
        return EncodedFigures(self.number, msgspec.json.encode(row), steady)


def event_routes(may: Callable[[Role], Any], registry: Registry, watch: WorkerWatch | None) -> APIRouter:
    """The routes of the event stream."""
    routes = APIRouter(prefix="/v1", tags=["events"])
    watcher, figures_watcher = Watcher(registry), FiguresWatcher(watch)

    @routes.get("/events", response_class=StreamingResponse, responses={200: _STREAM})
    async def stream_events(
        asked: Annotated[ApiRequest, may(Role.VIEWER)], last_event_id: Annotated[str, Header()] = "0", figures: bool = False
    ) -> Response:
        """Changes of flows as they happen: after `Last-Event-ID` if that is sent, otherwise starting with all flows. `figures`: with the
        figures of flows, too."""
        if not (last_event_id.isascii() and last_event_id.isdecimal() and len(last_event_id) <= 18):
            raise PointedError((Fault("parameter", "Last-Event-ID is not a number", "send the id of the last event, or none"),))
        watcher.check()
        lines = _lines(watcher, asked, int(last_event_id), figures_watcher if figures else None)
        return StreamingResponse(lines, media_type="text/event-stream", headers={"Cache-Control": "no-store"})

    return routes


_STREAM: dict[str, Any] = {"description": "A stream", "content": {"text/event-stream": {"schema": {"type": "string"}}}}


async def _lines(watcher: Watcher, asked: ApiRequest, after: int, figures: FiguresWatcher | None) -> AsyncIterator[bytes]:
    """The stream to one client. `after`: the revision up to which the client has all events."""
    watcher.join()
    try:
        told: dict[str, FlowRevision] = {}
        number, silent_s, first = 0, 0.0, True
        looked = -1  # the look at figures that was sent last
        while True:
            picture = watcher.picture
            if picture is not None and picture.number != number:
                number, silent_s = picture.number, 0.0
                mine = {name: seen for name, seen in picture.flows.items() if asked.who.may_see(seen.labels)}
                if first:
                    yield _event("flows", after, sorted(mine))
                    told = {name: seen for name, seen in mine.items() if seen.revision <= after}
                    first = False
                for name in [name for name in told if name not in mine]:
                    gone = told.pop(name)
                    yield _event("deleted", after, FlowEvent(gone.revision, gone.row))
                new = [seen for name, seen in mine.items() if name not in told or told[name].revision < seen.revision]
                for seen in sorted(new, key=lambda seen: seen.revision):
                    if seen.revision <= picture.settled:
                        told[seen.row.flow], after = seen, seen.revision
                        yield _event("flow", after, FlowEvent(seen.revision, seen.row))
            elif silent_s >= (_BEAT_S if figures is None else _FIGURES_BEAT_S):
                silent_s = 0.0
                yield b": nothing new\n\n" if figures is None else b"event: beat\ndata: null\n\n"
            if figures is not None and told:
                if figures.is_due():
                    await run_in_threadpool(figures.refresh)
                if figures.number != looked:
                    event = _figures_event(figures, looked, told, asked)
                    looked = figures.number
                    if event:
                        silent_s = 0.0
                        yield event
            wait_s = _LOOK_S if told else _FIRST_S if silent_s < 1 else _LOOK_S
            await asyncio.sleep(wait_s)
            silent_s += wait_s
    finally:
        watcher.leave()


def _figures_event(figures: FiguresWatcher, looked: int, told: Mapping[str, FlowRevision], asked: ApiRequest) -> bytes:
    """An event with the figures that are new since the look `looked`; empty if there are none."""
    flows = figures.flows
    if flows is None:
        return b"event: figures\ndata: null\n\n" if looked < 0 else b""
    new = [each.body for name, each in flows.items() if each.number > looked and (not asked.who.labels or name in told)]
    return b"event: figures\ndata: [%s]\n\n" % b",".join(new) if new or looked < 0 else b""


def _event(kind: str, id_: int, data: object) -> bytes:
    return b"event: %s\nid: %d\ndata: %s\n\n" % (kind.encode(), id_, msgspec.json.encode(data))


def _seen(mirror: Mirror, flow: str) -> FlowRevision | None:
    desired, status = mirror.read(DESIRED(flow).path), mirror.read(STATUS(flow).path)
    wanted = stored_as(desired, DESIRED(flow)) if isinstance(desired, RegistryEntry) else None
    if not isinstance(wanted, Stored):
        return None
    stands = stored_as(status, STATUS(flow)) if isinstance(status, RegistryEntry) else None
    known = stands if isinstance(stands, Stored) else None
    labels = labels_of(mirror, flow)
    row = row_of(flow_records.ObservedFlow(flow, wanted.record, None if known is None else known.record), labels)
    revision = max(wanted.entry.changed, 0 if known is None else known.entry.changed)
    return FlowRevision(row, revision, labels)
