"""A Spark cluster of two workers for the duration of a block, on 127.0.0.1 and on 127.0.0.2, because Spark speculates only on another
host."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from harness.faults.drivers import fault_variable, plain_environment, session_members
from scribengin.core.faults import VARIABLE
from scribengin.core.java import FIRST_COMPILER_ONLY, find_java
from scribengin.embedded.server import HOST, free_ports

if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import TracebackType

    from harness.faults.drivers import Strike

_HOSTS = (HOST, "127.0.0.2")
_BRIEF = " ".join([*FIRST_COMPILER_ONLY, "-XX:+UseSerialGC"])
_UP_WITHIN_S = 120.0
_POLL_S = 0.1
_CONF = {
    "spark.executor.memory": "512m",
    "spark.executor.cores": "1",
    "spark.executor.extraJavaOptions": _BRIEF,
    "spark.speculation": "true",
    "spark.speculation.interval": "100ms",
    "spark.speculation.quantile": "0.3",
    "spark.speculation.multiplier": "1.1",
    "spark.speculation.minTaskRuntime": "500ms",
    # small files are one task together, and a single task has no others to be slower than
    "spark.speculation.task.duration.threshold": "3s",
}


class WorkerCluster:
    """A master and two workers with one core each. `folder` is for their logs and temporary files."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._processes: list[subprocess.Popen[bytes]] = []
        (self._port,) = free_ports(1)

    def arguments(self, strikes: Sequence[Strike], work: Path) -> list[str]:
        """The arguments of `scribengin run` for a run on these workers. They give executors their environment, with the strikes."""
        path = plain_environment().get("PYTHONPATH", "")
        conf = _CONF | {"spark.executorEnv.PYTHONPATH": path, f"spark.executorEnv.{VARIABLE}": fault_variable(strikes, work)}
        return ["--spark-master", self._url, *(part for name, value in conf.items() for part in ("--spark-conf", f"{name}={value}"))]

    def __enter__(self) -> WorkerCluster:
        self._folder.mkdir(parents=True)
        try:
            self._start("master", "org.apache.spark.deploy.master.Master", "--host", HOST, "--port", str(self._port), "--webui-port", "0")
            for host in _HOSTS:
                given = ["--host", host, "--webui-port", "0", "--cores", "1", "--memory", "700m"]
                work = str(self._folder / "work" / host)
                self._start(f"worker-{host}", "org.apache.spark.deploy.worker.Worker", *given, "--work-dir", work, self._url)
            self._wait_up()
        except BaseException:
            self._end()
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._end()

    @property
    def _url(self) -> str:
        return f"spark://{HOST}:{self._port}"

    def _start(self, name: str, main: str, *arguments: str) -> None:
        import pyspark

        home = Path(pyspark.__file__).parent
        own = {"JAVA_HOME": str(find_java().home), "SPARK_HOME": str(home), "SPARK_DAEMON_MEMORY": "256m", "SPARK_DAEMON_JAVA_OPTS": _BRIEF}
        own |= {"PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_DIRS": str(self._folder / "local")}
        command = [str(home / "bin" / "spark-class"), main, *arguments]
        with self._log(name).open("wb") as log:
            self._processes.append(
                subprocess.Popen(
                    command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=plain_environment() | own, start_new_session=True
                )
            )

    def _wait_up(self) -> None:
        give_up_s = time.monotonic() + _UP_WITHIN_S
        while self._log("master").read_text(errors="replace").count("Registering worker") < len(_HOSTS):
            if time.monotonic() > give_up_s or any(process.poll() is not None for process in self._processes):
                logs = "".join(path.read_text(errors="replace")[-1000:] for path in self._folder.glob("*.log"))
                raise TimeoutError(f"Spark's workers did not come up: {logs}")
            time.sleep(_POLL_S)

    def _log(self, name: str) -> Path:
        return self._folder / f"{name}.log"

    def _end(self) -> None:
        """End the processes; executors belong to the sessions of their workers."""
        for process in reversed(self._processes):
            for pid in session_members(process.pid):
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            process.wait()
        self._processes.clear()
