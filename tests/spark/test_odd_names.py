"""Columns of any name pass every kind of step and sink: `log.level`, `@timestamp`, `user id`, `select`, one with quotes, `Id` and `ID`."""

from __future__ import annotations

import csv
import json
from typing import TYPE_CHECKING, Any

import pytest

from scribengin.core.types import Field, Schema, Type, in_backticks, parse_schema
from scribengin.spark import native, spark_parse
from scribengin.spark.native import NativeFrame
from scribengin.spark.without_pandas import map_in_arrow
from scribengin.spec.model import Aggregate, Dedupe, Filter, Join, Merge, Route, Select, Source, Sql, Step, WindowSpec
from tests.spark.test_stateless_steps import ran

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession

    from scribengin.spec.model import Action
    from tests.conftest import FlowFolder

NAMES = (
    *(
        "log.level",
        "a.b.c",
        ".hidden",
        "@timestamp",
        "user id",
        " lead",
        "trail ",
        "ä",
        "naïve",
        "日本",
        "select",
        "window",
        "null",
        "Id",
        "ID",
    ),
    *("a`b", 'q"x', "it's", "x\\y", "a,b", "f(x)", "[0]", "*", "$v", "1st", "x-y", "n"),
)
"""the last one is nothing special, and meets itself where a test has a column `n`"""
HOUR = WindowSpec("at", 3600.0, 3600.0)


def gives(spark: SparkSession, action: Action, *frames: Any, require: tuple[tuple[str, str], ...] = ()) -> dict[str, list[str]]:
    """Branch → the columns of what Spark makes of such a step."""
    return {branch: df.columns for branch, df in made(spark, action, *frames, require=require).items()}


def made(spark: SparkSession, action: Action, *frames: Any, require: tuple[tuple[str, str], ...] = ()) -> dict[str, Any]:
    inputs = [(f"in{number}", NativeFrame(df)) for number, df in enumerate(frames)]
    step = Step("step", tuple(name for name, _ in inputs), action, require)
    return {branch: frame.df for branch, frame in native.apply(spark, step, inputs, stateful=False).items()}


@pytest.mark.parametrize("name", NAMES)
def test_each_native_step_takes_a_column_of_that_name(spark: SparkSession, name: str) -> None:
    quoted = in_backticks(name)
    df = spark.sql(f"SELECT 'v' AS {quoted}, 1 AS m, timestamp'2026-01-01T10:30:00Z' AS at")
    timed = spark.sql(f"SELECT timestamp'2026-01-01T10:30:00Z' AS {quoted}, 1 AS m")
    columns = [name, "m", "at"]
    assert gives(spark, Filter(f"{quoted} = 'v'"), df, require=(("there", f"{quoted} IS NOT NULL"),)) == {"": [*columns, "_sg_dead"]}
    assert gives(spark, Select(((name, f"upper({quoted})"),)), df) == {"": [name]}
    assert gives(spark, Route((("yes", f"{quoted} = 'v'"),), "no"), df) == {"yes": columns, "no": columns}
    assert gives(spark, Sql(f"SELECT {quoted} FROM in0 WHERE {quoted} = 'v'"), df) == {"": [name]}
    assert gives(spark, Dedupe((name,)), df) == {"": columns}
    assert gives(spark, Merge(), df, df) == {"": columns}
    assert gives(spark, Merge("intersect", (name,)), df, df) == {"": columns}
    assert gives(spark, Join((name,), "full"), df.drop("m"), df.drop("at")) == {"": [name, "at", "m"]}
    for zone in ("UTC", "Asia/Tokyo"):
        window = WindowSpec(name, 3600.0, 3600.0, zone)
        assert gives(spark, Aggregate((), ((name, "count(*)"),), window), timed) == {"": ["window_start", "window_end", name]}
    (row,) = made(spark, Aggregate((name,), (("c", f"max({quoted})"),), HOUR), df)[""].collect()
    assert (row[name], row["c"], row["window_start"].hour) == ("v", "v", 10)


def test_arrow_stages_take_and_give_columns_of_any_name(spark: SparkSession) -> None:
    schema = Schema(tuple(Field(name, Type("STRUCT", fields=(Field(name, Type("INT")),))) for name in NAMES))
    given = ", ".join(f"named_struct({native.literal(name)}, {place}) AS {in_backticks(name)}" for place, name in enumerate(NAMES))

    def same(batches: Iterator[Any]) -> Iterator[Any]:
        yield from batches

    df = map_in_arrow(spark.sql(f"SELECT {given}"), same, schema.ddl())
    assert df.columns == list(NAMES)
    assert [value[0] for value in df.first()] == list(range(len(NAMES)))  # type: ignore[union-attr]
    assert parse_schema(schema.ddl()) == parse_schema(str(schema)) == schema


def test_sparks_own_parser_takes_columns_of_any_name(spark: SparkSession) -> None:
    source = Source("rows", "files", {"format": "json", "parse": "spark"})
    lines = NativeFrame(spark.createDataFrame([(json.dumps({name: name for name in NAMES}), 0)], "value STRING, _sg_at BIGINT"), at=True)
    frame = spark_parse.parsed(lines, source, Schema(tuple(Field(name, Type("STRING")) for name in NAMES)))
    (row,) = frame.df.collect()
    assert [row[name] for name in NAMES] == list(NAMES)


@pytest.mark.parametrize("name", ["log.level", "@timestamp", "user id", "ä", "window", "a`b"])
def test_a_watermark_stands_on_a_column_of_that_name(spark: SparkSession, name: str) -> None:
    df = spark.readStream.format("rate").load().selectExpr(f"timestamp AS {in_backticks(name)}", "value")
    marked = df.withWatermark(in_backticks(name), "10 seconds")
    assert marked.columns == [name, "value"]
    assert "EventTimeWatermark" in marked._jdf.queryExecution().analyzed().toString()


