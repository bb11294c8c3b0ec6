"""A real HDFS on 127.0.0.1: a NameNode and a DataNode, which can be stopped separately, from jars."""

from __future__ import annotations

import subprocess
import urllib.request
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Self
from xml.sax.saxutils import escape

import msgspec

from scribengin.core.errors import EnvironmentFault
from scribengin.core.java import find_java
from scribengin.core.storage import make_folder, replace
from scribengin.embedded.jars import fetch, pyspark_jars
from scribengin.embedded.server import HOST, LoneServer, check_port, free_ports, java_command, load_or_create, start_server

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path
    from types import TracebackType

JARS = "hdfs"
_OURS = (
    "hadoop-client-api-*.jar",
    "hadoop-client-runtime-*.jar",
    "log4j-1.2-api-*.jar",
    "jcl-over-slf4j-*.jar",
    "leveldbjni-all-*.jar",
    "javax.servlet-api-*.jar",
)
"""jars of PySpark that the servers need"""
_HEAP_MIB = 192
_READY_WITHIN_S = 180.0
_RUN_WITHIN_S = 120.0
_ANSWER_S = 5.0
_ANSWER_BYTES = 2**20


class _Web(msgspec.Struct, frozen=True):
    port: int


class HadoopProcess(LoneServer):
    """A process of Hadoop with a web page of its own, such as a NameNode or a ResourceManager."""

    MAIN = ""
    SETS: tuple[str, ...] = (JARS,)
    """the sets of jars that it needs besides PySpark's"""

    def __init__(self, folder: Path, name: str, *, files: str) -> None:
        super().__init__(folder, name, files=files)
        self.name = name
        self.web_port = load_or_create(self.folder / "web.json", _Web, lambda: _Web(free_ports(1)[0])).port

    @property
    def up(self) -> bool:
        """True if the process is running."""
        return self.pid is not None

    def begin(self, conf: Path) -> bool:
        """Start the process if it is not running, without waiting.

        Args:
            conf: the folder with the settings.

        Returns:
            True if it was started.
        """
        if self.up:
            return False
        for port in (self._port, self.web_port):
            check_port(port, self.name)
        self._server = start_server(
            self.name, self.command(conf), pid_file=self._pid_file, log=self.log, environment={"JAVA_HOME": str(find_java().home)}
        )
        return True

    def command(self, conf: Path, *arguments: str, main: str = "") -> list[str | Path]:
        """The command line of the process, or of another program of its jars.

        Args:
            conf: the folder with the settings.
            arguments: the arguments of the program.
            main: the class of the other program; empty: that of the process.
        """
        jars = [conf, *(jar for name in self.SETS for jar in fetch(name)), *pyspark_jars(*_OURS)]
        return java_command(main or self.MAIN, jars, arguments, heap_mib=_HEAP_MIB, folder=self.folder / "run")

    def asked(self, bean: str, timeout_s: float) -> dict[str, Any]:
        """The attributes of one of the process's JMX beans. Raises OSError if it does not answer, LookupError if it does not have the bean
        yet."""
        url = f"http://{HOST}:{self.web_port}/jmx?qry=Hadoop:{bean}"
        with urllib.request.urlopen(url, timeout=timeout_s) as answer:
            found: dict[str, Any] = msgspec.json.decode(answer.read(_ANSWER_BYTES))["beans"][0]
            return found

    def start(self) -> None:
        """Raise NotImplementedError: it is started together with others, by `Hdfs` or `Yarn`."""
        raise NotImplementedError

    def answers(self) -> bool:
        """Raise NotImplementedError: it does not serve alone; see `Hdfs.answers`, `Yarn.answers`."""
        raise NotImplementedError

    def wait_ready(self, ready: Callable[[], bool]) -> None:
        """Wait until `ready` returns True. Raises EnvironmentFault: the process ends before. It must have been started."""
        assert self._server is not None
        self._server.wait_ready(ready, _READY_WITHIN_S)


class NameNode(HadoopProcess):
    """The NameNode, which stores the names of files."""

    MAIN = "org.apache.hadoop.hdfs.server.namenode.NameNode"

    def __init__(self, folder: Path) -> None:
        super().__init__(folder, "HDFS NameNode", files="namenode")

    def format(self, conf: Path) -> None:
        """Create an empty file system, unless there is one. `conf`: the folder with the settings."""
        if (self.folder / "data" / "current" / "VERSION").exists():
            return
        _run(self.command(conf, "-format", "-nonInteractive"))


class DataNode(HadoopProcess):
    """The DataNode, which stores the content of files."""

    MAIN = "org.apache.hadoop.hdfs.server.datanode.DataNode"

    def __init__(self, folder: Path) -> None:
        super().__init__(folder, "HDFS DataNode", files="datanode")


