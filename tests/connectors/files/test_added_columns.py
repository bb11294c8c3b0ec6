"""`metadata` and `partition_columns`: columns that no record holds, of every format, read as tasks read them."""

from __future__ import annotations

import datetime as dt
import gzip
import os
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from scribengin.connectors.catalog import open_source
from scribengin.connectors.contract import BatchLimits, ConnectorContext
from scribengin.connectors.files.sink_partition import Partitions
from scribengin.core.errors import SourceError
from scribengin.core.types import Schema, parse_schema, with_added
from scribengin.formats.added_columns import own_decoder
from scribengin.formats.contract import Bad

if TYPE_CHECKING:
    from pathlib import Path

ID = parse_schema("id BIGINT")
TIME = dt.datetime(2026, 1, 2, 3, 4, 5, tzinfo=dt.UTC)


def read(folder: Path, schema: Schema | None = ID, path: str = "data/**/*", **options: Any) -> tuple[list[dict[str, Any]], list[Bad]]:
    """All rows, by both ways out of the decoder, which must agree, and the dead records."""
    options = {"path": path, "format": "json", **options}
    if schema is not None:
        schema = with_added(schema, options)
    source: Any = open_source("files", ConnectorContext("in", folder, options, schema))
    schema = source.resolve_schema()
    source.check_first()  # type: ignore[attr-defined]
    decoder, rows, bad = source.decoder(), list[dict[str, Any]](), list[Bad]()
    reader = source.reader()
    reader.checks_first = True
    for stream in reader.split(BatchLimits(), final=True):
        for block in source.read(stream):
            found, columns = decoder.rows(block), decoder.columns(block)
            assert columns.batch.schema.names == list(schema.names)
            assert found.rows == columns.batch.to_pylist()
            assert list(found.ordinals) == list(columns.ordinals)
            rows += found.rows
            bad += found.bad
    return rows, bad


def put(path: Path, data: bytes) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    os.utime(path, (TIME.timestamp(), TIME.timestamp()))
    return path


def test_a_row_says_its_file_line_and_offset(tmp_path: Path) -> None:
    file = put(tmp_path / "data/a.jsonl", b'{"id":1}\n\n{"id":"x"}\n{"id":2}\n')
    size = file.stat().st_size
    words = ["file", "file_name", "file_size", "file_time", "line", "offset"]
    rows, bad = read(tmp_path, metadata={word: word for word in words})
    of_file = {"file": str(file), "file_name": "a.jsonl", "file_size": size, "file_time": TIME}
    assert rows == [{"id": 1, **of_file, "line": 1, "offset": 0}, {"id": 2, **of_file, "line": 4, "offset": 21}]
    assert [each.ordinal for each in bad] == [2]


def test_other_names_and_places_in_the_schema(tmp_path: Path) -> None:
    put(tmp_path / "data/a.jsonl", b'{"id":7,"line":"own"}\n')
    rows, _ = read(tmp_path, parse_schema("nr INT, id BIGINT, line STRING"), metadata={"nr": "line", "src": "file_name"})
    assert rows == [{"nr": 1, "id": 7, "line": "own", "src": "a.jsonl"}]


@pytest.mark.parametrize("packed", [False, True])
def test_csv_records_over_several_lines_are_counted_by_lines(tmp_path: Path, packed: bool) -> None:
    data = b'id,text\n1,"a\nb"\n2,c\n'
    put(tmp_path / f"data/a.csv{'.gz' * packed}", gzip.compress(data) if packed else data)
    words = {"line": "line", "offset": "offset"}
    rows, _ = read(tmp_path, parse_schema("id BIGINT, text STRING"), format="csv", metadata=words)
    assert [(row["line"], row["offset"]) for row in rows] == [(2, 8), (4, 16)]


def test_lines_are_right_in_every_range_of_a_file_that_is_cut(tmp_path: Path) -> None:
    put(tmp_path / "data/a.jsonl", b"".join(b'{"id":%07d1}\n' % index for index in range(20_000)))
    rows, _ = read(tmp_path, split=65536, metadata={"line": "line", "offset": "offset"})
    assert [row["id"] for row in rows] == [row["line"] * 10 - 9 for row in rows]
    assert [row["offset"] for row in rows] == [(row["line"] - 1) * 16 for row in rows]


