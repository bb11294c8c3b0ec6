"""A real Kafka: brokers in KRaft mode, each also a controller, on 127.0.0.1, in one folder."""

from __future__ import annotations

import base64
import socket
import struct
import subprocess
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property, partial
from typing import TYPE_CHECKING
from uuid import uuid4

import msgspec

from scribengin.core.errors import EnvironmentFault
from scribengin.core.process import within
from scribengin.core.storage import make_folder, replace
from scribengin.embedded.jars import fetch
from scribengin.embedded.server import HOST, ServerProcess, check_port, find_server, free_ports, java_command, load_or_create, start_server

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path
    from types import TracebackType


# The part of Kafka's protocol that readiness checks need: one request for the nodes of the cluster, over a plain socket. From Kafka's
# protocol guide: a request is its length, then api key 3 (Metadata), version 2, a correlation number, a client name; texts have a length of
# two bytes, lists one of four, all big-endian. Version 2 is the oldest that contains the cluster's id.


_METADATA, _VERSION, _CORRELATION = 3, 2, 7
_CLIENT = b"scribengin"
_LARGEST_BYTES = 64 * 2**20


@dataclass(frozen=True, slots=True)
class Partition:
    """A partition of a topic. `leader` is a node's number, -1 if there is none now; `in_sync` are the nodes with a complete copy."""

    leader: int
    in_sync: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Metadata:
    """A broker's view of its cluster: the running nodes, number → address, and the topics with their partitions in order."""

    cluster_id: str
    nodes: dict[int, str]
    topics: dict[str, tuple[Partition, ...]]


def read_metadata(host: str, port: int, *, timeout_s: float) -> Metadata:
    """Ask a broker for its view of the cluster. Raises OSError if no server answers, ValueError if the server is not a Kafka broker.

    Args:
        host: the broker's host.
        port: its port.
        timeout_s: the most seconds for each step of the connection.
    """
    asked = struct.pack(f">hhih{len(_CLIENT)}si", _METADATA, _VERSION, _CORRELATION, len(_CLIENT), _CLIENT, -1)  # -1: all topics
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
        answer.number("h")  # the topic's error; its partitions have more exact ones
        name = answer.text()
        answer.number("b")  # whether the topic is internal
        partitions = {}
        for _ in range(answer.number("i")):
            answer.number("h")
            number, leader = answer.number("i"), answer.number("i")
            answer.numbers()  # its replicas
            partitions[number] = Partition(leader, answer.numbers())
        topics[name] = tuple(partitions[number] for number in sorted(partitions))
    return Metadata(cluster_id, nodes, topics)


