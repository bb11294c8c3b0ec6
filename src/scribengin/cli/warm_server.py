"""The warm process of a flow's folder: it keeps Spark's Java process and forks a child for each command.

It never talks to Java and never imports a flow's code, so that each child is equivalent to a new process whose imports are done.

Run as `python -m scribengin.cli.warm_server PLACE FLOW_FOLDER IDLE_S FD`; FD is the connection of the command that started it.
"""

from __future__ import annotations

import fcntl
import io
import json
import os
import select
import shutil
import signal
import socket
import sys
import tempfile
import threading
import time
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from scribengin.cli.warm import is_own, receive, say, serve_here, short_path, take_place
from scribengin.core.process import Process, birth_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql import SparkSession

_TICK_S = 1.0
_RECEIVE_S = 2.0
_MOST_CALLS = 200
"""the maximum number of commands, after which a new process starts: Java never frees what the children leave in it"""
_PRELOADED = (
    "msgspec",
    "pyarrow.parquet",
    "sqlglot",
    "pyspark.sql",
    "pyspark.core.context",
    "scribengin.plan.validate",
    "scribengin.local.preview",
    "scribengin.local.audit",
    "scribengin.flow_tests.suite",
    "scribengin.cli.test_report",
    "scribengin.cli.preview_view",
)
"""modules that are imported one by one while no command runs, after the first command has been answered"""
_GATEWAY = ("PYSPARK_GATEWAY_PORT", "PYSPARK_GATEWAY_SECRET")


class _Java:
    """A running Java process: how to connect to it, and the pipe that ends it when it is closed."""

    def __init__(self, known: dict[str, Any], stdin: int) -> None:
        self.port, self.secret, self.keyed = known["port"], known["secret"], known["keyed"]
        self.process = Process(known["pid"], known["born"])
        self.stdin = stdin

    def poll(self) -> int | None:
        """As Popen.poll: None while the process runs."""
        return None if self.process.alive() else 1

    def end(self) -> None:
        os.close(self.stdin)
        if not self.process.gone_within(10):
            self.process.send(signal.SIGKILL)


class _Lender:
    """Provides the sessions of a child: starts Java for the first session. Later sessions get a new context in that Java, configured as in
    a new process."""

    def __init__(self, java: _Java | None, folder: Path, handover: socket.socket) -> None:
        self._java = java
        self._folder = folder
        self._handover = handover
        self.spark: SparkSession | None = None

    def open(self, name: str, *, master: str, memory: str, conf: Mapping[str, str]) -> SparkSession:
        """Open a session: see `open_session`."""
        from scribengin.spark.session import start_session

        keyed = json.dumps([memory, sorted((key, value) for key, value in conf.items() if not _is_of_a_context(key))])
        java = self._java
        if java is not None and (java.keyed != keyed or java.poll() is not None):
            java = None
        if java is not None:
            os.environ |= dict(zip(_GATEWAY, (str(java.port), java.secret), strict=True))
            _clear()
        try:
            self.spark = start_session(name, master=master, memory=memory, conf=conf, folder=self._folder, plans_only=True)
        finally:
            for variable in _GATEWAY:
                os.environ.pop(variable, None)
        gateway: Any = self.spark.sparkContext._gateway
        if java is not None:
            gateway.proc = java
        else:
            known = {"port": gateway.gateway_parameters.port, "secret": gateway.gateway_parameters.auth_token, "keyed": keyed}
            known |= {"pid": gateway.proc.pid, "born": birth_of(gateway.proc.pid)}
            socket.send_fds(self._handover, [json.dumps(known).encode()], [gateway.proc.stdin.fileno()])
        return self.spark

    def lost(self) -> bool:
        """True if Java died during the command."""
        return self.spark is not None and self.spark.sparkContext._gateway.proc.poll() is not None  # type: ignore[union-attr]

    def stop(self) -> None:
        """Stop the context. The next command gets its own."""
        if self.spark is not None and not self.lost():
            self.spark.stop()


