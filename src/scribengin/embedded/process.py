"""A server as a child process: started, found again, and stopped, without ever signalling an unrelated process.

A shell that waits on a pipe runs between the starter and the server. The end of the starter, even by SIGKILL, closes the pipe, and the
shell kills the server; `release` tells the shell to leave the server alone. So a server outlives its starter only if that was requested.
"""

from __future__ import annotations

import os
import signal
import subprocess
import time
from typing import TYPE_CHECKING

import msgspec

from scribengin.core.errors import EnvironmentFault
from scribengin.core.process import POLL_S, Process, birth_of
from scribengin.core.storage import explained, make_folder, read_or_none, replace

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

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
    """A server that was started here, or found by its pid file. `log` is its log file."""

    def __init__(self, name: str, process: Process, pid_file: Path, log: Path, holder: subprocess.Popen[bytes] | None = None) -> None:
        self.name = name
        self.process = process
        self.log = log
        self._pid_file = pid_file
        self._holder = holder

    def alive(self) -> bool:
        """Whether its process is running."""
        return self.process.alive()

    def wait_ready(self, ready: Callable[[], bool], timeout_s: float) -> None:
        """Call `ready` until it returns True.

        Raises EnvironmentFault, with the last lines of the log, if the server ends or the time limit is exceeded.
        """
        deadline = time.monotonic() + timeout_s
        while not ready():
            if not self.alive():
                raise self._fault("ended while it started", "server-ended")
            if time.monotonic() > deadline:
                raise self._fault(f"does not answer after {timeout_s:g} s", "server-silent")
            time.sleep(POLL_S)

    def release(self) -> None:
        """Keep it running after this process ends."""
        holder, self._holder = self._holder, None
        if holder is not None:
            try:
                holder.communicate(_RELEASE)
            except BrokenPipeError:  # the shell was killed
                holder.wait()

    def ask_to_end(self) -> None:
        """Send SIGTERM, without waiting; `stop` then waits."""
        self.process.send(signal.SIGTERM)

    def stop(self, timeout_s: float) -> None:
        """Send SIGTERM, and kill it if it has not ended after `timeout_s`; also deletes the pid file."""
        self.ask_to_end()
        if not self.process.gone_within(timeout_s):
            self.process.send(signal.SIGKILL)
        self._bury()

    def kill(self) -> None:
        """Send SIGKILL, and wait until it has ended: until then its port may still answer."""
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
        self.release()  # the shell, which has nothing left to guard

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
    """Start a program; it ends with this process unless it is released. It gets this process's environment, overridden by `environment`.

    Raises EnvironmentFault if its folders cannot be written.
    """
    for folder in (pid_file.parent, log.parent):
        make_folder(folder)
    _turn_over(log)
    holder = subprocess.Popen(
        ["/bin/sh", "-c", _HOLDER, name, *command],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={**os.environ, **(environment or {}), "SERVER_LOG": str(log.absolute())},
        cwd=pid_file.parent,  # remains of a crash belong there
        start_new_session=True,  # a Ctrl-C for the starter must not reach the server: the starter stops it cleanly
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
    """The server of the pid file, alive or not; None if there is no such file, or it is not valid."""
    data = read_or_none(pid_file)
    if data is None:
        return None
    try:
        return ServerProcess(name, msgspec.json.decode(data, type=Process), pid_file, log)
    except msgspec.DecodeError:
        return None


def _turn_over(log: Path) -> None:
    """A large log is renamed to `<name>.1`; an older one of that name is deleted."""
    with explained(f"{log} cannot be written"):
        if log.exists() and log.stat().st_size > _LOG_BYTES:
            log.replace(log.with_name(f"{log.name}.1"))
        log.touch()
