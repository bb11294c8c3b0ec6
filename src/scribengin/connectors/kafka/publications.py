"""Where a Kafka sink notes, in its own folder in the state, what it has published."""

from __future__ import annotations

from typing import TYPE_CHECKING

from scribengin.core.numbered_log import NumberedLog

if TYPE_CHECKING:
    from pathlib import Path


def published_log(work: Path, lineage: str) -> NumberedLog:
    """Batch → `messages`, the ranges that its rows lie in: `topic`, `partition`, `first`, `last` and `rows` of each."""
    return NumberedLog(work / lineage / "published", "publication")
