"""`crash_after`: a Batch in a process of its own, which dies by SIGKILL in the midst of it, with its Java."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from contextlib import suppress
from typing import TYPE_CHECKING

from scribengin.connectors import catalog
from scribengin.core.errors import ScribenginError
from scribengin.core.faults import VARIABLE
from scribengin.spec.dump import dump_flow

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime
    from pathlib import Path

    from scribengin.flow_tests.twin import Scratch
    from scribengin.spec.flow_tests import Crash
    from scribengin.spec.model import Flow

POINTS = {"staged": "stage.after", "decided": "decide.after", "published": "publish.after"}
_LIMIT_S = 300.0
_SHOWN = 2000


class NoCrashError(ScribenginError):
    """The process came to its end, or died of something else."""

    code = "test-crash"


def run_to_death(twin: Flow, file: Path, scratch: Scratch, crash: Crash, now: datetime | None) -> None:
    """Run what is there in a child that dies at the point; `now` is what its SQL takes for that. Raises NoCrashError where it does not
    die."""
    text = dump_flow(twin, source_types=catalog.source_types(), sink_types=catalog.sink_types())
    described = scratch.root / "dies.yaml"
    described.write_text(text, encoding="utf-8")
    command = [sys.executable, "-m", "scribengin.flow_tests.child", str(described), str(twin.code_folder), str(scratch.state), str(file)]
    expect_death([*command, now.isoformat() if now else ""], scratch.root / "dies.log", crash)


def expect_death(command: Sequence[str], log: Path, crash: Crash, *, limit_s: float = _LIMIT_S) -> None:
    """Wait until the process is dead, its Java too; PySpark's workers have a group of their own, and end when they miss it. Raises
    NoCrashError where it did not die by the fault."""
    environment = os.environ | {VARIABLE: f"{POINTS[crash.point]}:kill"}
    status: int | None = None
    with log.open("wb") as out:
        child = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=out, stderr=out, env=environment, start_new_session=True)
        try:
            with suppress(subprocess.TimeoutExpired):
                status = child.wait(limit_s)
        finally:
            with suppress(ProcessLookupError):  # the group: Java too, where the child alone came to its end
                os.killpg(child.pid, signal.SIGKILL)
            child.wait()
    if status != -signal.SIGKILL:
        said = log.read_text(encoding="utf-8", errors="replace")[-_SHOWN:].strip()
        what, remedy = f"ended with status {status}: {said}", "see what it says"
        if status is None:
            what = f"was neither dead nor through after {limit_s:g} s: {said or 'it said nothing'}"
            remedy = "give that Batch fewer rows, or look for what waits"
        elif status == 0:
            what = f"came to its end without a Batch that was {crash.point}"
            remedy = "give that Batch rows, or take crash_after out"
        raise NoCrashError(f"the process that should die in Batch {crash.batch} {what}", remedy=remedy)
