"""A gateway for tests: it keeps frames in memory, and answers wrongly where a test wants it to."""

from __future__ import annotations

import json
import threading
import time
from collections import defaultdict
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any, Self
from urllib.parse import parse_qs, urlsplit

import msgspec

from scribengin.agent.log import AgentLog
from scribengin.agent.process import EdgeAgent
from scribengin.agent.settings import AgentSettings
from scribengin.wire.frames import find_frames, payload_of
from scribengin.wire.protocol import AgentConfig, AgentReport, FramesAnswer, LaneConfig, ReportAnswer

if TYPE_CHECKING:
    import ssl
    from collections.abc import Callable, Iterator
    from pathlib import Path

LIMIT_S = 60.0


def wait_for(condition: Callable[[], Any], what: str = "the condition") -> Any:
    """Wait until it is true; a test fails if it is not within a minute."""
    end = time.monotonic() + LIMIT_S
    while not (value := condition()):
        assert time.monotonic() < end, f"{what}: not within {LIMIT_S:g} s"
        time.sleep(0.01)
    return value


class EdgeGateway:
    """A gateway on a port of its own, used as a context manager.

    Attributes:
        config: What agents get.
        script: Called with each request of frames before it is handled: returns None, or (status, headers, body) to be answered instead,
            or raises `Cut`. With "store" before these, or before a `Cut`, the frames are stored first.
        commit: Whether what is stored counts as committed at once.
        stored: (agent, incarnation) → next number.
        records: (agent, incarnation) → number → record, or None for a lost one.
    """

    def __init__(self, config: AgentConfig | None = None, *, tls: ssl.SSLContext | None = None) -> None:
        self.config = config or AgentConfig()
        self.script: Callable[[EdgeGateway, int], Any] = lambda gateway, number: None
        self.report_script: Callable[[], Any] = lambda: None
        self.raw_config: bytes | None = None
        self.token = ""
        self.commit = True
        self.lock = threading.RLock()
        self.stored: dict[tuple[str, str], int] = defaultdict(int)
        self.committed: dict[tuple[str, str], int] = defaultdict(int)
        self.records: dict[tuple[str, str], dict[int, bytes | None]] = defaultdict(dict)
        self.different: list[str] = []
        """numbers that came with another content than before"""
        self.lanes: dict[tuple[str, str], str] = {}
        self.requests: list[tuple[str, dict[str, str]]] = []
        self.reports: list[AgentReport] = []
        self.config_requests: list[dict[str, list[str]]] = []
        self.lost = 0
        self.heads: list[Any] = []
        self._server = _Server(("127.0.0.1", 0), _Handler)
        self._server.gateway = self
        if tls is not None:
            self._server.socket = tls.wrap_socket(self._server.socket, server_side=True, do_handshake_on_connect=False)
        scheme = "http" if tls is None else "https"
        self.url = f"{scheme}://127.0.0.1:{self._server.server_address[1]}"
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()

    def all_records(self) -> list[bytes]:
        with self.lock:
            return [record for by_number in self.records.values() for _, record in sorted(by_number.items()) if record is not None]

    def take(self, agent: str, incarnation: str, lane: str, body: bytes) -> FramesAnswer | None:
        """Store frames; None if they do not continue what is stored."""
        key = (agent, incarnation)
        with self.lock:
            self.lanes[key] = lane
            for found in find_frames(body):
                assert found.head is not None, found.fault
                head = found.head
                if head.sequence > self.stored[key]:
                    return None
                self.heads.append(head)
                records: list[bytes | None]
                if head.kind == "lost":
                    records = [None] * head.count
                    self.lost += max(0, head.next - max(head.sequence, self.stored[key]))
                elif head.kind == "too_long":
                    records = [payload_of(body, found)]
                else:
                    records = list(payload_of(body, found).split(head.mark)[:-1])
                assert len(records) == head.count
                for number, record in enumerate(records, head.sequence):
                    if number in self.records[key]:
                        if self.records[key][number] != record:
                            self.different.append(f"{key} {number}: {self.records[key][number]!r}, then {record!r}")
                    else:
                        self.records[key][number] = record
                self.stored[key] = max(self.stored[key], head.next)
            if self.commit:
                self.committed[key] = self.stored[key]
            return FramesAnswer(self.stored[key], self.committed[key])


class Cut(Exception):
    """The connection ends here; with `sent`, after these bytes."""

    def __init__(self, sent: bytes = b"") -> None:
        super().__init__()
        self.sent = sent