PLAIN = tuple(name for name in NAMES if name != "n")
STEPS = """
from scribengin import batch, record

@record
def seen(row):
    return {**row, "n": sum(value is not None for value in row.values())}

@batch
def same(rows):
    return rows

@record
def kept(row) -> bool:
    return row["log.level"] == "log.level 0" and row["select"] is not None
"""


def flow_of(columns: str) -> str:
    return f"""
version: 1
name: odd
sources:
  rows: {{type: files, path: data, format: json, schema: "{columns}, raw STRING"}}
steps:
  first: {{from: rows, filter: "`log.level` <> 'gone' AND `it's` IS NOT NULL AND `a``b` IS NOT NULL AND `@timestamp` LIKE '@%'"}}
  seen: {{from: first, python: steps:seen, schema: "{columns}, raw STRING, n INT"}}
  same: {{from: seen, python: steps:same}}
  kept: {{from: same, utilities: [steps:kept]}}
  parsed: {{from: kept, parse: {{column: raw, format: json, schema: "`x.y` INT, `p q` STRING"}}}}
  queried: {{from: parsed, sql: "SELECT *, `x.y` + 1 AS `x.z` FROM parsed WHERE `window` IS NOT NULL"}}
sinks:
  as_json: {{from: queried, type: files, path: out/json, format: json, partition_by: ["user id", "a.b.c"]}}
  as_csv: {{from: queried, type: files, path: out/csv, format: csv}}
  as_parquet: {{from: queried, type: files, path: out/parquet, format: parquet}}
  straight: {{from: rows, type: files, path: out/straight, format: json, partition_by: [".hidden"]}}
"""


def test_a_flow_of_every_stateless_step_writes_them_in_every_format(folder: FlowFolder) -> None:
    import pyarrow.parquet as pq

    columns = ", ".join(f"{in_backticks(name)} STRING" for name in PLAIN).replace("\\", "\\\\").replace('"', '\\"')
    folder.flow(flow_of(columns)).steps(STEPS)
    rows = [{name: f"{name} {number}" for name in PLAIN} | {"raw": '{"x.y": 6, "p q": "r"}'} for number in range(2)]
    folder.data("data/a.jsonl", rows)
    ran(folder)

    (row,) = folder.read("out/json")
    expected = rows[0] | {"n": len(PLAIN) + 1, "x.y": 6, "p q": "r", "x.z": 7}
    assert row == {name: value for name, value in expected.items() if name not in ("user id", "a.b.c", "raw")}
    (file,) = (folder.path / "out/csv").glob("part-*")
    with file.open(newline="") as text:
        (cells,) = csv.DictReader(text)
    assert {name: cells[name] for name in PLAIN} == {name: rows[0][name] for name in PLAIN}
    (file,) = (folder.path / "out/parquet").glob("part-*")
    assert pq.ParquetFile(file).read().select(list(PLAIN)).to_pylist() == [{name: rows[0][name] for name in PLAIN}]
    assert len(folder.read("out/straight")) == 2


def test_a_flow_keeps_state_by_columns_of_odd_names(folder: FlowFolder) -> None:
    source = "type: files, format: json, max_files: 1"
    counted = '{"how.many": count(*), window: "max(`user id`)"}'
    hourly = "SELECT window(`event time`, '1 hour').start AS `from`, count(*) AS `b.c` FROM b GROUP BY window(`event time`, '1 hour')"
    folder.flow(f"""
version: 1
name: stateful
sources:
  a: {{{source}, path: a, schema: "`@timestamp` TIMESTAMP, `host.name` STRING, `user id` INT", watermark: "`@timestamp` 10m"}}
  b: {{{source}, path: b, schema: "`event time` TIMESTAMP, `host.name` STRING, `b.n` INT", watermark: "`event time` 10m"}}
steps:
  once: {{from: a, dedupe: {{key: ["host.name", user id], time: "@timestamp", within: 10m}}}}
  pair: {{from: [a, b], join: {{key: ["host.name"], time: {{a: "@timestamp", b: event time}}, within: 1m}}}}
  per: {{from: a, aggregate: {{by: ["host.name"], window: {{time: "@timestamp", size: 1h}}, columns: {counted}}}}}
  own: {{from: b, sql: "{hourly}"}}
sinks:
  o_once: {{from: once, type: files, path: out/once, format: json}}
  o_pair: {{from: pair, type: files, path: out/pair, format: json}}
  o_per: {{from: per, type: files, path: out/per, format: json}}
  o_own: {{from: own, type: files, path: out/own, format: json}}
""")
    late = {"host.name": "z", "user id": 9, "b.n": 9}
    row = {"host.name": "h", "user id": 1}
    folder.data("a/0.jsonl", [{**row, "@timestamp": "2026-01-01T10:00:00Z"}] * 2)
    folder.data("a/1.jsonl", [{**late, "@timestamp": "2026-01-02T10:00:00Z"}])
    folder.data("b/0.jsonl", [{"host.name": "h", "b.n": 5, "event time": "2026-01-01T10:00:30Z"}])
    folder.data("b/1.jsonl", [{**late, "event time": "2026-01-02T10:00:00Z"}])
    ran(folder)

    assert [each["user id"] for each in folder.read("out/once")] == [1, 9]
    assert [(each["user id"], each["b.n"]) for each in folder.read("out/pair")] == [(1, 5), (1, 5), (9, 9)]
    assert [(each["host.name"], each["how.many"], each["window"]) for each in folder.read("out/per")] == [("h", 2, 1)]
    assert [each["b.c"] for each in folder.read("out/own")] == [1]
