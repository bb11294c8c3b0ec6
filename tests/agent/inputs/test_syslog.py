"""Syslog over real sockets, and its framing cut anywhere."""

from __future__ import annotations

import json
import logging
import shutil
import socket
import ssl
import subprocess
import threading
import time
from contextlib import closing
from datetime import datetime
from logging.handlers import SysLogHandler
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scribengin.agent.inputs import open_input, syslog
from scribengin.agent.inputs.syslog import SyslogFraming, SyslogInput
from scribengin.core.errors import EnvironmentFault
from tests.agent.inputs.lanes import Authority, lane_of, poll_records, poll_until, poll_until_ended, records_of, splits, until

if TYPE_CHECKING:
    from collections.abc import Iterator

    from scribengin.agent.inputs import RecordChunk

FIRST = b"<34>1 2003-10-11T22:14:15.003Z mymachine su - ID47 - first"
SECOND = b"<13>Feb 28 10:00:00 host app[1]: second"


def counted(message: bytes) -> bytes:
    return b"%d %b" % (len(message), message)


def opened(options: dict[str, Any], tmp_path: Path, **config: Any) -> SyslogInput:
    found = open_input(lane_of("syslog", options, **config), {}, tmp_path)
    assert isinstance(found, SyslogInput)
    return found


@pytest.fixture
def udp(tmp_path: Path) -> Iterator[SyslogInput]:
    with closing(opened({"listen": "udp://127.0.0.1:0"}, tmp_path)) as found:
        yield found


# Framing.

STREAMS = [
    b"".join((FIRST, b"\n", SECOND, b"\n")),
    b"".join((FIRST, b"\r\n", SECOND, b"\0\n")),
    b"".join((FIRST, b"\0", SECOND, b"\0")),
    b"".join((FIRST, b"\0", counted(SECOND))),
    b"".join((counted(FIRST), counted(SECOND))),
    b"".join((counted(FIRST), SECOND, b"\n")),
    b"".join((FIRST, b"\n", counted(SECOND))),
    b"".join((counted(FIRST), b"\n", counted(SECOND), b"\n")),  # a line feed behind the count, too
    b"".join((FIRST, b"\n", SECOND)),  # the last one is ended by the end of the connection
]


@pytest.mark.parametrize("stream", STREAMS, ids=range(len(STREAMS)))
def test_messages_are_found_wherever_the_stream_is_cut(stream: bytes) -> None:
    for before, after in splits(stream):
        framing = SyslogFraming("auto", 1000)
        found = framing.feed(before) + framing.feed(after) + framing.end()
        assert [message.rstrip(b"\r\0") for message in found] == [FIRST, SECOND], (before, after)


def test_a_counted_message_may_have_line_feeds() -> None:
    message = b"<13>Feb 28 10:00:00 h a: one\n12 <two\nthree"
    for before, after in splits(counted(message) + FIRST + b"\n"):
        framing = SyslogFraming("auto", 1000)
        assert framing.feed(before) + framing.feed(after) == [message, FIRST]


def test_a_line_that_begins_with_a_number_is_a_line() -> None:
    stream = b"12 monkeys\n2026\n7\n" + FIRST + b"\n"
    for before, after in splits(stream):
        framing = SyslogFraming("auto", 1000)
        assert framing.feed(before) + framing.feed(after) == [b"12 monkeys", b"2026", b"7", FIRST]


@pytest.mark.parametrize("framing", ["auto", "newline", "octet"])
def test_a_message_that_is_too_long_is_cut_and_the_next_one_is_found(framing: str) -> None:
    message = b"<13>" + b"x" * 50
    stream = counted(message) + counted(b"<1>next") if framing == "octet" else message + b"\n<1>next\n"
    for before, after in splits(stream):
        found = SyslogFraming(framing, 20)
        assert found.feed(before) + found.feed(after) == [message[:21], b"<1>next"], before


def test_octet_framing_refuses_what_has_no_count() -> None:
    for before, after in splits(counted(FIRST) + b"12x no count"):
        framing = SyslogFraming("octet", 1000)
        assert framing.feed(before) + framing.feed(after) == [FIRST]
        assert framing.unknown
        assert framing.end() == [b"12x no count"]


def test_newline_framing_takes_a_count_as_text() -> None:
    framing = SyslogFraming("newline", 1000)
    assert framing.feed(counted(FIRST) + b"\n") == [counted(FIRST)]


