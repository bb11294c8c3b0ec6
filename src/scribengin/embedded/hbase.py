"""A real HBase on 127.0.0.1, from jars: master, region server and ZooKeeper in one process, its REST and its Thrift server in others."""

from __future__ import annotations

import socket
from contextlib import suppress
from typing import TYPE_CHECKING
from xml.sax.saxutils import escape

import msgspec

from scribengin.core.storage import make_folder, replace
from scribengin.embedded.jars import fetch, pyspark_jars
from scribengin.embedded.java_server import HOST, check_port, free_ports, java_command
from scribengin.embedded.lone_server import LoneServer
from scribengin.embedded.place import remembered
from scribengin.embedded.process import ServerProcess, find_server, start_server

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

NAME = "HBase"
JARS = "hbase"
_MASTER = "org.apache.hadoop.hbase.master.HMaster"
_REST = "org.apache.hadoop.hbase.rest.RESTServer"
_THRIFT = "org.apache.hadoop.hbase.thrift2.ThriftServer"
_HEAP_MIB, _GATEWAY_HEAP_MIB = 512, 256
_READY_WITHIN_S = 180.0
_STOPPED_WITHIN_S = 8.0
"""it writes its regions down in one; then it may wait for the ZooKeeper that it has just ended itself"""
_OLDER = ("servlet-api-2.5", "jersey-", "jetty-", "javax.servlet.jsp", "reload4j", "slf4j-")
"""jars that Hadoop 2 brings: older classes of the REST server's own names, and a logging beside that of PySpark"""
_OPENS = (
    *(f"java.base/java.{package}" for package in ("io", "lang", "lang.reflect", "net", "nio", "util", "util.concurrent")),
    *(f"java.base/{package}" for package in ("jdk.internal.misc", "jdk.internal.ref", "sun.nio.ch")),
    "java.security.jgss/sun.security.krb5",
)
_EXPORTS = ("java.base/jdk.internal.misc", "java.security.jgss/sun.security.krb5")
"""what HBase's own start script opens to it of Java 17"""
_FLAGS = (
    *(f"--add-opens={each}=ALL-UNNAMED" for each in _OPENS),
    *(f"--add-exports={each}=ALL-UNNAMED" for each in _EXPORTS),
    "-Dorg.apache.hbase.thirdparty.io.netty.tryReflectionSetAccessible=true",
)


class _Inner(msgspec.Struct, frozen=True):
    zookeeper: int
    master: int
    region: int


class _Port(msgspec.Struct, frozen=True):
    thrift: int


class _Gateway:
    """A process by which clients that do not speak HBase's own protocol come to it."""

    def __init__(self, name: str, main: str, port: int, folder: Path, files: str) -> None:
        self.name = name
        self.main = main
        self.port = port
        self.log = folder / "log" / f"{files}.log"
        self.pid_file = folder / "run" / f"{files}.pid.json"
        self.server: ServerProcess | None = find_server(name, pid_file=self.pid_file, log=self.log)

    def taken(self) -> ServerProcess | None:
        """Its process, which somebody ends now."""
        server, self.server = self.server, None
        return server


