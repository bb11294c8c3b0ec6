"""A process of this machine, distinguished from every later process with the same number: no other process is ever signalled."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

POLL_S = 0.05


@dataclass(frozen=True, slots=True)
class Process:
    """A process of this machine: its number, and its start, which distinguishes it from a later process with the same number."""

    pid: int
    born: str

    def alive(self) -> bool:
        """True if the process still exists: it is not a zombie, and its number belongs to no other process."""
        return birth_of(self.pid) == self.born

    def send(self, number: signal.Signals) -> None:
        """Send a signal; does nothing if the process has ended."""
        with suppress(ProcessLookupError), _handle_of(self.pid) as handle:
            if self.alive():
                if handle is None:
                    os.kill(self.pid, number)
                else:
                    signal.pidfd_send_signal(handle, number)

    def gone_within(self, timeout_s: float) -> bool:
        """Wait until the process has ended; False if it has not after `timeout_s` seconds."""
        return within(timeout_s, lambda: not self.alive())


def birth_of(pid: int) -> str | None:
    """The start of the process with that number, as a text that only serves to compare; None if there is none, or only its zombie."""
    if sys.platform == "linux":
        try:
            state, *fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        except (FileNotFoundError, ProcessLookupError):
            return None
        # a zombie whose threads are still ending holds its ports: it counts as existing until the last one has ended
        if state in "ZX" and int(fields[16]) <= 1:
            return None
        return f"{_boot()} {fields[18]}"  # ticks since the boot identify a moment only together with the boot
    return _birth_by_ps(pid)


def within(timeout_s: float, true: Callable[[], bool]) -> bool:
    """Poll until `true` returns True; False if it does not within `timeout_s` seconds."""
    deadline = time.monotonic() + timeout_s
    while not true():
        if time.monotonic() > deadline:
            return False
        time.sleep(POLL_S)
    return True


@contextmanager
def _handle_of(pid: int) -> Iterator[int | None]:
    """A handle that identifies this one process, even if its number is reused before the signal is sent; None if the system has no such
    handles.

    Raises ProcessLookupError if no process has the number.
    """
    handle = None
    if sys.platform == "linux":
        try:
            handle = os.pidfd_open(pid)
        except ProcessLookupError:
            raise
        except OSError:  # some sandboxes do not support it
            handle = None
    try:
        yield handle
    finally:
        if handle is not None:
            os.close(handle)


def _birth_by_ps(pid: int) -> str | None:
    asked = subprocess.run(
        ["ps", "-o", "stat=,lstart=", "-p", str(pid)], capture_output=True, text=True, check=False, env={**os.environ, "LC_ALL": "C"}
    )
    state, _, started = asked.stdout.strip().partition(" ")
    return started.strip() if started and not state.startswith("Z") else None


def _boot() -> str:
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:  # some sandboxes have none
        return "boot"
