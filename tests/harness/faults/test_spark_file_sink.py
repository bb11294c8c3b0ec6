"""Spark's own file sink, which Scribengin never uses, seen by a reader that knows no `_spark_metadata`: the checker must catch it."""

import os
import subprocess
import sys

import pytest

from scribengin.core.java import find_java
from scribengin.testing.checker import check_output
from scribengin.testing.records import Records

pytestmark = [pytest.mark.faults, pytest.mark.timeout(900)]

# The second of two files fails its task, once, when the first one's task is through; then the query is started again.
PROGRAM = """
import sys, time
from pathlib import Path
from pyspark.sql import SparkSession

folder = Path(sys.argv[1])
spark = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false").config("spark.driver.memory", "512m").getOrCreate()
schema = "run STRING, part INT, seq BIGINT, bucket STRING, body STRING, crc BIGINT"


def fail_once(batches):
    for batch in batches:
        failed, out = folder / "failed", folder / "out"
        if 1 in batch.column("part").to_pylist() and not failed.exists():
            while not any(path.stat().st_size for path in out.glob("part-*")):
                time.sleep(0.05)
            failed.touch()
            raise RuntimeError("one task fails")
        yield batch


for attempt in range(2):
    lines = spark.readStream.schema(schema).option("maxFilesPerTrigger", 2).json(str(folder / "data"))
    sink = lines.mapInArrow(fail_once, schema).writeStream.format("parquet").option("path", str(folder / "out"))
    query = sink.option("checkpointLocation", str(folder / "checkpoint")).trigger(availableNow=True).start()
    try:
        query.awaitTermination()
    except Exception:
        assert attempt == 0
spark.stop()
"""


@pytest.mark.long
def test_the_checker_catches_sparks_own_file_sink_under_a_plain_reader(tmp_path):
    records = Records("run", parts=2, rows=2000)
    records.write(tmp_path / "data")
    environment = {**os.environ, "JAVA_HOME": str(find_java().home), "PYSPARK_PYTHON": sys.executable}
    settings = "--conf spark.sql.files.openCostInBytes=1g pyspark-shell"  # a task for each file
    ended = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(tmp_path)],
        env={**environment, "PYSPARK_SUBMIT_ARGS": settings},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr[-3000:]
    findings = check_output(tmp_path / "out", "parquet", records.keys())
    assert len(findings.doubled) == records.rows  # the first file's, committed with a failed Batch and again with its replay
    assert not findings.lost