def _is_of_a_context(key: str) -> bool:
    return key.startswith("spark.sql.") or key == "spark.python.worker.reuse"


def _clear() -> None:
    """Stop the context that the previous child left in Java, and remove its settings, which are Java system properties."""
    from pyspark import SparkContext
    from pyspark.java_gateway import launch_gateway

    gateway: Any = launch_gateway()  # type: ignore[no-untyped-call]
    default = getattr(gateway.jvm, "org.apache.spark.sql.classic.SparkSession").getDefaultSession()
    if default.isDefined():
        default.get().sparkContext().stop()
    system = gateway.jvm.java.lang.System
    for key in list(system.getProperties().stringPropertyNames()):
        if key.startswith("spark.") and not key.startswith(("spark.submit.", "spark.app.")):
            system.clearProperty(key)
    gateway.close()
    assert SparkContext._gateway is None


class _Server:
    def __init__(self, place: Path, folder: Path, idle_s: float, lock: int) -> None:
        self._place = place
        self._lock = lock
        self._socket = 0
        self._folder = folder
        self._idle_s = idle_s
        self._java: _Java | None = None
        self._identity = ""
        self._calls = 0
        self._scratch = Path(tempfile.mkdtemp(prefix="scribengin-warm-"))
        self._child: int | None = None
        self._handover: socket.socket | None = None
        self._last = time.monotonic()
        self._ran = False
        self._unloaded = list(_PRELOADED)
        self._ending = False

    def run(self, first: socket.socket) -> None:
        with socket.socket(socket.AF_UNIX) as door:
            with short_path(self._place) as short:
                with suppress(FileNotFoundError):
                    (self._place / "socket").unlink()
                door.bind(f"{short}/socket")
            door.listen(8)
            self._socket = (self._place / "socket").stat().st_ino
            known = {"pid": os.getpid(), "born": birth_of(os.getpid()), "folder": str(self._folder), "scratch": str(self._scratch)}
            (self._place / "info.json").write_text(json.dumps(known))
            try:
                self._take(first)
                while not self._is_over():
                    watched = [door, *([self._handover] if self._handover is not None else [])]
                    idle = self._ran and self._child is None
                    ready, _, _ = select.select(watched, [], [], 0 if idle and self._unloaded else _TICK_S)
                    if not ready and idle and self._unloaded:
                        import_module(self._unloaded.pop(0))
                    if self._handover in ready:
                        self._hear()
                    if door in ready:
                        link, _ = door.accept()
                        if is_own(link):
                            self._take(link)
                        else:
                            link.close()
            finally:
                self._leave()
                self._end()

    def _is_over(self) -> bool:
        if self._child is not None:
            return False
        idle = time.monotonic() - self._last > self._idle_s
        return self._ending or not self._is_there() or idle or self._calls >= _MOST_CALLS or not self._folder.is_dir()

    def _is_there(self) -> bool:
        with suppress(OSError):
            return (self._place / "socket").stat().st_ino == self._socket
        return False

    def _leave(self) -> None:
        """Give up the place, so that another process can take it while this one ends Java."""
        if self._lock >= 0:
            if self._is_there():
                (self._place / "socket").unlink()
            fcntl.flock(self._lock, fcntl.LOCK_UN)
            os.close(self._lock)
            self._lock = -1

    def _take(self, link: socket.socket) -> None:
        with link, suppress(OSError, ValueError):
            link.settimeout(_RECEIVE_S)
            self._decide(link, receive(link))

    def _decide(self, link: socket.socket, request: dict[str, Any]) -> None:
        if request.get("say") == "end":
            self._ending = True
            say(link, say="ends")
        elif self._child is not None:
            say(link, say="busy")
        elif self._identity not in ("", request["identity"]):
            self._ending = True
            self._leave()  # the next command starts a new process
            say(link, say="other")
        else:
            self._identity = request["identity"]
            if self._java is not None and self._java.poll() is not None:
                os.close(self._java.stdin)
                self._java = None
            self._calls += 1
            ours, theirs = socket.socketpair()
            child = os.fork()
            if child == 0:
                ours.close()
                os.close(self._lock)
                signal.signal(signal.SIGTERM, signal.SIG_DFL)
                _serve(link, request, _Lender(self._java, self._scratch, theirs))
            theirs.close()
            self._child, self._handover = child, ours

    def _hear(self) -> None:
        """Receive a message of the child: the Java that it started, or its end."""
        assert self._handover is not None
        assert self._child is not None
        data, pipes, _, _ = socket.recv_fds(self._handover, 65536, 1)
        if data and pipes:
            if self._java is not None:
                self._java.end()
            self._java = _Java(json.loads(data), pipes[0])
            return
        self._handover.close()
        self._handover = None
        os.waitpid(self._child, 0)
        self._child = None
        self._last = time.monotonic()
        self._ran = True

    def _end(self) -> None:
        if self._java is not None:
            self._java.end()
        shutil.rmtree(self._scratch, ignore_errors=True)


