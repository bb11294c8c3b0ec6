"""The command line in processes of their own, as a person runs it, and what they come to."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from tests.looking import look_until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

SCRIBENGIN = (sys.executable, "-m", "scribengin.cli")


def scribengin(folder: Path, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """A command that has ended, well or not."""
    # of its own session: what kills a run kills all of its process group
    settings: dict[str, Any] = {"cwd": folder, "env": os.environ | environment, "start_new_session": True}
    return subprocess.run([*SCRIBENGIN, *arguments], **settings, capture_output=True, text=True, timeout=400, check=False)


@contextmanager
def started(folder: Path, *command: str) -> Iterator[subprocess.Popen[bytes]]:
    """A program that runs in the block, and is killed with its process group where it has not ended by then. See `said`."""
    with (folder / "said.txt").open("wb") as out:
        child = subprocess.Popen(command, cwd=folder, stdout=out, stderr=out, start_new_session=True)
    try:
        yield child
    finally:
        if child.poll() is None:
            kill(child)


def kill(child: subprocess.Popen[bytes]) -> None:
    """As a crash does, with its JVM."""
    os.killpg(child.pid, signal.SIGKILL)
    child.wait(120)


def said(folder: Path) -> str:
    """What the newest of those that were `started` there has printed."""
    return (folder / "said.txt").read_text()


def rows_in(folder: Path) -> list[dict[str, Any]]:
    """Those of the JSON files of a sink, in the order of batch, unit, row."""
    return [json.loads(line) for part in sorted(folder.glob("part-*")) for line in part.read_text().splitlines()]


def within(seconds: float, look: Callable[[], Any]) -> Any:
    """What `look` gives, as soon as it gives something."""
    return look_until(look, "it has not come", seconds)
