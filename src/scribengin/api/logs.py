"""The last lines of the output of a flow's workers, and of its tiers' run logs."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from scribengin.client.models import LogLines
from scribengin.core.errors import ScribenginError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from scribengin.api.node_pages import NodePages
    from scribengin.client.models import TierRow

MOST_LINES = 10_000
_LINE_BYTES = 200
"""assumed bytes of a line; if lines are longer, fewer are returned"""
_MOST_BYTES = 4 * 2**20


def read_logs(
    state: str, flow: str, tiers: Sequence[TierRow], logs: Callable[[str], Sequence[str]], nodes: NodePages, lines: int
) -> list[LogLines]:
    """The last lines of the logs of a flow's tiers: from files of this host, or from the node of the tier's worker.

    Args:
        state: the root folder of the flow's state.
        flow: the flow.
        tiers: its tiers.
        logs: worker → paths of its output on this host.
        nodes: requests to nodes.
        lines: the most lines of each file.
    """
    found = []
    for row in tiers:
        tier, worker = row.tier, row.worker
        run_log = Path(state) / flow / tier / "tmp/run.log"
        here = [Path(path) for path in (logs(worker) if worker else ())]
        there: list[LogLines] = []
        if worker and row.node and not any(path.is_file() for path in here):
            try:
                there = [LogLines(tier, each["file"], tuple(each["lines"]), row.node) for each in nodes.logs(row.node, worker, lines)]
            except ScribenginError as error:
                there = [LogLines(tier, "", (), row.node, error.message)]
        files = [*here, *([] if str(run_log) in {each.file for each in there} else [run_log])]
        found += [*there, *(LogLines(tier, str(path), last_lines(path, lines)) for path in files if path.is_file())]
    return found


def last_lines(path: Path, lines: int) -> tuple[str, ...]:
    """The last `lines` lines of a file, but at most those in its last `lines` x 200 bytes (at least 64 KiB, at most 4 MiB)."""
    reach = min(max(lines * _LINE_BYTES, 65_536), _MOST_BYTES)
    with path.open("rb") as file:
        size = file.seek(0, os.SEEK_END)
        file.seek(max(0, size - reach))
        text = file.read(reach).decode(errors="replace")
    found = text.splitlines()
    return tuple((found[1:] if size > reach else found)[-lines:])
