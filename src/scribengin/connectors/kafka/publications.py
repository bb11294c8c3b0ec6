"""The published Batches of a Kafka sink, recorded in its own folder in the state."""

from __future__ import annotations

from typing import TYPE_CHECKING

from scribengin.core.numbered_log import NumberedLog

if TYPE_CHECKING:
    from pathlib import Path


def published_log(work: Path, lineage: str) -> NumberedLog:
    """The log of published Batches of a lineage. The body of each Batch contains `messages`, the ranges of its rows: `topic`, `partition`,
    `first`, `last` and `rows`."""
    return NumberedLog(work / lineage / "published", "publication")
