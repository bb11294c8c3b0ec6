"""Starts Spark's Java with the command that Spark's launcher would build, without the launcher, which is a Java program of its own.

That saves a second of a core at each start. The launcher is still used if it may know more than this module: for settings in Spark's own
configuration files, for another Spark than the PySpark of this Python, and for a version whose command was not compared
(tests/spark/test_java_process.py compares them). Java's options and the reasons for them: docs/decisions/0058-how-java-starts.md.
"""

from __future__ import annotations

import os
import re
import shlex
import signal
import subprocess
import tempfile
import time
from contextlib import contextmanager
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING, Any

from scribengin.core.java import FIRST_COMPILER_ONLY, spark_home

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from typing import BinaryIO

    from scribengin.core.java import Java

COMPARED = ("4.2", "4.3")
"""the releases of PySpark that Scribengin is tested with, and whose launcher builds the same command"""
_SECOND_COMPILER_LATER = tuple(
    f"-XX:Tier4{name}Threshold={4 * default}"
    for name, default in (("Invocation", 5000), ("MinInvocation", 600), ("Compile", 15000), ("BackEdge", 40000))
)
"""for a JVM that processes rows: four times Java's defaults, which leaves out code that is hot only at the start"""
_SERIAL_CORES = 4
"""with at most so many cores, one garbage collection thread costs less than several that share the work"""
_COLLECTOR = re.compile(r"-XX:\+Use\w+GC\b")
OPTION_VARIABLES = ("SPARK_SUBMIT_OPTS", "JAVA_TOOL_OPTIONS", "JDK_JAVA_OPTIONS")
"""variables in which the user may have set Java options"""
_LAUNCHER = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -Xshare:auto"
"""options of the launcher's Java, which only builds the command of Spark's"""
_ASKS_LAUNCHER = (
    "HADOOP_CONF_DIR",
    "PYSPARK_GATEWAY_PORT",
    "PYSPARK_SUBMIT_ARGS",
    "SPARK_CONF_DIR",
    "SPARK_DIST_CLASSPATH",
    "SPARK_DRIVER_MEMORY",
    "SPARK_HOME",
    "SPARK_MEM",
    "SPARK_PREPEND_CLASSES",
    "SPARK_PRINT_LAUNCH_COMMAND",
    "SPARK_TESTING",
    "YARN_CONF_DIR",
)
"""variables that the launcher or its scripts read: with one of them set, the launcher is used"""
_LAUNCHER_SETTINGS = ("spark.driver.defaultJavaOptions", "spark.driver.extraClassPath", "spark.driver.extraLibraryPath")
_CONFIGURED = ("java-opts", "spark-defaults.conf", "spark-env.sh")
_OPENED = (
    "java.base/java.lang",
    "java.base/java.lang.invoke",
    "java.base/java.lang.reflect",
    "java.base/java.io",
    "java.base/java.net",
    "java.base/java.nio",
    "java.base/java.util",
    "java.base/java.util.concurrent",
    "java.base/java.util.concurrent.atomic",
    "java.base/jdk.internal.ref",
    "java.base/sun.nio.ch",
    "java.base/sun.nio.cs",
    "java.base/sun.security.action",
    "java.base/sun.util.calendar",
    "java.security.jgss/sun.security.krb5",
)
_MODULES = (
    "-XX:+IgnoreUnrecognizedVMOptions",
    *(f"--add-opens={package}=ALL-UNNAMED" for package in _OPENED),
    "-Dio.netty.tryReflectionSetAccessible=true",
    "-Dio.netty.allocator.type=pooled",
    "-Dio.netty.handler.ssl.defaultEndpointVerificationAlgorithm=NONE",
    "--sun-misc-unsafe-memory-access=allow",
    "--enable-native-access=ALL-UNNAMED",
    "-Dderby.connection.requireAuthentication=false",
)
"""`org.apache.spark.launcher.JavaModuleOptions` of 4.2, without `--add-modules=jdk.incubator.vector`, which only linear algebra uses"""
_HEAP = "1g"
"""Spark's default of `spark.driver.memory`"""
_LOOK_S = 0.01


def class_path() -> str:
    """Java's class path; Java expands the star itself. As in Spark's launcher, the SLF4J API comes first, before other jars with the same
    classes."""
    home = spark_home()
    first = sorted(home.glob("jars/slf4j-api-*.jar"))
    return ":".join([str(home / "conf"), *map(str, first), str(home / "jars" / "*")])


def _version() -> str:
    """The version of PySpark, without importing it; empty if it was not installed as a package."""
    try:
        return version("pyspark")
    except PackageNotFoundError:
        return ""


def java_options(*, plans_only: bool, cores: int) -> list[str]:
    """Java's options for compilers and memory.

    Args:
        plans_only: True if no rows pass through the JVM.
        cores: The number of cores; with few of them the serial collector is used, unless OPTION_VARIABLES select a collector.
    """
    named = any(_COLLECTOR.search(os.environ.get(name, "")) for name in OPTION_VARIABLES)
    serial = [] if named or not (plans_only or cores <= _SERIAL_CORES) else ["-XX:+UseSerialGC"]
    return [*serial, "-XX:-UsePerfData", *(FIRST_COMPILER_ONLY if plans_only else _SECOND_COMPILER_LATER)]


