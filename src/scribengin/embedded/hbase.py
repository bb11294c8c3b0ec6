"""A real HBase on 127.0.0.1, from jars: master, region server and ZooKeeper in one process, its REST and Thrift servers in others."""

from __future__ import annotations

import socket
from contextlib import suppress
from typing import TYPE_CHECKING
from xml.sax.saxutils import escape

import msgspec

from scribengin.core.storage import make_folder, replace
from scribengin.embedded.jars import fetch, pyspark_jars
from scribengin.embedded.server import (
    HOST,
    LoneServer,
    ServerProcess,
    check_port,
    find_server,
    free_ports,
    java_command,
    load_or_create,
    start_server,
)

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
"""seconds in which the server stores its regions; after that it may wait for the ZooKeeper that it has just ended itself"""
_OLDER = ("servlet-api-2.5", "jersey-", "jetty-", "javax.servlet.jsp", "reload4j", "slf4j-")
"""jars of Hadoop 2 that are left out: older versions of classes that the REST server has, and a logging library besides that of PySpark"""
_OPENS = (
    *(f"java.base/java.{package}" for package in ("io", "lang", "lang.reflect", "net", "nio", "util", "util.concurrent")),
    *(f"java.base/{package}" for package in ("jdk.internal.misc", "jdk.internal.ref", "sun.nio.ch")),
    "java.security.jgss/sun.security.krb5",
)
_EXPORTS = ("java.base/jdk.internal.misc", "java.security.jgss/sun.security.krb5")
"""Java modules that HBase's own start script opens, for Java 17"""
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
    """A gateway process for clients that do not use HBase's own protocol."""

    def __init__(self, name: str, main: str, port: int, folder: Path, files: str) -> None:
        self.name = name
        self.main = main
        self.port = port
        self.log = folder / "log" / f"{files}.log"
        self.pid_file = folder / "run" / f"{files}.pid.json"
        self.server: ServerProcess | None = find_server(name, pid_file=self.pid_file, log=self.log)

    def taken(self) -> ServerProcess | None:
        """Return the gateway's process and forget it: the caller ends it."""
        server, self.server = self.server, None
        return server


class HBase(LoneServer):
    """An HBase with one region server over files, open to all users of this machine. Its address is that of the REST server; `pid` is the
    process that holds the data.

    Args:
        folder: the server's folder.
        thrift: also run a Thrift server (version 2 of its interface).
    """

    def __init__(self, folder: Path, *, thrift: bool = False) -> None:
        super().__init__(folder, NAME, files="hbase")
        self._inner = load_or_create(self.folder / "inner.json", _Inner, lambda: _Inner(*free_ports(3)))
        self._gateways = [_Gateway("HBase's REST server", _REST, self._port, self.folder, "hbase-rest")]
        self._thrift_port: int | None = None
        if thrift:
            self._thrift_port = load_or_create(self.folder / "thrift.json", _Port, lambda: _Port(*free_ports(1))).thrift
            self._gateways.append(_Gateway("HBase's Thrift server", _THRIFT, self._thrift_port, self.folder, "hbase-thrift"))

    @property
    def uri(self) -> str:
        """The URL for clients."""
        return f"http://{self.address}"

    @property
    def thrift_uri(self) -> str:
        """The URL for Thrift clients. Only for a server with `thrift`."""
        assert self._thrift_port is not None
        return f"thrift://{HOST}:{self._thrift_port}"

    def fetch(self, tell: Callable[[str], None]) -> None:
        """Fetch the server's jars. `tell` is called with a message before."""
        fetch(JARS, tell)

    def start(self) -> None:
        """Start the server's processes that are not running, and return when it serves. Fetches the jars if the cache lacks them. Raises
        EnvironmentFault: there is no Java, jars cannot be fetched, a port is taken, or the server does not start."""
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
        """True if the REST server can describe a table, for which it needs the master and a region server, and the other processes
        listen."""
        with suppress(OSError), socket.create_connection((HOST, self._port), timeout=timeout_s) as connection:
            connection.sendall(b"GET /hbase:meta/schema HTTP/1.0\r\nAccept: application/json\r\n\r\n")
            said = b""
            while part := connection.recv(4096):
                said += part
            return said.startswith(b"HTTP/1.1 200") and all(_listens(each.port, timeout_s) for each in self._gateways)
        return False

    def release(self) -> None:
        """Keep it running after this process ends."""
        super().release()
        for each in self._gateways:
            if each.server is not None:
                each.server.release()

    def stop(self) -> None:
        """Stop it cleanly, gateways first."""
        for each in self._gateways:
            if gateway := each.taken():
                gateway.stop(_STOPPED_WITHIN_S)
        server, self._server = self._server, None
        if server is not None:
            server.stop(_STOPPED_WITHIN_S)

    def kill(self) -> None:
        """Kill all processes of the server."""
        self.kill_gateways()
        super().kill()

    def kill_gateways(self) -> None:
        """Kill the REST and Thrift servers; the process that holds the data keeps running."""
        for each in self._gateways:
            if gateway := each.taken():
                gateway.kill()

    def kill_store(self) -> None:
        """Kill the process that holds the data; the gateways keep running."""
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
            "hbase.unsafe.stream.capability.enforce": "false",  # what a killed process has written is in its file
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
"""settings for a machine with few clients: a request that finds the store unavailable fails soon, and the client retries; and a process
that ends its own ZooKeeper does not wait for it"""


def _as_xml(settings: dict[str, object]) -> str:
    """Settings as a configuration file in HBase's format.

    >>> _as_xml({"a": 1})
    '<configuration><property><name>a</name><value>1</value></property></configuration>'
    """
    each = (f"<property><name>{name}</name><value>{escape(str(value))}</value></property>" for name, value in settings.items())
    return f"<configuration>{''.join(each)}</configuration>"
