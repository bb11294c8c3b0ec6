"""The requests that a gateway answers. The application is raw ASGI, so that frames pass through little code.

    POST /edge/v1/lanes/LANE/frames     frames of agents
    POST /edge/v1/lanes/LANE/records    records of other clients
    POST /v1/logs                       logs of OpenTelemetry; the lane is `?lane=` or the header `Scribengin-Lane`
    GET  /edge/v1/config, POST /edge/v1/report, GET /edge/v1/agents, GET /metrics, GET /health

A request that stores may say `?wait=stored`, the default, or `?wait=committed`, and `?deadline=30s`: after that it is answered with 504.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from http import HTTPStatus
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs

import msgspec
import structlog

from scribengin.core.errors import ScribenginError, text_of
from scribengin.core.units import parse_duration_s
from scribengin.gateway.directory import AgentRow, TokenHolder, agent_rows
from scribengin.gateway.foreign import BadRecords, LargeBody, UnknownBody, decompressed, otlp_records_of, pieces_of, records_of
from scribengin.gateway.lane_writer import RETRY_S, FrameSpan, FramesWork, LaneAnswer, LaneWriter, RecordsWork
from scribengin.gateway.otlp import status_message
from scribengin.wire.frames import FrameOrigin, find_frames
from scribengin.wire.protocol import (
    AGENT_HEADER,
    COMMITTED_HEADER,
    INCARNATION_HEADER,
    PREFIX,
    AgentReport,
    FramesAnswer,
    ReportAnswer,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from scribengin.connectors.agents.contract import ChannelWriter
    from scribengin.gateway.directory import AgentDirectory
    from scribengin.plan.agent_lanes import AgentLane

_log = structlog.get_logger(__name__)

MOST_BODY = 16 * 2**20
"""the largest body that is accepted, in bytes"""
MOST_HELD = 256 * 2**20
"""bytes of all bodies that are received and not answered; more is answered with 503"""
_MOST_REPORT = 2**20
_BODY_S = 120.0
"""the longest time that a client may take to send a body"""
_DEADLINE_S = 30.0
_MOST_DEADLINE_S = 3600.0
_PAUSED_RETRY_S = 10
_MOST_NAME = 255
_IN_LOOP_BYTES = 64 * 1024
"""bodies of other clients up to this size are read in the event loop; larger ones in a thread"""
LANE_HEADER = "Scribengin-Lane"
_JSON = "application/json"
_TEXT = "text/plain; version=0.0.4; charset=utf-8"
_AGENT, _INCARNATION, _COMMITTED, _LANE = (
    name.lower().encode() for name in (AGENT_HEADER, INCARNATION_HEADER, COMMITTED_HEADER, LANE_HEADER)
)
_LANES = f"{PREFIX}/lanes/"
_encode = msgspec.json.Encoder().encode
_report_of = msgspec.json.Decoder(AgentReport).decode

_Scope = dict[str, Any]
_Headers = dict[bytes, bytes]
_Receive = Callable[[], Awaitable[dict[str, Any]]]


class RequestRefused(Exception):
    """A request that is answered with an error."""

    def __init__(
        self, status: HTTPStatus, message: str, *, retry_s: int = 0, position: tuple[int, int] = (0, 0), challenge: str = ""
    ) -> None:
        """Make it.

        Args:
            status: The status of the answer.
            message: What is wrong.
            retry_s: When the client may try again, in seconds; 0: not said.
            position: Up to which numbers the sender's records are stored and committed.
            challenge: How to authenticate.
        """
        super().__init__(message)
        self.status = status
        self.message = message
        self.retry_s = retry_s
        self.answer = FramesAnswer(*position, message)
        self.headers = ((b"www-authenticate", challenge.encode()),) if challenge else ()


@dataclass(frozen=True, slots=True)
class _Answer:
    body: bytes
    status: HTTPStatus = HTTPStatus.OK
    content_type: str = _JSON
    headers: tuple[tuple[bytes, bytes], ...] = ()


@dataclass(frozen=True, slots=True)
class _Wait:
    """What a sender waits for, and how long."""

    committed: bool = False
    deadline_s: float = _DEADLINE_S


_STORED = _Wait()


@dataclass(slots=True)
class GatewayCounters:
    """What `GET /metrics` shows. Only the event loop changes it."""

    answers: dict[tuple[str, int], int] = field(default_factory=dict)
    """(route, status) → answers"""
    received_bytes: int = 0
    frames: int = 0
    records: int = 0
    duplicates: int = 0


class GatewayApp:
    """The ASGI application of a gateway."""

    def __init__(
        self,
        directory: AgentDirectory,
        open_writer: Callable[[str, AgentLane], ChannelWriter],
        *,
        name: str = "gateway",
    ) -> None:
        """Make the application.

        Args:
            directory: What it knows of agents.
            open_writer: Opens the channel of a lane.
            name: The name of the gateway, for answers and metrics.
        """
        self.directory = directory
        self.name = name
        self.counters = GatewayCounters()
        self._open_writer = open_writer
        self._writers: dict[str, LaneWriter] = {}
        self._held = 0
        self._stopping = asyncio.Event()
        self._started_s = time.time()

    async def __call__(self, scope: _Scope, receive: _Receive, send: Callable[[dict[str, Any]], Awaitable[None]]) -> None:
        """Answer a request."""
        if scope["type"] != "http":
            return
        headers: _Headers = dict(scope["headers"])
        route, handle = self._route(scope)
        answer: _Answer
        body = _Incoming(receive)
        try:
            answer = await handle(scope, headers, body)
        except RequestRefused as refused:
            answer = _refusal(refused, route, headers)
        except _Gone:
            return
        except Exception as error:
            _log.error("a request failed", route=route, exc_info=error)
            problem = RequestRefused(HTTPStatus.INTERNAL_SERVER_ERROR, "the gateway failed; its log says why", retry_s=RETRY_S)
            answer = _refusal(problem, route, headers)
        counted = (route, int(answer.status))
        self.counters.answers[counted] = self.counters.answers.get(counted, 0) + 1
        size = str(len(answer.body)).encode()
        own = [(b"content-type", answer.content_type.encode()), (b"content-length", size), *answer.headers]
        await send({"type": "http.response.start", "status": int(answer.status), "headers": own})
        await send({"type": "http.response.body", "body": answer.body})

    def stop(self) -> None:
        """Answer requests that wait for their commit. Called by the event loop."""
        self._stopping.set()

    def close(self) -> None:
        """Store what waits and release the channels."""
        for writer in self._writers.values():
            writer.close()

    def _route(self, scope: _Scope) -> tuple[str, Callable[[_Scope, _Headers, _Incoming], Awaitable[_Answer]]]:
        path, method = scope["path"], scope["method"]
        if path.startswith(_LANES):
            lane, _, what = path[len(_LANES) :].partition("/")
            if what in ("frames", "records") and lane:
                if method != "POST":
                    return what, _refuses(HTTPStatus.METHOD_NOT_ALLOWED, f"{path} takes POST only")
                handle = self._frames if what == "frames" else self._records
                return what, lambda scope, headers, body: handle(lane, scope, headers, body)
        known: dict[str, tuple[str, str, Callable[[_Scope, _Headers, _Incoming], Awaitable[_Answer]]]] = {
            "/v1/logs": ("logs", "POST", self._logs),
            f"{PREFIX}/config": ("config", "GET", self._config),
            f"{PREFIX}/report": ("report", "POST", self._report),
            f"{PREFIX}/agents": ("agents", "GET", self._agents),
            "/metrics": ("metrics", "GET", self._metrics),
            "/health": ("health", "GET", self._health),
        }
        if path not in known:
            return "other", _refuses(HTTPStatus.NOT_FOUND, f"{path} is not an address of a gateway")
        route, allowed, handle_it = known[path]
        if method != allowed:
            return route, _refuses(HTTPStatus.METHOD_NOT_ALLOWED, f"{path} takes {allowed} only")
        return route, handle_it

    # Who asks.

    def _check_agent(self, scope: _Scope, headers: _Headers, agent: str) -> None:
        """Refuse a request that may not act as that agent."""
        if not agent or len(agent) > _MOST_NAME or not agent.isprintable() or "/" in agent:
            raise RequestRefused(
                HTTPStatus.BAD_REQUEST,
                f'"{agent[:_MOST_NAME]}" is not a valid name of an agent; expected 1 to {_MOST_NAME} characters without "/"',
            )
        token = _token(headers)
        names = _certified(scope)
        if agent in names or self.directory.allows(token, agent):
            return
        if token and (holder := self.directory.holder(token)) is not None:
            raise RequestRefused(HTTPStatus.FORBIDDEN, f'the token of "{holder.name}" is not valid for the agent "{agent}"')
        if names and not token:
            raise RequestRefused(HTTPStatus.FORBIDDEN, f'the certificate of "{names[0]}" is not valid for the agent "{agent}"')
        raise _unauthorised(token)

    def _holder(self, scope: _Scope, headers: _Headers) -> TokenHolder:
        token = _token(headers)
        names = _certified(scope)
        if names and not token:
            return TokenHolder(names[0])
        holder = self.directory.holder(token)
        if holder is None:
            raise _unauthorised(token)
        return holder

    def _client(self, scope: _Scope, headers: _Headers) -> str:
        """The name under which the records of another client are stored."""
        holder = self._holder(scope, headers)
        asked = _header(headers, _AGENT)
        if asked:
            self._check_agent(scope, headers, asked)
            return asked
        return holder.name.replace("*", "").replace("?", "").strip("-_.") or "client"

    def _check_admin(self, scope: _Scope, headers: _Headers) -> None:
        if not self._holder(scope, headers).admin:
            raise RequestRefused(HTTPStatus.FORBIDDEN, "the token is not one of an administrator")

    # Lanes.

    def _writer(self, name: str) -> LaneWriter:
        """The writer of a lane. Refuses if there is none."""
        lane = self.directory.lanes().get(name)
        if lane is None:
            raise RequestRefused(HTTPStatus.NOT_FOUND, f'no flow here has the lane "{name}"')
        writer = self._writers.get(name)
        if writer is not None and writer.lane.channel != lane.channel:
            del self._writers[name]
            asyncio.get_running_loop().run_in_executor(None, writer.close)
            writer = None
        if writer is None:
            loop = asyncio.get_running_loop()
            writer = self._writers[name] = LaneWriter(name, lane, lambda: self._open_writer(name, lane), loop)
        writer.lane = lane
        return writer

    def _accepting(self, name: str, key: tuple[str, str] = ("", "")) -> LaneWriter:
        """The writer of a lane that accepts records now. Refuses otherwise."""
        writer = self._writer(name)
        position = (writer.stored(key), writer.committed(key))
        if writer.lane.config.paused:
            message = f'the lane "{name}" is paused'
            raise RequestRefused(HTTPStatus.SERVICE_UNAVAILABLE, message, retry_s=_PAUSED_RETRY_S, position=position)
        if self._stopping.is_set():
            raise RequestRefused(HTTPStatus.SERVICE_UNAVAILABLE, "the gateway stops", retry_s=RETRY_S, position=position)
        if writer.is_full:
            message = (
                f'the channel of "{name}" has {writer.waiting_bytes:,} bytes that are not committed, '
                f"and {writer.queued_bytes:,} to be stored; accepted are up to {writer.lane.capacity_bytes:,}"
            )
            raise RequestRefused(HTTPStatus.TOO_MANY_REQUESTS, message, retry_s=RETRY_S, position=position)
        return writer

    # Agents.

    async def _frames(self, lane: str, scope: _Scope, headers: _Headers, body: _Incoming) -> _Answer:
        agent = _header(headers, _AGENT)
        if not agent:
            raise RequestRefused(HTTPStatus.BAD_REQUEST, f"the header {AGENT_HEADER} is missing")
        self._check_agent(scope, headers, agent)
        incarnation = _header(headers, _INCARNATION)
        if not 0 < len(incarnation) <= _MOST_NAME or not incarnation.isprintable():
            raise RequestRefused(HTTPStatus.BAD_REQUEST, f"the header {INCARNATION_HEADER} is missing or not valid")
        committed = _header(headers, _COMMITTED) or "0"
        if not committed.isascii() or not committed.isdigit():
            raise RequestRefused(HTTPStatus.BAD_REQUEST, f"the header {COMMITTED_HEADER} is not a valid number: {committed[:40]}")
        wait = _wait_of(scope)
        key = (agent, incarnation)
        writer = self._accepting(lane, key)
        with _Reserved(self, headers) as reserved:
            frames = await reserved.receive(body, MOST_BODY)
            spans = _spans(frames)
            self.counters.frames += len(spans)
            future: asyncio.Future[LaneAnswer] = asyncio.get_running_loop().create_future()
            writer.submit(FramesWork(key, int(committed), frames, spans, future))
            del frames
            answer = await self._outcome(writer, future, key, wait)
        return _Answer(_encode(FramesAnswer(answer.stored, answer.committed)))

    async def _outcome(self, writer: LaneWriter, future: asyncio.Future[LaneAnswer], key: tuple[str, str], wait: _Wait) -> LaneAnswer:
        """What a sender gets that waits for `stored` or `committed`. Refuses if it was not achieved."""
        answer: LaneAnswer | None = None
        try:
            async with asyncio.timeout(wait.deadline_s):
                answer = await future
                if answer.status is HTTPStatus.OK and wait.committed and writer.committed(answer.key) < answer.stored:
                    await self._until_committed(writer, answer)
        except TimeoutError:
            pass
        if answer is None:
            raise self._too_late(writer, key, f"the records were not stored within {wait.deadline_s:g} s")
        if answer.status is not HTTPStatus.OK:
            raise RequestRefused(
                answer.status,
                answer.message,
                retry_s=RETRY_S if answer.status is HTTPStatus.SERVICE_UNAVAILABLE else 0,
                position=(answer.stored, answer.committed),
            )
        committed = writer.committed(answer.key)
        if wait.committed and committed < answer.stored:
            why = "the gateway stops" if self._stopping.is_set() else f"the records were not committed within {wait.deadline_s:g} s"
            raise self._too_late(writer, answer.key, why, stored=answer.stored)
        self.counters.duplicates += answer.duplicate
        return replace(answer, committed=committed)

    async def _until_committed(self, writer: LaneWriter, answer: LaneAnswer) -> None:
        """Return when the records are committed, or the gateway stops."""
        tasks = [asyncio.ensure_future(each) for each in (writer.wait_committed(answer.key, answer.stored), self._stopping.wait())]
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in tasks:
                task.cancel()

    @staticmethod
    def _too_late(writer: LaneWriter, key: tuple[str, str], message: str, stored: int = 0) -> RequestRefused:
        position = (max(stored, writer.stored(key)), writer.committed(key))
        return RequestRefused(HTTPStatus.GATEWAY_TIMEOUT, message, position=position)

    async def _config(self, scope: _Scope, headers: _Headers, body: _Incoming) -> _Answer:
        del body
        query = _query(scope)
        agent = query.get("agent", "")
        if not agent:
            raise RequestRefused(HTTPStatus.BAD_REQUEST, "the parameter agent is missing")
        self._check_agent(scope, headers, agent)
        config = await self._asked(lambda: self.directory.config(agent, query.get("group", "")))
        tag = (b"etag", f'"{config.revision}"'.encode())
        if config.revision and _header(headers, b"if-none-match").strip('"') == config.revision:
            return _Answer(b"", HTTPStatus.NOT_MODIFIED, headers=(tag,))
        return _Answer(_encode(config), headers=(tag,))

    async def _report(self, scope: _Scope, headers: _Headers, body: _Incoming) -> _Answer:
        with _Reserved(self, headers) as reserved:
            data = await reserved.receive(body, _MOST_REPORT)
        try:
            report = _report_of(data)
        except (msgspec.MsgspecError, RecursionError) as error:
            raise RequestRefused(HTTPStatus.BAD_REQUEST, f"the body is not a valid report: {error}") from error
        self._check_agent(scope, headers, report.agent)

        def keep() -> str:
            self.directory.report(report)
            return self.directory.config(report.agent, report.group).revision

        revision = await self._asked(keep)
        lanes = {}
        for name, lane in report.lanes.items():
            with suppress(RequestRefused):
                writer = self._writer(name)
                key = (report.agent, lane.incarnation)
                lanes[name] = FramesAnswer(writer.stored(key), writer.committed(key))
        return _Answer(_encode(ReportAnswer(revision, lanes)))

    @staticmethod
    async def _asked(ask: Callable[[], Any]) -> Any:
        """What the directory answers. Refuses if it is unavailable."""
        try:
            return await asyncio.to_thread(ask)
        except ScribenginError as error:
            _log.error(f"the directory of agents is unavailable: {text_of(error)}", remedy=error.remedy)
            raise RequestRefused(HTTPStatus.SERVICE_UNAVAILABLE, text_of(error), retry_s=RETRY_S) from error

    async def _agents(self, scope: _Scope, headers: _Headers, body: _Incoming) -> _Answer:
        del body
        self._check_admin(scope, headers)
        rows: list[AgentRow] = await self._asked(lambda: agent_rows(self.directory.agents(), time.time()))
        return _Answer(_encode({"agents": rows}))

    # Other clients.

    async def _records(self, lane: str, scope: _Scope, headers: _Headers, body: _Incoming) -> _Answer:
        client = self._client(scope, headers)
        answer, pieces, records = await self._stored_records(
            lane, client, scope, headers, body, lambda data: records_of(_header(headers, b"content-type"), data)
        )
        too_long = sum(piece.kind == "too_long" for piece in pieces)
        form: dict[str, Any] = {"records": records, "stored": answer.stored, "committed": answer.committed}
        if too_long:
            form["too_long"] = too_long
        if answer.duplicate:
            form["duplicate"] = True
        return _Answer(_encode(form))

    async def _logs(self, scope: _Scope, headers: _Headers, body: _Incoming) -> _Answer:
        client = self._client(scope, headers)
        kind = _header(headers, b"content-type")
        lane = _query(scope).get("lane") or _header(headers, _LANE) or self._only_http_lane()
        await self._stored_records(lane, client, scope, headers, body, lambda data: otlp_records_of(kind, data), repeats=True)
        return _Answer(b"{}") if "json" in kind else _Answer(b"", content_type="application/x-protobuf")

    def _only_http_lane(self) -> str:
        lanes = [name for name, lane in self.directory.lanes().items() if lane.config.input == "http"]
        if len(lanes) != 1:
            there = ", ".join(sorted(lanes)) or "none"
            raise RequestRefused(
                HTTPStatus.BAD_REQUEST, f"pass the lane, as ?lane=LANE or the header {LANE_HEADER}; lanes with input: http are: {there}"
            )
        return lanes[0]

    async def _stored_records(
        self,
        lane: str,
        client: str,
        scope: _Scope,
        headers: _Headers,
        body: _Incoming,
        read: Callable[[bytes], list[bytes]],
        *,
        repeats: bool = False,
    ) -> tuple[LaneAnswer, Sequence[Any], int]:
        """Store the records of a request. `repeats`: a client that gets no answer sends the same bytes again."""
        wait = _wait_of(scope)
        writer = self._accepting(lane)
        config = writer.lane.config
        asked_key = _header(headers, b"idempotency-key")
        if len(asked_key) > _MOST_NAME:
            raise RequestRefused(HTTPStatus.BAD_REQUEST, f"the header Idempotency-Key has more than {_MOST_NAME} characters")

        def prepared(data: bytes) -> tuple[list[Any], int, bytes]:
            records = read(decompressed(_header(headers, b"content-encoding"), data))
            pieces = pieces_of(records, most_rows=config.frame_rows, most_bytes=config.frame_bytes, max_record=config.max_record)
            return pieces, len(records), hashlib.sha256(data).digest() if asked_key or repeats else b""

        with _Reserved(self, headers) as reserved:
            data = await reserved.receive(body, MOST_BODY)
            try:
                pieces, count, digest = prepared(data) if len(data) <= _IN_LOOP_BYTES else await asyncio.to_thread(prepared, data)
            except UnknownBody as error:
                raise RequestRefused(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, str(error)) from error
            except LargeBody as error:
                raise RequestRefused(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, str(error)) from error
            except BadRecords as error:
                raise RequestRefused(HTTPStatus.BAD_REQUEST, str(error)) from error
            self.counters.records += count
            del data
            future: asyncio.Future[LaneAnswer] = asyncio.get_running_loop().create_future()
            peer = scope.get("client")
            origin = FrameOrigin(host=peer[0] if peer else "", file=client, tags=dict(config.tags))
            key = asked_key or (f"sha256:{digest.hex()}" if repeats else "")
            writer.submit(RecordsWork(client, pieces, origin, int(time.time() * 1000), key, digest, future))
            answer = await self._outcome(writer, future, ("", ""), wait)
        return answer, pieces, count

    # What the gateway says of itself.

    async def _health(self, scope: _Scope, headers: _Headers, body: _Incoming) -> _Answer:
        del scope, headers, body
        faults = {name: writer.fault for name, writer in self._writers.items() if writer.fault}
        return _Answer(_encode({"gateway": self.name, "faults": faults}))

    async def _metrics(self, scope: _Scope, headers: _Headers, body: _Incoming) -> _Answer:
        del body
        self._check_admin(scope, headers)
        return _Answer(self._exposition().encode(), content_type=_TEXT)

    def _exposition(self) -> str:
        counters = self.counters
        answers: dict[str, float] = {
            f'{{route="{route}",status="{status}"}}': count for (route, status), count in sorted(counters.answers.items())
        }
        writers = {f'{{lane="{_escaped(name)}"}}': writer for name, writer in sorted(self._writers.items())}

        def each(value: Callable[[LaneWriter], float]) -> dict[str, float]:
            return {labels: value(writer) for labels, writer in writers.items()}

        families: list[tuple[str, str, str, Mapping[str, float]]] = [
            ("requests_total", "counter", "Requests that were answered.", answers),
            ("received_bytes_total", "counter", "Bytes of bodies that were received.", {"": counters.received_bytes}),
            ("frames_total", "counter", "Frames that agents sent.", {"": counters.frames}),
            ("records_total", "counter", "Records that other clients sent.", {"": counters.records}),
            ("duplicates_total", "counter", "Requests whose records were stored before.", {"": counters.duplicates}),
            ("appended_bytes_total", "counter", "Bytes appended to the channel.", each(lambda writer: writer.appended_bytes)),
            ("appends_total", "counter", "Appends to the channel.", each(lambda writer: writer.appends)),
            ("waiting_bytes", "gauge", "Bytes that are stored and not committed.", each(lambda writer: writer.waiting_bytes)),
            ("queued_bytes", "gauge", "Bytes that wait to be stored.", each(lambda writer: writer.queued_bytes)),
            ("channel_up", "gauge", "1 if the channel can be written.", each(lambda writer: int(not writer.fault))),
            ("held_bytes", "gauge", "Bytes of bodies that are not answered.", {"": self._held}),
            ("start_time_seconds", "gauge", "When the gateway started.", {"": self._started_s}),
        ]
        lines = []
        for name, kind, text, values in families:
            lines += [f"# HELP scribengin_gateway_{name} {text}", f"# TYPE scribengin_gateway_{name} {kind}"]
            lines += [f"scribengin_gateway_{name}{labels} {value}" for labels, value in values.items()]
        return "\n".join([*lines, ""])

    def reserve(self, size: int) -> None:
        """Count the bytes of a body. Refuses if there are too many."""
        if self._held + size > MOST_HELD:
            raise RequestRefused(HTTPStatus.SERVICE_UNAVAILABLE, f"the gateway holds {self._held:,} bytes of other requests", retry_s=1)
        self._held += size

    def release(self, size: int) -> None:
        """The bytes of a body are held no more."""
        self._held -= size


class _Gone(Exception):
    """The client closed the connection before its body was complete."""


class _Incoming:
    """The body of a request, as it is received."""

    def __init__(self, receive: Callable[[], Awaitable[dict[str, Any]]]) -> None:
        self._receive = receive
        self._complete = False

    async def part(self) -> bytes | None:
        """The next part; None after the last. Raises _Gone."""
        if self._complete:
            return None
        message = await self._receive()
        if message["type"] != "http.request":
            raise _Gone
        self._complete = not message.get("more_body")
        part: bytes = message.get("body", b"")
        return part


class _Reserved:
    """The bytes of one body, counted while it is held."""

    def __init__(self, app: GatewayApp, headers: _Headers) -> None:
        self._app = app
        length = headers.get(b"content-length", b"")
        self._announced = int(length) if length.isdigit() else 0
        self._size = 0

    def __enter__(self) -> _Reserved:
        return self

    def __exit__(self, *_: object) -> None:
        self._app.release(self._size)

    def _reserve(self, size: int) -> None:
        self._app.reserve(size)
        self._size += size

    async def receive(self, body: _Incoming, most: int) -> bytes:
        """The body. Refuses if it is larger than `most` bytes."""
        if self._announced > most:
            raise _too_large(self._announced, most)
        self._reserve(self._announced)
        parts: list[bytes] = []
        size = 0
        try:
            async with asyncio.timeout(_BODY_S):
                while (part := await body.part()) is not None:
                    size += len(part)
                    if size > most:
                        raise _too_large(size, most)
                    if size > self._size:
                        self._reserve(size - self._size)
                    parts.append(part)
        except TimeoutError as error:
            raise RequestRefused(HTTPStatus.REQUEST_TIMEOUT, f"the body was not complete within {_BODY_S:g} s") from error
        self._app.counters.received_bytes += size
        return parts[0] if len(parts) == 1 else b"".join(parts)


def _refuses(status: HTTPStatus, message: str) -> Callable[[_Scope, _Headers, _Incoming], Awaitable[_Answer]]:
    async def handle(scope: _Scope, headers: _Headers, body: _Incoming) -> _Answer:
        del scope, headers, body
        raise RequestRefused(status, message)

    return handle


def _refusal(refused: RequestRefused, route: str, headers: _Headers) -> _Answer:
    own = list(refused.headers)
    if refused.retry_s:
        own.append((b"retry-after", str(refused.retry_s).encode()))
    if route == "logs":
        protobuf = "json" not in _header(headers, b"content-type")
        body = status_message(_RPC_CODES.get(refused.status, 2), refused.message, protobuf=protobuf)
        return _Answer(body, refused.status, "application/x-protobuf" if protobuf else _JSON, tuple(own))
    return _Answer(_encode(refused.answer), refused.status, headers=tuple(own))


_RPC_CODES = {
    HTTPStatus.BAD_REQUEST: 3,
    HTTPStatus.GATEWAY_TIMEOUT: 4,
    HTTPStatus.NOT_FOUND: 5,
    HTTPStatus.FORBIDDEN: 7,
    HTTPStatus.TOO_MANY_REQUESTS: 8,
    HTTPStatus.SERVICE_UNAVAILABLE: 14,
    HTTPStatus.UNAUTHORIZED: 16,
}
"""codes of `google.rpc.Status`"""


def _spans(body: bytes) -> list[FrameSpan]:
    """The frames of a body. Refuses if they are damaged, or their numbers do not follow one another."""
    spans: list[FrameSpan] = []
    for found in find_frames(body):
        head = found.head
        if head is None:
            raise RequestRefused(HTTPStatus.BAD_REQUEST, f"frame {len(spans) + 1}, at byte {found.start:,}: {found.fault}")
        if spans and head.sequence != spans[-1].next:
            message = f"frame {len(spans) + 1}, at byte {found.start:,}: begins at record {head.sequence:,}; expected {spans[-1].next:,}"
            raise RequestRefused(HTTPStatus.BAD_REQUEST, message)
        spans.append(FrameSpan(found.start, head.sequence, head.next))
    return spans


def _header(headers: _Headers, name: bytes) -> str:
    return headers.get(name, b"").decode("utf-8", "replace").strip()


def _token(headers: _Headers) -> str:
    """The token of a request: as a bearer, or as the password of a client that knows no other way."""
    kind, _, value = _header(headers, b"authorization").partition(" ")
    if kind.lower() == "bearer":
        return value.strip()
    if kind.lower() == "basic":
        with suppress(ValueError):
            return base64.b64decode(value.strip()).decode("utf-8", "replace").partition(":")[2]
    return ""


def _certified(scope: _Scope) -> tuple[str, ...]:
    """The names in the client's certificate, if it has shown one that is valid."""
    names: tuple[str, ...] = scope.get("state", {}).get("certificate_names", ())
    return names


