"""File sinks as tests make them: staged, decided, published, looked at."""

from __future__ import annotations

import datetime as dt
import json
import pickle
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from scribengin.connectors.contract import BatchId, ConnectorContext, Decided
from scribengin.connectors.files.options import SINK
from scribengin.connectors.files.sink import FilesSink
from scribengin.core.types import arrow_schema, parse_schema

if TYPE_CHECKING:
    from pathlib import Path

    from scribengin.connectors.contract import Receipt

SCHEMA = parse_schema("id BIGINT, country STRING, day DATE")
LINEAGE = "l1"


def rows(*ids: int, country: str | None = "DE", day: dt.date | None = dt.date(2026, 1, 1)) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist([{"id": i, "country": country, "day": day} for i in ids], schema=arrow_schema(SCHEMA))


def make(folder: Path, *, lineage: str = LINEAGE, prepare: bool = True, node: str = "kept", **options: Any) -> FilesSink:
    sink = FilesSink(ConnectorContext(node, folder, SINK.filled({"path": "out", "format": "json"} | options), flow="f"))
    if prepare:
        sink.prepare(owner="me", lineage=lineage)
    return sink


def batch(number: int, *, lineage: str = LINEAGE, term: int = 1) -> BatchId:
    return BatchId("f", "q", lineage, number, term)


def stage(sink: FilesSink, id_: BatchId, *batches: pa.RecordBatch, unit: int = 0, attempt: str = "a") -> Receipt:
    stream = pickle.loads(pickle.dumps(sink)).stream(id_, unit, attempt, SCHEMA)
    for each in batches:
        stream.write(each)
    return stream.close()


def decide(sink: FilesSink, number: int, *batches: pa.RecordBatch, attempt: str = "a", term: int = 1, hash_: str = "h") -> Decided:
    id_ = batch(number, term=term)
    return Decided(id_, f"{hash_}{number}", (stage(sink, id_, *batches, attempt=attempt),))


def visible(folder: Path) -> list[str]:
    top = folder / "out"
    files = (path.relative_to(top) for path in top.rglob("*") if path.is_file())
    return sorted(str(path) for path in files if not path.parts[0].startswith("_"))


def ids(folder: Path) -> list[int]:
    return [json.loads(line)["id"] for name in visible(folder) for line in (folder / "out" / name).read_text().splitlines()]


def internal(folder: Path, under: str) -> list[Path]:
    return [path for path in (folder / "out" / "_scribengin" / LINEAGE / under).rglob("*") if path.is_file()]
