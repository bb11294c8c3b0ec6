"""Information about processes of this machine, from `/proc`; Linux only."""

from __future__ import annotations

import os
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from scribengin.core.process import Process, birth_of

if TYPE_CHECKING:
    from collections.abc import Iterator

_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


@dataclass(frozen=True, slots=True)
class FoundProcess:
    """A running process, with its environment at its start and its command line."""

    process: Process
    environment: dict[str, str]
    words: list[str]


def processes_with(name: str, value: str) -> Iterator[FoundProcess]:
    """The processes whose environment variable `name` is `value`, without zombies and without those of other users."""
    sign = f"{name}={value}".encode()
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        with suppress(OSError):  # it has ended, or belongs to another user
            environment = (entry / "environ").read_bytes().split(b"\0")
            born = birth_of(int(entry.name)) if sign in environment else None
            words = _texts((entry / "cmdline").read_bytes().split(b"\0")) if born else []
            if born and words:
                pairs = (text.partition("=") for text in _texts(environment))
                yield FoundProcess(Process(int(entry.name), born), {key: text for key, _, text in pairs}, words)


def ports_of(process: Process) -> set[int]:
    """The local ports of a process's TCP connections; empty if it has ended."""
    found: set[int] = set()
    with suppress(OSError):
        mine = set()
        for entry in Path(f"/proc/{process.pid}/fd").iterdir():
            with suppress(OSError):  # closed meanwhile
                mine.add(str(entry.readlink()))
        for line in Path(f"/proc/{process.pid}/net/tcp").read_text().splitlines()[1:]:
            fields = line.split()
            if f"socket:[{fields[9]}]" in mine:
                found.add(int(fields[1].rpartition(":")[2], 16))
    return found


def figures_of(process: Process) -> dict[str, float]:
    """The resources that a process uses: resident memory, threads, open files. Empty if it has ended."""
    base = Path(f"/proc/{process.pid}")
    with suppress(OSError):
        fields = (base / "stat").read_text().rpartition(")")[2].split()
        pages = int((base / "statm").read_text().split()[1])
        return {
            "memory MiB": pages * _PAGE_BYTES / 2**20,
            "threads": float(fields[17]),
            "open files": float(sum(1 for _ in (base / "fd").iterdir())),
        }
    return {}


def _texts(parts: list[bytes]) -> list[str]:
    return [part.decode(errors="replace") for part in parts if part]
