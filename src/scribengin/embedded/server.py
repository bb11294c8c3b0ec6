"""What the servers here share: a folder with their log, port and pid, and how they are started, found and stopped."""

from __future__ import annotations

import errno
import os
import random
import signal
import socket
import subprocess
import time
from abc import ABC, abstractmethod
from contextlib import suppress
from functools import cache
from typing import TYPE_CHECKING, Self, TypeVar

import msgspec

from scribengin.core.errors import EnvironmentFault
from scribengin.core.java import FIRST_COMPILER_ONLY, find_java
from scribengin.core.process import POLL_S, Process, birth_of
from scribengin.core.storage import explained, make_folder, put_if_absent, read_or_none, replace
from scribengin.embedded.jars import pyspark_jars

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path
    from types import TracebackType


# What the servers here share: a small Java process, a readable log, and a fixed port.


HOST = "127.0.0.1"
PORTS = range(20_000, 32_000)
"""below the ports that Linux and macOS use for outgoing connections: a stopped server must find its port free when it restarts"""

_TRIES = 200
# small and quick to start, one thread for garbage collection, and no files under /tmp
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
"""warnings and changes are logged; a healthy server logs nothing for hours"""

LOGGING_JARS = ("slf4j-api-*.jar", "log4j-slf4j2-impl-*.jar", "log4j-api-*.jar", "log4j-core-*.jar")


def java_command(
    main: str, jars: Sequence[Path], arguments: Sequence[str | Path], *, heap_mib: int, folder: Path, flags: Sequence[str] = ()
) -> list[str | Path]:
    """The command line of a Java program. Its logging library is PySpark's.

    Args:
        main: its class.
        jars: its classpath, after the logging library.
        arguments: its arguments.
        heap_mib: its heap in MiB.
        folder: where its temporary files and its logging settings are.
        flags: further flags for Java.
    """
    temporary = folder / "tmp"
    make_folder(temporary)
    logging = folder / "log4j2.properties"
    replace(logging, _LOGGING.encode())
    classpath = ":".join(str(path) for path in (*pyspark_jars(*LOGGING_JARS), *jars))
    settings = [f"-Djava.io.tmpdir={temporary.absolute()}", f"-Dlog4j2.configurationFile={logging.absolute()}"]
    return [find_java().home / "bin" / "java", f"-Xmx{heap_mib}m", *_FLAGS, *flags, *settings, "-cp", classpath, main, *arguments]


def free_ports(count: int, among: range = PORTS) -> list[int]:
    """Different ports of 127.0.0.1 that are free now. Raises EnvironmentFault if there are not enough."""
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
        # like servers: the rest of a closed connection does not block the port
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
            probe.listen()
        except OSError as error:
            if error.errno in (errno.EADDRINUSE, errno.EACCES):
                return False
            raise
    return True


# A server's persistent settings in its folder, which stay the same over restarts: its ports and its identity.


T = TypeVar("T")


class _Place(msgspec.Struct, frozen=True):
    port: int


def port_of(folder: Path, among: range = PORTS) -> int:
    """The port that is stored in `folder`; if none is, a free one of `among`, which is stored there. Raises EnvironmentFault if the stored
    value is not valid."""
    return load_or_create(folder / "place.json", _Place, lambda: _Place(free_ports(1, among)[0])).port


def load_or_create(path: Path, kind: type[T], make: Callable[[], T]) -> T:
    """The content of a JSON file. If the file does not exist, it is created with the result of `make`, unless another process is faster.

    Args:
        path: the file.
        kind: the type of its content.
        make: returns the content of a new file.

    Raises:
        EnvironmentFault: the content is not valid.
    """
    data = read_or_none(path)
    if data is None:
        put_if_absent(path, msgspec.json.encode(make()) + b"\n")
        data = path.read_bytes()
    try:
        return msgspec.json.decode(data, type=kind)
    except msgspec.DecodeError as error:
        raise EnvironmentFault(f"{path} is damaged: {error}", remedy=f"remove {path.parent}", code="server-folder") from error


# Servers that refuse to run as root, when they are started by root.


_NAMESPACE = ("unshare", "--user", "--map-user=1000", "--map-group=1000")
_NOBODYS_ID = 65534
_NOBODY = ("setpriv", f"--reuid={_NOBODYS_ID}", f"--regid={_NOBODYS_ID}", "--clear-groups")


