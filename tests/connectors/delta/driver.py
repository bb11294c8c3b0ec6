"""A driver of one sink, for tests without Spark."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa

from scribengin.connectors.contract import BatchId, ConnectorContext, Decided
from scribengin.connectors.delta import make_sink
from scribengin.connectors.delta.options import SINK
from scribengin.core.types import arrow_schema

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from scribengin.core.types import Schema


def place(tmp_path: Path, **options: Any) -> ConnectorContext:
    return ConnectorContext("kept", tmp_path, SINK.filled({"path": "kept"} | options), flow="flow")


class Writer:
    """A driver with one sink, and Batches of some units each."""

    def __init__(self, place: ConnectorContext, schema: Schema, *, term: int = 1, lineage: str = "one", adopt: bool = False) -> None:
        self.sink: Any = make_sink(place)
        self.sink.prepare(owner="me", lineage=lineage, adopt=adopt)
        self._schema = schema
        self._term = term
        self._lineage = lineage

    def stage(self, number: int, *units: Sequence[dict[str, Any]]) -> tuple[Decided, list[str]]:
        batch = BatchId("flow", "query", self._lineage, number, self._term)
        receipts, refused = [], []
        for unit, rows in enumerate(units):
            stream = self.sink.stream(batch, unit, f"attempt{number}{unit}{self._term}{self._lineage}", self._schema)
            bad = stream.write(pa.RecordBatch.from_pylist(list(rows), schema=arrow_schema(self._schema)))
            refused += [f"{each.ordinal}: {each.message}" for each in bad]
            receipts.append(stream.close())
        return Decided(batch, f"hash {number}", tuple(receipts)), refused

    def write(self, number: int, *units: Sequence[dict[str, Any]]) -> list[str]:
        decided, refused = self.stage(number, *units)
        self.sink.publish(decided)
        return refused