@given(st.lists(st.binary(min_size=1, max_size=30).map(lambda text: b"<1>" + text), max_size=8), st.data())
def test_any_counted_messages_cut_anywhere_are_found(messages: list[bytes], data: st.DataObject) -> None:
    stream = b"".join(counted(message) for message in messages)
    framing = SyslogFraming("octet", 1000)
    found: list[bytes] = []
    while stream:
        size = data.draw(st.integers(1, len(stream)))
        found += framing.feed(stream[:size])
        stream = stream[size:]
    assert found == messages
    assert framing.end() == []


@given(st.lists(st.binary(max_size=12), max_size=6), st.integers(1, 40))
def test_any_bytes_are_read_without_a_fault_and_none_is_lost(parts: list[bytes], most: int) -> None:
    framing = SyslogFraming("newline", most)
    found = [message for part in parts for message in framing.feed(part)] + framing.end()
    expected = [line[: most + 1] for line in b"".join(parts).replace(b"\0", b"\n").split(b"\n")]
    assert [each for each in found if each.strip(b"\r")] == [each for each in expected if each.strip(b"\r")]
    framing = SyslogFraming("auto", most)
    for part in parts:
        framing.feed(part)
    framing.end()


# UDP.


def send(port: int, *datagrams: bytes) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
        for datagram in datagrams:
            sender.sendto(datagram, ("127.0.0.1", port))


def test_a_datagram_is_a_record(udp: SyslogInput) -> None:
    send(udp.port, FIRST, SECOND + b"\n", b"no syslog\nat all")
    found = [json.loads(record) for record in poll_records(udp, 3)]
    assert [each["message"] for each in found] == ["first", "second", "no syslog\nat all"]
    assert [each["sender"] for each in found] == ["127.0.0.1"] * 3
    assert ["parse_error" in each for each in found] == [False, False, True]
    assert found[1]["app"] == "app"


def test_without_parsing_a_record_is_the_message_and_its_sender_the_origin(tmp_path: Path) -> None:
    with closing(opened({"listen": "udp://127.0.0.1:0", "parse": False}, tmp_path, tags={"site": "x"})) as found:
        send(found.port, FIRST, b"two\nlines", SECOND + b"\n")
        chunks = poll_until(found, lambda chunks: sum(chunk.count for chunk in chunks) >= 3)
    assert [record for chunk in chunks for record in records_of(chunk)] == [FIRST, b"two\nlines", SECOND]
    assert {chunk.origin.file for chunk in chunks} == {"127.0.0.1"}
    assert chunks[0].origin.tags == {"site": "x"}


def test_a_datagram_longer_than_max_record_is_one_too_long(tmp_path: Path) -> None:
    for parse in (True, False):
        with closing(opened({"listen": "udp://127.0.0.1:0", "parse": parse}, tmp_path, max_record=100)) as found:
            send(found.port, b"<13>" + b"x" * 200, FIRST)
            chunks = poll_until(found, lambda chunks: len(chunks) >= 2)
        assert [(chunk.kind, chunk.count) for chunk in chunks] == [("too_long", 1), ("records", 1)]


def test_datagrams_that_find_no_room_here_are_counted_and_become_lost_records(udp: SyslogInput, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(syslog, "UDP_BYTES", 5 * (len(FIRST) + syslog._DATAGRAM_COST))
    assert udp.datagrams is not None
    send(udp.port, *[FIRST] * 20)
    datagrams = udp.datagrams
    until(lambda: datagrams.refused == 15)
    chunks = poll_until(udp, lambda chunks: any(chunk.kind == "lost" for chunk in chunks))
    assert [(chunk.kind, chunk.count) for chunk in chunks] == [("records", 5), ("lost", 15)]
    assert "15 datagrams were dropped" in udp.report().message
    assert "net.core.rmem_max" in udp.report().message


def test_datagrams_that_the_kernel_drops_are_counted(udp: SyslogInput, monkeypatch: pytest.MonkeyPatch) -> None:
    assert udp.datagrams is not None
    datagrams = udp.datagrams
    # a reader that is stopped, and the smallest buffer: what a machine under load does
    stopped = threading.Event()
    monkeypatch.setattr(datagrams, "_closing", True)
    datagrams._thread.join()
    datagrams._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1)
    send(udp.port, *[FIRST] * 200)
    until(lambda: datagrams.dropped_by_kernel() > 0)
    dropped = datagrams.dropped_by_kernel()
    monkeypatch.setattr(datagrams, "_closing", False)
    datagrams._thread = threading.Thread(target=datagrams._receive, daemon=True)
    datagrams._thread.start()
    stopped.set()
    chunks = poll_until(udp, lambda chunks: sum(chunk.count for chunk in chunks) >= 200)
    assert sum(chunk.count for chunk in chunks if chunk.kind == "lost") == dropped
    assert sum(chunk.count for chunk in chunks if chunk.kind == "records") == 200 - dropped
    assert f"{dropped} by the kernel" in udp.report().message


