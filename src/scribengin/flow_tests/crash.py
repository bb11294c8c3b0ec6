"""`crash_after`: runs a Batch in a separate process, which is killed (SIGKILL) in the middle of the Batch, with its Java process."""

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
    """The process finished, or ended for another reason."""

    code = "test-crash"


def run_to_death(twin: Flow, file: Path, scratch: Scratch, crash: Crash, now: datetime | None) -> None:
    """Process the available input in a child that is killed at the point; `now` is the current time of its SQL. Raises NoCrashError if it
    does not crash."""
    text = dump_flow(twin, source_types=catalog.source_types(), sink_types=catalog.sink_types())
    described = scratch.root / "dies.yaml"
    described.write_text(text, encoding="utf-8")
    command = [sys.executable, "-m", "scribengin.flow_tests.child", str(described), str(twin.code_folder), str(scratch.state), str(file)]
    expect_death([*command, now.isoformat() if now else ""], scratch.root / "dies.log", crash)


def expect_death(command: Sequence[str], log: Path, crash: Crash, *, limit_s: float = _LIMIT_S) -> None:
    """Wait until the process and its Java process have ended; PySpark's workers have their own process group and end by themselves. Raises
    NoCrashError if the fault did not end it."""
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
        what, remedy = f"ended with status {status}: {said}", "check its output"
        if status is None:
            what = f"neither crashed nor finished within {limit_s:g} s: {said or 'it printed nothing'}"
            remedy = "give that Batch fewer rows, or find out why it does not finish"
        elif status == 0:
            what = f"finished without a Batch that was {crash.point}"
            remedy = "give that Batch rows, or take crash_after out"
        raise NoCrashError(f"the process that should crash in Batch {crash.batch} {what}", remedy=remedy)