def _unauthorised(token: str) -> RequestRefused:
    message = "the token is not, or no longer, valid" if token else "a token is missing: send Authorization: Bearer TOKEN"
    return RequestRefused(HTTPStatus.UNAUTHORIZED, message, challenge='Bearer realm="scribengin"')


def _too_large(size: int, most: int) -> RequestRefused:
    return RequestRefused(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, f"the body has {size:,} bytes or more; accepted are up to {most:,}")


def _query(scope: _Scope) -> dict[str, str]:
    return {key: values[-1] for key, values in parse_qs(scope["query_string"].decode("latin-1")).items()}


def _wait_of(scope: _Scope) -> _Wait:
    if not scope["query_string"]:
        return _STORED
    query = _query(scope)
    wait, deadline = query.get("wait", "stored"), query.get("deadline", "")
    if wait not in ("stored", "committed"):
        raise RequestRefused(HTTPStatus.BAD_REQUEST, f"wait={wait} is not valid; expected stored or committed")
    try:
        seconds = parse_duration_s(deadline) if deadline else _DEADLINE_S
    except ValueError as error:
        raise RequestRefused(HTTPStatus.BAD_REQUEST, f"deadline={deadline} is not valid: {error}") from error
    if not 0 < seconds <= _MOST_DEADLINE_S:
        raise RequestRefused(HTTPStatus.BAD_REQUEST, f"deadline={deadline} is not valid; expected more than 0 s, at most 1h")
    return _Wait(wait == "committed", seconds)


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