class Hdfs:
    """An HDFS with one NameNode and one DataNode. Data and ports stay in `folder` over restarts; released processes are found again.

    As a context manager both run inside the block, and end after it, even if this process ends in any other way. Any client that claims to
    be this user (HADOOP_USER_NAME) has full access.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder.absolute()
        self.name_node = NameNode(self.folder / "namenode")
        self.data_node = DataNode(self.folder / "datanode")

    @property
    def uri(self) -> str:
        """`hdfs://127.0.0.1:port`: the URL for clients."""
        return f"hdfs://{self.name_node.address}"

    @property
    def pid(self) -> int | None:
        """The NameNode's process id; None if it is not running."""
        return self.name_node.pid

    @property
    def log(self) -> Path:
        """The NameNode's log."""
        return self.name_node.log

    def fetch(self, tell: Callable[[str], None]) -> None:
        """Fetch the server's jars. `tell` is called with a message before."""
        fetch(JARS, tell)

    def start(self) -> None:
        """Start the processes that are not running, and return when files can be written. Fetches the jars if the cache lacks them. Raises
        EnvironmentFault: there is no Java, jars cannot be fetched, a port is taken, or a process does not start."""
        begun: list[HadoopProcess] = []
        try:
            conf = self._write_settings()
            if not self.name_node.up:
                self.name_node.format(conf)
            begun = [node for node in (self.name_node, self.data_node) if node.begin(conf)]
            # the DataNode last: if it has ended, the NameNode would never become ready
            for node in begun:
                node.wait_ready(lambda: self.answers() or not self.data_node.up)
            if not self.answers():
                self.data_node.wait_ready(self.answers)
        except BaseException:
            for node in begun:
                node.kill()
            raise

    def answers(self, *, timeout_s: float = _ANSWER_S) -> bool:
        """True if files can be written: the NameNode has left safe mode, and both have registered with each other."""
        with suppress(OSError, ValueError, LookupError):
            name = self.name_node.asked("service=NameNode,name=NameNodeInfo", timeout_s)
            data = self.data_node.asked("service=DataNode,name=DataNodeInfo", timeout_s)
            return name["Safemode"] == "" and name["LiveNodes"] != "{}" and '"ActorState":"RUNNING"' in data["BPServiceActorInfo"]
        return False

    def admin(self, *arguments: str) -> None:
        """Run `hdfs dfsadmin` with these arguments. Raises EnvironmentFault if it fails."""
        _run(self.name_node.command(self.folder / "conf", *arguments, main="org.apache.hadoop.hdfs.tools.DFSAdmin"))

    def release(self) -> None:
        """Keep both running after this process ends."""
        self.name_node.release()
        self.data_node.release()

    def stop(self) -> None:
        """Stop both cleanly; a process that does not end in time is killed. Does nothing if none is running."""
        self.data_node.stop()
        self.name_node.stop()

    def kill(self) -> None:
        """Kill both, and return when they have ended."""
        self.data_node.kill()
        self.name_node.kill()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.stop()

    def _write_settings(self) -> Path:
        """Write the settings of both, into a folder that is the first of their classpath. Returns the folder."""
        conf = self.folder / "conf"
        make_folder(conf)
        name, data = self.name_node, self.data_node
        site = {
            "dfs.replication": 1,
            "dfs.namenode.name.dir": name.folder / "data",
            "dfs.namenode.http-address": f"{HOST}:{name.web_port}",
            "dfs.datanode.data.dir": data.folder / "data",
            "dfs.datanode.address": data.address,
            "dfs.datanode.http.address": f"{HOST}:{data.web_port}",
            "dfs.datanode.ipc.address": f"{HOST}:0",
            # by default each start of the NameNode waits 30 s
            "dfs.namenode.safemode.extension": 0,
            # a killed DataNode is noticed after 20 s, not after ten minutes
            "dfs.heartbeat.interval": 1,
            "dfs.namenode.heartbeat.recheck-interval": 5000,
            # a block's last bytes are on one node: no other one can replace it
            "dfs.client.block.write.replace-datanode-on-failure.enable": "false",
        }
        core = {"fs.defaultFS": self.uri, "hadoop.tmp.dir": self.folder / "run" / "tmp"}
        for file, settings in (("core-site.xml", core), ("hdfs-site.xml", site)):
            write_site(conf / file, settings)
        return conf


def write_site(path: Path, settings: Mapping[str, object]) -> None:
    """Write a file with Hadoop's settings. Raises EnvironmentFault."""
    lines = (f"<property><name>{key}</name><value>{escape(str(value))}</value></property>\n" for key, value in settings.items())
    replace(path, f"<configuration>\n{''.join(lines)}</configuration>\n".encode())


def _run(command: list[str | Path]) -> None:
    said = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False, timeout=_RUN_WITHIN_S)
    if said.returncode:
        lines = "\n  ".join(said.stdout.splitlines()[-8:])
        raise EnvironmentFault(f"the HDFS command failed:\n  {lines}", remedy="read the output of the command", code="server-ended")
