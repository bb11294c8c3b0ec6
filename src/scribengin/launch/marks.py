"""What a worker's processes carry in their environment, so that they are found even if their records are lost."""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from hashlib import sha256
from pathlib import Path

from scribengin.core.process import Process, birth_of

VARIABLE = "SCRIBENGIN_LAUNCHED"
"""`<folder>:<worker>`, the folder as a digest of its path."""


def mark_of(folder: Path, worker: str) -> str:
    """`NAME=value`, as it stands in the environment."""
    return f"{_prefix(folder)}{worker}"


def marked_processes(folder: Path) -> dict[str, list[Process]]:
    """Worker → its processes that are there now, as far as this user may see them. Some 10 ms on a machine of 300 processes.

    Linux only; nothing is found elsewhere. A process that its parent has forked and that has not begun its program counts too.
    """
    found: dict[str, list[Process]] = {}
    if sys.platform != "linux":
        return found
    prefix = b"\0" + _prefix(folder).encode()
    me = os.geteuid()
    with os.scandir("/proc") as entries:
        for entry in entries:
            if not entry.name.isdigit():
                continue
            with suppress(OSError):  # it has ended, or is none of ours
                if me not in (0, entry.stat().st_uid):
                    continue
                environment = b"\0" + Path(entry.path, "environ").read_bytes()
                at = environment.find(prefix)
                born = birth_of(int(entry.name)) if at >= 0 else None
                if born is not None:
                    worker = environment[at + len(prefix) :].partition(b"\0")[0].decode(errors="replace")
                    found.setdefault(worker, []).append(Process(int(entry.name), born))
    return found


def _prefix(folder: Path) -> str:
    return f"{VARIABLE}={sha256(str(folder).encode()).hexdigest()[:16]}:"