def test_parquet_tells_the_number_of_a_row_over_its_groups(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    pq.write_table(pa.table({"id": range(5000)}), tmp_path / "data/a.parquet", row_group_size=700)
    rows, _ = read(tmp_path, None, format="parquet", split=65536, metadata={"row": "row", "file": "file"})
    assert [row["row"] for row in rows] == list(range(5000))
    assert {row["file"] for row in rows} == {str(tmp_path / "data/a.parquet")}


def test_a_parquet_file_with_a_column_of_that_name_is_told_with_the_way_out(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    pq.write_table(pa.table({"file": ["x"]}), tmp_path / "data/a.parquet")
    with pytest.raises(SourceError, match='adds the column "file"') as raised:
        read(tmp_path, None, format="parquet", metadata={"file": "file"})
    assert "metadata: {file_of_record: file}" in raised.value.remedy


def test_text_needs_no_schema(tmp_path: Path) -> None:
    put(tmp_path / "data/a.log", b"one\ntwo\n")
    rows, _ = read(tmp_path, None, format="text", metadata={"line": "line"})
    assert rows == [{"value": "one", "line": 1}, {"value": "two", "line": 2}]


HARD = [
    ("STRING", "a/b=c%d ä'\"#", "a/b=c%d ä'\"#"),
    ("STRING", None, None),
    ("STRING", "07", "07"),
    ("INT", -7, -7),
    ("BIGINT", 2**62, 2**62),
    ("BOOLEAN", True, True),
    ("DATE", dt.date(2026, 1, 2), dt.date(2026, 1, 2)),
    ("DATE", None, None),
    ("TIMESTAMP", TIME, TIME),
    ("DECIMAL(6, 2)", "12.50", None),
]


@pytest.mark.parametrize(("type_", "value", "same"), HARD)
def test_what_a_sink_writes_into_folders_is_read(tmp_path: Path, type_: str, value: Any, same: Any) -> None:
    from decimal import Decimal

    from scribengin.core.types import arrow_schema

    schema = parse_schema(f"id BIGINT, p {type_}")
    given = Decimal(value) if type_.startswith("DECIMAL") else value
    batch = pa.RecordBatch.from_pylist([{"id": 1, "p": given}], arrow_schema(schema))
    (part,) = Partitions(schema, ["p"]).split(batch)
    put(tmp_path / "data" / part.folder / "a.jsonl", b'{"id":1}\n')
    rows, bad = read(tmp_path, partition_columns={"p": type_})
    assert (rows, bad) == ([{"id": 1, "p": given if same is None else same}], [])


def test_folders_by_time_and_folders_of_others_are_read(tmp_path: Path) -> None:
    put(tmp_path / "data/dt=2026-01-02/hour=07/a.csv", b"id\n1\n")
    put(tmp_path / "data/dt=__HIVE_DEFAULT_PARTITION__/hour=23/a.csv", b"id\n2\n")
    rows, _ = read(tmp_path, format="csv", partition_columns={"dt": "DATE", "hour": "INT"})
    assert rows == [{"id": 1, "dt": dt.date(2026, 1, 2), "hour": 7}, {"id": 2, "dt": None, "hour": 23}]


def test_types_of_a_list_are_those_of_the_schema(tmp_path: Path) -> None:
    put(tmp_path / "data/n=3/c=de/a.jsonl", b'{"id":1,"n":99}\n')
    rows, _ = read(tmp_path, parse_schema("n INT, id BIGINT"), partition_columns={"n": "", "c": ""})
    assert rows == [{"n": 3, "id": 1, "c": "de"}]


def test_parquet_says_its_own_columns_beside_those_of_the_folders(tmp_path: Path) -> None:
    (tmp_path / "data/c=de").mkdir(parents=True)
    pq.write_table(pa.table({"id": [1], "c": ["ignored"]}), tmp_path / "data/c=de/a.parquet")
    rows, _ = read(tmp_path, None, format="parquet", partition_columns={"c": ""})
    assert rows == [{"id": 1, "c": "de"}]


@pytest.mark.parametrize(
    ("folder", "type_", "reason"),
    [("day=x", "DATE", "wrong-type"), ("other=1", "DATE", "missing"), ("day=__HIVE_DEFAULT_PARTITION__", "DATE NOT NULL", "missing")],
)
def test_a_folder_that_does_not_fit_is_one_dead_letter_for_its_file(tmp_path: Path, folder: str, type_: str, reason: str) -> None:
    put(tmp_path / "data" / folder / "a.jsonl", b'{"id":1}\n{"id":2}\n')
    put(tmp_path / "data/day=2026-01-01/a.jsonl", b'{"id":3}\n')
    rows, bad = read(tmp_path, parse_schema(f"id BIGINT, day {type_}"), partition_columns={"day": ""})
    assert [row["id"] for row in rows] == [3]
    assert [each.reason for each in bad] == [reason]
    assert "day" in bad[0].message
    assert folder in bad[0].message


def test_without_such_options_the_decoder_is_the_formats_own(tmp_path: Path) -> None:
    put(tmp_path / "data/a.jsonl", b'{"id":1}\n')
    source = open_source("files", ConnectorContext("in", tmp_path, {"path": "data", "format": "json"}, ID))
    decoder = source.decoder()
    assert own_decoder(decoder) is decoder


@pytest.mark.parametrize("format_", ["json", "csv", "parquet"])
def test_a_declared_column_that_is_in_the_folders_alone_stops_with_the_option(tmp_path: Path, format_: str) -> None:
    file = tmp_path / f"data/country=de/day=2026-01-01/a.{format_}"
    if format_ == "parquet":
        file.parent.mkdir(parents=True)
        pq.write_table(pa.table({"id": [1]}), file)
    else:
        put(file, b'{"id":1}\n' if format_ == "json" else b"id\n1\n")
    with pytest.raises(SourceError, match='has no column "country"') as raised:
        read(tmp_path, parse_schema("id BIGINT, country STRING, day DATE"), format=format_)
    assert "partition_columns: {country: STRING, day: DATE}" in raised.value.remedy


def test_a_declared_column_that_the_file_has_is_read_from_it(tmp_path: Path) -> None:
    put(tmp_path / "data/country=de/a.jsonl", b'{"id":1}\n{"id":2,"country":"fr"}\n')
    rows, _ = read(tmp_path, parse_schema("id BIGINT, country STRING"))
    assert rows == [{"id": 1, "country": None}, {"id": 2, "country": "fr"}]
