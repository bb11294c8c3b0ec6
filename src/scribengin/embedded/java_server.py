"""Common parts of the servers here: a small Java process, a readable log, and a fixed port."""

from __future__ import annotations

import errno
import random
import socket
from typing import TYPE_CHECKING

from scribengin.core.errors import EnvironmentFault
from scribengin.core.java import FIRST_COMPILER_ONLY, find_java
from scribengin.core.storage import make_folder, replace
from scribengin.embedded.jars import pyspark_jars

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

HOST = "127.0.0.1"
PORTS = range(20_000, 32_000)
"""Below the ports that Linux and macOS use for outgoing connections: a stopped server must find its port free when it restarts."""

_TRIES = 200
# small, quick to start, one thread for garbage collection; and no files under /tmp
_FLAGS = ("-XX:+UseSerialGC", *FIRST_COMPILER_ONLY, "-XX:-UsePerfData", "-Djava.awt.headless=true")
_LOGGING = """\
appender.console.type = Console
appender.console.name = console
appender.console.layout.type = PatternLayout
appender.console.layout.pattern = %d{yyyy-MM-dd HH:mm:ss.SSS} %-5p %c{1}: %m%n
rootLogger.level = INFO
rootLogger.appenderRef.console.ref = console
""" + "".join(
    f"logger.{number}.name = {name}\nlogger.{number}.level = {level}\n"
    for number, (name, level) in enumerate(
        {
            "org.apache.kafka.common.config": "WARN",  # hundreds of lines: every setting, several times
            "org.apache.kafka.clients": "WARN",
            "org.apache.kafka.common.utils.AppInfoParser": "WARN",
            "org.apache.zookeeper.server.NIOServerCnxn": "WARN",  # a line for each status request
            "http.requests": "WARN",  # HDFS: a line for each status request
            "org.apache.zookeeper.server.ServerCnxn": "OFF",  # a trace if the status is requested before it has its data
        }.items()
    )
)
"""Logs warnings and changes; a healthy server logs nothing for hours."""

LOGGING_JARS = ("slf4j-api-*.jar", "log4j-slf4j2-impl-*.jar", "log4j-api-*.jar", "log4j-core-*.jar")


def java_command(
    main: str, jars: Sequence[Path], arguments: Sequence[str | Path], *, heap_mib: int, folder: Path, flags: Sequence[str] = ()
) -> list[str | Path]:
    """A command line for `main`, with `flags` for its Java. Its log is written to `folder`, and so are its temporary files. The logging
    library is always PySpark's."""
    temporary = folder / "tmp"
    make_folder(temporary)
    logging = folder / "log4j2.properties"
    replace(logging, _LOGGING.encode())
    classpath = ":".join(str(path) for path in (*pyspark_jars(*LOGGING_JARS), *jars))
    settings = [f"-Djava.io.tmpdir={temporary.absolute()}", f"-Dlog4j2.configurationFile={logging.absolute()}"]
    return [find_java().home / "bin" / "java", f"-Xmx{heap_mib}m", *_FLAGS, *flags, *settings, "-cp", classpath, main, *arguments]


def free_ports(count: int, among: range = PORTS) -> list[int]:
    """Different ports of 127.0.0.1 that are free now."""
    tries = min(_TRIES, len(among))
    found = [port for port in random.sample(among, tries) if _is_free(port)][:count]
    if len(found) < count:
        raise EnvironmentFault(
            f"{len(found)} of {tries} tested ports between {among.start} and {among.stop} of {HOST} are free; expected {count}",
            remedy="find the processes that listen there, and end some",
            code="port-taken",
        )
    return found


def check_port(port: int, server: str) -> None:
    """Raise EnvironmentFault if another process listens on the server's port."""
    if not _is_free(port):
        raise EnvironmentFault(
            f"{server} cannot start: another process listens on its port, {HOST}:{port}",
            remedy="end that process, or delete the server's folder: the server then starts empty, on another port",
            code="port-taken",
        )


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        # as servers do: the rest of a closed connection does not block the port
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
            probe.listen()
        except OSError as error:
            if error.errno in (errno.EADDRINUSE, errno.EACCES):
                return False
            raise
    return True
