"""Records over HTTP: real requests, answered when a lane says that they are durable."""

from __future__ import annotations

import base64
import gzip
import http.client
import json
import os
import socket
import ssl
import subprocess
import sys
import threading
import zlib
from contextlib import closing, contextmanager
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scribengin.agent.inputs import http as http_input
from scribengin.agent.inputs import open_input
from scribengin.agent.inputs.http import HttpInput, RefusedRequest, chunks_of_body, decompressed
from scribengin.agent.inputs.line_streams import origin_of
from scribengin.core.errors import EnvironmentFault
from scribengin.core.zstd import compress
from tests.agent.inputs.lanes import Authority, lane_of, poll_until, records_of, until

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from scribengin.agent.inputs import RecordChunk


def opened(tmp_path: Path, options: dict[str, Any] | None = None, **config: Any) -> HttpInput:
    found = open_input(lane_of("http", {"listen": "127.0.0.1:0", **(options or {})}, **config), {}, tmp_path)
    assert isinstance(found, HttpInput)
    return found


def token_file(tmp_path: Path, *tokens: str) -> dict[str, Any]:
    (tmp_path / "tokens").write_text("".join(f"{token}\n" for token in tokens))
    return {"token_file": str(tmp_path / "tokens")}


class DurableLane:
    """Polls an input as a lane does; all that it has taken is durable at once, while `durable` is true."""

    def __init__(self, found: HttpInput) -> None:
        self.found = found
        self.durable = True
        self.chunks: list[RecordChunk] = []
        self._ending = False
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    @property
    def records(self) -> list[bytes]:
        return [record for chunk in self.chunks for record in records_of(chunk)]

    def make_durable(self) -> None:
        for chunk in self.chunks:
            if chunk.on_durable is not None:
                on_durable, chunk.on_durable = chunk.on_durable, None
                on_durable()

    def end(self) -> None:
        self._ending = True
        self._thread.join(60)

    def _run(self) -> None:
        while not self._ending:
            self.chunks += self.found.poll(2**20)
            if self.durable:
                self.make_durable()
            self.found.wait(0.05)


@contextmanager
def served(tmp_path: Path, options: dict[str, Any] | None = None, **config: Any) -> Iterator[DurableLane]:
    with closing(opened(tmp_path, options, **config)) as found:
        lane = DurableLane(found)
        try:
            yield lane
        finally:
            lane.end()


def connection(lane: DurableLane) -> http.client.HTTPConnection:
    return http.client.HTTPConnection("127.0.0.1", lane.found.port, timeout=60)


def post(lane: DurableLane, body: Any, headers: dict[str, str] | None = None, **how: Any) -> tuple[int, dict[str, Any], dict[str, str]]:
    with closing(connection(lane)) as to:
        to.request("POST", "/", body, headers or {}, **how)
        answer = to.getresponse()
        return answer.status, json.loads(answer.read()), dict(answer.getheaders())


# The promise.


def test_the_answer_comes_when_the_records_are_durable_and_not_before(tmp_path: Path) -> None:
    with served(tmp_path) as lane:
        lane.durable = False
        answers: list[tuple[int, dict[str, Any], dict[str, str]]] = []
        asking = threading.Thread(target=lambda: answers.append(post(lane, b"one\ntwo\n")))
        asking.start()
        until(lambda: lane.records == [b"one", b"two"])
        asking.join(0.3)
        assert answers == []
        assert lane.found.report().backlog_bytes == 8
        lane.durable = True
        asking.join(60)
        assert answers[0][:2] == (200, {"records": 2})
        until(lambda: lane.found.report().backlog_bytes == 0)


