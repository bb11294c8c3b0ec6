"""The writer of a lane: one thread that stores what waits in one append for many agents, and knows what is stored and committed.

Requests are submitted from the server's event loop, and answered there. The thread alone uses the lane's `ChannelWriter`.
"""

from __future__ import annotations

import asyncio
import secrets
import threading
import time
from collections import OrderedDict, deque
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import TYPE_CHECKING

import structlog

from scribengin.connectors.agents.contract import Arrival
from scribengin.core.errors import ScribenginError, text_of
from scribengin.wire.frames import LINE_FEED, FrameHead, FrameOrigin, encode_frame

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from scribengin.connectors.agents.contract import ChannelWriter
    from scribengin.plan.agent_lanes import AgentLane
    from scribengin.wire.frames import FrameCodec, FrameKind

_log = structlog.get_logger(__name__)

MOST_APPEND = 32 * 2**20
"""bytes that are stored together at most"""
MOST_QUEUED = 128 * 2**20
"""bytes that wait to be stored at most; more is answered with 429"""
KEY_WINDOW_S = 3600.0
"""how long a request with an idempotency key is remembered"""
_MOST_KEYS = 100_000
_BUSY_S = 1.0
"""how often positions are read while records wait for their commit"""
_AWAITED_S = 0.2
"""the same, while a sender waits for `committed`"""
_IDLE_S = 10.0
_OPEN_AGAIN_S = 1.0
RETRY_S = 2
"""the `Retry-After` of a lane that cannot be written, in seconds"""


@dataclass(frozen=True, slots=True)
class LaneAnswer:
    """The outcome of a request to store records. `key` is under whose positions the records are; `duplicate`: they were stored before."""

    status: HTTPStatus
    key: tuple[str, str]
    stored: int = 0
    committed: int = 0
    message: str = ""
    duplicate: bool = False


@dataclass(frozen=True, slots=True)
class FrameSpan:
    """Where a frame begins among the bytes of a request, and the numbers of its records."""

    start: int
    sequence: int
    next: int


@dataclass(slots=True)
class FramesWork:
    """Frames of an agent to be stored, checked before."""

    key: tuple[str, str]
    committed: int
    frames: bytes
    spans: Sequence[FrameSpan]
    future: asyncio.Future[LaneAnswer]

    @property
    def size(self) -> int:
        """The bytes."""
        return len(self.frames)


@dataclass(frozen=True, slots=True)
class RecordPiece:
    """Records that become one frame: each is followed by the mark."""

    payload: bytes
    count: int
    mark: bytes = LINE_FEED
    kind: FrameKind = "records"


@dataclass(slots=True)
class RecordsWork:
    """Records of another client to be stored. `idempotency_key` is empty, or names the request for repetitions of it."""

    client: str
    pieces: Sequence[RecordPiece]
    origin: FrameOrigin
    time_ms: int
    idempotency_key: str
    digest: bytes
    future: asyncio.Future[LaneAnswer]

    @property
    def size(self) -> int:
        """The bytes before compression."""
        return sum(len(piece.payload) for piece in self.pieces)


@dataclass(slots=True)
class _Client:
    """The numbers of a client in this process of the gateway."""

    incarnation: str = field(default_factory=lambda: secrets.token_hex(12))
    next: int = 0


@dataclass(slots=True)
class _KeyedRequest:
    digest: bytes
    position: tuple[str, str]
    next: int
    until_s: float


