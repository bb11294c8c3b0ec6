"""Lines over TCP and TLS, with real sockets."""

from __future__ import annotations

import os
import resource
import socket
import ssl
import threading
import time
from contextlib import closing
from typing import TYPE_CHECKING, Any

import pytest

from scribengin.agent.inputs import open_input, sockets
from scribengin.agent.inputs.tcp import TcpInput
from scribengin.core.errors import EnvironmentFault
from tests.agent.inputs.lanes import Authority, lane_of, poll_records, poll_until, poll_until_ended, records_of, until

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


def opened(tmp_path: Path, options: dict[str, Any] | None = None, **config: Any) -> TcpInput:
    found = open_input(lane_of("tcp", {"listen": "127.0.0.1:0", **(options or {})}, **config), {}, tmp_path)
    assert isinstance(found, TcpInput)
    return found


def connected(found: TcpInput) -> socket.socket:
    return socket.create_connection(("127.0.0.1", found.server.port))


def in_thread(act: Callable[[], None]) -> threading.Thread:
    def quietly() -> None:
        try:
            act()
        except OSError:
            return

    thread = threading.Thread(target=quietly, daemon=True)
    thread.start()
    return thread


def test_lines_of_many_connections_become_few_chunks(tmp_path: Path) -> None:
    with closing(opened(tmp_path, tags={"site": "x"})) as found:
        senders = [connected(found) for _ in range(100)]
        for number, sender in enumerate(senders):
            sender.sendall(b"".join(b"%d %d\n" % (number, line) for line in range(100)))
        chunks = poll_until(found, lambda chunks: sum(chunk.count for chunk in chunks) >= 10_000)
        assert found.report().files == 100
        for sender in senders:
            sender.close()
        until(lambda: not found.poll(2**20) and found.report().files == 0)
    records = [record for chunk in chunks for record in records_of(chunk)]
    for number in range(100):
        assert [record for record in records if record.startswith(b"%d " % number)] == [b"%d %d" % (number, line) for line in range(100)]
    assert {(chunk.origin.file, chunk.origin.tags["site"]) for chunk in chunks} == {("127.0.0.1", "x")}
    assert len(chunks) < 1000


def test_the_last_line_needs_no_line_feed_and_crlf_ends_a_line(tmp_path: Path) -> None:
    with closing(opened(tmp_path)) as found:
        with connected(found) as sender:
            sender.sendall(b"one\r\ntwo\n\nlast")
        assert poll_records(found, 4) == [b"one", b"two", b"", b"last"]


def test_a_connection_that_is_reset_keeps_what_came(tmp_path: Path) -> None:
    with closing(opened(tmp_path)) as found:
        sender = connected(found)
        sender.sendall(b"one\n")
        assert poll_records(found, 1) == [b"one"]
        sender.sendall(b"cut o")
        until(lambda: found.server._ready or found.server._select(0.01))
        found.poll(2**20)
        sender.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\0\0\0\0\0\0\0")
        sender.close()
        assert poll_records(found, 1) == [b"cut o"]
        assert found.report().files == 0


def test_a_line_longer_than_max_record_is_one_too_long_and_the_next_is_read(tmp_path: Path) -> None:
    with closing(opened(tmp_path, max_record=1000)) as found, connected(found) as sender:
        sending = in_thread(lambda: sender.sendall(b"a\n" + b"x" * 5_000_000 + b"\nb\n"))
        chunks = poll_until(found, lambda chunks: sum(chunk.count for chunk in chunks) >= 3)
        sending.join()
    assert [chunk.kind for chunk in chunks] == ["records", "too_long", "records"]
    assert len(chunks[1].payload) < 5000


def test_a_lane_that_does_not_poll_makes_the_sender_wait_and_loses_nothing(tmp_path: Path) -> None:
    block = b"".join(b"%07d\n" % number for number in range(8192))
    sent = 0
    with closing(opened(tmp_path)) as found, connected(found) as sender:
        found.poll(2**20)
        sender.setblocking(False)
        quiet = time.monotonic()
        while time.monotonic() - quiet < 1.0:  # until the buffers of both kernels are full
            try:
                sent += sender.send(block[sent % len(block) :])
                quiet = time.monotonic()
            except BlockingIOError:
                time.sleep(0.01)
        assert sent > len(block)
        sender.setblocking(True)
        expected, rest = divmod(sent, len(block))
        finishing = in_thread(lambda: sender.sendall(block[rest:]))
        size = 0
        records: list[bytes] = []

        def received() -> bool:
            nonlocal size
            for chunk in found.poll(100_000):
                size += len(chunk.payload)
                records.extend(records_of(chunk))
            return size >= (expected + 1) * len(block)

        until(received)
        finishing.join()
    assert records == block.split(b"\n")[:-1] * (expected + 1)


