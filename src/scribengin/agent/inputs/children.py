"""Commands whose output is read: started again with a growing delay, and ended with the agent, also where the agent is killed.

A command runs in a process group of its own. Beside it, in the same group, a shell waits on a pipe that the agent holds open: when the
agent ends in any way, or closes the pipe because the command has ended, the shell ends all that is left of the group, first with SIGTERM,
after some seconds with SIGKILL. As long as the shell exists, the number of the group belongs to no other. Without `/bin/sh` there is no
such shell, and a command outlives an agent that is killed until it writes to its closed pipe.

Pipes are read by the thread of the lane only: while it does not, they are full, and the command waits.
"""

from __future__ import annotations

import contextlib
import logging
import os
import selectors
import shutil
import signal
import subprocess
import time
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from scribengin.agent.inputs.line_streams import READ_BYTES
from scribengin.agent.inputs.sockets import RetryTimes

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

LOG = logging.getLogger("scribengin.agent")
END_S = 5
"""between SIGTERM and SIGKILL"""
STEADY_S = 60.0
"""a command that ran so long is started again after the first delay"""
_SHELL = "/bin/sh"
_GUARD = f"""exec 3<&0 </dev/null
( ( trap '' HUP INT TERM; exec >/dev/null 2>&1; read -r line <&3; kill -s TERM -- -$$; sleep {END_S}; kill -s KILL -- -$$ ) & )
exec 3<&-
exec "$@"
"""

PipeName = Literal["stdout", "stderr"]


class ChildProcess:
    """One run of a command; see the module."""

    def __init__(self, command: Sequence[str], environment: Mapping[str, str], *, merge: bool) -> None:
        """Start it. Raises OSError.

        Args:
            command: The program, found on the PATH of the environment, and its arguments.
            environment: Added to that of the agent.
            merge: stderr goes where stdout goes.
        """
        variables = {**os.environ, **environment}
        program = shutil.which(command[0], path=variables.get("PATH"))
        if program is None:
            exists = Path(command[0]).is_file()
            raise PermissionError(13, "not executable", command[0]) if exists else FileNotFoundError(2, "not found", command[0])
        arguments = [program, *command[1:]]
        guarded = Path(_SHELL).exists()
        self._process = subprocess.Popen(
            [_SHELL, "-c", _GUARD, "scribengin-agent", *arguments] if guarded else arguments,
            stdin=subprocess.PIPE if guarded else subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT if merge else subprocess.PIPE,
            env=variables,
            start_new_session=True,
            bufsize=0,
        )
        self.pid = self._process.pid
        self.since = time.monotonic()
        self._released = 0.0
        self._selector = selectors.DefaultSelector()
        for name, pipe in (("stdout", self._process.stdout), ("stderr", self._process.stderr)):
            if pipe is not None:
                os.set_blocking(pipe.fileno(), False)
                self._selector.register(pipe, selectors.EVENT_READ, name)

    def read(self, most_bytes: int) -> Iterator[tuple[PipeName, bytes]]:
        """What is in the pipes, about `most_bytes` at most; empty bytes mean that the pipe has ended."""
        left = most_bytes
        while left > 0 and self._selector.get_map():
            events = self._selector.select(0)
            if not events:
                return
            for key, _ in events:
                try:
                    data = os.read(key.fd, min(READ_BYTES, max(4096, left)))
                except BlockingIOError:
                    continue
                left -= len(data)
                if not data:
                    self._selector.unregister(key.fileobj)
                yield key.data, data

    def wait(self, timeout_s: float) -> None:
        """Until a pipe has something or the command has ended, or the time is over."""
        if self._selector.get_map():
            self._selector.select(timeout_s)
        else:
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(timeout_s)

    @property
    def status(self) -> int | None:
        """The exit status, negative for a signal; None while it runs or its pipes are open."""
        return self._process.poll()

    @property
    def pipes_ended(self) -> bool:
        """True if all that it wrote was read, and nothing can write there any more."""
        return not self._selector.get_map()

    def release(self) -> None:
        """End what the command has started and left behind, see the module."""
        if self._released == 0:
            self._released = time.monotonic()
            if self._process.stdin is not None:
                self._process.stdin.close()

    @property
    def released_s(self) -> float:
        """The seconds since `release`; 0 before."""
        return time.monotonic() - self._released if self._released else 0.0

    def close(self) -> None:
        """End the process group: SIGTERM, then SIGKILL; does not wait for what the command itself has started."""
        if self._process.poll() is None:
            self._signal(signal.SIGTERM)
            try:
                self._process.wait(END_S)
            except subprocess.TimeoutExpired:
                self._signal(signal.SIGKILL)
                self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout, self._process.stderr):
            if pipe is not None:
                pipe.close()
        self._selector.close()

    def _signal(self, number: signal.Signals) -> None:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, number)


