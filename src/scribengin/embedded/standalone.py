"""A real Spark standalone cluster: a master and its workers, on 127.0.0.1, from the jars of PySpark."""

from __future__ import annotations

import urllib.request
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any

import msgspec

from scribengin.core.java import find_java
from scribengin.core.storage import make_folder, replace
from scribengin.embedded.jars import pyspark_jars
from scribengin.embedded.server import HOST, check_port, find_server, free_ports, java_command, load_or_create, start_server

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path
    from types import TracebackType

    from scribengin.embedded.server import ServerProcess

MASTER = "Spark master"
_HEAP_MIB = 256
_READY_WITHIN_S = 240.0
_STOPPED_WITHIN_S = 20.0
_ANSWER_S = 5.0
_ANSWER_BYTES = 2**24
_KEPT_APPLICATION_S = 3600


class _Place(msgspec.Struct, frozen=True):
    port: int
    web_port: int


class StandaloneCluster:
    """A Spark standalone cluster: a master, and workers that each offer `cores` and `memory_mib` to executors. Ports stay in `folder` over
    restarts.

    As a context manager it runs inside the block, and ends after it, even if this process ends in any other way. Workers are numbered from
    1. Logs of executors are in `work/`; Spark deletes them an hour after their application.
    """

    def __init__(self, folder: Path, *, workers: int = 1, cores: int = 2, memory_mib: int = 2048) -> None:
        self.folder = folder.absolute()
        self._place = load_or_create(self.folder / "place.json", _Place, lambda: _Place(*free_ports(2)))
        self._cores = cores
        self._memory_mib = memory_mib
        self._names = (MASTER, *(_worker(number) for number in range(1, workers + 1)))
        self._servers: dict[str, ServerProcess] = {}
        # also the workers of a larger cluster that was started in this folder before
        before = [_worker(int(path.name.split("-")[2].partition(".")[0])) for path in (self.folder / "run").glob("spark-worker-*.pid.json")]
        for name in dict.fromkeys([*self._names, *before]):
            found = find_server(name, pid_file=self._pid_file(name), log=self._log(name))
            if found is not None:
                self._servers[name] = found

    @property
    def address(self) -> str:
        """The value for `spark.master`, such as `spark://127.0.0.1:port`."""
        return f"spark://{HOST}:{self._place.port}"

    @property
    def web(self) -> str:
        """The URL of the master's web UI, `http://127.0.0.1:port`; `/json/` returns its state as JSON."""
        return f"http://{HOST}:{self._place.web_port}"

    @property
    def pid(self) -> int | None:
        """The master's process id; None if it is not running."""
        server = self._servers.get(MASTER)
        return server.process.pid if server is not None and server.alive() else None

    @property
    def whole(self) -> bool:
        """True if all processes of the cluster are running."""
        return all(self._alive(name) for name in self._names)

    @property
    def log(self) -> Path:
        """The master's log; those of the workers are beside it."""
        return self._log(MASTER)

    def start(self) -> None:
        """Start the processes that are not running, and return when all workers have registered with the master. Raises EnvironmentFault:
        there is no Java, the port is taken, or a process does not answer."""
        begun = [name for name in self._names if not self._alive(name)]
        try:
            for name in begun:
                self._start(name)
            for name in begun:
                self._servers[name].wait_ready(partial(self._is_up, name), _READY_WITHIN_S)
            self._servers[MASTER].wait_ready(self.answers, _READY_WITHIN_S)
        except BaseException:
            for name in begun:
                if name in self._servers:
                    self._servers[name].kill()
            raise

    def release(self) -> None:
        """Keep the cluster running after this process ends."""
        for server in self._servers.values():
            server.release()

    def stop(self) -> None:
        """Stop workers (with their executors) and master cleanly; a process that does not end in time is killed. Does nothing if none is
        running."""
        for name in sorted(self._servers, key=lambda name: (name == MASTER, name)):
            self._servers.pop(name).stop(_STOPPED_WITHIN_S)

    def kill(self, worker: int) -> None:
        """Kill a worker, and return when it has ended; its executors then exit. Does nothing if it is not running."""
        server = self._servers.pop(_worker(worker), None)
        if server is not None:
            server.kill()

    def answers(self) -> bool:
        """True if the master answers, and all workers have registered."""
        with suppress(OSError, ValueError):
            state = self.read_state()
            return bool(state["status"] == "ALIVE") and int(state["aliveworkers"]) >= len(self._names) - 1
        return False

    def read_state(self) -> Mapping[str, Any]:
        """The master's state with its workers and applications, from its `/json/`. Raises OSError if it does not answer."""
        with urllib.request.urlopen(f"{self.web}/json/", timeout=_ANSWER_S) as answer:
            state: Mapping[str, Any] = msgspec.json.decode(answer.read(_ANSWER_BYTES))
            return state

    def __enter__(self) -> StandaloneCluster:
        self.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.stop()

    def _alive(self, name: str) -> bool:
        return name in self._servers and self._servers[name].alive()

    def _is_up(self, name: str) -> bool:
        """True if a process is up: the master if it answers. A worker is up when it has registered, which is checked for all workers
        together."""
        if name != MASTER:
            return True
        with suppress(OSError, ValueError):
            return bool(self.read_state()["status"] == "ALIVE")
        return False

    def _start(self, name: str) -> None:
        if name == MASTER:
            for port in (self._place.port, self._place.web_port):
                check_port(port, name)
            main = "org.apache.spark.deploy.master.Master"
            arguments = ["--host", HOST, "--port", self._place.port, "--webui-port", self._place.web_port]
        else:
            main = "org.apache.spark.deploy.worker.Worker"
            arguments = ["--host", HOST, "--port", 0, "--webui-port", 0, "--cores", self._cores, "--memory", f"{self._memory_mib}m"]
            arguments += ["--work-dir", self.folder / "work", self.address]
        words = [str(word) for word in ["--properties-file", self._write_settings(), *arguments]]
        jars = pyspark_jars("*.jar")
        command = java_command(main, jars, words, heap_mib=_HEAP_MIB, folder=self.folder / "run")
        (core,) = pyspark_jars("spark-core_*.jar")
        environment = {
            # a worker finds the commands that start its executors by these
            "SPARK_HOME": str(core.parent.parent),
            "SPARK_SCALA_VERSION": core.name.removeprefix("spark-core_").partition("-")[0],
            "JAVA_HOME": str(find_java().home),
            "SPARK_LOCAL_IP": HOST,
        }
        self._servers[name] = start_server(name, command, pid_file=self._pid_file(name), log=self._log(name), environment=environment)

    def _write_settings(self) -> Path:
        for part in ("work", "run/recovery"):
            make_folder(self.folder / part)
        settings = {
            # Spark's REST API for submissions ran Python drivers on local[*], and left them running when they were killed
            "spark.master.rest.enabled": "false",
            "spark.worker.cleanup.enabled": "true",
            "spark.worker.cleanup.appDataTtl": _KEPT_APPLICATION_S,
            "spark.local.dir": self.folder / "run" / "tmp",
            # a restarted master recovers its applications and workers, which continue
            "spark.deploy.recoveryMode": "FILESYSTEM",
            "spark.deploy.recoveryDirectory": self.folder / "run" / "recovery",
        }
        path = self.folder / "run" / "spark.properties"
        replace(path, "".join(f"{name}={value}\n" for name, value in settings.items()).encode())
        return path

    def _pid_file(self, name: str) -> Path:
        return self.folder / "run" / f"{_file(name)}.pid.json"

    def _log(self, name: str) -> Path:
        return self.folder / "log" / f"{_file(name)}.log"


def _worker(number: int) -> str:
    return f"Spark worker {number}"


def _file(name: str) -> str:
    return name.lower().replace(" ", "-")