def test_one_poll_returns_about_what_was_asked_for(tmp_path: Path) -> None:
    with closing(opened(tmp_path)) as found:
        senders = [connected(found) for _ in range(10)]
        for sender in senders:
            in_thread(lambda sender=sender: sender.sendall(b"line\n" * 40_000))  # type: ignore[misc]
        total = 0

        def all_read() -> bool:
            nonlocal total
            size = sum(len(chunk.payload) for chunk in found.poll(50_000))
            assert size <= 50_000 + 10 * 4096
            total += size
            return total == 10 * 40_000 * 5

        until(all_read)
        for sender in senders:
            sender.close()


def test_lines_over_tls_with_a_client_certificate(tmp_path: Path) -> None:
    authority, stranger = Authority(tmp_path), Authority(tmp_path, "stranger")
    (certificate, key), own, wrong = authority.issue("server"), authority.issue("client"), stranger.issue("other")
    options = {"certificate": str(certificate), "key": str(key), "client_ca": str(authority.file)}
    with closing(opened(tmp_path, options)) as found:

        def send(files: tuple[Path, Path]) -> None:
            context = ssl.create_default_context(cafile=str(authority.file))
            context.load_cert_chain(*files)
            with connected(found) as plain, context.wrap_socket(plain, server_hostname="127.0.0.1") as sender:
                sender.sendall(b"".join(b"%d\n" % number for number in range(200_000)))
                sender.unwrap()

        refused = in_thread(lambda: send(wrong))
        until(lambda: found.poll(2**20) or "TLS" in found.report().message)
        assert "a connection of 127.0.0.1 was closed: TLS: " in found.report().message
        poll_until_ended(found, refused)
        sending = in_thread(lambda: send(own))
        assert poll_records(found, 200_000) == [b"%d" % number for number in range(200_000)]
        poll_until_ended(found, sending)


