"""Whether a dead letter that is replayed would be late: its time, as its source gives it, against its Query's watermark. Without Spark."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from scribengin.plan.graph import Graph, base
from scribengin.plan.resolve import resolve, slowest
from scribengin.spark.gate import instant_text, late_rule
from scribengin.spark.layout import NodeLayout
from scribengin.spark.offset_log import newest_of, watermark_us

if TYPE_CHECKING:
    from scribengin.local.entrances import Entrances
    from scribengin.spark.gate import WindowGrid
    from scribengin.state.folder import QueryFolder


@dataclass(frozen=True, slots=True)
class _Door:
    """A step that keeps state, where rows of a source may be late: by this column of the source."""

    column: str
    grid: WindowGrid | None
    watermark_us: int


class Lateness:
    """Of one Query as it stands now. What is in time now may be late when a run takes it; steps on the way may give a row another time."""

    def __init__(self, entrances: Entrances, folder: QueryFolder) -> None:
        self._entrances = entrances
        offsets = folder.checkpoint / "offsets"
        newest = newest_of(offsets) if entrances.query.stateful else None
        self._watermark_us = 0 if newest is None else watermark_us(offsets, newest)
        self._doors: dict[str, list[_Door]] = {}

    @property
    def watermark(self) -> str:
        """The Query's, in ISO 8601."""
        return instant_text(pa.array([self._watermark_us], pa.timestamp("us", tz="UTC")))

    def is_late(self, source: str, row: pa.RecordBatch) -> bool:
        """True where a letter that enters at its source, which makes this row of it, would be late there now."""
        for door in self._of(source):
            times = row.column(door.column).drop_null().cast(pa.timestamp("us", tz="UTC")).cast(pa.int64())
            at = np.asarray(times.to_numpy(zero_copy_only=False), np.int64)
            ends = at if door.grid is None else door.grid.last_ends_us(at)
            if (ends <= door.watermark_us).any():
                return True
        return False

    def _of(self, source: str) -> list[_Door]:
        if source not in self._doors:
            self._doors[source] = self._found(source) if self._watermark_us else []
        return self._doors[source]

    def _found(self, source: str) -> list[_Door]:
        plan, query = self._entrances.prepared.plan, self._entrances.query
        marks, layout = resolve(Graph(plan.flow)).watermarks, NodeLayout(plan, query)
        columns = self._entrances.decoder(source).schema
        declared, below = plan.flow.sources[source].watermark, self._entrances.below(source)
        found = []
        for node in query.nodes:
            fed = [input_ for input_ in node.inputs if base(input_) in below] if node.stateful else []
            for mark in filter(None, (slowest(marks.get(base(input_), ())) for input_ in fed)):
                column = declared.column if declared is not None and mark.origin == source else mark.column
                if column in columns and columns[column].type.name == "TIMESTAMP":
                    rule = late_rule(layout.step(node.id), mark.column)
                    if rule.drops:
                        found.append(_Door(column, rule.grid, self._watermark_us - layout.lag_us(node.id)))
        return found