def test_the_receive_buffer_is_enlarged(udp: SyslogInput) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as plain:
        assert udp.datagrams is not None
        assert udp.datagrams.kernel_bytes > plain.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF) // 2


# TCP and TLS.


def test_each_connection_may_have_its_own_framing(tmp_path: Path) -> None:
    with closing(opened({"listen": "tcp://127.0.0.1:0"}, tmp_path)) as found:
        address = ("127.0.0.1", found.port)
        with socket.create_connection(address) as one, socket.create_connection(address) as other:
            one.sendall(counted(b"<13>Feb 28 10:00:00 h a: with\na line feed"))
            other.sendall(SECOND + b"\n" + FIRST)  # without an end
            other.shutdown(socket.SHUT_WR)
            records = poll_records(found, 3)
    assert sorted(json.loads(record)["message"] for record in records) == ["first", "second", "with\na line feed"]


def test_messages_without_the_demanded_count_are_kept_and_the_connection_is_closed(tmp_path: Path) -> None:
    with (
        closing(opened({"listen": "tcp://127.0.0.1:0", "framing": "octet", "parse": False}, tmp_path)) as found,
        socket.create_connection(("127.0.0.1", found.port)) as sender,
    ):
        sender.sendall(counted(FIRST) + SECOND)
        assert poll_records(found, 2) == [FIRST, SECOND]
        assert "framing: auto" in found.report().message
        assert sender.recv(1) == b""


def test_tls_asks_for_a_client_certificate_and_says_who_has_none(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    (certificate, key), (own, own_key) = authority.issue("server"), authority.issue("client")
    options = {"listen": "tls://127.0.0.1:0", "certificate": str(certificate), "key": str(key), "client_ca": str(authority.file)}
    with closing(opened(options, tmp_path)) as found:
        port = found.port
        context = ssl.create_default_context(cafile=str(authority.file))

        def attempt() -> None:
            with socket.create_connection(("127.0.0.1", port)) as plain, context.wrap_socket(plain, server_hostname="127.0.0.1") as sender:
                sender.sendall(counted(FIRST) * 1000)
                sender.unwrap()

        refused = _in_thread(attempt)
        until(lambda: found.poll(2**20) or "no client certificate" in found.report().message)
        assert "no client certificate" in found.report().message
        poll_until_ended(found, refused)
        context.load_cert_chain(own, own_key)
        accepted = _in_thread(attempt)
        records = poll_records(found, 1000)
        poll_until_ended(found, accepted)
    assert len(records) == 1000
    assert json.loads(records[-1])["message"] == "first"


def _in_thread(act: Any) -> threading.Thread:
    def quietly() -> None:
        try:
            act()
        except OSError:
            return

    thread = threading.Thread(target=quietly, daemon=True)
    thread.start()
    return thread


def test_a_connection_that_does_not_speak_tls_is_told_so_and_others_go_on(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    certificate, key = authority.issue("server")
    options = {"listen": "tls://127.0.0.1:0", "certificate": str(certificate), "key": str(key)}
    with closing(opened(options, tmp_path)) as found:
        with socket.create_connection(("127.0.0.1", found.port)) as plain:
            plain.sendall(FIRST + b"\n")
            until(lambda: found.poll(2**20) or "does not speak TLS" in found.report().message)
        port = found.port
        context = ssl.create_default_context(cafile=str(authority.file))

        def attempt() -> None:
            with socket.create_connection(("127.0.0.1", port)) as raw, context.wrap_socket(raw, server_hostname="127.0.0.1") as sender:
                sender.sendall(FIRST + b"\n")

        sending = _in_thread(attempt)
        assert json.loads(poll_records(found, 1)[0])["message"] == "first"
        sending.join()


# Refusals.


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"listen": "udp://0.0.0.0:0"}, "other hosts can reach udp://0.0.0.0:0"),
        ({"listen": "tcp://[::]:0"}, "other hosts can reach tcp://[::]:0"),
        ({"listen": "tls://0.0.0.0:0", "certificate": "a", "key": "b"}, "other hosts"),
        ({"listen": "tls://127.0.0.1:0"}, "certificate is missing"),
        ({"listen": "http://127.0.0.1:0"}, "expected udp://HOST:PORT or tcp://HOST:PORT or tls://HOST:PORT"),
        ({"listen": "127.0.0.1"}, "is not a valid address"),
        ({"listen": "udp://127.0.0.1:0", "zone": "Mars/Olympus"}, "'Mars/Olympus' is not a valid time zone"),
    ],
)
def test_options_that_are_refused(options: dict[str, Any], words: str, tmp_path: Path) -> None:
    with pytest.raises(EnvironmentFault) as fault:
        opened(options, tmp_path)
    assert words in fault.value.message
    assert fault.value.message.startswith("flow.source: ")
    assert fault.value.remedy


