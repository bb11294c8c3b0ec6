"""A real ZooKeeper on 127.0.0.1, one server or several that form a quorum, from the jars of PySpark."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from scribengin.core.storage import make_folder, replace
from scribengin.embedded.jars import pyspark_jars
from scribengin.embedded.server import HOST, LoneServer, check_port, java_command, start_server
from scribengin.registry.zookeeper_servers import ask_server

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

NAME = "ZooKeeper"
_JARS = ("zookeeper-*.jar", "metrics-core-*.jar", "snappy-java-*.jar", "netty-*.jar", "commons-cli-*.jar", "commons-io-*.jar")
_HEAP_MIB = 256
_READY_WITHIN_S = 120.0
_ANSWER_S = 5.0
_STARTING_ANSWER_S = 0.5  # a request between the opening of its socket and the loading of its data is never answered on that connection


@dataclass(frozen=True, slots=True)
class Quorum:
    """A server's position in a quorum: its number, and for each number the ports for followers and for elections."""

    number: int
    ports: Mapping[int, tuple[int, int]]


class ZooKeeper(LoneServer):
    """A ZooKeeper server. Sessions may be as short as 1 s: a tick is half of that."""

    def __init__(self, folder: Path, quorum: Quorum | None = None) -> None:
        """Find a running server of this folder, or prepare one.

        Args:
            folder: the server's folder.
            quorum: its position among several servers (`harness.ensemble.ZooKeeperEnsemble`), without which it does not serve; None: it is
                the only
                one.
        """
        super().__init__(folder, NAME, files="zookeeper")
        self._quorum = quorum

    def start(self) -> None:
        """Start the server if it is not running, and return when it serves. Raises EnvironmentFault: there is no Java, the port is taken,
        or the server does not start."""
        begun = self.begin()
        try:
            self.wait_ready()
        except BaseException:
            if begun:
                self.kill()
            raise

    def begin(self) -> bool:
        """Start the server if it is not running, without waiting. Returns True if it was started."""
        if self._server is not None and self._server.alive():
            return False
        check_port(self._port, NAME)
        main = "ZooKeeperServerMain" if self._quorum is None else "quorum.QuorumPeerMain"
        command = java_command(
            f"org.apache.zookeeper.server.{main}",
            pyspark_jars(*_JARS),
            [self._write_config()],
            heap_mib=_HEAP_MIB,
            folder=self.folder / "run",
        )
        self._server = start_server(NAME, command, pid_file=self._pid_file, log=self.log)
        return True

    def wait_ready(self) -> None:
        """Wait until the server, which was started, serves. Raises EnvironmentFault if it ends, or does not serve in time."""
        assert self._server is not None
        self._server.wait_ready(lambda: self.answers(timeout_s=_STARTING_ANSWER_S), _READY_WITHIN_S)

    def clear(self) -> None:
        """Clean up after a server that has ended by itself; a running one is left alone."""
        if self.pid is None:
            self.kill()

    def answers(self, *, timeout_s: float = _ANSWER_S) -> bool:
        """True if the server serves: it reports its mode. (It answers `ruok` long before.)"""
        with suppress(OSError):
            return b"\nMode: " in ask_server(HOST, self._port, b"srvr", timeout_s)
        return False

    def _write_config(self) -> Path:
        data = self.folder / "data"
        make_folder(data)
        settings: dict[str, object] = {
            "tickTime": 500,
            "maxSessionTimeout": 60_000,
            "dataDir": data,
            "clientPort": self._port,
            "clientPortAddress": HOST,
            "maxClientCnxns": 0,
            "admin.enableServer": "false",
            "4lw.commands.whitelist": "ruok,srvr,mntr,stat,cons,wchs",
            "autopurge.snapRetainCount": 3,
            "autopurge.purgeInterval": 1,
        }
        if self._quorum is not None:
            replace(data / "myid", f"{self._quorum.number}\n".encode())
            settings |= {"initLimit": 20, "syncLimit": 10}
            settings |= {f"server.{number}": f"{HOST}:{peers}:{votes}" for number, (peers, votes) in self._quorum.ports.items()}
        config = self.folder / "run" / "zookeeper.cfg"
        replace(config, "".join(f"{name}={value}\n" for name, value in settings.items()).encode())
        return config