def _serve(link: socket.socket, request: dict[str, Any], lender: _Lender) -> None:
    """Run the command as if this were its own process. Never returns."""
    status: int | None = 1
    try:
        status = _run(link, request, lender)
        sys.stdout.flush()
        sys.stderr.flush()
    except BaseException:
        status = None
        raise
    finally:
        with suppress(Exception):
            say(link, status=status)
            link.shutdown(socket.SHUT_RDWR)
        for stream in (0, 1, 2):  # closes the terminal, or the pipe whose reader waits for its end
            os.dup2(os.open(os.devnull, os.O_RDWR), stream)
        with suppress(BaseException):
            lender.stop()
        os._exit(0)


def _run(link: socket.socket, request: dict[str, Any], lender: _Lender) -> int | None:
    from scribengin.cli.main import main
    from scribengin.spark.shared_session import lend_sessions

    say(link, say="taken")
    _, streams, _, _ = socket.recv_fds(link, 1, 3)
    link.settimeout(None)
    os.environ.clear()
    os.environ.update(request["environment"])
    os.chdir(request["cwd"])
    os.umask(request["umask"])
    sys.argv[1:] = request["arguments"]
    sys.path[:] = request["path"]
    json_to = os.memfd_create("answer") if "--json" in request["arguments"] else None
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
    if json_to is not None:
        os.dup2(json_to, 1)
    sys.stdin = io.TextIOWrapper(io.FileIO(0, closefd=False))
    sys.stdout = _stream(1)
    sys.stderr = _stream(2)
    serve_here()
    lend_sessions(lender)
    threading.Thread(target=_forward, args=(link,), daemon=True).start()
    try:
        main(request["arguments"])
        status = 0
    except SystemExit as ended:
        status = int(ended.code or 0)
    if status and lender.lost():
        return None
    sys.stdout.flush()
    if json_to is not None:
        os.lseek(json_to, 0, os.SEEK_SET)
        while data := os.read(json_to, 1 << 20):
            view = memoryview(data)
            while view:
                view = view[os.write(streams[1], view) :]
    return status


def _stream(number: int) -> io.TextIOWrapper:
    terminal = os.isatty(number)
    return io.TextIOWrapper(
        io.BufferedWriter(io.FileIO(number, "w", closefd=False)),
        errors="backslashreplace" if number == 2 else None,
        line_buffering=terminal or number == 2,
    )


def _forward(link: socket.socket) -> None:
    """Forward signals from the command's process. If that process is gone, hang up this one, as the end of its terminal would."""
    with suppress(OSError):
        while data := link.recv(1):
            os.kill(os.getpid(), data[0])
        os.kill(os.getpid(), signal.SIGHUP)


def main(place: Path, folder: Path, idle_s: float, first: int) -> None:
    """Serve requests until none has come for `idle_s` seconds."""
    lock = take_place(place)
    with socket.socket(fileno=first) as link:
        if lock is not None:
            signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
            _Server(place, folder, idle_s, lock).run(link)


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]), float(sys.argv[3]), int(sys.argv[4]))
