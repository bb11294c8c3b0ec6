"""The input `http`: records that are POSTed as lines (NDJSON or text) or as JSON, and answered once they are durable.

The answer 200 comes after all records of a request are durable in the write-ahead log, or, without one, after a gateway has stored them. A
sender that gets another answer or none sends the request again: then records may be there twice, where the answer was lost, or where it was
503 because they were not durable in time. The other answers:

    400  the request is not valid HTTP, or its body is not what `Content-Encoding` says
    401  no valid token
    405  another method than POST; 411: no length; 413: the body is larger than 8 MiB, before or after decompression
    415  an unknown `Content-Encoding`; gzip, deflate and zstd are known
    429  the records of other requests fill the memory: with `Retry-After`
    503  the agent has not made them durable in time, is stopping, or has too many connections: with `Retry-After`

A body of `application/json` is one record if it is an object, and one each for the elements of an array; otherwise, and for all other
types, a record is a line. Empty lines are no records where the type names JSON. A token comes as `Authorization: Bearer TOKEN`, or as the
password of Basic. Beyond loopback the input needs TLS, and tokens or client certificates, unless `insecure: true`.
"""

from __future__ import annotations

import hmac
import re
import socket
import ssl
import threading
import time
import zlib
from base64 import b64decode
from collections import deque
from contextlib import suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from scribengin.agent.inputs import InputReport, RecordChunk
from scribengin.agent.inputs.line_streams import LineCutter, OriginJoiner, origin_of, too_long
from scribengin.agent.inputs.sockets import (
    EVENT_S,
    LOG,
    RetryTimes,
    ServerCertificate,
    handshake_fault,
    listen_place,
    refuse_exposure,
    sender_of,
    why_not_bound,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from scribengin.agent.inputs.sockets import ListenPlace
    from scribengin.wire.frames import FrameOrigin
    from scribengin.wire.protocol import LaneConfig

MOST_CONNECTIONS = 256
"""each has a thread"""
HELD_BYTES = 32 * 2**20
"""the bodies of requests that are not durable yet, together"""
MOST_BODY = 8 * 2**20
ANSWER_S = 30.0
"""records that are not durable within this time are answered with 503"""
IDLE_S = 60.0
"""a connection without a request is closed after this time"""
_HEX = re.compile(rb"[0-9A-Fa-f]{1,8}")
_BLANK_LINE = re.compile(rb"^[ \t\r]*$", re.MULTILINE)
_raw_list = msgspec.json.Decoder(list[msgspec.Raw]).decode
_raw_one = msgspec.json.Decoder(msgspec.Raw).decode


class RefusedRequest(Exception):
    """A request that is answered with an error."""

    def __init__(self, status: int, message: str, *, retry_s: int = 0) -> None:
        super().__init__(message)
        self.status = status
        self.message = message
        self.retry_s = retry_s


# Bodies.


def decompressed(body: bytes, encoding: str, most: int) -> bytes:
    """A body without its `Content-Encoding`.

    Raises:
        RefusedRequest: The encoding is unknown, the body is not of it, or it would be larger than `most`.
    """
    name = encoding.strip().lower()
    try:
        match name:
            case "" | "identity":
                raw = body
            case "gzip" | "x-gzip":
                raw = _inflated(body, 31, most)
            case "deflate":
                raw = _inflated(body, 15, most)
            case "zstd":
                raw = _of_zstd(body, most)
            case _:
                raise RefusedRequest(415, f"Content-Encoding {name[:40]!r} is unknown; expected gzip, deflate or zstd")
    except (zlib.error, EOFError) as error:
        raise RefusedRequest(400, f"the body is not valid {name}: {error}") from error
    if len(raw) > most:
        raise RefusedRequest(413, f"the body has more than {most:,} bytes without its compression")
    return raw


def _inflated(body: bytes, bits: int, most: int) -> bytes:
    parts, size = [], 0
    while body:  # gzip may have several members
        inflater = zlib.decompressobj(bits)
        part = inflater.decompress(body, most + 1 - size)
        parts.append(part)
        size += len(part)
        if size > most:
            break
        if not inflater.eof:
            raise EOFError("it is cut off")
        body = inflater.unused_data
    return b"".join(parts)


def _of_zstd(body: bytes, most: int) -> bytes:
    try:
        from scribengin.core.zstd import ZstdDecompressor, ZstdError
    except ImportError:
        raise RefusedRequest(415, "this agent has no zstd; send gzip") from None
    parts, size = [], 0
    while body:
        inflater = ZstdDecompressor()
        try:
            part = inflater.decompress(body, most + 1 - size)
        except ZstdError as error:
            raise RefusedRequest(400, f"the body is not valid zstd: {error}") from error
        parts.append(part)
        size += len(part)
        if size > most:
            break
        if not inflater.eof:
            raise EOFError("it is cut off")
        body = inflater.unused_data
    return b"".join(parts)


def chunks_of_body(body: bytes, content_type: str, lane: LaneConfig, origin: FrameOrigin) -> list[RecordChunk]:
    """The records of a body, as the module says."""
    joiner = OriginJoiner(lane)
    kind = content_type.partition(";")[0].strip().lower()
    is_json = "json" in kind
    records = _json_records(body) if kind == "application/json" else None
    if records is None:
        cutter = LineCutter(lane, carriage_returns=True)
        if is_json and _BLANK_LINE.search(body):
            body = b"\n".join((*(line for line in body.split(b"\n") if line.strip()), b""))
        for block in cutter.feed(body) + cutter.end():
            joiner.add(origin, block)
    else:
        start = 0
        for at, record in enumerate(records):
            if len(record) > lane.max_record:
                joiner.add_records(origin, records[start:at])
                joiner.add(origin, too_long(record, lane))
                start = at + 1
        joiner.add_records(origin, records[start:])
    return joiner.take()


def _json_records(body: bytes) -> list[bytes] | None:
    """The elements of an array, or the only value, each in one line; None if the body is not one JSON value."""
    try:
        values = _raw_list(body) if body.lstrip()[:1] == b"[" else [_raw_one(body)]
    except (msgspec.MsgspecError, ValueError):
        return None
    # in valid JSON, line ends are only between tokens
    return [bytes(value).strip().replace(b"\n", b" ").replace(b"\r", b" ") for value in values]


# Requests that wait.


@dataclass(eq=False, slots=True)
class PostedRecords:
    """The records of one request, from the thread that read it to the lane, and back when they are durable."""

    chunks: list[RecordChunk]
    size: int
    left: int = 0
    done: threading.Event = field(default_factory=threading.Event)


class PostedQueue:
    """Requests that the lane has not taken, and the memory of all that are not durable."""

    def __init__(self, most_bytes: int) -> None:
        self._most = most_bytes
        self._lock = threading.Lock()
        self._arrived = threading.Event()
        self._waiting: deque[PostedRecords] = deque()
        self.held = 0
        """bytes of requests that have no answer yet"""
        self.closed = False

    def reserve(self, size: int) -> bool:
        """Take memory for a body; False if there is none. One body always finds room, however large."""
        with self._lock:
            if self.held and self.held + size > self._most:
                return False
            self.held += size
            return True

    def release(self, size: int) -> None:
        """Give memory back."""
        with self._lock:
            self.held -= size

    def deliver(self, posted: PostedRecords, timeout_s: float) -> bool:
        """Hand records to the lane, and wait until they are durable; False if they are not in time, or the input closes."""
        posted.left = len(posted.chunks)

        def durable() -> None:
            with self._lock:
                posted.left -= 1
                if posted.left:
                    return
            posted.done.set()

        for chunk in posted.chunks:
            chunk.on_durable = durable
        with self._lock:
            if self.closed:
                return False
            self._waiting.append(posted)
        self._arrived.set()
        if posted.done.wait(timeout_s) and not posted.left:
            return True
        with self._lock, suppress(ValueError):
            self._waiting.remove(posted)  # not taken yet: it will not be
        return not posted.left

    def take(self, most_bytes: int) -> list[RecordChunk]:
        """Chunks of whole requests, in the order in which they came."""
        chunks: list[RecordChunk] = []
        size = 0
        with self._lock:
            self._arrived.clear()
            while self._waiting and (not chunks or size < most_bytes):
                posted = self._waiting.popleft()
                chunks += posted.chunks
                size += posted.size
        return chunks

    def wait(self, timeout_s: float) -> None:
        """Until a request is there, or the time is over."""
        if not self._waiting:
            self._arrived.wait(timeout_s)

    def close(self) -> None:
        """Answer all that wait."""
        with self._lock:
            self.closed = True
            waiting, self._waiting = list(self._waiting), deque()
        for posted in waiting:
            posted.done.set()


# HTTP.


class RecordsServer(ThreadingHTTPServer):
    """The HTTP server of one input."""

    daemon_threads = True
    block_on_close = False
    request_queue_size = 128

    def __init__(self, place: ListenPlace, certificate: ServerCertificate, owner: HttpInput) -> None:
        """Begin to listen. Raises OSError."""
        self.address_family = place.family
        self.owner = owner
        self.certificate = certificate
        self._count_lock = threading.Lock()
        self.connections = 0
        super().__init__((place.host, place.port), RecordsHandler)

    def server_bind(self) -> None:
        """Without the look-up of this host's name, which `HTTPServer` makes."""
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self.socket.bind(self.server_address)
        self.server_address = self.socket.getsockname()

    def process_request(self, request: Any, client_address: Any) -> None:
        """Begin a thread, unless there are far too many."""
        if self.connections >= 2 * MOST_CONNECTIONS:
            self.shutdown_request(request)
        else:
            super().process_request(request, client_address)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        """In a thread of its own: the handshake, then the requests of one connection."""
        with self._count_lock:
            self.connections += 1
        try:
            request.settimeout(IDLE_S)
            if self.certificate.wanted:
                context = self.certificate.context()
                assert context is not None
                request = context.wrap_socket(request, server_side=True)
            super().process_request_thread(request, client_address)
        except OSError as error:
            if isinstance(error, ssl.SSLError):
                self.owner.note(f"a connection of {sender_of(client_address)} was closed: {handshake_fault(error)}")
            self.shutdown_request(request)
        finally:
            with self._count_lock:
                self.connections -= 1

    def handle_error(self, request: Any, client_address: Any) -> None:  # noqa: ARG002
        """A connection that broke is no fault of the agent; anything else is logged."""
        import sys

        error = sys.exception() if hasattr(sys, "exception") else sys.exc_info()[1]
        if not isinstance(error, OSError):
            LOG.error("http: a request failed", exc_info=error)


class RecordsHandler(BaseHTTPRequestHandler):
    """The requests of one connection."""

    protocol_version = "HTTP/1.1"
    server_version = "scribengin-agent"
    sys_version = ""
    wbufsize = -1
    disable_nagle_algorithm = True
    server: RecordsServer

    def do_POST(self) -> None:
        """Records."""
        reserved = 0
        owner = self.server.owner
        try:
            self._authenticate(owner)
            if self.server.connections > MOST_CONNECTIONS:
                raise RefusedRequest(503, f"there are more than {MOST_CONNECTIONS} connections", retry_s=5)
            body, reserved = self._body(owner)
            with owner.inflating:
                raw = decompressed(body, self.headers.get("Content-Encoding", ""), MOST_BODY)
                if len(raw) > len(body):
                    self._reserve(owner, len(raw) - len(body))
                    reserved += len(raw) - len(body)
            del body
            origin = origin_of(owner.lane, sender_of(self.client_address))
            chunks = chunks_of_body(raw, self.headers.get("Content-Type", ""), owner.lane, origin)
            if chunks and not owner.queue.deliver(PostedRecords(chunks, len(raw)), ANSWER_S):
                raise RefusedRequest(503, "the records are not durable yet: send them again", retry_s=5)
            self._answer(200, {"records": sum(chunk.count for chunk in chunks)})
        except RefusedRequest as refused:
            if not self._read or owner.queue.closed:
                self.close_connection = True  # what is left of the body is no request
            self._answer(refused.status, {"message": refused.message}, retry_s=refused.retry_s)
        finally:
            if reserved:
                owner.queue.release(reserved)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("do_"):
            return self._no_method
        raise AttributeError(name)

    _read = False
    """True if the body was read to its end"""

    def _no_method(self) -> None:
        self.close_connection = True
        self._answer(405, {"message": f"{self.command} is not supported; POST the records"})

    def _authenticate(self, owner: HttpInput) -> None:
        if not owner.tokens.wanted:
            return
        kind, _, given = self.headers.get("Authorization", "").partition(" ")
        token = given.strip().encode("utf-8", "replace")
        if kind.lower() == "basic":
            with suppress(ValueError):
                token = b64decode(token, validate=True).partition(b":")[2]
        # all are compared, so that the time says nothing
        if sum([hmac.compare_digest(token, each) for each in owner.tokens.read()]) == 0:
            raise RefusedRequest(401, "the token is missing or not valid; expected Authorization: Bearer TOKEN")

    def _body(self, owner: HttpInput) -> tuple[bytes, int]:
        """The body, and the memory that was reserved for it."""
        self._read = False
        encoding = self.headers.get("Transfer-Encoding", "").strip().lower()
        length = self.headers.get_all("Content-Length", [])
        if encoding:
            if encoding != "chunked" or length:
                raise RefusedRequest(400, "expected either Content-Length or Transfer-Encoding: chunked")
            return self._chunked(owner)
        if not length:
            raise RefusedRequest(411, "Content-Length is missing")
        if len(set(length)) > 1 or not (length[0].isascii() and length[0].isdigit()):
            raise RefusedRequest(400, f"Content-Length {length[0][:40]!r} is not valid")
        size = int(length[0])
        if size > MOST_BODY:
            raise RefusedRequest(413, f"the body has {size:,} bytes; expected at most {MOST_BODY:,}")
        self._reserve(owner, size)
        try:
            self._continue()
            body = self._exactly(size)
        except BaseException:
            owner.queue.release(size)
            raise
        self._read = True
        return body, size

    def _chunked(self, owner: HttpInput) -> tuple[bytes, int]:
        parts: list[bytes] = []
        size = 0
        try:
            self._continue()
            while True:
                line = self.rfile.readline(1024)
                digits = line.rstrip(b"\r\n").partition(b";")[0].rstrip()
                if not line.endswith(b"\n") or not _HEX.fullmatch(digits):
                    raise RefusedRequest(400, "the body is not valid chunked transfer")
                length = int(digits, 16)
                if length == 0:
                    break
                if size + length > MOST_BODY:
                    raise RefusedRequest(413, f"the body has more than {MOST_BODY:,} bytes")
                self._reserve(owner, length)
                size += length
                parts.append(self._exactly(length))
                if self.rfile.readline(3) not in (b"\r\n", b"\n"):
                    raise RefusedRequest(400, "the body is not valid chunked transfer")
            for _ in range(100):  # trailers
                if self.rfile.readline(8192) in (b"\r\n", b"\n", b""):
                    break
        except BaseException:
            owner.queue.release(size)
            raise
        self._read = True
        return b"".join(parts), size

    def _reserve(self, owner: HttpInput, size: int) -> None:
        if not owner.queue.reserve(size):
            raise RefusedRequest(429, "the agent holds as many records as it can that are not durable yet", retry_s=1)

    def _continue(self) -> None:
        if self._asks_first:
            self.send_response_only(100)
            self.end_headers()
            self.wfile.flush()

    _asks_first = False

    def handle_expect_100(self) -> bool:
        """`Expect: 100-continue` is answered once the headers are found good."""
        self._asks_first = True
        return True

    def parse_request(self) -> bool:
        """Headers of the next request."""
        self._asks_first = False
        self._read = False
        return super().parse_request()

    def _exactly(self, size: int) -> bytes:
        body = self.rfile.read(size)
        if len(body) < size:
            raise ConnectionResetError("the sender ended within a body")
        return body

    def _answer(self, status: int, body: dict[str, Any], *, retry_s: int = 0) -> None:
        content = msgspec.json.encode(body)
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(content)))
        if retry_s:
            self.send_header("Retry-After", str(retry_s))
        if status == 401:
            self.send_header("WWW-Authenticate", "Bearer")
        if status == 405:
            self.send_header("Allow", "POST")
        if self.close_connection:
            self.send_header("Connection", "close")
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content)
        self.wfile.flush()

    def log_message(self, format: str, *args: Any) -> None:
        """Nothing: requests are counted as records."""