class HBase(LoneServer):
    """One region server over files; whoever is on this machine may do all. Its address is the REST server's; `pid` is the process that
    has the data. `thrift`: a Thrift server (of version 2 of its interface) beside the REST server."""

    def __init__(self, folder: Path, *, thrift: bool = False) -> None:
        super().__init__(folder, NAME, files="hbase")
        self._inner = remembered(self.folder / "inner.json", _Inner, lambda: _Inner(*free_ports(3)))
        self._gateways = [_Gateway("HBase's REST server", _REST, self._port, self.folder, "hbase-rest")]
        self._thrift_port: int | None = None
        if thrift:
            self._thrift_port = remembered(self.folder / "thrift.json", _Port, lambda: _Port(*free_ports(1))).thrift
            self._gateways.append(_Gateway("HBase's Thrift server", _THRIFT, self._thrift_port, self.folder, "hbase-thrift"))

    @property
    def uri(self) -> str:
        """What a client connects to."""
        return f"http://{self.address}"

    @property
    def thrift_uri(self) -> str:
        """What a client connects to that speaks Thrift, where there is such a server."""
        assert self._thrift_port is not None
        return f"thrift://{HOST}:{self._thrift_port}"

    def fetch(self, tell: Callable[[str], None]) -> None:
        """Its jars."""
        fetch(JARS, tell)

    def start(self) -> None:
        """Start what of it is not up, and return when it serves. Fetches the jars where the cache lacks them. Raises EnvironmentFault:
        no Java, no jars, a port taken, it does not come up."""
        try:
            started = False
            if self._server is None or not self._server.alive():
                for port in (self._inner.zookeeper, self._inner.master, self._inner.region):
                    check_port(port, NAME)
                self._server = start_server(NAME, self._command(_MASTER, _HEAP_MIB), pid_file=self._pid_file, log=self.log)
                started = True
            for each in self._gateways:
                if each.server is None or not each.server.alive():
                    check_port(each.port, each.name)
                    command = self._command(each.main, _GATEWAY_HEAP_MIB)
                    each.server = start_server(each.name, command, pid_file=each.pid_file, log=each.log)
                    started = True
            if started:
                self._server.wait_ready(self.answers, _READY_WITHIN_S)
        except BaseException:
            self.kill()
            raise

    def answers(self, *, timeout_s: float = 10.0) -> bool:
        """Whether it can say what a table is made of: the REST server is up, and the master behind it, which has all it needs; and others
        listen."""
        with suppress(OSError), socket.create_connection((HOST, self._port), timeout=timeout_s) as connection:
            connection.sendall(b"GET /hbase:meta/schema HTTP/1.0\r\nAccept: application/json\r\n\r\n")
            said = b""
            while part := connection.recv(4096):
                said += part
            return said.startswith(b"HTTP/1.1 200") and all(_listens(each.port, timeout_s) for each in self._gateways)
        return False

    def release(self) -> None:
        """Let it live on when this process ends."""
        super().release()
        for each in self._gateways:
            if each.server is not None:
                each.server.release()

    def stop(self) -> None:
        """End it in order, gateways first."""
        for each in self._gateways:
            if gateway := each.taken():
                gateway.stop(_STOPPED_WITHIN_S)
        server, self._server = self._server, None
        if server is not None:
            server.stop(_STOPPED_WITHIN_S)

    def kill(self) -> None:
        """End all as a crash does."""
        self.kill_gateways()
        super().kill()

    def kill_gateways(self) -> None:
        """End the REST and the Thrift server as a crash does; what has the data stays."""
        for each in self._gateways:
            if gateway := each.taken():
                gateway.kill()

    def kill_store(self) -> None:
        """End what has the data as a crash does; gateways stay."""
        super().kill()

    def _command(self, main: str, heap_mib: int) -> list[str | Path]:
        run = self.folder / "run"
        make_folder(run)
        replace(run / "hbase-site.xml", _as_xml(self._settings()).encode())
        jars = [run, *pyspark_jars("log4j-1.2-api-*.jar"), *(jar for jar in fetch(JARS) if not jar.name.startswith(_OLDER))]
        flags = [*_FLAGS, f"-Dhbase.log.dir={self.folder / 'log'}"]
        return java_command(main, jars, ["start"], heap_mib=heap_mib, folder=run, flags=flags)

    def _settings(self) -> dict[str, object]:
        data = self.folder / "data"
        return {
            "hbase.rootdir": (data / "root").as_uri(),
            "hbase.tmp.dir": data / "tmp",
            "hbase.zookeeper.property.dataDir": data / "zookeeper",
            "hbase.zookeeper.property.clientPort": self._inner.zookeeper,
            "hbase.zookeeper.property.clientPortAddress": HOST,
            "hbase.zookeeper.quorum": HOST,
            "hbase.cluster.distributed": "false",
            "hbase.unsafe.stream.capability.enforce": "false",  # a killed process leaves what it has written to a file
            "hbase.wal.provider": "filesystem",
            "hbase.localcluster.assign.random.ports": "false",
            "hbase.master.hostname": "localhost",
            "hbase.master.ipc.address": HOST,
            "hbase.master.port": self._inner.master,
            "hbase.master.info.port": -1,
            "hbase.regionserver.hostname": "localhost",
            "hbase.regionserver.ipc.address": HOST,
            "hbase.regionserver.port": self._inner.region,
            "hbase.regionserver.info.port": -1,
            "hbase.rest.host": HOST,
            "hbase.rest.port": self._port,
            "hbase.rest.info.port": -1,
            "hbase.regionserver.thrift.ipaddress": HOST,
            **({} if self._thrift_port is None else {"hbase.regionserver.thrift.port": self._thrift_port}),
            "hbase.thrift.info.port": -1,
        } | _FEW


def _listens(port: int, timeout_s: float) -> bool:
    with suppress(OSError), socket.create_connection((HOST, port), timeout=timeout_s):
        return True
    return False


_FEW = {
    "hbase.regionserver.handler.count": 8,
    "hbase.rest.threads.max": 20,
    "hbase.rest.threads.min": 2,
    "hbase.thrift.minWorkerThreads": 2,
    "hbase.thrift.maxWorkerThreads": 20,
    "hbase.master.wait.on.regionservers.mintostart": 1,
    "hbase.master.wait.on.regionservers.maxtostart": 1,
    "hbase.regionserver.msginterval": 500,
    "hbase.client.pause": 100,
    "hbase.client.retries.number": 3,
    "zookeeper.recovery.retry": 0,
    "zookeeper.session.timeout": 10_000,
}
"""of a machine with a few clients: a request that finds the store away says so soon, and whoever asks tries again; and a process that
ends its own ZooKeeper does not wait for it"""


def _as_xml(settings: dict[str, object]) -> str:
    """As HBase reads it.

    >>> _as_xml({"a": 1})
    '<configuration><property><name>a</name><value>1</value></property></configuration>'
    """
    each = (f"<property><name>{name}</name><value>{escape(str(value))}</value></property>" for name, value in settings.items())
    return f"<configuration>{''.join(each)}</configuration>"
