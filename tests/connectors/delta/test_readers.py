"""Readers that know nothing of Scribengin: they all find the same rows."""

from __future__ import annotations

import datetime as dt
import json
import subprocess
import sys
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import duckdb
import pyarrow as pa
import pytest
from deltalake import DeltaTable
from pyarrow.fs import LocalFileSystem, SubTreeFileSystem

from scribengin.connectors.delta.folder import FolderPlace
from scribengin.connectors.delta.maintenance import keep_table
from scribengin.core.types import parse_schema
from scribengin.embedded.jars import fetch
from tests.connectors.delta.driver import Writer, place

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pyspark.sql import SparkSession

NOON = dt.datetime(2026, 1, 1, 12, 0, 0, 123456, tzinfo=dt.UTC)
COLUMNS = "id, name, at, amount, country, later"
BY_DELTA_SPARK = """
import json, sys
from pyspark.sql import SparkSession
table, jars = sys.argv[1], sys.argv[2]
settings = {
    "spark.jars": jars,
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
    "spark.sql.session.timeZone": "UTC",
    "spark.ui.enabled": "false",
    "spark.databricks.delta.snapshotPartitions": "1",
}
builder = SparkSession.builder.master("local[1]")
for name, value in settings.items():
    builder = builder.config(name, value)
spark = builder.getOrCreate()
read = spark.read.format("delta").load(table)
print(json.dumps([
    [row.asDict() for row in read.where(where).orderBy("id").selectExpr("id", "name", "CAST(at AS STRING) AS at", "later").collect()]
    for where in ("true", "id >= 40", "name > 'n3' AND country = 'a b'", "at = '2026-01-01T12:00:00.123456Z' AND country IS NULL")
]))
"""


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """With partitions, a column that came later, and files of a compaction beside ones of Batches."""
    folder = tmp_path_factory.mktemp("lake")
    schema = parse_schema("id BIGINT, name STRING, at TIMESTAMP, amount DECIMAL(9,2), country STRING")
    wider = parse_schema(f"{schema}, later INT")
    for number in range(6):
        columns = schema if number < 4 else wider
        rows = [
            {"id": 10 * number + n, "name": f"n{number}{n}", "at": NOON, "amount": Decimal("1.50"), "country": ["DE", "a b", None][n % 3]}
            | ({"later": n} if columns is wider else {})
            for n in range(10)
        ]
        Writer(place(folder, partition_by=["country"], evolve="add"), columns).write(number, rows)
        if number == 3:
            assert keep_table(FolderPlace("", folder / "kept"), 1 << 20, 0.0, flush=True).merged == 12
    return folder / "kept"


@pytest.fixture(scope="module")
def rows() -> list[tuple[Any, ...]]:
    countries = ["DE", "a b", None]
    amount = Decimal("1.50")
    return [(10 * k + n, f"n{k}{n}", NOON, amount, countries[n % 3], n if k >= 4 else None) for k in range(6) for n in range(10)]


def dataset(table: Path) -> Any:
    return DeltaTable(table).to_pyarrow_dataset(filesystem=SubTreeFileSystem(str(table), LocalFileSystem()))


def by_pyarrow(table: Path, _: SparkSession) -> list[tuple[Any, ...]]:
    found = dataset(table).to_table().sort_by("id")
    return [tuple(row[name] for name in COLUMNS.split(", ")) for row in found.to_pylist()]


def by_duckdb(table: Path, _: SparkSession) -> list[tuple[Any, ...]]:
    with duckdb.connect() as connection:
        connection.execute("SET TimeZone = 'UTC'")
        read = pa.table(connection.from_arrow(dataset(table)).order("id").arrow()).to_pylist()
    return [tuple(row[name] for name in COLUMNS.split(", ")) for row in read]


def by_spark(table: Path, spark: SparkSession) -> list[tuple[Any, ...]]:
    files = DeltaTable(table).file_uris()
    read = spark.read.option("basePath", str(table)).option("mergeSchema", "true").parquet(*files).select(*COLUMNS.split(", "))
    return [tuple(row.values()) for row in pa.table(read.orderBy("id").toArrow()).to_pylist()]


@pytest.mark.parametrize("reader", [by_pyarrow, by_duckdb, by_spark])
def test_readers_find_the_same_rows(
    table: Path, rows: list[tuple[Any, ...]], spark: SparkSession, reader: Callable[[Path, SparkSession], list[tuple[Any, ...]]]
) -> None:
    assert [tuple(_utc(value) for value in row) for row in reader(table, spark)] == rows


@pytest.mark.long
@pytest.mark.timeout(600)
def test_the_reference_reader_finds_them_too_and_skips_files_by_their_bounds(table: Path, rows: list[tuple[Any, ...]]) -> None:
    jars = ",".join(map(str, fetch("delta-spark")))
    done = subprocess.run(
        [sys.executable, "-c", BY_DELTA_SPARK, str(table), jars], capture_output=True, text=True, check=False, timeout=300
    )
    assert done.returncode == 0, done.stderr[-3000:]
    asked = json.loads(done.stdout.splitlines()[-1])
    all_rows = [{"id": row[0], "name": row[1], "at": "2026-01-01 12:00:00.123456", "later": row[5]} for row in rows]
    assert asked[0] == all_rows
    assert asked[1] == all_rows[40:]
    assert [row["id"] for row in asked[2]] == [row[0] for row in rows if row[1] > "n3" and row[4] == "a b"]
    assert [row["id"] for row in asked[3]] == [row[0] for row in rows if row[4] is None]


def _utc(value: Any) -> Any:
    return value.astimezone(dt.UTC) if isinstance(value, dt.datetime) else value