def unprivileged_prefix() -> tuple[str, ...]:
    """The command prefix with which root starts such a server: as a user of a new namespace, who owns root's files; if that is not
    possible, as `nobody`, who must be given its folders (`give`) and needs access to their parents. Empty for other users."""
    if os.geteuid() != 0:
        return ()
    return _NAMESPACE if _may_have_a_namespace() else _NOBODY


def give(folder: Path) -> None:
    """Give the folder, with all its content, to `nobody`, if `unprivileged_prefix` switches to that user."""
    if unprivileged_prefix() != _NOBODY:
        return
    os.chown(folder, _NOBODYS_ID, _NOBODYS_ID)
    for path in folder.rglob("*"):
        os.chown(path, _NOBODYS_ID, _NOBODYS_ID, follow_symlinks=False)


@cache
def _may_have_a_namespace() -> bool:
    with suppress(OSError):
        return subprocess.run([*_NAMESPACE, "true"], capture_output=True, check=False).returncode == 0
    return False


# A server as a child process: started, found again, and stopped, without ever signalling an unrelated process. A shell that waits on a pipe
# runs between the starter and the server. The end of the starter, even by SIGKILL, closes the pipe, and the shell kills the server;
# `release` makes the shell leave the server alone. So a server outlives its starter only if that was requested.


_KILLED_WITHIN_S = 30.0
_LOG_BYTES = 16 * 2**20
_SHOWN_LINES = 8
_RELEASE = b"release\n"
_HOLDER = """
"$@" </dev/null >>"$SERVER_LOG" 2>&1 &
server=$!
echo "$server"
exec >&-
read -r word && exit 0
kill -9 "$server" 2>/dev/null
wait
"""


class ServerProcess:
    """The process of a server that was started here, or found by its pid file. `log` is its log file."""

    def __init__(self, name: str, process: Process, pid_file: Path, log: Path, holder: subprocess.Popen[bytes] | None = None) -> None:
        self.name = name
        self.process = process
        self.log = log
        self._pid_file = pid_file
        self._holder = holder

    def alive(self) -> bool:
        """True if the process is running."""
        return self.process.alive()

    def wait_ready(self, ready: Callable[[], bool], timeout_s: float) -> None:
        """Call `ready` until it returns True. Raises EnvironmentFault, with the last lines of the log, if the server ends or the time limit
        is exceeded."""
        deadline = time.monotonic() + timeout_s
        while not ready():
            if not self.alive():
                raise self._fault("ended while it started", "server-ended")
            if time.monotonic() > deadline:
                raise self._fault(f"does not answer after {timeout_s:g} s", "server-silent")
            time.sleep(POLL_S)

    def release(self) -> None:
        """Keep the server running after this process ends."""
        holder, self._holder = self._holder, None
        if holder is not None:
            try:
                holder.communicate(_RELEASE)
            except BrokenPipeError:  # the shell was killed
                holder.wait()

    def ask_to_end(self) -> None:
        """Send SIGTERM without waiting. `stop` then waits."""
        self.process.send(signal.SIGTERM)

    def stop(self, timeout_s: float) -> None:
        """Send SIGTERM, and SIGKILL if the server has not ended after `timeout_s` seconds. Deletes the pid file."""
        self.ask_to_end()
        if not self.process.gone_within(timeout_s):
            self.process.send(signal.SIGKILL)
        self._bury()

    def kill(self) -> None:
        """Send SIGKILL, and wait until the server has ended: until then its port may still answer. Deletes the pid file."""
        self.process.send(signal.SIGKILL)
        self._bury()

    def _bury(self) -> None:
        if not self.process.gone_within(_KILLED_WITHIN_S):
            raise EnvironmentFault(
                f"{self.name} (process {self.process.pid}) does not end, even after SIGKILL",
                remedy="check whether its disk hangs",
                code="server-stuck",
            )
        self._pid_file.unlink(missing_ok=True)
        self.release()  # ends the shell, which is no longer needed

    def _fault(self, what: str, code: str) -> EnvironmentFault:
        try:
            lines = [line for line in self.log.read_text(errors="replace").splitlines() if line.strip()][-_SHOWN_LINES:]
        except OSError:
            lines = []
        said = "\n  ".join(["; the end of its log:", *lines]) if lines else "; its log is empty"
        return EnvironmentFault(f"{self.name} {what}{said}", remedy=f"read {self.log}", code=code)


