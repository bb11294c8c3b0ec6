"""The columns of a sink's folder are compared with those that are to come."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from file_sinks import decide, make, rows

from scribengin.connectors.files.maintenance import roll_folder
from scribengin.connectors.files.schema_guard import differences
from scribengin.core.types import parse_schema

if TYPE_CHECKING:
    from pathlib import Path


def found(folder: Path, schema: str, **options: Any) -> list[str]:
    given = {"format": "parquet", **options}
    return [text.replace(str(folder), "") for text in differences(folder, given, parse_schema(schema))]


@pytest.fixture
def parquet(tmp_path: Path) -> Path:
    pq.write_table(pa.table({"id": [1], "amount": [1.5]}), tmp_path / "part-0000000000-00000-a.parquet")
    return tmp_path


def test_another_type_is_told_with_file_column_and_both_types(parquet: Path) -> None:
    assert found(parquet, "id BIGINT NOT NULL, amount STRING") == [
        'column "amount" is DOUBLE in /part-0000000000-00000-a.parquet, but STRING in the flow'
    ]
    assert found(parquet, "id BIGINT, amount STRING", evolve="any") == []


def test_other_columns_are_told_under_strict_only(parquet: Path) -> None:
    assert found(parquet, "id BIGINT, more DATE") == []
    assert len(found(parquet, "id BIGINT, more DATE", evolve="strict")) == 2
    assert found(parquet, "id BIGINT, amount DOUBLE, day DATE", evolve="strict", partition_by=("day",)) == []


def test_json_is_compared_by_kinds_and_numbers_that_json_has_none_for_say_nothing(tmp_path: Path) -> None:
    (tmp_path / "part-1.jsonl").write_text('{"id":1,"x":"NaN","t":null}\n{"id":1,"x":1.5,"t":"2026-01-01T00:00:00.000000Z"}\n')
    assert found(tmp_path, "id BIGINT, x DOUBLE, t TIMESTAMP", format="json") == []
    assert found(tmp_path, "id STRING, x DOUBLE, t DATE", format="json") == [
        'column "id" is a number in /part-1.jsonl, but STRING in the flow'
    ]


def test_csv_is_compared_by_its_first_line(tmp_path: Path) -> None:
    (tmp_path / "part-1.csv").write_text("id;x\n1;2\n")
    options: dict[str, Any] = {"format": "csv", "delimiter": ";"}
    assert found(tmp_path, "id STRING, x DOUBLE", **options) == []
    assert len(found(tmp_path, "x DOUBLE, id STRING", **options)) == 1
    assert found(tmp_path, "x DOUBLE, id STRING", **options, header=False) == []


def test_a_folder_that_is_empty_or_holds_what_is_no_file_of_ours_says_nothing(tmp_path: Path) -> None:
    assert found(tmp_path / "missing", "id BIGINT") == []
    (tmp_path / "part-1.parquet").write_bytes(b"no parquet")
    assert found(tmp_path, "id BIGINT") == []


def test_lines_of_a_folder_that_are_no_records_say_nothing(tmp_path: Path) -> None:
    (tmp_path / "part-1.jsonl").write_bytes(b'{"id":1}\n\n[1]\n\xff\n{"id":2}\n{"id": "to')
    assert found(tmp_path, "id BIGINT", format="json") == []
    assert len(found(tmp_path, "id STRING", format="json")) == 1


@pytest.mark.parametrize("merged", [False, True])
@pytest.mark.parametrize("by", [(), ("country",)])
@pytest.mark.parametrize(("format", "compression"), [("parquet", "auto"), ("json", "none"), ("json", "gzip"), ("csv", "zstd")])
def test_what_a_sink_has_hidden_or_merged_is_compared_too(
    tmp_path: Path, format: str, compression: str, by: tuple[str, ...], merged: bool
) -> None:
    sink = make(tmp_path, format=format, compression=compression, partition_by=by, roll={"size": 10**6, "every": 300.0})
    for number in range(2):
        sink.publish(decide(sink, number, rows(number)))
    if merged:
        roll_folder(tmp_path / "out", lambda: None, flush=True)
    same, other = ("id BIGINT, country STRING, day DATE", "id STRING, country STRING, day DATE")
    if format == "csv":
        other = "town STRING, country STRING, day DATE"
    assert found(tmp_path / "out", same, format=format, partition_by=by) == []
    assert len(found(tmp_path / "out", other, format=format, partition_by=by)) == 1
