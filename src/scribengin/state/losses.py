"""The losses of a Query: records that were deleted before they were read, from the logs of its sources."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from scribengin.state.source_log import SourceLog

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from scribengin.state.folder import QueryFolder


@dataclass(frozen=True, slots=True)
class Loss:
    """`rows` is how many records at most, None if unknown; `entry` the entry of the source's log that says so."""

    source: str
    entry: int
    rows: int | None
    what: str

    def as_json(self) -> dict[str, Any]:
        """One JSON object."""
        return asdict(self)


def read_losses(query: QueryFolder, starts: Mapping[str, int], ends: Mapping[str, int]) -> Iterator[Loss]:
    """Those in the entries `starts` (source → inclusive, 0 for others) to `ends` (exclusive), in order. Reads all of these entries."""
    for source, end in ends.items():
        start = starts.get(source, 0)
        for number, streams in enumerate(SourceLog(query.sources, source).entries(start), start):
            if number >= end:
                break
            for stream in streams:
                if stream.lost:
                    yield Loss(source, number, stream.rows, stream.lost)
