"""Who is timed: the same job written ten ways."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

SCHEMA = "id BIGINT, user STRING, text STRING, followers BIGINT, retweets BIGINT, ts TIMESTAMP"
TAG = "#PresidentialDebate"
HOT = f"followers > 5000 AND retweets > 500 AND contains(text, '{TAG}')"


@dataclass(frozen=True)
class Rival:
    """`run(spark, data, out, folder)` reads the folder `data` and writes Parquet below `out`."""

    name: str
    key: str
    run: Callable[[Any, Path, Path, Path], None]


def _stream(spark: SparkSession, data: Path) -> DataFrame:
    return spark.readStream.schema(SCHEMA).json(str(data))


def _to_parquet(df: DataFrame, out: Path) -> None:
    writer = df.writeStream.format("parquet").option("checkpointLocation", f"{out}.checkpoint").trigger(availableNow=True)
    writer.start(str(out)).awaitTermination()


def pyspark_sql(spark: SparkSession, data: Path, out: Path, folder: Path) -> None:
    """Spark hands the filters to its parser, which stops reading a line once one of them fails; what is malformed is dropped unseen."""
    _to_parquet(_stream(spark, data).where(HOT), out)


def pyspark_from_json(spark: SparkSession, data: Path, out: Path, folder: Path) -> None:
    """As one has to write it where the line is needed too, or comes from Kafka."""
    df = spark.readStream.text(str(data)).selectExpr(f"from_json(value, '{SCHEMA}') AS row").select("row.*")
    _to_parquet(df.where(HOT), out)


def pyspark_keeping(spark: SparkSession, data: Path, out: Path, folder: Path) -> None:
    """What is malformed goes to a folder of its own, as Scribengin's dead letters do: one pass, both written from what it cached."""

    def write(df: DataFrame, number: int) -> None:
        df.persist()
        df.where(f"bad IS NULL AND {HOT}").drop("bad").write.mode("append").parquet(str(out))
        df.where("bad IS NOT NULL").select("bad").write.mode("append").text(f"{out}.bad")
        df.unpersist()

    options = {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": "bad"}
    df = spark.readStream.schema(f"{SCHEMA}, bad STRING").options(**options).json(str(data))
    writer = df.writeStream.foreachBatch(write).option("checkpointLocation", f"{out}.checkpoint").trigger(availableNow=True)
    writer.start().awaitTermination()


def pyspark_udfs(spark: SparkSession, data: Path, out: Path, folder: Path) -> None:
    from pyspark.sql.functions import udf

    known = udf(lambda followers: followers is not None and followers > 5000, "boolean")
    hot = udf(lambda retweets: retweets is not None and retweets > 500, "boolean")
    tagged = udf(lambda text: text is not None and TAG in text, "boolean")
    df = _stream(spark, data)
    _to_parquet(df.where(known("followers")).where(hot("retweets")).where(tagged("text")), out)


def pyspark_map_in_arrow(spark: SparkSession, data: Path, out: Path, folder: Path) -> None:
    def keep(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import orjson
        import pyarrow as pa

        columns = ("id", "user", "text", "followers", "retweets", "ts")
        for batch in batches:
            rows = []
            for line in batch.column(0).to_pylist():
                try:
                    row = orjson.loads(line)
                except orjson.JSONDecodeError:
                    continue
                if not isinstance(row.get("followers"), int) or not isinstance(row.get("retweets"), int):
                    continue
                if row["followers"] > 5000 and row["retweets"] > 500 and TAG in row["text"]:
                    rows.append(row)
            table = {name: [row.get(name) for row in rows] for name in columns}
            ts = pa.array(table["ts"], pa.string())
            arrays = [
                pa.array(table[name], pa.int64() if name in ("id", "followers", "retweets") else pa.string()) for name in columns[:-1]
            ]
            yield pa.RecordBatch.from_arrays([*arrays, ts], names=list(columns))

    raw = "id BIGINT, user STRING, text STRING, followers BIGINT, retweets BIGINT, ts STRING"
    df = spark.readStream.text(str(data)).mapInArrow(keep, raw)
    _to_parquet(df.selectExpr("id", "user", "text", "followers", "retweets", "CAST(ts AS TIMESTAMP) AS ts"), out)


def plain_loop(spark: SparkSession, data: Path, out: Path, folder: Path) -> None:
    import orjson
    import pyarrow as pa
    import pyarrow.parquet as pq

    out.mkdir()
    for file in sorted(data.iterdir()):
        rows = []
        with file.open("rb") as lines:
            for line in lines:
                try:
                    row = orjson.loads(line)
                except orjson.JSONDecodeError:
                    continue
                if not isinstance(row.get("followers"), int) or not isinstance(row.get("retweets"), int):
                    continue
                if row["followers"] > 5000 and row["retweets"] > 500 and TAG in row["text"]:
                    rows.append(row)
        if rows:
            pq.write_table(pa.Table.from_pylist(rows), out / f"{file.stem}.parquet")


def _scribengin(flow: str) -> Callable[[SparkSession, Path, Path, Path], None]:
    def run(spark: SparkSession, data: Path, out: Path, folder: Path) -> None:
        import os

        from scribengin.local.contract import RunSettings
        from scribengin.local.run import run_flow

        os.environ["BENCH_OUT"] = str(out)
        result = run_flow(folder / flow, RunSettings(once=True, state=folder / f"state-{out.name}"), lambda view: None, spark=spark)
        if result.state != "finished" or not result.balanced:
            raise SystemExit(f"{flow}: {result.state}, {result.problems} {result.violations}")

    return run


RIVALS = (
    Rival("scribengin: records", "records", _scribengin("records.yaml")),
    Rival("pyspark: SQL", "sql", pyspark_sql),
    Rival("pyspark: SQL, from_json", "from-json", pyspark_from_json),
    Rival("pyspark: SQL, keeping bad lines", "keeping", pyspark_keeping),
    Rival("pyspark: row UDFs", "udfs", pyspark_udfs),
    Rival("pyspark: mapInArrow", "arrow", pyspark_map_in_arrow),
    Rival("scribengin: SQL", "native", _scribengin("sql.yaml")),
    Rival("scribengin: SQL, engine: spark", "native-engine", _scribengin("sql-by-spark.yaml")),
    Rival("scribengin: SQL, parse: spark", "native-spark", _scribengin("sql-spark.yaml")),
    Rival("plain loop (orjson)", "loop", plain_loop),
)