def test_an_expired_client_certificate_is_told(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    (certificate, key), old = authority.issue("server"), authority.issue("old", days=(-9, -1))
    options = {"certificate": str(certificate), "key": str(key), "client_ca": str(authority.file)}
    with closing(opened(tmp_path, options)) as found:

        def send() -> None:
            context = ssl.create_default_context(cafile=str(authority.file))
            context.load_cert_chain(*old)
            with connected(found) as plain, context.wrap_socket(plain, server_hostname="127.0.0.1") as sender:
                sender.sendall(b"line\n")
                sender.recv(1)

        sending = in_thread(send)
        until(lambda: found.poll(2**20) or found.report().message)
        assert "its client certificate has expired; to fix, renew it there" in found.report().message
        poll_until_ended(found, sending)


def test_an_expired_certificate_is_told_and_a_new_one_is_taken_without_a_restart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    authority = Authority(tmp_path)
    certificate, key = authority.issue("server", days=(-9, -1))
    with closing(opened(tmp_path, {"certificate": str(certificate), "key": str(key)})) as found:
        assert f"the certificate {certificate} expired on " in found.report().message
        assert "replace the file" in found.report().message
        authority.issue("server", days=(-1, 5))
        os.utime(certificate, ns=(time.time_ns() + 10**9, time.time_ns() + 10**9))
        until(lambda: not found.poll(2**20) and "expires on" in found.report().message)
        authority.issue("server", days=(-1, 60))
        os.utime(certificate, ns=(time.time_ns() + 2 * 10**9, time.time_ns() + 2 * 10**9))
        until(lambda: not found.poll(2**20) and not found.report().message)
        context = ssl.create_default_context(cafile=str(authority.file))

        def send() -> None:
            with connected(found) as plain, context.wrap_socket(plain, server_hostname="127.0.0.1") as sender:
                sender.sendall(b"line\n")

        sending = in_thread(send)
        assert poll_records(found, 1) == [b"line"]
        sending.join()


def test_a_certificate_that_is_missing_is_told_and_taken_once_it_is_there(tmp_path: Path) -> None:
    options = {"certificate": str(tmp_path / "server.crt"), "key": str(tmp_path / "server.key")}
    with closing(opened(tmp_path, options)) as found:
        assert f"{tmp_path / 'server.crt'}: No such file" in found.report().message
        assert found.server.port == 0
        Authority(tmp_path).issue("server")

        def listens() -> int:
            found.poll(2**20)
            found.wait(0.1)
            return found.server.port

        assert until(listens)
        assert found.report().message == ""


def test_a_key_of_another_certificate_is_told(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    certificate, key = authority.issue("server")[0], authority.issue("other")[1]
    with closing(opened(tmp_path, {"certificate": str(certificate), "key": str(key)})) as found:
        assert "KEY_VALUES_MISMATCH" in found.report().message


def test_a_port_in_use_is_told_and_taken_once_it_is_free(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        found = opened(tmp_path, {"listen": f"127.0.0.1:{port}"})
        assert f"cannot listen on tcp://127.0.0.1:{port}: Address already in use; to fix, " in found.report().message
    with closing(found):

        def listens() -> int:
            found.poll(2**20)
            found.wait(0.1)
            return found.server.port

        assert until(listens) == port
        assert found.report().message == ""


def test_a_handshake_that_never_comes_is_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    certificate, key = Authority(tmp_path).issue("server")
    monkeypatch.setattr(sockets, "HANDSHAKE_S", 0.2)
    with closing(opened(tmp_path, {"certificate": str(certificate), "key": str(key)})) as found, connected(found) as sender:
        until(lambda: not found.poll(2**20) and "no TLS handshake" in found.report().message)
        assert sender.recv(1) == b""


def test_a_process_without_free_file_descriptors_accepts_later(tmp_path: Path) -> None:
    with closing(opened(tmp_path)) as found, connected(found) as sender:
        sender.sendall(b"line\n")
        limits = resource.getrlimit(resource.RLIMIT_NOFILE)
        with socket.socket() as highest:
            resource.setrlimit(resource.RLIMIT_NOFILE, (highest.fileno(), limits[1]))
            try:
                waits = 0
                until_s = time.monotonic() + 0.4
                while time.monotonic() < until_s:
                    assert found.poll(2**20) == []
                    found.wait(0.1)
                    waits += 1
                assert waits < 100  # it does not spin
                assert "a connection was not accepted: Too many open files" in found.report().message
            finally:
                resource.setrlimit(resource.RLIMIT_NOFILE, limits)
        assert poll_records(found, 1) == [b"line"]


def test_more_connections_than_allowed_are_closed_and_told(tmp_path: Path) -> None:
    with closing(opened(tmp_path)) as found:
        found.server.most_connections = 2
        senders = [connected(found) for _ in range(3)]
        until(lambda: not found.poll(2**20) and "more than 2 connections" in found.report().message)
        for sender in senders:
            sender.close()


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"listen": "0.0.0.0:0"}, "other hosts can reach tcp://0.0.0.0:0"),
        ({"listen": "0.0.0.0:0", "certificate": "a.crt", "key": "a.key"}, "other hosts"),
        ({"listen": "nonsense"}, "'nonsense' is not a valid address; expected HOST:PORT"),
        ({"listen": "127.0.0.1:99999"}, "is not a valid address"),
    ],
)
def test_options_that_are_refused(options: dict[str, Any], words: str, tmp_path: Path) -> None:
    with pytest.raises(EnvironmentFault) as fault:
        opened(tmp_path, options)
    assert words in fault.value.message
    assert fault.value.remedy


def test_other_hosts_are_let_in_with_client_certificates_or_where_the_options_say_so(tmp_path: Path) -> None:
    opened(tmp_path, {"listen": "0.0.0.0:0", "insecure": True}).close()
    authority = Authority(tmp_path)
    certificate, key = authority.issue("server")
    secured = {"certificate": str(certificate), "key": str(key), "client_ca": str(authority.file)}
    opened(tmp_path, {"listen": "0.0.0.0:0", **secured}).close()
