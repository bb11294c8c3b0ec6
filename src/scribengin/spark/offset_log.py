"""Reads Spark's offset log, `checkpoint/offsets`: a file a Batch, its metadata and then one offset a source."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from scribengin.state.lineage import read_lineage

if TYPE_CHECKING:
    from pathlib import Path

    from scribengin.state.folder import QueryFolder

_METADATA = 1
"""the line of it; before it stands the format, behind it the offsets"""


def batch_of_task() -> int:
    """The number of the Batch that the running task belongs to; -1 where Spark knows of none."""
    from pyspark import TaskContext

    context = TaskContext.get()
    return int((context.getLocalProperty("streaming.sql.batchId") if context is not None else None) or -1)


def watermark_us(log: Path, batch: int) -> int:
    """The watermark under which that Batch ran; 0 before the first."""
    lines = _lines(log, batch)
    return int(msgspec.json.decode(lines[_METADATA])["batchWatermarkMs"]) * 1000 if lines else 0


def planned_us(log: Path, batch: int) -> int:
    """The driver's clock when Spark planned that Batch, which a Batch that runs again keeps; 0 of none."""
    lines = _lines(log, batch)
    return int(msgspec.json.decode(lines[_METADATA])["batchTimestampMs"]) * 1000 if lines else 0


def end_of(log: Path, batch: int, source: str) -> int:
    """The position at which the Batch leaves the source; 0 before the first."""
    offsets = [msgspec.json.decode(line) for line in _lines(log, batch)[_METADATA + 1 :] if line.startswith("{")]
    return next((int(offset["n"]) for offset in offsets if offset["source"] == source), 0)


def ends_of(log: Path, batch: int) -> dict[str, int]:
    """Source → the position at which the Batch leaves it."""
    offsets = [msgspec.json.decode(line) for line in _lines(log, batch)[_METADATA + 1 :] if line.startswith("{")]
    return {str(offset["source"]): int(offset["n"]) for offset in offsets}


def partitions_of(log: Path, batch: int) -> int | None:
    """The number of state partitions of the Batch; None if there is no such Batch."""
    lines = _lines(log, batch)
    return int(msgspec.json.decode(lines[_METADATA])["conf"]["spark.sql.shuffle.partitions"]) if lines else None


def newest_of(log: Path) -> int | None:
    """The newest entry of one of Spark's logs."""
    return max((int(path.name) for path in log.iterdir() if path.name.isdigit()), default=None) if log.is_dir() else None


def state_partitions(query: QueryFolder) -> int | None:
    """The number of state partitions of a Query; None if it keeps no state, or none yet."""
    lineage = read_lineage(query)
    newest = newest_of(query.checkpoint / "offsets")
    if lineage is None or not lineage.state_fingerprint or newest is None:
        return None
    return partitions_of(query.checkpoint / "offsets", newest)


def _lines(log: Path, batch: int) -> list[str]:
    try:
        return (log / str(batch)).read_text().split("\n")
    except FileNotFoundError:
        return []