class LaneWriter:
    """The writer of one lane.

    Frames are checked against what is known to be stored when their append is made, not before: so frames that follow others which still
    wait are in sequence. Frames that continue nothing known are stored: whoever reads the channel decides by the numbers.

    The frames of other clients are numbered here. If an append fails, these frames may be stored or not, and their numbers are used: they
    are stored again, unchanged, before any others. So the numbers have no gap, and the reader drops what it has.
    """

    def __init__(self, name: str, lane: AgentLane, open_writer: Callable[[], ChannelWriter], loop: asyncio.AbstractEventLoop) -> None:
        """Start the thread.

        Args:
            name: The lane.
            lane: Its configuration.
            open_writer: Opens its channel. It is called by the thread, again and again while it raises ScribenginError.
            loop: Where requests are answered.
        """
        self.name = name
        self.lane = lane
        self._open_writer = open_writer
        self._loop = loop
        self._wake = threading.Condition()
        self._queue: deque[FramesWork | RecordsWork] = deque()
        self._queued_bytes = 0
        self._closing = False
        self._awaited = 0
        self._stored: dict[tuple[str, str], int] = {}
        self._committed: dict[tuple[str, str], int] = {}
        self._waiting_bytes = 0
        self._clients: dict[str, _Client] = {}
        self._unsure: list[Arrival] = []
        self._keys: OrderedDict[tuple[str, str], _KeyedRequest] = OrderedDict()
        self._channel: ChannelWriter | None = None
        self._open_after_s = 0.0
        self._append_failed = False
        self._refreshed_s = 0.0
        self._changed = asyncio.Event()
        self.fault = "the channel is not open yet"
        """why the channel cannot be written; empty: it can"""
        self.appended_bytes = 0
        self.appends = 0
        self._thread = threading.Thread(target=self._run, name=f"lane {name}", daemon=True)
        self._thread.start()

    # Called by the event loop.

    def submit(self, work: FramesWork | RecordsWork) -> None:
        """Queue a request; its future gets a LaneAnswer."""
        with self._wake:
            if self._closing:
                work.future.set_result(self._refusal(work, "the gateway stops"))
                return
            self._queue.append(work)
            self._queued_bytes += work.size
            self._wake.notify()

    def stored(self, key: tuple[str, str]) -> int:
        """The number of the next record of an agent that is not known to be stored."""
        return max(self._stored.get(key, 0), self._committed.get(key, 0))

    def committed(self, key: tuple[str, str]) -> int:
        """The number up to which an agent's records are known to be committed."""
        return self._committed.get(key, 0)

    @property
    def waiting_bytes(self) -> int:
        """The bytes that are stored and not committed."""
        return self._waiting_bytes

    @property
    def queued_bytes(self) -> int:
        """The bytes that wait to be stored."""
        return self._queued_bytes

    @property
    def is_full(self) -> bool:
        """True if no more is to be accepted now."""
        return self._waiting_bytes >= self.lane.capacity_bytes or self._queued_bytes >= MOST_QUEUED

    async def wait_committed(self, key: tuple[str, str], number: int) -> None:
        """Return when an agent's records up to a number are committed."""
        with self._wake:
            self._awaited += 1
            self._wake.notify()
        try:
            while self.committed(key) < number:
                await self._changed.wait()
        finally:
            with self._wake:
                self._awaited -= 1

    def close(self) -> None:
        """Store what waits, and end the thread."""
        with self._wake:
            self._closing = True
            self._wake.notify()
        self._thread.join()

    # The thread.

    def _run(self) -> None:
        while True:
            with self._wake:
                if not self._queue and not self._closing:
                    self._wake.wait(self._pause_s())
                batch = self._take()
                last = self._closing and not self._queue
            if batch:
                self._store(batch)
            if last:
                if self._unsure:
                    self._refresh_or_log()
                break
            if time.monotonic() - self._refreshed_s >= self._interval_s():
                self._refresh_or_log()
        if self._channel is not None:
            self._channel.close()

    def _take(self) -> list[FramesWork | RecordsWork]:
        batch: list[FramesWork | RecordsWork] = []
        size = 0
        while self._queue and size < MOST_APPEND:
            work = self._queue.popleft()
            size += work.size
            batch.append(work)
        self._queued_bytes -= size
        return batch

    def _pause_s(self) -> float:
        return max(0.0, self._refreshed_s + self._interval_s() - time.monotonic())

    def _interval_s(self) -> float:
        if self._awaited:
            return _AWAITED_S
        return _BUSY_S if self._waiting_bytes or self._unsure or self._channel is None else _IDLE_S

    def _opened(self) -> ChannelWriter:
        if self._channel is None:
            if time.monotonic() < self._open_after_s:
                raise _NotWritable(self.fault)
            self._open_after_s = time.monotonic() + _OPEN_AGAIN_S
            self._channel = self._open_writer()
            self._refresh(self._channel)
        return self._channel

    def _refresh_or_log(self) -> None:
        try:
            channel = self._opened()
            self._refresh(channel)
            self._store_unsure(channel)
            if not self._append_failed:
                self._works()
        except _NotWritable:
            self._refreshed_s = time.monotonic()
        except Exception as error:
            self._failed(error)

    def _refresh(self, channel: ChannelWriter) -> None:
        """Read the positions."""
        self._refreshed_s = time.monotonic()
        for key, number in channel.stored().items():
            if number > self._stored.get(key, 0):
                self._stored[key] = number
        committed = dict(channel.committed())
        changed = committed != self._committed
        self._committed = committed
        self._waiting_bytes = channel.waiting_bytes()
        if changed:
            self._on_loop(self._announce)

    def _announce(self) -> None:
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()

    def _works(self) -> None:
        if self.fault:
            _log.info("the channel can be written", lane=self.name)
            self.fault = ""

    def _failed(self, error: Exception) -> None:
        self._refreshed_s = time.monotonic()
        if isinstance(error, ScribenginError):
            text = text_of(error)
            if text != self.fault:
                _log.error(f"the channel cannot be written: {text}", lane=self.name, remedy=error.remedy)
        else:
            text = "the gateway failed; its log says why"
            _log.error("the channel cannot be written", lane=self.name, exc_info=error)
        self.fault = text

    def _store(self, batch: Sequence[FramesWork | RecordsWork]) -> None:
        answers: list[tuple[asyncio.Future[LaneAnswer], LaneAnswer]] = []
        accepted: list[tuple[FramesWork | RecordsWork, LaneAnswer]] = []
        arrivals: list[Arrival] = []
        of_clients: list[Arrival] = []
        try:
            channel = self._opened()
            self._store_unsure(channel)
            expected = self._expectations(channel, batch)
            for work in batch:
                if isinstance(work, FramesWork):
                    answer, arrival = self._sequenced(work, expected)
                    made = [arrival] if arrival is not None else []
                else:
                    answer, made = self._numbered(work)
                    of_clients += made
                arrivals += made
                if answer.status is HTTPStatus.OK:
                    accepted.append((work, answer))
                else:
                    answers.append((work.future, answer))
            if arrivals:
                self._append(channel, arrivals)
                self._works()
            answers += [(work.future, answer) for work, answer in accepted]
        except Exception as error:
            self._unsure += of_clients
            if not isinstance(error, _NotWritable):
                self._failed(error)
            answered = {id(future) for future, _ in answers}
            answers += [(work.future, self._refusal(work, self.fault)) for work in batch if id(work.future) not in answered]
        self._on_loop(lambda: _settle(answers))

    def _append(self, channel: ChannelWriter, arrivals: Sequence[Arrival]) -> None:
        self._append_failed = True
        channel.append(arrivals)
        self._append_failed = False
        size = 0
        for arrival in arrivals:
            key = (arrival.agent, arrival.incarnation)
            self._stored[key] = max(arrival.next, self._stored.get(key, 0))
            size += len(arrival.frames)
        self._waiting_bytes += size
        self.appended_bytes += size
        self.appends += 1

    def _store_unsure(self, channel: ChannelWriter) -> None:
        if self._unsure:
            self._append(channel, self._unsure)
            self._unsure = []

    def _expectations(self, channel: ChannelWriter, batch: Sequence[FramesWork | RecordsWork]) -> dict[tuple[str, str], int]:
        """What is known to be stored of the agents of the batch. Positions are read again if frames do not continue what is known: another
        gateway may have stored what is missing."""
        expected: dict[tuple[str, str], int] = {}
        for work in batch:
            if isinstance(work, FramesWork) and work.spans:
                known = expected.get(work.key, self.stored(work.key) if work.key in self._stored else -1)
                if work.spans[0].sequence > known:
                    self._refresh(channel)
                    break
                expected[work.key] = max(known, work.spans[-1].next)
        keys = {work.key for work in batch if isinstance(work, FramesWork)}
        return {key: self.stored(key) for key in keys if key in self._stored or key in self._committed}

    def _sequenced(self, work: FramesWork, expected: dict[tuple[str, str], int]) -> tuple[LaneAnswer, Arrival | None]:
        known = expected.get(work.key)
        committed = self.committed(work.key)
        if not work.spans:
            return LaneAnswer(HTTPStatus.OK, work.key, known or 0, committed), None
        first, last = work.spans[0], work.spans[-1]
        if known is not None and first.sequence > known:
            message = f"the frames begin at record {first.sequence:,}; expected {known:,}"
            return LaneAnswer(HTTPStatus.CONFLICT, work.key, known, committed, message), None
        if known is not None and last.next <= known:
            return LaneAnswer(HTTPStatus.OK, work.key, known, committed, duplicate=True), None
        expected[work.key] = last.next
        answer = LaneAnswer(HTTPStatus.OK, work.key, last.next, committed)
        frames = work.frames
        if known is not None and first.sequence < known:
            first = next(span for span in work.spans if span.next > known)
            frames = frames[first.start :]
        return answer, Arrival(*work.key, work.committed, frames, first.sequence, last.next)

    def _numbered(self, work: RecordsWork) -> tuple[LaneAnswer, list[Arrival]]:
        agent = f"gateway/{work.client}"
        now_s = time.monotonic()
        while self._keys and (next(iter(self._keys.values())).until_s < now_s or len(self._keys) > _MOST_KEYS):
            self._keys.popitem(last=False)
        keyed = self._keys.get((work.client, work.idempotency_key)) if work.idempotency_key else None
        if keyed is not None and keyed.digest != work.digest:
            message = f'the idempotency key "{work.idempotency_key}" was used for other records'
            return LaneAnswer(HTTPStatus.UNPROCESSABLE_ENTITY, keyed.position, message=message), []
        if keyed is not None:
            return LaneAnswer(HTTPStatus.OK, keyed.position, keyed.next, self.committed(keyed.position), duplicate=True), []
        client = self._clients.setdefault(work.client, _Client())
        key = (agent, client.incarnation)
        number = client.next
        frames = []
        for piece in work.pieces:
            codec: FrameCodec = self.lane.config.compression  # type: ignore[assignment]
            head = FrameHead(piece.kind, codec, number, piece.count, 0, work.time_ms, piece.mark, work.origin)
            frames.append(encode_frame(head, piece.payload))
            number += piece.count
        arrival = Arrival(*key, self.committed(key), b"".join(frames), client.next, number)
        client.next = number
        if work.idempotency_key:
            self._keys[work.client, work.idempotency_key] = _KeyedRequest(work.digest, key, number, now_s + KEY_WINDOW_S)
        return LaneAnswer(HTTPStatus.OK, key, number, self.committed(key)), [arrival] if frames else []

    def _refusal(self, work: FramesWork | RecordsWork, message: str) -> LaneAnswer:
        key = work.key if isinstance(work, FramesWork) else (f"gateway/{work.client}", "")
        return LaneAnswer(HTTPStatus.SERVICE_UNAVAILABLE, key, self.stored(key), self.committed(key), message)

    def _on_loop(self, call: Callable[[], None]) -> None:
        try:
            self._loop.call_soon_threadsafe(call)
        except RuntimeError:
            _log.debug("the server ended before a request was answered", lane=self.name)


class _NotWritable(Exception):
    """The channel could not be opened a moment ago."""


def _settle(answers: Sequence[tuple[asyncio.Future[LaneAnswer], LaneAnswer]]) -> None:
    for future, answer in answers:
        if not future.done():
            future.set_result(answer)
