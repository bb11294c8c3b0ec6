"""The Spark session and its preset (the reason for each setting: docs/decisions/0003-spark-preset.md)."""

from __future__ import annotations

import logging
import os
import re
import shlex
import site
import sys
import threading
from contextlib import closing, suppress
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from scribengin.core.errors import EnvironmentFault
from scribengin.core.java import find_java
from scribengin.core.net import is_container_master, is_loopback_master
from scribengin.spark import source_runner
from scribengin.spark.class_archive import archive_options
from scribengin.spark.java_process import JavaProcess, java_options
from scribengin.spark.without_pandas import limit_numpy_converters

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from pyspark.sql import SparkSession

    from scribengin.core.remote import RemotePath


# Starts Spark's Python processes with a small script that removes Spark's copies of PySpark from the path. Spark puts `pyspark.zip` and
# `py4j-*-src.zip` first on every path. Both have sources only, so that each process compiles what it imports from them: 0.2 to 0.5 s of a
# core, and a stateful flow starts four such processes before its first Batch.


_SCRIPT = """#!/bin/sh
# Made by Scribengin: Python, without the zips of sources that Spark puts first on its path.
set -f
kept=
IFS=:
for entry in $PYTHONPATH; do
  case $entry in
    */pyspark.zip | */py4j-*-src.zip | */spark-core_*.jar) ;;
    *) kept=$kept${{kept:+:}}$entry ;;
  esac
done
unset IFS
{forks}PYTHONPATH=$kept exec {python} "$@"
"""


_FORKS = """\
case "$*" in
  "-m {runner}") PYTHONPATH=$kept exec {python} -I -S {asks} ;;
esac
"""
"""if the system has process handles (pidfd); elsewhere each planner process is a new Python"""


def python_command(folder: Path, master: str) -> str:
    """The program that Spark should start as Python. Writes the script into `folder` if it is used.

    It is Python itself if executors may be on other machines, if PySpark is found only through the zips, or if files in `folder` cannot be
    executed.
    """
    if not master.startswith("local") or not _is_installed():
        return sys.executable
    script = (folder / "python").resolve()
    draft = script.with_name(f"python.{os.getpid()}")
    with suppress(OSError):
        python, asks = shlex.quote(sys.executable), shlex.quote(source_runner.__file__)
        forks = _FORKS.format(runner=source_runner.RUNNER, python=python, asks=asks) if hasattr(os, "pidfd_open") else ""
        draft.write_text(_SCRIPT.format(python=python, forks=forks))
        draft.chmod(0o700)
        draft.replace(script)  # replaced as a whole: a driver whose lease was taken over may be starting a Python with the old script
        if os.access(script, os.X_OK):
            return str(script)
    return sys.executable


def _is_installed() -> bool:
    """True if a new Python process finds PySpark and Py4J without the zips."""
    places = {*site.getsitepackages(), site.getusersitepackages(), *os.environ.get("PYTHONPATH", "").split(os.pathsep)}
    for name in ("pyspark", "py4j"):
        found = find_spec(name)
        if found is None or found.origin is None or str(Path(found.origin).parents[1]) not in places:
            return False
    return True


_STREAMING = "spark.sql.streaming"
_INTERNAL = "org.apache.spark.sql.execution.streaming"
_CHECKPOINTS = f"{_STREAMING}.checkpointFileManagerClass"
PRESET = {
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.scheduler.mode": "FAIR",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.ansi.enabled": "true",
    "spark.sql.caseSensitive": "true",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "16384",
    "spark.sql.execution.pyspark.udf.faulthandler.enabled": "true",
    "spark.python.daemon.module": "scribengin.spark.daemon",
    _CHECKPOINTS: f"{_INTERNAL}.checkpointing.FileSystemBasedCheckpointFileManager",
    f"{_STREAMING}.stopActiveRunOnRestart": "false",
    # Spark would refuse a checkpoint with the temporary file that a query leaves which ended as it wrote its first entry; no two
    # queries share a checkpoint, since each is in its query's state folder
    f"{_STREAMING}.verifyCheckpointDirectoryEmptyOnStart": "false",
    f"{_STREAMING}.stateStore.providerClass": f"{_INTERNAL}.state.RocksDBStateStoreProvider",
    f"{_STREAMING}.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
    f"{_STREAMING}.metricsEnabled": "false",
}
_ARROW_UDFS = "spark.sql.execution.pythonUDF.arrow.enabled"
_REDACTED = {"spark.redaction.regex": "(?i)secret|password|token|access[.]?key", "spark.sql.redaction.options.regex": "(?i)url"}
"""the patterns that Spark redacts, with Spark's defaults"""
# Refused, since they break exactly-once: real-time mode and asynchronous progress tracking.
_FORBIDDEN = ("asyncProgressTrackingEnabled", "spark.sql.streaming.realTimeMode")


