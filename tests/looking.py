"""Waiting for what other processes do, stopping them, and how much work something is, whatever the machine does beside it."""

from __future__ import annotations

import os
import signal
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable


def look_until(what: Callable[[], Any], said: str, within_s: float, pause_s: float = 0.05) -> Any:
    """Look until it is true; what the look gave. A look may be a command of its own, and what is waited for needs the processor too: so
    each pause is as long as the look before it was, at least `pause_s`. AssertionError where it does not come about in time."""
    deadline = time.monotonic() + within_s
    while True:
        begun = time.monotonic()
        if found := what():
            return found
        assert time.monotonic() < deadline, f"not within {within_s:g} s: {said}"
        time.sleep(max(pause_s, time.monotonic() - begun))


def calls_in(act: Callable[[], Any]) -> int:
    """How many functions are called until `act` has returned, those that are written in C too: work that no clock measures."""
    calls = 0

    def count(_frame: Any, event: str, _argument: Any) -> None:
        nonlocal calls
        calls += event in ("call", "c_call")

    sys.setprofile(count)
    try:
        act()
    finally:
        sys.setprofile(None)
    return calls


def stop_whole(pid: int) -> None:
    """SIGSTOP, and wait until no thread of the process runs: `kill` returns before, and on a busy machine one of them may still answer."""
    os.kill(pid, signal.SIGSTOP)
    tasks = Path(f"/proc/{pid}/task")
    look_until(lambda: all(_state(task) in "Tt" for task in tasks.iterdir()), f"{pid} stopped", 60)


def _state(task: Path) -> str:
    try:
        return (task / "stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):  # a thread that has ended answers nothing
        return "T"