def java_command(settings: Mapping[str, str], java: Java, properties: Path) -> list[str] | None:
    """The command that starts Spark.

    Args:
        settings: Spark's settings.
        java: The Java to start.
        properties: The file from which Java reads the settings: some are secrets, and any user may read a process's arguments.

    Returns:
        The command; None if only Spark's launcher knows it.
    """
    home = spark_home()
    if (
        not _version().startswith(tuple(f"{release}." for release in COMPARED))
        or os.name != "posix"
        or any(os.environ.get(name) for name in _ASKS_LAUNCHER)
        or any(name in settings for name in _LAUNCHER_SETTINGS)
        or not settings["spark.master"].startswith(("local", "spark://"))
        or any((home / "conf" / name).exists() for name in _CONFIGURED)
    ):
        return None
    options = shlex.split(settings.get("spark.driver.extraJavaOptions", ""))
    submit = shlex.split(os.environ.get("SPARK_SUBMIT_OPTS", ""))
    heap = settings.get("spark.driver.memory", _HEAP)
    program = [str(java.home / "bin" / "java"), "-cp", class_path(), f"-Xmx{heap}", *submit, *options, *_MODULES]
    return [*program, "org.apache.spark.deploy.SparkSubmit", "--properties-file", str(properties), "pyspark-shell"]


class JavaProcess:
    """A Java process that was started: it boots in parallel to its caller and ends with this process."""

    def __init__(self, settings: Mapping[str, str], java: Java, output: BinaryIO) -> None:
        """Start it; returns at once.

        Args:
            settings: Spark's settings.
            java: The Java to start.
            output: Receives what Java prints; it must stay open until `gateway` or `end` has returned.

        Raises:
            OSError: The program cannot be started.
        """
        self._settings, self._output = settings, output
        self._folder = tempfile.TemporaryDirectory(prefix="scribengin-java-")  # no other user can enter it
        properties, self._answer = Path(self._folder.name, "spark.properties"), Path(self._folder.name, "gateway")
        command = java_command(settings, java, properties)
        self._process: subprocess.Popen[bytes] | None = None
        """None if Spark's launcher must start Java; `gateway` then calls the launcher"""
        if command is None:
            return
        properties.write_text("".join(f"{_escaped(key)}={_escaped(value)}\n" for key, value in settings.items()))
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,  # Java ends when the pipe breaks: with this process, however this one ends
            stdout=output,
            stderr=output,
            env=os.environ
            | {
                "_PYSPARK_DRIVER_CONN_INFO_PATH": str(self._answer),
                "SPARK_HOME": str(spark_home()),
                "SPARK_CONNECT_MODE": "0",
                "PYTHONHASHSEED": "0",
            },
            preexec_fn=_leave_ctrl_c_to_python,  # noqa: PLW1509 (as PySpark does: between fork and exec it calls the kernel only)
        )

    def gateway(self) -> Any:
        """Wait until it is up; returns its Py4J gateway.

        Raises OSError, PySparkRuntimeError or Py4JError if it does not start.
        """
        from pyspark import SparkConf
        from pyspark.java_gateway import launch_gateway

        with self._folder:
            if self._process is None:
                os.environ.setdefault("SPARK_LAUNCHER_OPTS", _LAUNCHER)
                conf = SparkConf(loadDefaults=False).setAll(list(self._settings.items()))
                return launch_gateway(conf, {"stdout": self._output, "stderr": self._output})  # type: ignore[no-untyped-call]
            port, secret = _address(self._process, self._answer)
        with _environment(PYSPARK_GATEWAY_PORT=str(port), PYSPARK_GATEWAY_SECRET=secret):
            gateway = launch_gateway()  # type: ignore[no-untyped-call]
        gateway.proc = self._process
        return gateway

    def end(self) -> None:
        """End a Java process whose gateway was not used, and wait for its end."""
        with self._folder:
            if self._process is not None:
                self._process.kill()
                self._process.communicate()


def _address(process: subprocess.Popen[bytes], answer: Path) -> tuple[int, str]:
    """Wait for the file `answer`, which Java writes when its gateway accepts connections; returns (port, secret)."""
    from pyspark.errors import PySparkRuntimeError
    from pyspark.serializers import UTF8Deserializer, read_int

    while not answer.exists():
        if process.poll() is not None:
            raise PySparkRuntimeError(errorClass="JAVA_GATEWAY_EXITED", messageParameters={})
        time.sleep(_LOOK_S)
    with answer.open("rb") as file:
        return read_int(file), UTF8Deserializer().loads(file)  # type: ignore[no-untyped-call]


def _escaped(text: str) -> str:
    """The text in the escaped form that `java.util.Properties` reads."""
    return re.sub(r"[\\=:#! \t\f]", r"\\\g<0>", text).replace("\n", "\\n").replace("\r", "\\r")


def _leave_ctrl_c_to_python() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)


@contextmanager
def _environment(**variables: str) -> Iterator[None]:
    os.environ.update(variables)
    try:
        yield
    finally:
        for name in variables:
            del os.environ[name]