def test_other_hosts_are_let_in_where_the_options_say_so(tmp_path: Path) -> None:
    with closing(opened({"listen": "udp://0.0.0.0:0", "insecure": True}, tmp_path)) as found:
        assert found.port


def test_a_port_in_use_is_told_and_taken_once_it_is_free(tmp_path: Path) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as other:
        other.bind(("127.0.0.1", 0))
        port = other.getsockname()[1]
        found = opened({"listen": f"udp://127.0.0.1:{port}"}, tmp_path)
        assert f"cannot listen on udp://127.0.0.1:{port}: Address already in use; to fix, end the process" in found.report().message
        assert found.poll(2**20) == []
    with closing(found):

        def listens() -> int:
            found.poll(2**20)
            found.wait(0.1)
            return found.port

        assert until(listens) == port
        assert found.report().message == ""


# Real senders.


@pytest.mark.skipif(shutil.which("logger") is None, reason="no logger(1)")
@pytest.mark.parametrize("form", [["--rfc5424"], ["--rfc3164"], ["--rfc5424=notime"]])
@pytest.mark.parametrize("way", [["--udp"], ["--tcp"], ["--tcp", "--octet-count"]])
def test_logger_is_understood(form: list[str], way: list[str], tmp_path: Path) -> None:
    listen = f"{'udp' if way == ['--udp'] else 'tcp'}://127.0.0.1:0"
    with closing(opened({"listen": listen}, tmp_path)) as found:
        command = ["logger", *form, *way, "--server", "127.0.0.1", "--port", str(found.port), "--tag", "shop", "--id=77"]
        sending = subprocess.Popen([*command, "--priority", "local3.warning", "--", "order 7 was paid"])
        (record,) = poll_records(found, 1)
        assert sending.wait(60) == 0
    each = json.loads(record)
    assert (each["facility"], each["severity"], each["app"], each["proc_id"]) == (19, 4, "shop", "77")
    assert each["message"] == "order 7 was paid"
    assert "parse_error" not in each
    if form != ["--rfc5424=notime"]:
        assert abs(datetime.fromisoformat(each["timestamp"]).timestamp() - time.time()) < 3600


@pytest.mark.parametrize("way", [socket.SOCK_DGRAM, socket.SOCK_STREAM])
def test_the_handler_of_python_is_understood(way: socket.SocketKind, tmp_path: Path) -> None:
    """It ends each message with NUL, over TCP too, and writes no header."""
    listen = f"{'udp' if way == socket.SOCK_DGRAM else 'tcp'}://127.0.0.1:0"
    with closing(opened({"listen": listen}, tmp_path)) as found:
        handler = SysLogHandler(("127.0.0.1", found.port), facility=SysLogHandler.LOG_LOCAL3, socktype=way)
        logger = logging.Logger("shop")
        logger.addHandler(handler)
        for number in range(3):
            logger.warning("order %d was paid", number)
        records = [json.loads(record) for record in poll_records(found, 3)]
        handler.close()
    assert [each["message"] for each in records] == [f"<156>order {number} was paid" for number in range(3)]
    assert {(each["facility"], each["severity"]) for each in records} == {(19, 4)}


