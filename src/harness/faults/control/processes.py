"""Processes of this machine as `/proc` tells of them: Linux only."""

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
    """A process that is there: its environment when it began, and its words."""

    process: Process
    environment: dict[str, str]
    words: list[str]


def processes_with(name: str, value: str) -> Iterator[FoundProcess]:
    """Those in whose environment `name` is `value`, as far as this user may see them; zombies are none."""
    sign = f"{name}={value}".encode()
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        with suppress(OSError):  # it has ended, or is none of ours
            environment = (entry / "environ").read_bytes().split(b"\0")
            born = birth_of(int(entry.name)) if sign in environment else None
            words = _texts((entry / "cmdline").read_bytes().split(b"\0")) if born else []
            if born and words:
                pairs = (text.partition("=") for text in _texts(environment))
                yield FoundProcess(Process(int(entry.name), born), {key: text for key, _, text in pairs}, words)


def ports_of(process: Process) -> set[int]:
    """This end's ports of its TCP connections; none where it has ended."""
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
    """What it uses: memory that is resident, threads, open files. None of it where it has ended."""
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
