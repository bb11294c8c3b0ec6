"""A table whose disk is full, or that is gone: what is told, and that each row is there once afterwards."""

from __future__ import annotations

import os
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from harness.faults.small_disk import SmallDisk, no_small_disk
from scribengin.connectors.contract import BatchId, Decided
from scribengin.core.errors import EnvironmentFault, SinkError
from scribengin.core.types import arrow_schema, parse_schema
from tests.connectors.delta.driver import Writer, place

if TYPE_CHECKING:
    from collections.abc import Callable

    Read = Callable[[Path], list[dict[str, Any]]]


@pytest.mark.skipif(bool(no_small_disk()), reason=no_small_disk())
def test_a_disk_without_room_is_told_and_the_batch_comes_through_later(tmp_path: Path) -> None:
    """Where rows are staged, and where they are staged already and committed. In a process that sees the disk."""
    small, root = tmp_path / "small", Path(__file__).parents[3]
    program = (
        f"from pathlib import Path; from tests.connectors.delta.test_bad_places import on_a_full_disk; on_a_full_disk(Path({str(small)!r}))"
    )
    with SmallDisk(small, "512k") as disk:
        ended = subprocess.run(disk.wrap([sys.executable, "-c", program], root), capture_output=True, text=True, timeout=120, check=False)
    assert ended.returncode == 0, ended.stderr


def on_a_full_disk(small: Path) -> None:
    schema = parse_schema("id BIGINT, body STRING")
    writer = Writer(place(small), schema)
    writer.write(0, [{"id": 1, "body": "x"}])
    large = [{"id": id_, "body": "".join(uuid4().hex for _ in range(30))} for id_ in range(1_000)]
    stream = writer.sink.stream(BatchId("flow", "query", "one", 1, 1), 0, "another", schema)
    with pytest.raises(EnvironmentFault, match="No space left on device"):
        stream.write(pa.RecordBatch.from_pylist(large, schema=arrow_schema(schema))) or stream.close()
    stream.abort()
    decided, _ = writer.stage(1, [{"id": 2, "body": "x"}])
    with (small / "filler").open("wb", buffering=0) as file, suppress(OSError):
        while file.write(b"x" * 4096):
            pass
    codes: list[str] = []
    while error := refused(writer, decided):  # page by page there is room for its record, then for the log of the table
        assert "No space left on device" in str(error)
        assert "free space" in error.remedy
        codes.append(error.code)
        os.truncate(small / "filler", (small / "filler").stat().st_size - 4096)
    assert set(codes) == {EnvironmentFault.code, "delta-room"}
    assert [path.name for path in (small / "kept").rglob(".published*")] == []
    subprocess.run(["mount", "-o", "remount,size=8m", str(small)], check=True)
    writer.write(2, large)
    rows = DeltaTable(str(small / "kept")).to_pyarrow_table().column("id").to_pylist()
    assert sorted(rows) == sorted([1, 2, *range(1_000)])
    assert [each.violations for each in writer.sink.audit(lineage="one", decided=[decided])][:1] == [()]


def refused(writer: Writer, decided: Decided) -> EnvironmentFault | None:
    try:
        writer.sink.publish(decided)
    except EnvironmentFault as error:
        return error
    return None


@pytest.mark.parametrize("options", [{}, {"mode": "upsert", "key": ["id"]}], ids=["append", "upsert"])
@pytest.mark.parametrize("staged", ["before", "afterwards"])
def test_a_table_that_is_gone_is_told_and_not_made_again_without_its_rows(
    tmp_path: Path, read: Read, options: dict[str, Any], staged: str
) -> None:
    schema = parse_schema("id BIGINT")
    writer = Writer(place(tmp_path, **options), schema)
    writer.write(0, [{"id": 1}])
    log, away = tmp_path / "kept/_delta_log", tmp_path / "away"
    decided = writer.stage(1, [{"id": 2}])[0] if staged == "before" else None
    log.rename(away)
    decided = decided or writer.stage(1, [{"id": 2}])[0]
    for each in (writer, Writer(place(tmp_path, **options), schema)):
        with pytest.raises(SinkError, match="is missing, although batches of this lineage were written to it") as told:
            each.sink.publish(decided)
        assert told.value.code == "delta-gone"
        assert told.value.remedy == "restore it, with its log and its files; or start over: scribengin reset FLOW --outputs"
        assert not log.exists()
    away.rename(log)
    again = Writer(place(tmp_path, **options), schema)
    again.sink.publish(decided)
    assert sorted(row["id"] for row in read(tmp_path / "kept")) == [1, 2]