RSYSLOG = """
module(load="imfile" mode="polling" pollingInterval="1")
global(workDirectory="{work}")
ruleset(name="out") {{
  action(type="omfwd" target="127.0.0.1" port="{octet}" protocol="tcp"
         TCP_Framing="octet-counted" template="RSYSLOG_SyslogProtocol23Format")
  action(type="omfwd" target="127.0.0.1" port="{newline}" protocol="tcp" template="RSYSLOG_ForwardFormat")
  action(type="omfwd" target="127.0.0.1" port="{udp}" protocol="udp" template="RSYSLOG_TraditionalForwardFormat")
}}
input(type="imfile" file="{file}" tag="shop:" severity="warning" facility="local3" ruleset="out")
"""


@pytest.mark.skipif(shutil.which("rsyslogd") is None, reason="no rsyslogd")
def test_rsyslog_is_understood(tmp_path: Path) -> None:
    count = 500
    file = tmp_path / "lines.log"
    file.write_text("".join(f"order {number} was paid\n" for number in range(count)))
    inputs = {
        name: opened({"listen": f"{scheme}://127.0.0.1:0"}, tmp_path)
        for name, scheme in (("octet", "tcp"), ("newline", "tcp"), ("udp", "udp"))
    }
    settings = tmp_path / "rsyslog.conf"
    settings.write_text(RSYSLOG.format(work=tmp_path, file=file, **{name: each.port for name, each in inputs.items()}))
    daemon = subprocess.Popen(["rsyslogd", "-n", "-f", str(settings), "-i", str(tmp_path / "pid")], stderr=subprocess.PIPE)
    try:
        chunks: dict[str, list[RecordChunk]] = {name: [] for name in inputs}

        def arrived() -> bool:
            for name, each in inputs.items():
                chunks[name] += each.poll(2**20)
            return all(sum(chunk.count for chunk in of) >= count for of in chunks.values())

        until(arrived, "rsyslog has sent all lines")
    finally:
        daemon.terminate()
        daemon.wait(60)
        assert daemon.stderr is not None
        daemon.stderr.close()
        for each in inputs.values():
            each.close()
    for of in chunks.values():
        found = [json.loads(record) for chunk in of for record in records_of(chunk)]
        assert [each["message"].strip() for each in found] == [f"order {number} was paid" for number in range(count)]
        assert {(each["facility"], each["severity"], each["app"]) for each in found} == {(19, 4, "shop")}
        assert not [each for each in found if "parse_error" in each]


RSYSLOG_TLS = """
global(workDirectory="{work}" DefaultNetstreamDriver="ossl" DefaultNetstreamDriverCAFile="{authority}"
       DefaultNetstreamDriverCertFile="{certificate}" DefaultNetstreamDriverKeyFile="{key}")
module(load="imfile" mode="polling" pollingInterval="1")
ruleset(name="out") {{
  action(type="omfwd" target="127.0.0.1" port="{port}" protocol="tcp" TCP_Framing="octet-counted" template="RSYSLOG_SyslogProtocol23Format"
         StreamDriver="ossl" StreamDriverMode="1" StreamDriverAuthMode="x509/certvalid")
}}
input(type="imfile" file="{file}" tag="shop:" severity="warning" facility="local3" ruleset="out")
"""


@pytest.mark.skipif(not list(Path("/usr/lib").glob("*/rsyslog/lmnsd_ossl.so")), reason="no rsyslog with TLS of OpenSSL")
def test_rsyslog_is_understood_over_tls_with_a_client_certificate(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    (certificate, key), own = authority.issue("server"), authority.issue("client")
    options = {"listen": "tls://127.0.0.1:0", "certificate": str(certificate), "key": str(key), "client_ca": str(authority.file)}
    file, settings = tmp_path / "lines.log", tmp_path / "rsyslog.conf"
    file.write_text("".join(f"order {number} was paid\n" for number in range(300)))
    with closing(opened(options, tmp_path)) as found:
        places = {"authority": authority.file, "certificate": own[0], "key": own[1], "file": file, "port": found.port}
        settings.write_text(RSYSLOG_TLS.format(work=tmp_path, **places))
        daemon = subprocess.Popen(["rsyslogd", "-n", "-f", str(settings), "-i", str(tmp_path / "pid")], stderr=subprocess.DEVNULL)
        try:
            records = poll_records(found, 300)
        finally:
            daemon.terminate()
            daemon.wait(60)
    assert [json.loads(record)["message"] for record in records] == [f"order {number} was paid" for number in range(300)]