class _Server(ThreadingHTTPServer):
    gateway: EdgeGateway
    daemon_threads = True
    request_queue_size = 64

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Connections that are cut are what these tests are about."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    server: _Server

    def log_message(self, *_: Any) -> None:
        pass

    def do_GET(self) -> None:
        gateway = self.server.gateway
        if not self._allowed():
            return
        gateway.config_requests.append(parse_qs(urlsplit(self.path).query))
        if gateway.raw_config is not None:
            self._answer(200, {}, gateway.raw_config)
            return
        config = gateway.config
        if config.revision and self.headers.get("If-None-Match") == config.revision:
            self._answer(304, {}, b"")
        else:
            self._answer(200, {"ETag": config.revision}, msgspec.json.encode(config))

    def do_POST(self) -> None:
        gateway = self.server.gateway
        body = self.rfile.read(int(self.headers["Content-Length"]))
        if self.path.endswith("/report"):
            if not self._allowed():
                return
            scripted = gateway.report_script()
            report = msgspec.json.decode(body, type=AgentReport)
            gateway.reports.append(report)
            if scripted is not None:
                self._answer(*scripted)
                return
            with gateway.lock:
                lanes = {
                    name: FramesAnswer(gateway.stored[report.agent, lane.incarnation], gateway.committed[report.agent, lane.incarnation])
                    for name, lane in report.lanes.items()
                }
            self._answer(200, {}, msgspec.json.encode(ReportAnswer(gateway.config.revision, lanes)))
            return
        lane = self.path.split("/")[-2]
        with gateway.lock:
            gateway.requests.append((lane, dict(self.headers.items())))
            number = len(gateway.requests) - 1
        if not self._allowed():
            return
        try:
            scripted = gateway.script(gateway, number)
        except Cut as cut:
            self._cut(cut)
            return
        agent, incarnation = self.headers["Scribengin-Agent"], self.headers["Scribengin-Incarnation"]
        if scripted is not None and scripted[0] == "store":
            gateway.take(agent, incarnation, lane, body)
            scripted = scripted[1:]
            if isinstance(scripted[0], Cut):
                self._cut(scripted[0])
                return
        if scripted is not None:
            self._answer(*scripted)
            return
        answer = gateway.take(agent, incarnation, lane, body)
        if answer is None:
            with gateway.lock:
                answer = FramesAnswer(gateway.stored[agent, incarnation], gateway.committed[agent, incarnation])
            self._answer(409, {}, msgspec.json.encode(answer))
        else:
            self._answer(200, {}, msgspec.json.encode(answer))

    def _allowed(self) -> bool:
        gateway = self.server.gateway
        if gateway.token and self.headers.get("Authorization") != f"Bearer {gateway.token}":
            self._answer(401, {}, b'{"message": "unknown token"}')
            return False
        return True

    def _cut(self, cut: Cut) -> None:
        self.wfile.write(cut.sent)
        self.wfile.flush()
        self.close_connection = True

    def _answer(self, status: int, headers: dict[str, str], body: bytes | dict[str, Any]) -> None:
        data = json.dumps(body).encode() if isinstance(body, dict) else body
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        if status != 304:
            self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        if status != 304:
            self.wfile.write(data)


@contextmanager
def running_agent(folder: Path, *gateways: str, **changes: Any) -> Iterator[EdgeAgent]:
    """An agent in this process, which is stopped at the end. Its log is `log` of it, a list of (level, text)."""
    settings = AgentSettings(**{"name": "a1", "gateways": gateways, "data": folder, "stop_s": 2.0, "timeout_s": 5.0, **changes})
    agent = EdgeAgent(settings, ListLog())
    failed: list[BaseException] = []

    def run() -> None:
        try:
            agent.run()
        except BaseException as error:
            failed.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    try:
        yield agent
    finally:
        agent.stop()
        thread.join(LIMIT_S)
    assert not failed, failed


class ListLog(AgentLog):
    """Keeps what an agent logs."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: list[tuple[str, str]] = []

    def _write(self, level: str, text: str, fields: dict[str, object]) -> None:
        self.lines.append((level, text))

    def has(self, part: str) -> bool:
        return any(part in text for _, text in list(self.lines))


def log_of(agent: EdgeAgent) -> ListLog:
    log = agent._log
    assert isinstance(log, ListLog)
    return log


LANE = "web.access"


def one_lane(file: Path, revision: str = "r1", **changes: Any) -> AgentConfig:
    """A configuration with a lane that follows a file."""
    report_s = changes.pop("report_s", 0.2)
    gateways = changes.pop("gateways", [])
    options = {"path": str(file), "block": changes.pop("block", 2**20)}
    values = {"linger_s": 0.0, "sync": "5ms", **changes}
    lane = LaneConfig("web", "access", "own_lines", options=options, **values)
    return AgentConfig(revision, {LANE: lane}, gateways, report_s)


def lines(first: int, count: int) -> bytes:
    return b"".join(b"record %07d\n" % number for number in range(first, first + count))


def expected(count: int) -> list[bytes]:
    return lines(0, count).split(b"\n")[:-1]
