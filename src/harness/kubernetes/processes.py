"""A container's process on this machine: its start, its output, its signals and its exit code."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from harness.kubernetes import sessions

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

_CANNOT_START = 128
"""the exit code that runtimes report if a command cannot be started"""


def now() -> str:
    """The time, as objects of Kubernetes have it."""
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


class SessionGuard:
    """A process that kills the containers if this process ends without doing so."""

    def __init__(self) -> None:
        """Start it."""
        self._lock = threading.Lock()
        self._process = subprocess.Popen(
            [sys.executable, "-I", "-S", Path(sessions.__file__)], stdin=subprocess.PIPE, text=True, start_new_session=True
        )

    def begin(self, session: int) -> None:
        """Guard a session from now on."""
        self._send(sessions.BEGIN, session)

    def end(self, session: int) -> None:
        """Guard a session no more."""
        self._send(sessions.END, session)

    def _send(self, word: str, session: int) -> None:
        assert self._process.stdin is not None
        with self._lock, suppress(BrokenPipeError, ValueError):
            self._process.stdin.write(f"{word} {session}\n")
            self._process.stdin.flush()

    def close(self) -> None:
        """End it; it kills all sessions that are left."""
        self._process.communicate()


class ContainerProcess:
    """One run of a container. It is the leader of a session, in which all that it starts runs too."""

    def __init__(
        self,
        command: Sequence[str],
        *,
        environment: Mapping[str, str],
        folder: Path,
        log: Path,
        guard: SessionGuard,
        ended: Callable[[], None],
    ) -> None:
        """Start it.

        Args:
            command: its command line.
            environment: all its environment variables.
            folder: its working directory.
            log: the file of its output, which is created.
            guard: kills it if this process is killed.
            ended: called from another thread when it has ended.

        Raises:
            OSError: it cannot be started.
        """
        self.started_at = now()
        self.finished_at = ""
        self.exit_code: int | None = None
        """None while it runs"""
        self.oom = False
        """True if it was killed because its memory ran out"""
        self._lock = threading.Lock()
        self._ended = ended
        self._guard = guard
        with log.open("ab") as output:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                env=dict(environment),
                cwd=folder,
                start_new_session=True,
            )
        self.pid = self._process.pid
        guard.begin(self.pid)
        threading.Thread(target=self._wait, name=f"container-{self.pid}", daemon=True).start()

    @property
    def running(self) -> bool:
        """True until it has ended."""
        return self.exit_code is None

    def _wait(self) -> None:
        os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOWAIT)
        with self._lock:
            sessions.signal_session(self.pid, signal.SIGKILL)  # what a container's first process leaves ends with it
            self._guard.end(self.pid)
            code = self._process.wait()
            self.finished_at = now()
            self.exit_code = 128 - code if code < 0 else code
        self._ended()

    def send(self, number: signal.Signals) -> None:
        """Send a signal to it and to all that it started; does nothing if it has ended."""
        with self._lock:
            if self.running:
                sessions.signal_session(self.pid, number)

    def kill_for_memory(self) -> None:
        """Kill it as the kernel does if its memory runs out."""
        self.oom = True
        self.send(signal.SIGKILL)

    def terminated(self) -> dict[str, object]:
        """How it ended, as the status of a container has it."""
        reason = "OOMKilled" if self.oom else "Completed" if self.exit_code == 0 else "Error"
        return {
            "exitCode": self.exit_code,
            "reason": reason,
            "startedAt": self.started_at,
            "finishedAt": self.finished_at,
            "containerID": f"process://{self.pid}",
        }


def not_started(error: OSError) -> dict[str, object]:
    """How a container ended that could not be started, as its status has it."""
    moment = now()
    return {
        "exitCode": _CANNOT_START,
        "reason": "StartError",
        "message": f"failed to create containerd task: {error}",
        "startedAt": moment,
        "finishedAt": moment,
    }
