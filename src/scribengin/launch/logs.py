"""The logs of workers: one file each, bounded by its supervisor, and kept for some weeks after the worker's record is removed."""

from __future__ import annotations

import re
import time
from contextlib import suppress
from typing import TYPE_CHECKING

from scribengin.core.storage import names_in

if TYPE_CHECKING:
    from collections.abc import Collection
    from pathlib import Path

KEPT_OF_A_TIER = 5
KEPT_S = 30 * 86_400.0
_NAME = re.compile(r"(?P<worker>.+)\.log(?:\.1|\.1\.draft)?")
_NUMBER = re.compile(r"-(\d+)$")


def log_path(folder: Path, worker: str) -> Path:
    """Where a worker's output goes; what was too much of it lies in `<name>.1`."""
    return folder / f"{worker}.log"


def logs_of(folder: Path, worker: str) -> tuple[str, ...]:
    """The files that there are, the oldest first."""
    path = log_path(folder, worker)
    return tuple(str(file) for file in (path.with_name(f"{path.name}.1"), path) if file.exists())


def prune_logs(folder: Path, known: Collection[str]) -> None:
    """Remove the logs of workers that are not known any more, but for the newest of each tier, for some weeks."""
    files: dict[str, list[Path]] = {}
    for name in names_in(folder):
        found = _NAME.fullmatch(name)
        if found is not None and found["worker"] not in known:
            files.setdefault(found["worker"], []).append(folder / name)
    tiers: dict[str, list[str]] = {}
    for worker in sorted(files, key=_number, reverse=True):
        tiers.setdefault(_NUMBER.sub("", worker), []).append(worker)
    oldest_s = time.time() - KEPT_S
    for workers in tiers.values():
        for rank, worker in enumerate(workers):
            for path in files[worker]:
                with suppress(FileNotFoundError):  # another launcher is at it too
                    if rank >= KEPT_OF_A_TIER or path.stat().st_mtime < oldest_s:
                        path.unlink()


def _number(worker: str) -> int:
    found = _NUMBER.search(worker)
    return int(found[1]) if found else 0