def start_server(
    name: str, command: Sequence[str | Path], *, pid_file: Path, log: Path, environment: Mapping[str, str] | None = None
) -> ServerProcess:
    """Start a server; it ends with this process unless it is released.

    Args:
        name: its name in messages.
        command: its command line.
        pid_file: where its process is recorded.
        log: where its output goes.
        environment: variables that are set in addition to those of this process.

    Raises:
        EnvironmentFault: its folders cannot be written.
    """
    for folder in (pid_file.parent, log.parent):
        make_folder(folder)
    _turn_over(log)
    holder = subprocess.Popen(
        ["/bin/sh", "-c", _HOLDER, name, *command],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={**os.environ, **(environment or {}), "SERVER_LOG": str(log.absolute())},
        cwd=pid_file.parent,  # a crash leaves files such as core dumps there
        start_new_session=True,  # so that a Ctrl-C for the starter does not reach the server: the starter stops it cleanly
    )
    try:
        assert holder.stdout is not None
        pid = int(holder.stdout.readline())
        process = Process(pid, birth_of(pid) or "")
        replace(pid_file, msgspec.json.encode(process) + b"\n")
    except BaseException:
        holder.communicate(b"")
        raise
    return ServerProcess(name, process, pid_file, log, holder)


def find_server(name: str, *, pid_file: Path, log: Path) -> ServerProcess | None:
    """The server of a pid file, running or not; None if the file does not exist, or is not valid.

    Args:
        name: its name in messages.
        pid_file: where its process is recorded.
        log: its log.
    """
    data = read_or_none(pid_file)
    if data is None:
        return None
    try:
        return ServerProcess(name, msgspec.json.decode(data, type=Process), pid_file, log)
    except msgspec.DecodeError:
        return None


def _turn_over(log: Path) -> None:
    """Create the log. A large one is renamed to `<name>.1` first, which replaces an older one."""
    with explained(f"{log} cannot be written"):
        if log.exists() and log.stat().st_size > _LOG_BYTES:
            log.replace(log.with_name(f"{log.name}.1"))
        log.touch()


_STOPPED_WITHIN_S = 20.0


class LoneServer(ABC):
    """A server with one process. Data and port stay in `folder` over restarts; a released process is found again.

    As a context manager it runs inside the block, and ends after it, even if this process ends in any other way.
    """

    def __init__(self, folder: Path, name: str, *, files: str, ports: range = PORTS) -> None:
        """Find a running server of this folder, or prepare one.

        Args:
            folder: the server's folder.
            name: its name in messages.
            files: the beginning of the names of its log and pid file.
            ports: it listens on one of these.
        """
        self.folder = folder.absolute()
        self.log = self.folder / "log" / f"{files}.log"
        self._pid_file = self.folder / "run" / f"{files}.pid.json"
        self._port = port_of(self.folder, ports)
        self._server: ServerProcess | None = find_server(name, pid_file=self._pid_file, log=self.log)

    @property
    def address(self) -> str:
        """The address, as `127.0.0.1:port`."""
        return f"{HOST}:{self._port}"

    @property
    def uri(self) -> str:
        """The URL for clients."""
        return self.address

    @property
    def pid(self) -> int | None:
        """The server's process id; None if it is not running."""
        return self._server.process.pid if self._server is not None and self._server.alive() else None

    def fetch(self, tell: Callable[[str], None]) -> None:  # noqa: B027 (most servers need no files)
        """Fetch the server's files, if they are missing; `tell` is called with a message before, because it may take minutes. Raises
        EnvironmentFault."""

    @abstractmethod
    def start(self) -> None:
        """Start the server if it is not running, and return when it serves. Raises EnvironmentFault."""

    @abstractmethod
    def answers(self) -> bool:
        """True if the server answers requests."""

    def release(self) -> None:
        """Keep the server running after this process ends."""
        if self._server is not None:
            self._server.release()

    def stop(self) -> None:
        """Stop the server cleanly; it is killed if it does not end in time. Does nothing if it is not running."""
        server, self._server = self._server, None
        if server is not None:
            server.stop(_STOPPED_WITHIN_S)

    def kill(self) -> None:
        """Kill the server, and return when it has ended. Does nothing if it is not running."""
        server, self._server = self._server, None
        if server is not None:
            server.kill()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.stop()