class _Answer:
    """Reads consecutive values of an answer."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def number(self, form: str) -> int:
        (value,) = struct.unpack_from(f">{form}", self._data, self._at)
        self._at += struct.calcsize(f">{form}")
        return int(value)

    def text(self) -> str:
        """Read a text; empty if it is null."""
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


JARS = "kafka-broker"
_HEAP_MIB = 384
_READY_WITHIN_S = 120.0
_STOPPED_WITHIN_S = 20.0
_LAST_STOPPED_WITHIN_S = 2.0  # without a majority, a controller would wait 5 s for it, without effect
_FORMATTED_WITHIN_S = 120.0
_ANSWER_S = 5.0


class _Node(msgspec.Struct, frozen=True):
    number: int
    port: int
    controller_port: int


class _Cluster(msgspec.Struct, frozen=True):
    cluster_id: str
    nodes: tuple[_Node, ...]


class KafkaCluster:
    """A Kafka cluster with one broker, or with three of which one may fail. Data, ports and identity stay in `folder` over restarts.

    As a context manager it runs inside the block, and ends after it, even if this process ends in any other way. `properties` are broker
    settings that override the default ones. Brokers are numbered from 1.
    """

    def __init__(self, folder: Path, brokers: int = 1, properties: Mapping[str, str] | None = None) -> None:
        if brokers not in (1, 3):
            raise ValueError(f"a cluster has 1 or 3 brokers, not {brokers}")
        self.folder = folder.absolute()
        self._properties = dict(properties or {})
        self._cluster = _read_or_make(folder, brokers)
        self._servers: dict[int, ServerProcess] = {}
        for node in self._cluster.nodes:
            found = find_server(self._name(node), pid_file=self._pid_file(node), log=self.log(node.number))
            if found is not None:
                self._servers[node.number] = found

    @property
    def bootstrap(self) -> str:
        """The value for `bootstrap.servers`: `127.0.0.1:port`, separated by commas for three brokers."""
        return ",".join(f"{HOST}:{node.port}" for node in self._cluster.nodes)

    @property
    def brokers_up(self) -> dict[int, int]:
        """Broker → its process id, for those that are running."""
        return {number: server.process.pid for number, server in sorted(self._servers.items()) if server.alive()}

    def log(self, broker: int = 1) -> Path:
        """The log of a broker."""
        return self.folder / "log" / f"kafka-{broker}.log"

    def start(self) -> None:
        """Start the brokers that are not running, and return when all answer and have registered with each other.

        Fetches the jars if the cache lacks them. Raises EnvironmentFault: there is no Java, jars cannot be fetched, a port is taken, or a
        broker does not start.
        """
        begun = [node for node in self._cluster.nodes if not self._alive(node)]
        for node in begun:
            self._check_ports(node)
        try:
            self._format(begun)
            for node in begun:
                self._start(node)
            # first each broker alone, so that a broker that has ended is reported, and not one that waits for it
            for node in self._cluster.nodes:
                self._servers[node.number].wait_ready(partial(self._knows, node, {node.number}), _READY_WITHIN_S)
            numbers = {node.number for node in self._cluster.nodes}
            for node in self._cluster.nodes:
                self._servers[node.number].wait_ready(partial(self._knows, node, numbers), _READY_WITHIN_S)
        except BaseException:
            for node in begun:
                if node.number in self._servers:
                    self._servers[node.number].kill()
            raise

    def release(self) -> None:
        """Keep the brokers running after this process ends."""
        for server in self._servers.values():
            server.release()

    def stop(self) -> None:
        """Stop all brokers cleanly; one that does not end in time is killed. Does nothing if none is running."""
        servers = list(self._servers.values())
        majority = len(self._cluster.nodes) // 2 + 1
        for server in servers:
            server.ask_to_end()
        within(_STOPPED_WITHIN_S, lambda: sum(server.alive() for server in servers) < majority)
        for server in servers:
            server.stop(_LAST_STOPPED_WITHIN_S)
        self._servers.clear()

    def kill(self, broker: int) -> None:
        """Kill a broker, and return when it has ended. Does nothing if it is not running."""
        server = self._servers.pop(self._node(broker).number, None)
        if server is not None:
            server.kill()

    def restart(self, broker: int) -> None:
        """Start a stopped broker, with its data, and return when it answers and sees all running brokers. Raises EnvironmentFault as
        `start` does."""
        node = self._node(broker)
        if self._alive(node):
            return
        self._check_ports(node)
        self._start(node)
        try:
            self._servers[broker].wait_ready(lambda: self._knows(node, set(self.brokers_up)), _READY_WITHIN_S)
        except BaseException:
            self.kill(broker)
            raise

    def answers(self) -> bool:
        """True if all brokers answer and have registered with each other."""
        numbers = {node.number for node in self._cluster.nodes}
        return all(self._knows(node, numbers) for node in self._cluster.nodes)

    def read_metadata(self, broker: int = 1) -> Metadata:
        """A broker's view of nodes and topics. Raises OSError if it does not answer."""
        return read_metadata(HOST, self._node(broker).port, timeout_s=_ANSWER_S)

    def __enter__(self) -> KafkaCluster:
        self.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.stop()

    def _node(self, broker: int) -> _Node:
        for node in self._cluster.nodes:
            if node.number == broker:
                return node
        raise ValueError(f"there is no broker {broker}; brokers are numbered from 1 to {len(self._cluster.nodes)}")

    def _alive(self, node: _Node) -> bool:
        return node.number in self._servers and self._servers[node.number].alive()

    def _knows(self, node: _Node, numbers: set[int]) -> bool:
        """True if the broker answers, belongs to this cluster, and sees the brokers with these numbers."""
        with suppress(OSError, ValueError):
            known = read_metadata(HOST, node.port, timeout_s=_ANSWER_S)
            return known.cluster_id == self._cluster.cluster_id and known.nodes.keys() >= numbers
        return False

    def _check_ports(self, node: _Node) -> None:
        for port in (node.port, node.controller_port):
            check_port(port, self._name(node))

    def _start(self, node: _Node) -> None:
        config = self._write_config(node)
        command = self._java("kafka.Kafka", config)
        self._servers[node.number] = start_server(self._name(node), command, pid_file=self._pid_file(node), log=self.log(node.number))

    def _format(self, nodes: list[_Node]) -> None:
        """Format the data folders of these nodes with the cluster's identity, all at the same time; existing identities are kept."""
        formatting: list[tuple[_Node, subprocess.Popen[str]]] = []
        try:
            for node in nodes:
                if not (self._data(node) / "meta.properties").exists():
                    command = self._java(
                        "kafka.tools.StorageTool", "format", "-t", self._cluster.cluster_id, "-c", self._write_config(node)
                    )
                    child = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
                    formatting.append((node, child))
            for node, child in formatting:
                said, _ = child.communicate(timeout=_FORMATTED_WITHIN_S)
                if child.returncode != 0:
                    raise EnvironmentFault(
                        f"{self._name(node)}: {self._data(node)} cannot be prepared:\n{said}",
                        remedy=f"delete {self.folder}, unless you need its contents",
                        code="server-format",
                    )
        finally:
            for _, child in formatting:
                child.kill()
                child.communicate()

    @cached_property
    def _jars(self) -> list[Path]:
        """The jars; each fetch reads all of them to verify them, so once is enough for all brokers and restarts."""
        return fetch(JARS)

    def _java(self, main: str, *arguments: str | Path) -> list[str | Path]:
        return java_command(main, self._jars, arguments, heap_mib=_HEAP_MIB, folder=self.folder / "run")

    def _write_config(self, node: _Node) -> Path:
        make_folder(self._data(node))
        count = len(self._cluster.nodes)
        in_sync = 2 if count == 3 else 1
        settings = {
            "process.roles": "broker,controller",
            "node.id": node.number,
            "controller.quorum.voters": ",".join(f"{other.number}@{HOST}:{other.controller_port}" for other in self._cluster.nodes),
            "listeners": f"PLAINTEXT://{HOST}:{node.port},CONTROLLER://{HOST}:{node.controller_port}",
            "controller.listener.names": "CONTROLLER",
            "log.dirs": self._data(node),
            "default.replication.factor": count,
            "min.insync.replicas": in_sync,
            "offsets.topic.replication.factor": count,
            "offsets.topic.num.partitions": 8,
            "transaction.state.log.replication.factor": count,
            "transaction.state.log.min.isr": in_sync,
            "transaction.state.log.num.partitions": 8,
            "share.coordinator.state.topic.replication.factor": count,
            "share.coordinator.state.topic.min.isr": in_sync,
            "share.coordinator.state.topic.num.partitions": 8,
            "group.initial.rebalance.delay.ms": 0,
            # a killed broker is accepted again only when the session of its previous process has expired
            "broker.session.timeout.ms": 3000,
            "broker.heartbeat.interval.ms": 500,
            "controlled.shutdown.enable": str(count > 1).lower(),
            # no record every half second while nothing changes: these were a third of the cost of an idle broker
            "metadata.max.idle.interval.ms": 0,
            "log.cleaner.dedupe.buffer.size": 16 * 2**20,  # for a small heap
            **self._properties,
        }
        config = self.folder / "run" / f"kafka-{node.number}.properties"
        replace(config, "".join(f"{name}={value}\n" for name, value in settings.items()).encode())
        return config

    def _data(self, node: _Node) -> Path:
        return self.folder / "data" / str(node.number)

    def _pid_file(self, node: _Node) -> Path:
        return self.folder / "run" / f"kafka-{node.number}.pid.json"

    def _name(self, node: _Node) -> str:
        return f"Kafka broker {node.number}" if len(self._cluster.nodes) > 1 else "Kafka"


def _read_or_make(folder: Path, brokers: int) -> _Cluster:
    cluster = load_or_create(folder / "cluster.json", _Cluster, lambda: _new_cluster(brokers))
    if len(cluster.nodes) != brokers:
        raise EnvironmentFault(
            f"{folder} holds a cluster with {len(cluster.nodes)} brokers; expected {brokers}",
            remedy="name another folder",
            code="server-folder",
        )
    return cluster


def _new_cluster(brokers: int) -> _Cluster:
    ports = free_ports(2 * brokers)
    return _Cluster(_new_id(), tuple(_Node(number + 1, ports[2 * number], ports[2 * number + 1]) for number in range(brokers)))


def _new_id() -> str:
    """A new id in Kafka's format: 16 bytes in 22 characters. It does not begin with a dash, which Kafka's tool would read as an option."""
    while True:
        id_ = base64.urlsafe_b64encode(uuid4().bytes).decode().rstrip("=")
        if not id_.startswith("-"):
            return id_
