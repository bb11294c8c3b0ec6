"""The part of Kafka's protocol that readiness checks need: one request for the nodes of the cluster, over a plain socket.

Facts from the protocol guide of Kafka: a request is its length, then api key 3 (Metadata), version 2, a correlation number, a client name;
texts have a length of two bytes, lists one of four, all big-endian. Version 2 is the oldest that contains the cluster's id.
"""

from __future__ import annotations

import socket
import struct
from dataclasses import dataclass

_METADATA, _VERSION, _CORRELATION = 3, 2, 7
_CLIENT = b"scribengin"
_LARGEST_BYTES = 64 * 2**20


@dataclass(frozen=True, slots=True)
class Partition:
    """`leader` is a node's number, -1 if there is none now; `in_sync` are the nodes with a complete copy."""

    leader: int
    in_sync: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Metadata:
    """A broker's information about its cluster: running nodes, by number, with their addresses; topics with their partitions in order."""

    cluster_id: str
    nodes: dict[int, str]
    topics: dict[str, tuple[Partition, ...]]


def read_metadata(host: str, port: int, *, timeout_s: float) -> Metadata:
    """Ask the broker at that address. Raises OSError if no server answers, ValueError if the server is not a Kafka broker."""
    asked = struct.pack(f">hhih{len(_CLIENT)}si", _METADATA, _VERSION, _CORRELATION, len(_CLIENT), _CLIENT, -1)  # -1: of all topics
    with socket.create_connection((host, port), timeout=timeout_s) as connection:
        connection.sendall(struct.pack(">i", len(asked)) + asked)
        (size,) = struct.unpack(">i", _exactly(connection, 4))
        if not 4 <= size <= _LARGEST_BYTES:
            raise ValueError(f"{host}:{port} answered with {size} bytes")
        answer = _Answer(_exactly(connection, size))
    try:
        return _metadata(answer)
    except (struct.error, UnicodeDecodeError) as error:
        raise ValueError(f"{host}:{port} answered with invalid Kafka Metadata: {error}") from error


def _metadata(answer: _Answer) -> Metadata:
    correlation = answer.number("i")
    if correlation != _CORRELATION:
        raise ValueError(f"the answer is for request {correlation}; expected {_CORRELATION}")
    nodes = {}
    for _ in range(answer.number("i")):
        node, host, port = answer.number("i"), answer.text(), answer.number("i")
        answer.text()  # its rack
        nodes[node] = f"{host}:{port}"
    cluster_id = answer.text()
    answer.number("i")  # the controller
    topics = {}
    for _ in range(answer.number("i")):
        answer.number("h")  # the topic's error; those of its partitions say more
        name = answer.text()
        answer.number("b")  # whether it is one of Kafka's own
        partitions = {}
        for _ in range(answer.number("i")):
            answer.number("h")
            number, leader = answer.number("i"), answer.number("i")
            answer.numbers()  # its replicas
            partitions[number] = Partition(leader, answer.numbers())
        topics[name] = tuple(partitions[number] for number in sorted(partitions))
    return Metadata(cluster_id, nodes, topics)


class _Answer:
    """Reads consecutive values."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def number(self, form: str) -> int:
        (value,) = struct.unpack_from(f">{form}", self._data, self._at)
        self._at += struct.calcsize(f">{form}")
        return int(value)

    def text(self) -> str:
        """Empty if it is null."""
        size = max(self.number("h"), 0)
        value = self._data[self._at : self._at + size]
        self._at += size
        return value.decode()

    def numbers(self) -> tuple[int, ...]:
        return tuple(self.number("i") for _ in range(self.number("i")))


def _exactly(connection: socket.socket, size: int) -> bytes:
    data = bytearray()
    while len(data) < size:
        part = connection.recv(size - len(data))
        if not part:
            raise ConnectionError("the server closed the connection")
        data += part
    return bytes(data)
