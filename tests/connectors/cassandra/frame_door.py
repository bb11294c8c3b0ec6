"""A door to Cassandra that answers writes itself where a test wants that: what one node alone never says. Protocol 4, uncompressed."""

from __future__ import annotations

import socket
import struct
import threading
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from types import TracebackType

_HEADER = struct.Struct(">BBhBi")
"""version, flags, stream, operation, length"""
_ERROR, _EXECUTE, _BATCH = 0x00, 0x0A, 0x0D
_SUPPORTED = 0x06
_ANSWER = 0x84
OVERLOADED = struct.pack(">iH", 0x1001, 8) + b"too busy"
WRITE_TIMEOUT = struct.pack(">iH", 0x1100, 8) + b"too late" + struct.pack(">Hii", 6, 0, 1) + struct.pack(">H", 14) + b"UNLOGGED_BATCH"


@dataclass
class FrameDoor:
    """Hands on to the server at `port`. A context manager. `errors` are answers to as many writes; with `after` the server has had these
    before. `consistencies`: of each write that came."""

    port: int
    errors: list[bytes] = field(default_factory=list)
    after: bool = False
    consistencies: list[int] = field(default_factory=list)

    def __enter__(self) -> FrameDoor:
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self._listening.getsockname()[1]}"
        threading.Thread(target=self._serve, daemon=True).start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._listening.close()

    def _serve(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._listening.accept()
                threading.Thread(target=self._hand_on, args=(client,), daemon=True).start()

    def _hand_on(self, client: socket.socket) -> None:
        with suppress(OSError), client, socket.create_connection(("127.0.0.1", self.port)) as server:
            instead: dict[int, bytes] = {}
            """stream → what its answer is replaced by"""
            threading.Thread(target=self._answer, args=(server, client, instead), daemon=True).start()
            while frame := _frame(client):
                (_, _, stream, operation, _), body = frame
                if operation in (_EXECUTE, _BATCH):
                    self.consistencies.append(_consistency(operation, body))
                    if self.errors:
                        error = self.errors.pop(0)
                        if not self.after:
                            client.sendall(_error(stream, error))
                            continue
                        instead[stream] = error
                server.sendall(_HEADER.pack(*frame[0]) + body)
            server.shutdown(socket.SHUT_RDWR)

    def _answer(self, server: socket.socket, client: socket.socket, instead: dict[int, bytes]) -> None:
        with suppress(OSError):
            while frame := _frame(server):
                (_, _, stream, operation, _), body = frame
                if operation == _SUPPORTED:  # it reads frames, so it offers no compression
                    body = body.replace(b"lz4", b"lz0").replace(b"snappy", b"snapp0")
                error = instead.pop(stream, None)
                client.sendall(_HEADER.pack(*frame[0]) + body if error is None else _error(stream, error))
            client.shutdown(socket.SHUT_RDWR)


def _error(stream: int, error: bytes) -> bytes:
    return _HEADER.pack(_ANSWER, 0, stream, _ERROR, len(error)) + error


def _frame(connection: socket.socket) -> tuple[tuple[int, int, int, int, int], bytes] | None:
    header = _exactly(connection, _HEADER.size)
    if header is None:
        return None
    version, flags, stream, operation, length = _HEADER.unpack(header)
    body = _exactly(connection, length)
    return None if body is None else ((version, flags, stream, operation, length), body)


def _exactly(connection: socket.socket, size: int) -> bytes | None:
    data = b""
    while len(data) < size:
        part = connection.recv(size - len(data))
        if not part:
            return None
        data += part
    return data


def _consistency(operation: int, body: bytes) -> int:
    """EXECUTE: [id] consistency …; BATCH: kind, n, n × (kind, [id], m, m × [value]), consistency …"""
    if operation == _EXECUTE:
        return _number("H", body, _behind("H", body, 0))
    at = 3
    for _ in range(_number("H", body, 1)):
        at = _behind("H", body, at + 1)
        values = _number("H", body, at)
        at += 2
        for _ in range(values):
            at = _behind("i", body, at)
    return _number("H", body, at)


def _number(form: str, body: bytes, at: int) -> int:
    return int(struct.unpack_from(f">{form}", body, at)[0])


def _behind(form: str, body: bytes, at: int) -> int:
    """Where what has its length before it ends; a length below 0 has nothing."""
    return at + struct.calcsize(f">{form}") + max(0, _number(form, body, at))