class ChildRuns:
    """A command that is run, and run again where `restart` says so."""

    def __init__(
        self,
        command: Sequence[str],
        *,
        environment: Mapping[str, str] | None = None,
        restart: str = "always",
        delay_s: float = 1.0,
        merge: bool = False,
    ) -> None:
        """Start it at the first `read`.

        Args:
            command: The program and its arguments; may be changed between runs.
            environment: Added to that of the agent.
            restart: `always`, `on_failure`, or `never`.
            delay_s: Before the first restart; it doubles up to a minute with each run that is short.
            merge: stderr goes where stdout goes.
        """
        self.command = list(command)
        self.finished = False
        """True if it has ended and is not run again"""
        self.message = ""
        self.runs = 0
        self.last_words = ""
        """the last line that it wrote to stderr, where the input notes it"""
        self._environment = dict(environment or {})
        self._restart = restart
        self._merge = merge
        self._retry = RetryTimes(delay_s, max(60.0, delay_s))
        self._child: ChildProcess | None = None

    @property
    def pid(self) -> int:
        """Of the command; 0 while it does not run."""
        child = self._child  # another thread may ask
        return child.pid if child is not None else 0

    def read(self, most_bytes: int) -> Iterator[tuple[PipeName, bytes]]:
        """Start the command if it is time to, and read what it has written; empty bytes mean that the pipe has ended."""
        if self._child is None:
            if self.finished or not self._retry.due():
                return
            self._start()
        child = self._child
        if child is None:
            return
        yield from child.read(most_bytes)
        if child.status is None:
            return
        if child.pipes_ended:
            self._ended(child, child.status)
            return
        # what the command has started holds its pipes: it is ended, and what it has written is read
        child.release()
        if child.released_s > 2 * END_S:
            self._ended(child, child.status)  # it has left the group

    def wait(self, timeout_s: float) -> None:
        """Until there may be something, or the time is over."""
        if self._child is not None:
            self._child.wait(timeout_s)
        elif self.finished:
            time.sleep(timeout_s)
        else:
            time.sleep(min(timeout_s, self._retry.left_s))

    def _start(self) -> None:
        try:
            self._child = ChildProcess(self.command, self._environment, merge=self._merge)
        except OSError as error:
            delay_s = self._retry.failed()
            reason = (error.strerror or str(error)).lower()
            self.message = (
                f"the command {self.command[0]} cannot be started: {reason}; to fix, install it, or correct `command` "
                f"(it is tried again every {delay_s:.0f} s)"
            )
            LOG.warning("%s", self.message)
            return
        self.runs += 1
        self.last_words = ""

    def _ended(self, child: ChildProcess, status: int) -> None:
        child.close()
        self._child = None
        steady = time.monotonic() - child.since >= STEADY_S
        how = f"was ended by {signal.Signals(-status).name}" if status < 0 else f"ended with status {status}"
        words = f" ({self.last_words})" if self.last_words and status else ""
        self.finished = self._restart == "never" or (self._restart == "on_failure" and status == 0)
        if steady:
            self._retry.worked()
        after = "it is not started again" if self.finished else f"it starts again in {self._retry.failed():g} s"
        self.message = f"the command {self.command[0]} {how}{words}; {after}"
        LOG.log(logging.INFO if status == 0 else logging.WARNING, "%s", self.message)

    def close(self) -> None:
        """End it."""
        self.finished = True
        if self._child is not None:
            self._child.close()
            self._child = None
