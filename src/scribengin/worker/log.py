"""A worker's own log, which is its output."""

from __future__ import annotations

import json
import os
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable


# The duration of a worker's start, logged once: from the start of its process to its first committed Batch.


WORD = "start:"
"""the beginning of the line"""
LAST = "committed"


class Timeline:
    """The milestones of one start, each recorded once. The milestone `LAST` writes the line; later ones do not belong to the start."""

    def __init__(self, tell: Callable[[str], None] | None = None) -> None:
        self._tell = tell or (lambda line: print(line, file=sys.stderr, flush=True))
        self._marks: dict[str, float] = {"born": born_at()}
        self._told = False

    def mark(self, name: str) -> None:
        """Record that the milestone is reached now."""
        if self._told or name in self._marks:
            return
        self._marks[name] = time.time()
        if name == LAST:
            self._told = True
            self._tell(f"{WORD} {json.dumps({name: round(at, 3) for name, at in self._marks.items()})}")


def born_at() -> float:
    """The start of this process, in seconds since the epoch, to 10 ms; the present time if it is unknown."""
    try:
        ticks = int(Path("/proc/self/stat").read_text().rpartition(")")[2].split()[19])
        uptime_s = float(Path("/proc/uptime").read_text().split()[0])
    except (OSError, ValueError):
        return time.time()
    return time.time() - uptime_s + ticks / os.sysconf("SC_CLK_TCK")


def read_timelines(log: str) -> list[dict[str, float]]:
    """The timelines in a worker's log, oldest first: milestone → seconds since the epoch."""
    found = []
    for line in log.splitlines():
        with suppress(ValueError):
            if line.startswith(WORD):
                found.append(json.loads(line.removeprefix(WORD)))
    return found


def tell(text: str) -> None:
    """Print a line, with the time before it."""
    print(f"{time.strftime('%Y-%m-%dT%H:%M:%S%z')} {text}", file=sys.stderr, flush=True)
