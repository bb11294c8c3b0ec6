"""A real Elasticsearch on 127.0.0.1: one node, without security, from the distribution with which its own plugins are tested."""

from __future__ import annotations

import signal
import zipfile
from typing import TYPE_CHECKING

import msgspec

from scribengin.core.java import FIRST_COMPILER_ONLY, find_java
from scribengin.core.process import Process, birth_of
from scribengin.core.storage import make_folder, remove_tree, replace
from scribengin.embedded.jars import fetch
from scribengin.embedded.opensearch import takes_documents
from scribengin.embedded.server import HOST, LoneServer, check_port, free_ports, give, load_or_create, start_server, unprivileged_prefix

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

NAME = "Elasticsearch"
JARS = "elasticsearch"
_HEAP_MIB = 512
_READY_WITHIN_S = 180.0
_GONE_WITHIN_S = 30.0
_JAVA = ("-XX:+UseSerialGC", *FIRST_COMPILER_ONLY, "-XX:-UsePerfData", "-XX:+ExitOnOutOfMemoryError")
_LAUNCHERS_JAVA = "-XX:TieredStopAtLevel=1 -XX:-UsePerfData"
_LOGGING = """\
status = error
appender.console.type = Console
appender.console.name = console
appender.console.layout.type = PatternLayout
appender.console.layout.pattern = %d{yyyy-MM-dd HH:mm:ss.SSS} %-5p %c{1}: %m%n
rootLogger.level = info
rootLogger.appenderRef.console.ref = console
"""


class _Inner(msgspec.Struct, frozen=True):
    transport: int


class Elasticsearch(LoneServer):
    """An Elasticsearch with one node, open to all users of this machine. Its launcher starts the node as a process of its own, which ends
    with the launcher; `pid` is that of the node."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder, NAME, files="elasticsearch")
        self._inner = load_or_create(self.folder / "inner.json", _Inner, lambda: _Inner(*free_ports(1)))
        self._node_file = self.folder / "run" / "node.pid"

    @property
    def uri(self) -> str:
        """The URL for clients."""
        return f"http://{self.address}"

    @property
    def pid(self) -> int | None:
        """The node's process id if it is known, else the launcher's."""
        node = self._node()
        return node.pid if node is not None else super().pid

    def fetch(self, tell: Callable[[str], None]) -> None:
        """Fetch the server's distribution. `tell` is called with a message before."""
        fetch(JARS, tell)

    def start(self) -> None:
        """Start the server if it is not running, and return when it serves. Fetches the distribution if the cache lacks it. Raises
        EnvironmentFault: there is no Java, the distribution cannot be fetched, the port is taken, or the server does not start."""
        if self._server is not None and self._server.alive():
            return
        check_port(self._port, NAME)
        home, run = self._unpacked(), self.folder / "run"
        self._configure(run)
        self._node_file.unlink(missing_ok=True)
        give(self.folder)
        environment = {
            "ES_JAVA_HOME": str(find_java().home),
            "ES_PATH_CONF": str(run / "config"),
            "ES_TMPDIR": str(run / "tmp"),
            "CLI_JAVA_OPTS": _LAUNCHERS_JAVA,
        }
        command: list[str | Path] = [*unprivileged_prefix(), "bash", home / "bin" / "elasticsearch", "-p", self._node_file]
        self._server = start_server(NAME, command, pid_file=self._pid_file, log=self.log, environment=environment)
        try:
            self._server.wait_ready(self.answers, _READY_WITHIN_S)
        except BaseException:
            self.kill()
            raise

    def answers(self, *, timeout_s: float = 2.0) -> bool:
        """True if the server accepts documents: its state has been recovered."""
        return takes_documents(self._port, timeout_s)

    def stop(self) -> None:
        """Stop the server cleanly; it is killed if it does not end in time. Does nothing if it is not running."""
        node = self._node()
        super().stop()
        if node is not None and not node.gone_within(_GONE_WITHIN_S):  # the launcher was killed
            node.send(signal.SIGKILL)

    def kill(self) -> None:
        """Kill the node, and return when it has ended. Does nothing if it is not running."""
        node = self._node()
        if node is not None:
            node.send(signal.SIGKILL)
            node.gone_within(_GONE_WITHIN_S)
        super().kill()

    def _node(self) -> Process | None:
        """The node's process, which holds the data; None if it is not known."""
        try:
            pid = int(self._node_file.read_text())
        except (FileNotFoundError, ValueError):
            return None
        born = birth_of(pid)
        return Process(pid, born) if born is not None and self._server is not None and self._server.alive() else None

    def _unpacked(self) -> Path:
        """The unpacked distribution, in the server's own folder: other users have no access to the cache."""
        (archive,) = fetch(JARS)
        home = self.folder / archive.stem
        if not home.is_dir():
            draft = self.folder / "unpacking"
            remove_tree(draft)
            with zipfile.ZipFile(archive) as packed:
                packed.extractall(draft)
            (draft / archive.stem).replace(home)
            remove_tree(draft)
        return home

    def _configure(self, run: Path) -> None:
        config = run / "config"
        for folder in (config, run / "tmp", self.folder / "data"):
            make_folder(folder)
        settings = {
            "cluster.name": f"scribengin-{self._port}",
            "node.name": "node",
            "discovery.type": "single-node",
            "network.host": HOST,
            "http.port": self._port,
            "transport.port": self._inner.transport,
            "path.data": str(self.folder / "data"),
            "path.logs": str(run),
            "xpack.security.enabled": False,
            # a laptop's disk is often more than nine tenths full
            "cluster.routing.allocation.disk.threshold_enabled": False,
        }
        lines = "".join(f"{name}: {msgspec.json.encode(value).decode()}\n" for name, value in settings.items())
        replace(config / "elasticsearch.yml", lines.encode())
        java = [f"-Xms{_HEAP_MIB}m", f"-Xmx{_HEAP_MIB}m", *_JAVA, "-Djava.io.tmpdir=${ES_TMPDIR}", f"-XX:ErrorFile={run}/crash-%p.log"]
        replace(config / "jvm.options", "".join(f"{option}\n" for option in java).encode())
        replace(config / "log4j2.properties", _LOGGING.encode())