class InputTokens:
    """The tokens that senders may show, one on each line of a file, which is read again when it changes. While it cannot be read, those
    that were read last are valid."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._tokens: tuple[bytes, ...] = ()
        self._seen: tuple[int, int, int] | None = None
        self._checked = 0.0
        self.fault = ""
        """what is wrong with the file, for people; empty if nothing is"""
        self.read()

    @property
    def wanted(self) -> bool:
        """True if the options name a file."""
        return bool(self._path)

    def read(self) -> tuple[bytes, ...]:
        """The tokens that are valid now, within a second."""
        now = time.monotonic()
        if not self.wanted or (self._checked and now - self._checked < 1):
            return self._tokens
        self._checked = now
        file = Path(self._path)
        try:
            status = file.stat()
            seen = (status.st_ino, status.st_size, status.st_mtime_ns)
            if seen != self._seen:
                self._tokens = tuple(token for line in file.read_bytes().splitlines() if (token := line.strip()))
                self._seen = seen
            self.fault = "" if self._tokens else f"the token file {self._path} is empty: every request is refused; add a line with a token"
        except OSError as error:
            self.fault = f"the token file {self._path} cannot be read: {error.strerror}; correct `token_file`, or the file"
        return self._tokens


class HttpInput:
    """Records of requests; see `scribengin.agent.inputs.RecordInput`."""

    def __init__(self, lane: LaneConfig) -> None:
        options = lane.options
        where = f"{lane.flow}.{lane.source}"
        self.lane = lane
        self.place = listen_place(where, str(options.get("listen") or "127.0.0.1:8687"), scheme="http", schemes=("http", "https"))
        self.tokens = InputTokens(str(options.get("token_file") or ""))
        self.queue = PostedQueue(HELD_BYTES)
        self.inflating = threading.Lock()
        """one body is decompressed at a time: only then is its size known, and counted"""
        self._certificate = ServerCertificate(options)
        refuse_exposure(
            where,
            self.place,
            secured=self._certificate.wanted and (self.tokens.wanted or self._certificate.asks_clients),
            insecure=bool(options.get("insecure")),
            need="set `certificate`, `key`, and `token_file` or `client_ca`; or ",
        )
        self._server: RecordsServer | None = None
        self._retry = RetryTimes()
        self._fault = ""
        self._event = (0.0, "")
        self._open()

    @property
    def port(self) -> int:
        """On which it listens; 0 while it does not."""
        return int(self._server.server_address[1]) if self._server is not None else 0

    def poll(self, most_bytes: int) -> list[RecordChunk]:
        """Records of requests that wait for their answers."""
        if self._server is None:
            self._open()
        return self.queue.take(most_bytes)

    def wait(self, timeout_s: float) -> None:
        """Until a request is there, or the time is over."""
        if self._server is None:
            timeout_s = min(timeout_s, self._retry.left_s)
        self.queue.wait(timeout_s)

    def report(self) -> InputReport:
        """Connections as `files`, what is wrong, and the bytes of requests without an answer."""
        at, event = self._event
        faults = [
            self._fault,
            self.tokens.fault,
            self._certificate.fault if self._certificate.wanted else "",
            event if time.monotonic() - at < EVENT_S else "",
        ]
        server = self._server  # another thread may ask
        connections = server.connections if server is not None else 0
        return InputReport(files=connections, message="; ".join(filter(None, faults)), backlog_bytes=self.queue.held)

    def close(self) -> None:
        """Close the port, and answer requests that wait with 503."""
        self.queue.close()
        if self._server is not None:
            self._server.shutdown()
            self._server.server_close()
            self._server = None

    def note(self, event: str) -> None:
        """Report a fault of a connection for some minutes."""
        if event != self._event[1]:
            LOG.warning("%s: %s", self.place, event)
        self._event = (time.monotonic(), event)

    def _open(self) -> None:
        if not self._retry.due():
            return
        if self._certificate.wanted and self._certificate.context() is None:
            self._retry.failed()
            return
        try:
            self._server = RecordsServer(self.place, self._certificate, self)
        except OSError as error:
            self._fault = why_not_bound(self.place, error)
            if self._retry.failed() == 1.0:
                LOG.warning("%s", self._fault)
            return
        LOG.info("%s: listens on port %d", self.place, self.port)
        self._fault = ""
        self._retry.worked()
        threading.Thread(target=self._server.serve_forever, args=(0.2,), name=f"http {self.place}", daemon=True).start()


def open(lane: LaneConfig, positions: Mapping[str, FrameOrigin], folder: Path) -> HttpInput:  # noqa: ARG001
    """The input of a lane; its arguments and errors are those of `scribengin.agent.inputs.open_input`."""
    return HttpInput(lane)