class SparkStart:
    """A Spark session whose Java process was started; `session` waits for it, so that PySpark can be imported in the meantime."""

    def __init__(self, name: str, *, master: str, memory: str, conf: Mapping[str, str], folder: Path, plans_only: bool = False) -> None:
        """See `start_session`."""
        java = find_java()
        os.environ["JAVA_HOME"] = str(java.home)
        for key in conf:
            if any(word in key for word in _FORBIDDEN):
                raise EnvironmentFault(f"{key} cannot be set: it breaks exactly-once", remedy="remove it from spark_conf")
        cores = os.cpu_count() or 2
        self._master = master or f"local[{cores},3]"
        self._folder = folder
        settings = PRESET | {
            "spark.app.name": f"scribengin {name}",
            "spark.master": self._master,
            "spark.sql.shuffle.partitions": str(cores),
            "spark.local.dir": str(folder / "spark"),
            # Spark creates it at the first look-up of a table name; by default in the current folder
            "spark.sql.warehouse.dir": str(folder / "warehouse"),
        }
        if find_spec("pandas") is None:  # without pandas PySpark disables it in any case, with a warning for each function
            settings[_ARROW_UDFS] = "false"
        if is_container_master(self._master) or (self._master.startswith("spark://") and not is_loopback_master(self._master)):
            # on a cluster the operator configures the driver's address; by default Spark chooses it
            del settings["spark.driver.host"], settings["spark.driver.bindAddress"]
        settings |= dict(conf)
        if settings["spark.ui.enabled"].lower() == "true":
            settings.setdefault("spark.ui.port", "0")  # a free one: several sessions may run here
            if self._master.startswith("local"):
                os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")  # Spark's page has no login, and would listen on all addresses
        if memory:
            settings["spark.driver.memory"] = memory
        log = folder / "log4j2.properties"
        log.parent.mkdir(parents=True, exist_ok=True)
        os.environ["PYSPARK_DRIVER_PYTHON"] = python_command(folder, self._master)
        # in a container with a Python of its own, its executors have that under another path: see launch.container
        unpacked = os.environ.get("SCRIBENGIN_EXECUTOR_PYTHON") if self._master == "yarn" else None
        os.environ["PYSPARK_PYTHON"] = unpacked or os.environ["PYSPARK_DRIVER_PYTHON"]
        log.write_text(_LOG4J)
        # both programs that start Java, we and Spark's launcher, split this like a shell: a folder's name may have blanks
        options = shlex.join([f"-Dlog4j2.configurationFile={log.resolve().as_uri()}", f"-Djava.io.tmpdir={folder.resolve()}"])
        if "spark.driver.extraJavaOptions" not in settings:
            words = [options, *java_options(plans_only=plans_only, cores=cores), archive_options(java)]
            settings["spark.driver.extraJavaOptions"] = " ".join(word for word in words if word)
        self._settings = settings
        # the output of the JVM (and of Python steps) goes to a file: a terminal shows the run, not Spark's start
        self._output = (folder / "spark.log").open("ab")
        try:
            self._java: JavaProcess | None = JavaProcess(settings, java, self._output)
        except OSError as error:
            self._output.close()
            raise self._failed(error) from error

    def session(self) -> SparkSession:
        """Wait until Spark is running, and return the session; call it once. Raises EnvironmentFault if it does not start."""
        from py4j.protocol import Py4JError
        from pyspark import SparkConf, SparkContext
        from pyspark.errors import PySparkRuntimeError
        from pyspark.sql import SparkSession

        limit_numpy_converters()
        # it repeats every exception of Spark as a page of JSON on stderr; `failures` reports it once, for people
        logging.getLogger("SQLQueryContextLogger").disabled = True
        if SparkContext._active_spark_context is not None:
            raise EnvironmentFault("a Spark session is already running in this process", remedy="pass that session, or stop it first")
        assert self._java is not None
        java, self._java = self._java, None
        try:
            with self._output:
                gateway = java.gateway()
            # SparkConf reads the JVM's properties: it must use the gateway that was just started
            SparkContext._ensure_initialized(gateway=gateway)
            session = SparkSession(SparkContext(conf=SparkConf().setAll(list(self._settings.items()))))
        except (PySparkRuntimeError, Py4JError, OSError) as error:
            raise self._failed(error) from error
        found = session.sparkContext.master
        if found != self._master:
            raise EnvironmentFault(f"Spark runs on {found}; expected {self._master}", remedy="stop the other session of this process first")
        return session

    def close(self) -> None:
        """End the Java process of a session that was never requested."""
        if self._java is not None:
            self._java.end()
            self._java = None
            self._output.close()

    def _failed(self, error: Exception) -> EnvironmentFault:
        remedy = f"see {self._folder / 'spark.log'}, and run: scribengin doctor"
        return EnvironmentFault(f"Spark did not start: {error}", remedy=remedy, code="spark-start")