def test_records_that_are_not_durable_in_time_are_answered_with_503(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("scribengin.agent.inputs.http.ANSWER_S", 0.2)
    with served(tmp_path) as lane:
        lane.durable = False
        status, body, headers = post(lane, b"one\n")
        assert (status, headers["Retry-After"]) == (503, "5")
        assert "not durable yet" in body["message"]


def test_a_request_that_the_lane_never_took_is_not_taken_after_its_answer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("scribengin.agent.inputs.http.ANSWER_S", 0.2)
    with closing(opened(tmp_path)) as found:
        to = http.client.HTTPConnection("127.0.0.1", found.port, timeout=60)
        to.request("POST", "/", b"one\n")
        assert to.getresponse().status == 503
        to.close()
        assert found.poll(2**20) == []


def test_a_request_of_several_chunks_is_answered_after_the_last(tmp_path: Path) -> None:
    with served(tmp_path, frame_bytes=100) as lane:
        lane.durable = False
        answers: list[int] = []
        asking = threading.Thread(target=lambda: answers.append(post(lane, b"x" * 50 + b"\n" + b"y" * 60 + b"\n")[0]))
        asking.start()
        until(lambda: len(lane.chunks) == 2)
        on_durable = lane.chunks[1].on_durable
        assert on_durable is not None
        lane.chunks[1].on_durable = None
        on_durable()
        asking.join(0.3)
        assert answers == []
        lane.durable = True
        asking.join(60)
        assert answers == [200]


AGENT = """
import sys, time
from pathlib import Path
from scribengin.agent.inputs import open_input
from scribengin.wire.protocol import LaneConfig

log = open(sys.argv[1], "ab", buffering=0)
opened = open_input(LaneConfig("f", "s", "http", options={"listen": "127.0.0.1:0"}), {}, Path("."))
print(opened.port, flush=True)
while True:
    opened.wait(1.0)
    for chunk in opened.poll(2**20):
        log.write(chunk.payload)
        chunk.on_durable()
"""


def test_all_that_was_answered_is_durable_when_the_agent_is_killed(tmp_path: Path) -> None:
    file = tmp_path / "log"
    agent = subprocess.Popen([sys.executable, "-c", AGENT, str(file)], stdout=subprocess.PIPE)
    answered: list[bytes] = []
    try:
        assert agent.stdout is not None
        port = int(agent.stdout.readline())

        def send(name: int) -> None:
            to = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
            try:
                for number in range(100_000):
                    record = b"%d.%d" % (name, number)
                    to.request("POST", "/", record)
                    answer = to.getresponse()
                    answer.read()
                    assert answer.status == 200
                    answered.append(record)
            except (OSError, http.client.HTTPException):
                to.close()

        senders = [threading.Thread(target=send, args=(name,)) for name in range(4)]
        for sender in senders:
            sender.start()
        until(lambda: len(answered) > 200)
    finally:
        agent.kill()
        agent.wait(60)
        assert agent.stdout is not None
        agent.stdout.close()
    for sender in senders:
        sender.join(60)
    assert set(answered) <= set(file.read_bytes().splitlines())


# Tokens.


@pytest.mark.parametrize(
    ("header", "status"),
    [
        ("Bearer first", 200),
        ("bearer second", 200),
        ("Basic " + base64.b64encode(b"anyone:second").decode(), 200),
        ("Bearer third", 401),
        ("Bearer firs", 401),
        ("Bearer firstt", 401),
        ("Bearer ", 401),
        ("Basic !!", 401),
        ("Bearer \xe9", 401),
        (None, 401),
    ],
)
def test_each_token_opens_and_nothing_else_does(header: str | None, status: int, tmp_path: Path) -> None:
    with served(tmp_path, token_file(tmp_path, "first", "second")) as lane:
        found = post(lane, b"one", {"Authorization": header} if header else {})
        assert found[0] == status
        assert ("WWW-Authenticate" in found[2]) == (status == 401)
        assert lane.records == ([b"one"] if status == 200 else [])


def test_a_token_that_is_taken_out_of_the_file_is_valid_no_more(tmp_path: Path) -> None:
    with served(tmp_path, token_file(tmp_path, "first", "second")) as lane:
        first, second = {"Authorization": "Bearer first"}, {"Authorization": "Bearer second"}
        assert post(lane, b"one", first)[0] == 200
        token_file(tmp_path, "second")
        until(lambda: post(lane, b"two", first)[0] == 401)
        assert post(lane, b"three", second)[0] == 200
        (tmp_path / "tokens").unlink()
        until(lambda: "tokens cannot be read" in (post(lane, b"four", second) and lane.found.report().message))
        assert post(lane, b"five", second)[0] == 200


def test_without_a_readable_token_file_every_request_is_refused(tmp_path: Path) -> None:
    with served(tmp_path, {"token_file": str(tmp_path / "none")}) as lane:
        assert post(lane, b"one")[0] == 401
        assert post(lane, b"one", {"Authorization": "Bearer "})[0] == 401
        assert "none cannot be read" in lane.found.report().message
        token_file(tmp_path, "t")
    with served(tmp_path, {"token_file": str(tmp_path / "empty")}) as lane:
        (tmp_path / "empty").touch()
        assert post(lane, b"one", {"Authorization": "Bearer "})[0] == 401


# Bodies.


@pytest.mark.parametrize(
    ("kind", "body", "records"),
    [
        ("text/plain", b"one\r\n\ntwo", [b"one", b"", b"two"]),
        ("application/x-ndjson", b'{"a":1}\n\n{"b":2}\r\n \n', [b'{"a":1}', b'{"b":2}']),
        ("application/x-ndjson", b"not json\n", [b"not json"]),
        ("application/json", b'{"a":\n 1}', [b'{"a":  1}']),
        ("application/json; charset=utf-8", b' [{"a":1},\n{"b":"x\\ny"}, 3]', [b'{"a":1}', b'{"b":"x\\ny"}', b"3"]),
        ("application/json", b'{"a":1}\n{"b":2}\n', [b'{"a":1}', b'{"b":2}']),
        ("application/json", b"[]", []),
        ("", b"", []),
        ("", b"\n", [b""]),
    ],
)
def test_the_records_of_a_body(kind: str, body: bytes, records: list[bytes], tmp_path: Path) -> None:
    with served(tmp_path, tags={"site": "x"}) as lane:
        status, answer, _ = post(lane, body, {"Content-Type": kind})
        assert (status, answer) == (200, {"records": len(records)})
        assert lane.records == records
        assert all((chunk.origin.file, chunk.origin.tags) == ("127.0.0.1", {"site": "x"}) for chunk in lane.chunks)


@pytest.mark.parametrize(
    ("encoding", "encoded"),
    [
        ("gzip", gzip.compress),
        ("gzip", lambda body: gzip.compress(body[:3]) + gzip.compress(body[3:])),
        ("deflate", zlib.compress),
        ("zstd", compress),
        ("zstd", lambda body: compress(body[:3]) + compress(body[3:])),
        ("identity", bytes),
    ],
)
def test_a_compressed_body(encoding: str, encoded: Any, tmp_path: Path) -> None:
    lines = b"".join(b"%d\n" % number for number in range(10_000))
    with served(tmp_path) as lane:
        assert post(lane, encoded(lines), {"Content-Encoding": encoding})[0] == 200
        assert b"".join(chunk.payload for chunk in lane.chunks) == lines
        until(lambda: lane.found.report().backlog_bytes == 0)


@pytest.mark.parametrize("encoding", ["gzip", "deflate", "zstd"])
def test_a_body_that_is_cut_off_or_damaged_is_refused(encoding: str) -> None:
    whole = {"gzip": gzip.compress, "deflate": zlib.compress, "zstd": compress}[encoding](os.urandom(1000))
    for body in (whole[: len(whole) // 2], b"nonsense", whole[:-1]):
        with pytest.raises(RefusedRequest) as refused:
            decompressed(body, encoding, 10_000)
        assert refused.value.status == 400


@given(st.binary(max_size=200), st.sampled_from(["gzip", "deflate", "zstd"]))
def test_any_bytes_are_either_a_body_or_refused(body: bytes, encoding: str) -> None:
    try:
        size = len(decompressed(body, encoding, 100))
    except RefusedRequest as error:
        refused = error
    else:
        refused = None
        assert size <= 100
    assert refused is None or refused.status in {400, 413}


@given(st.binary(max_size=100), st.sampled_from(["", "application/json", "application/x-ndjson"]), st.integers(1, 50))
def test_any_body_becomes_chunks_of_whole_records(body: bytes, kind: str, max_record: int) -> None:
    lane = lane_of("http", max_record=max_record, frame_bytes=20)
    for chunk in chunks_of_body(body, kind, lane, origin_of(lane, "h")):
        assert len(records_of(chunk)) == chunk.count
        assert chunk.kind == "too_long" or chunk.mark == b"\n"


@pytest.mark.parametrize("encoding", ["gzip", "deflate", "zstd"])
def test_a_small_body_that_would_become_huge_is_refused(encoding: str, tmp_path: Path) -> None:
    huge = {"gzip": gzip.compress, "deflate": zlib.compress, "zstd": compress}[encoding](bytes(20_000_000))
    with served(tmp_path) as lane:
        assert post(lane, huge, {"Content-Encoding": encoding})[0] == 413
        until(lambda: lane.found.report().backlog_bytes == 0)


def test_a_body_in_pieces_of_unknown_length(tmp_path: Path) -> None:
    pieces = [b"one\ntw", b"o\n", b"x" * 100_000 + b"\n"]
    with served(tmp_path) as lane:
        assert post(lane, iter(pieces), {"Transfer-Encoding": "chunked"}, encode_chunked=True)[0] == 200
        assert lane.records == [b"one", b"two", b"x" * 100_000]
        until(lambda: lane.found.report().backlog_bytes == 0)


def raw(lane: DurableLane, request: bytes) -> bytes:
    """What is answered until the connection is closed."""
    with socket.create_connection(("127.0.0.1", lane.found.port), timeout=60) as to:
        to.sendall(request)
        to.shutdown(socket.SHUT_WR)
        answer = b""
        while data := to.recv(65536):
            answer += data
        return answer


@pytest.mark.parametrize(
    ("request_text", "status"),
    [
        (b"POST / HTTP/1.1\r\nHost: h\r\n\r\n", 411),
        (b"POST / HTTP/1.1\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n3\r\none\r\n0\r\n\r\n", 400),
        (b"POST / HTTP/1.1\r\nContent-Length: 3\r\nContent-Length: 4\r\n\r\nfour", 400),
        (b"POST / HTTP/1.1\r\nContent-Length: +3\r\n\r\none", 400),
        (b"POST / HTTP/1.1\r\nContent-Length: 99999999999\r\n\r\n", 413),
        (b"POST / HTTP/1.1\r\nTransfer-Encoding: gzip\r\n\r\n", 400),
        (b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n0x3\r\none\r\n0\r\n\r\n", 400),
        (b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n3\r\noneX\r\n", 400),
        (b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\nfffffff\r\n", 413),
        (b"POST / HTTP/1.1\r\nContent-Encoding: br\r\nContent-Length: 3\r\n\r\none", 415),
        (b"GET / HTTP/1.1\r\n\r\n", 405),
        (b"HEAD / HTTP/1.1\r\n\r\n", 405),
        (b"BREW / HTTP/1.1\r\n\r\n", 405),
        (b"nonsense\r\n\r\n", 400),
    ],
)
def test_a_request_that_is_not_valid_is_refused_and_no_memory_is_kept(request_text: bytes, status: int, tmp_path: Path) -> None:
    with served(tmp_path) as lane:
        answer = raw(lane, request_text)
        assert answer.split(b"\r\n")[0].split()[1:2] == [b"%d" % status] or b"code: %d" % status in answer, answer
        assert lane.records == []
        until(lambda: lane.found.report().backlog_bytes == 0)


def test_a_body_that_breaks_off_is_no_record(tmp_path: Path) -> None:
    with served(tmp_path) as lane:
        assert raw(lane, b"POST / HTTP/1.1\r\nContent-Length: 100\r\n\r\none\ntwo\n") == b""
        assert raw(lane, b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n20\r\none\n") == b""
        assert post(lane, b"three")[0] == 200
        assert lane.records == [b"three"]
        until(lambda: lane.found.report().backlog_bytes == 0)


def test_a_connection_serves_many_requests_and_one_that_asks_first_is_let_in(tmp_path: Path) -> None:
    with served(tmp_path, token_file(tmp_path, "t")) as lane:
        request = b"POST / HTTP/1.1\r\nAuthorization: Bearer %s\r\nExpect: 100-continue\r\nContent-Length: 3\r\n\r\none"
        answer = raw(lane, (request % b"t") * 2)
        assert answer.count(b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK") == 2
        assert b"100 Continue" not in raw(lane, request % b"wrong")
        assert lane.records == [b"one", b"one"]


def test_a_record_longer_than_max_record_is_one_too_long(tmp_path: Path) -> None:
    with served(tmp_path, max_record=10) as lane:
        assert post(lane, b"one\n" + b"x" * 20 + b"\ntwo\n")[:2] == (200, {"records": 3})
        assert post(lane, b'[1,"%s",2]' % (b"x" * 20), {"Content-Type": "application/json"})[:2] == (200, {"records": 3})
        assert [(chunk.kind, chunk.count) for chunk in lane.chunks] == [("records", 1), ("too_long", 1), ("records", 1)] * 2


# Load.


def test_requests_beyond_the_memory_are_answered_with_429_and_taken_later(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_input, "HELD_BYTES", 1000)
    with served(tmp_path) as lane:
        lane.durable = False
        first = threading.Thread(target=post, args=(lane, b"x" * 900))
        first.start()
        until(lambda: lane.found.report().backlog_bytes == 900)
        status, body, headers = post(lane, b"y" * 200)
        assert (status, headers["Retry-After"]) == (429, "1")
        assert "not durable yet" in body["message"]
        lane.durable = True
        first.join(60)
        until(lambda: lane.found.report().backlog_bytes == 0)
        assert post(lane, b"y" * 2000)[0] == 200  # one alone always finds room
        assert lane.records == [b"x" * 900, b"y" * 2000]


def test_many_senders_at_once_lose_and_double_nothing(tmp_path: Path) -> None:
    with served(tmp_path) as lane:

        def send(name: int) -> None:
            with closing(connection(lane)) as to:
                for number in range(50):
                    to.request("POST", "/", b"%d.%d\n" % (name, number))
                    answer = to.getresponse()
                    answer.read()
                    assert answer.status == 200

        senders = [threading.Thread(target=send, args=(name,)) for name in range(20)]
        for sender in senders:
            sender.start()
        for sender in senders:
            sender.join(60)
        assert sorted(lane.records) == sorted(b"%d.%d" % (name, number) for name in range(20) for number in range(50))


def test_too_many_connections_are_answered_with_503(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_input, "MOST_CONNECTIONS", 1)
    with served(tmp_path) as lane, closing(connection(lane)) as first:
        first.request("POST", "/", b"one")
        answer = first.getresponse()
        answer.read()
        assert answer.status == 200
        status, _, headers = post(lane, b"two")
        assert (status, headers["Retry-After"]) == (503, "5")


def test_an_input_that_closes_answers_what_waits(tmp_path: Path) -> None:
    found = opened(tmp_path)
    to = http.client.HTTPConnection("127.0.0.1", found.port, timeout=60)
    to.request("POST", "/", b"one")
    until(lambda: found.report().backlog_bytes == 3)
    until(lambda: found.queue._waiting)
    found.close()
    assert to.getresponse().status == 503
    to.close()


# Doors.


def test_records_over_tls_and_a_client_without_a_certificate_is_told(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    (certificate, key), own = authority.issue("server"), authority.issue("client")
    options = {"certificate": str(certificate), "key": str(key), "client_ca": str(authority.file)}
    with served(tmp_path, options) as lane:
        context = ssl.create_default_context(cafile=str(authority.file))

        def send() -> int:
            with closing(http.client.HTTPSConnection("127.0.0.1", lane.found.port, timeout=60, context=context)) as to:
                to.request("POST", "/", b"one")
                return to.getresponse().status

        with pytest.raises(OSError):  # noqa: PT011
            send()
        until(lambda: "it has shown no client certificate" in lane.found.report().message)
        context.load_cert_chain(*own)
        assert send() == 200
        assert lane.records == [b"one"]


def test_a_port_in_use_is_told_and_taken_once_it_is_free(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        found = opened(tmp_path, {"listen": f"127.0.0.1:{port}"})
        assert f"cannot listen on http://127.0.0.1:{port}: Address already in use; to fix, " in found.report().message
    with closing(found):

        def listens() -> int:
            found.poll(2**20)
            found.wait(0.1)
            return found.port

        assert until(listens) == port
        assert found.report().message == ""


def test_an_expired_certificate_is_told(tmp_path: Path) -> None:
    certificate, key = Authority(tmp_path).issue("server", days=(-9, -1))
    with closing(opened(tmp_path, {"certificate": str(certificate), "key": str(key)})) as found:
        assert f"the certificate {certificate} expired on " in found.report().message
        assert found.port


@pytest.mark.parametrize(
    "options",
    [
        {"listen": "0.0.0.0:0"},
        {"listen": "0.0.0.0:0", "token_file": "tokens"},
        {"listen": "0.0.0.0:0", "certificate": "a.crt", "key": "a.key"},
    ],
)
def test_other_hosts_are_refused_without_tls_and_tokens(options: dict[str, Any], tmp_path: Path) -> None:
    with pytest.raises(EnvironmentFault) as fault:
        opened(tmp_path, options)
    assert "other hosts can reach http://0.0.0.0:0" in fault.value.message
    assert "`token_file` or `client_ca`" in fault.value.remedy


def test_other_hosts_are_let_in_with_tls_and_tokens_or_where_the_options_say_so(tmp_path: Path) -> None:
    certificate, key = Authority(tmp_path).issue("server")
    opened(tmp_path, {"listen": "0.0.0.0:0", "insecure": True}).close()
    opened(tmp_path, {"listen": "0.0.0.0:0", "certificate": str(certificate), "key": str(key), **token_file(tmp_path, "t")}).close()


def test_waiting_ends_when_a_request_comes(tmp_path: Path) -> None:
    with closing(opened(tmp_path)) as found:
        sender = threading.Thread(target=lambda: raw_request(found.port), daemon=True)
        sender.start()
        chunks = poll_until(found, bool)
        for chunk in chunks:
            assert chunk.on_durable is not None
            chunk.on_durable()
        sender.join(60)


def raw_request(port: int) -> None:
    with closing(http.client.HTTPConnection("127.0.0.1", port, timeout=60)) as to:
        to.request("POST", "/", b"one")
        to.getresponse().read()
