"""Reads Spark's offset log, `checkpoint/offsets`: one file per Batch, with a format line, the metadata and one offset per source."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from scribengin.state.lineage import read_lineage

if TYPE_CHECKING:
    from pathlib import Path

    from scribengin.state.folder import QueryFolder

_METADATA = 1
"""the index of the metadata line; the format precedes it, the offsets follow it"""


def batch_of_task() -> int:
    """The number of the running task's Batch; -1 if Spark has none."""
    from pyspark import TaskContext

    context = TaskContext.get()
    return int((context.getLocalProperty("streaming.sql.batchId") if context is not None else None) or -1)


def watermark_us(log: Path, batch: int) -> int:
    """The watermark of the Batch in µs; 0 before the first."""
    lines = _lines(log, batch)
    return int(msgspec.json.decode(lines[_METADATA])["batchWatermarkMs"]) * 1000 if lines else 0


def planned_us(log: Path, batch: int) -> int:
    """The driver's clock in µs when Spark planned the Batch; a Batch that runs again keeps it. 0 if there is no such Batch."""
    lines = _lines(log, batch)
    return int(msgspec.json.decode(lines[_METADATA])["batchTimestampMs"]) * 1000 if lines else 0


def end_of(log: Path, batch: int, source: str) -> int:
    """The position in the source at the end of the Batch; 0 before the first."""
    offsets = [msgspec.json.decode(line) for line in _lines(log, batch)[_METADATA + 1 :] if line.startswith("{")]
    return next((int(offset["n"]) for offset in offsets if offset["source"] == source), 0)


def ends_of(log: Path, batch: int) -> dict[str, int]:
    """Source → the position at the end of the Batch."""
    offsets = [msgspec.json.decode(line) for line in _lines(log, batch)[_METADATA + 1 :] if line.startswith("{")]
    return {str(offset["source"]): int(offset["n"]) for offset in offsets}


def partitions_of(log: Path, batch: int) -> int | None:
    """The number of state partitions of the Batch; None if there is no such Batch."""
    lines = _lines(log, batch)
    return int(msgspec.json.decode(lines[_METADATA])["conf"]["spark.sql.shuffle.partitions"]) if lines else None


def newest_of(log: Path) -> int | None:
    """The newest entry of one of Spark's logs; None if there is none."""
    return max((int(path.name) for path in log.iterdir() if path.name.isdigit()), default=None) if log.is_dir() else None


def state_partitions(query: QueryFolder) -> int | None:
    """The number of state partitions of a query; None if it is not stateful, or has no state yet."""
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