def start_session(name: str, *, master: str, memory: str, conf: Mapping[str, str], folder: Path, plans_only: bool = False) -> SparkSession:
    """Start a session with the preset and the settings of `conf`, which take precedence.

    Args:
        name: The name of the flow or command, for Spark's own pages.
        master: Spark's master; empty: all cores of this machine.
        memory: The JVM's heap, such as `2g`; empty: Spark's default.
        conf: Spark settings of the user; a `spark.driver.extraJavaOptions` replaces ours.
        folder: The folder of Spark's scratch files and log.
        plans_only: True if no rows, or only a few, pass through the JVM: it is configured for a quick start, not for throughput.

    Raises:
        EnvironmentFault: No Java, a setting that breaks exactly-once, or Spark does not start.
    """
    with closing(SparkStart(name, master=master, memory=memory, conf=conf, folder=folder, plans_only=plans_only)) as begun:
        return begun.session()


def use_remote_checkpoints(session: SparkSession, state: RemotePath) -> None:
    """Configure the session for checkpoints in another file system. The preset's checkpoint file manager is for disks; Spark chooses one
    that fits the file system."""
    hadoop = session.sparkContext._jsc.hadoopConfiguration()  # not settings of the session, since Spark would display those
    for name, value in state.hadoop_settings().items():
        hadoop.set(name, value)
    if session.conf.get(_CHECKPOINTS, "") == PRESET[_CHECKPOINTS]:
        session.conf.unset(_CHECKPOINTS)


def redactions(names: Iterable[str], given: Mapping[str, str]) -> dict[str, str]:
    """Settings that make Spark redact the values of these options everywhere: on its page, in plans, in event logs and in its own log.

    `names` are the options; `given` are the user's settings, whose redaction patterns are kept.
    """
    # Spark's Kafka code logs its parameters without their prefix
    all_names = sorted({form for name in names for form in (name, name.removeprefix("kafka."))})
    ours = "(?i:^(?:" + "|".join(re.escape(name) for name in all_names) + ")$)"
    return {key: f"(?:{given.get(key, default)})|{ours}" for key, default in _REDACTED.items()}


def stop_session(spark: SparkSession) -> None:
    """Stop the session. Does nothing if its Java process has already ended, as when a service manager stops all processes."""
    from py4j.protocol import Py4JNetworkError

    # PySpark's accumulator server checks only every half second whether it should end: do not wait for it
    context = spark.sparkContext
    accumulators = getattr(context, "_accumulatorServer", None)  # None if it was stopped before
    context._accumulatorServer = None  # type: ignore[assignment]
    try:
        spark.stop()
    except (Py4JNetworkError, ConnectionError):
        pass  # the JVM may be ending, without an exit status yet
    except Exception:
        if jvm_status(spark) is None:
            raise
    finally:
        if accumulators is not None:
            threading.Thread(target=accumulators.shutdown, name="accumulators", daemon=True).start()


def jvm_status(spark: SparkSession) -> int | None:
    """The exit status of the session's JVM; None while it runs. In the driver's container of a cluster the JVM has started this process,
    which ends with it."""
    process = spark.sparkContext._gateway.proc  # type: ignore[union-attr]
    status: int | None = None if process is None else process.poll()
    return status


_LOG4J = """rootLogger.level = error
rootLogger.appenderRef.stderr.ref = stderr
appender.stderr.type = Console
appender.stderr.name = stderr
appender.stderr.target = SYSTEM_ERR
appender.stderr.layout.type = PatternLayout
appender.stderr.layout.pattern = %d{HH:mm:ss} %p spark %c{1}: %m%n
# what Scribengin reports itself, with its cause, is not told twice
logger.stream.name = org.apache.spark.sql.execution.streaming
logger.stream.level = off
logger.task.name = org.apache.spark.scheduler.TaskSetManager
logger.task.level = off
logger.executor.name = org.apache.spark.executor.Executor
logger.executor.level = off
logger.write.name = org.apache.spark.sql.execution.datasources.v2
logger.write.level = off
"""
