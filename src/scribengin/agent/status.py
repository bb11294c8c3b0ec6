"""The file `status.json` of an agent, and the table that people read."""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING, Any

import msgspec

from scribengin.core.errors import EnvironmentFault
from scribengin.core.storage import read_or_none
from scribengin.core.units import show_bytes, show_duration
from scribengin.wire.protocol import AgentReport  # noqa: TC001  msgspec evaluates the annotations

if TYPE_CHECKING:
    from pathlib import Path


class AgentStatus(msgspec.Struct, frozen=True):
    """What an agent last wrote about itself."""

    time_ms: int
    pid: int
    gateways: list[str]
    report: AgentReport
    stopping: bool = False


def read_status(data: Path) -> tuple[AgentStatus, bool]:
    """The status of the agent of a folder, and whether its process runs.

    Raises:
        EnvironmentFault: There is no status, or it cannot be read.
    """
    path = data / "status.json"
    raw = read_or_none(path)
    if raw is None:
        raise EnvironmentFault(f"no agent has run in {data}: there is no {path.name}", remedy="name the folder of the agent with --data")
    try:
        status = msgspec.json.decode(raw, type=AgentStatus)
    except msgspec.MsgspecError as error:
        raise EnvironmentFault(f"{path} is not a status of an agent: {error}", remedy="restart the agent") from error
    return status, _runs(status.pid) and not status.stopping


def status_object(data: Path) -> dict[str, Any]:
    """The status of the agent of a folder for JSON, with `running`. Raises EnvironmentFault as `read_status`."""
    status, running = read_status(data)
    return {**msgspec.to_builtins(status), "running": running}


def _runs(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def status_lines(status: AgentStatus, running: bool) -> list[str]:
    """The table that people read."""
    report, now_ms = status.report, time.time_ns() // 1_000_000
    age = show_duration(max(0, now_ms - status.time_ms) / 1000)
    state = f"running, process {status.pid}" if running else "stopped"
    group = f", group {report.group}" if report.group else ""
    lines = [f"agent {report.agent}{group}: {state} (as of {age} ago)", f"gateways: {', '.join(status.gateways)}"]
    if report.message:
        lines.append(f"! {report.message}")
    rows: list[tuple[str, ...]] = [("LANE", "STATE", "READ", "STORED", "COMMITTED", "DROPPED", "WAITING", "OLDEST", "FILES")]
    for name, lane in sorted(report.lanes.items()):
        oldest = show_duration(max(0, now_ms - lane.oldest_ms) / 1000) if lane.oldest_ms else "-"
        numbers = (f"{number:,}" for number in (lane.read, lane.stored, lane.committed, lane.dropped))
        rows.append((name, lane.state, *numbers, show_bytes(lane.waiting_bytes), oldest, str(lane.files)))
    widths = [max(len(row[place]) for row in rows) for place in range(len(rows[0]))]
    for row in rows:
        cells = [cell.ljust(width) if place < 2 else cell.rjust(width) for place, (cell, width) in enumerate(zip(row, widths, strict=True))]
        lines.append("  ".join(cells).rstrip())
    lines += [f"! {name}: {lane.message}" for name, lane in sorted(report.lanes.items()) if lane.message]
    return lines
