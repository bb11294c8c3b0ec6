"""`type: spark`: writers of Spark's own and of others, at least once, and exactly once where they have transactions."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import traceback
from collections import Counter
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from harness import writers
from scribengin.connectors.contract import BatchId, ConnectorContext, Decided
from scribengin.connectors.spark import sink as writer
from scribengin.connectors.spark.options import SINK
from scribengin.connectors.spark.sink import SparkWriterSink
from scribengin.core.errors import FencedError, Refused, SinkError, Unreachable
from scribengin.core.secret import Secret
from scribengin.core.types import arrow_schema, parse_schema
from scribengin.testing.conformance import check_sink

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from pyspark.sql import SparkSession

    from tests.conftest import FlowFolder

SCHEMA = parse_schema("id BIGINT NOT NULL, name STRING")
ROWS = [{"id": n, "name": None if n == 2 else f"n{n}"} for n in range(6)]
ONCE = {"transaction": {"app": "by", "version": "turn"}}


def place(folder: Path, **options: Any) -> ConnectorContext:
    return ConnectorContext("kept", folder, SINK.filled({"path": "out"} | options), flow="flow", work=folder / "work")


def sink_at(folder: Path, **options: Any) -> SparkWriterSink:
    sink = SparkWriterSink(place(folder, **options))
    sink.prepare(owner="me", lineage="one")
    return sink


def on_shelf(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for path in sorted(folder.glob("*")) for line in path.read_text().splitlines()]


def in_parquet(folder: Path) -> list[dict[str, Any]]:
    return [row for path in sorted(folder.glob("**/*.parquet")) for row in pq.ParquetFile(path).read().to_pylist()]


def stage(sink: SparkWriterSink, number: int, rows: Sequence[dict[str, Any]], *, term: int = 1, hash: str = "") -> Decided:
    batch = BatchId("flow", "query", "one", number, term)
    stream = sink.stream(batch, 0, f"attempt{number}{term}", SCHEMA)
    stream.write(pa.RecordBatch.from_pylist(list(rows), schema=arrow_schema(SCHEMA)))
    return Decided(batch, hash or f"hash {number}", (stream.close(),))


# --- the contract ---


def test_it_keeps_the_contract_of_at_least_once(spark: SparkSession, tmp_path: Path) -> None:
    where = place(tmp_path, format="parquet")
    check_sink(
        lambda: SparkWriterSink(where),
        lambda: in_parquet(tmp_path / "out"),
        schema=SCHEMA,
        rows=ROWS,
        copies_publish=False,
        declared=SINK,
        options=where.options,
    )
    assert not SparkWriterSink(where).exactly_once


def test_with_a_transaction_it_keeps_that_of_exactly_once(shelf: SparkSession, tmp_path: Path) -> None:
    where = place(tmp_path, format="shelf", **ONCE)
    check_sink(lambda: SparkWriterSink(where), lambda: on_shelf(tmp_path / "out"), schema=SCHEMA, rows=ROWS, copies_publish=False)


@pytest.mark.parametrize("options", [{}, ONCE])
def test_what_was_written_and_not_marked_is_written_again_but_for_a_transaction(
    shelf: SparkSession, tmp_path: Path, options: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    sink = sink_at(tmp_path, format="shelf", **options)
    decided = stage(sink, 0, ROWS)
    sink.give(decided, sink._marks("one"))  # and dies before the mark
    again = sink_at(tmp_path, format="shelf", **options)
    again.recover(decided, lineage="one", before=1)
    assert len(on_shelf(tmp_path / "out")) == len(ROWS) * (1 if options else 2)
    notes = again.upkeep()
    assert [("batch 0 (6 rows) is written again" in note, "duplicated" in note) for note in notes] == ([] if options else [(True, True)])
    assert again.upkeep() == []
    assert [(told.rows, told.violations) for told in again.audit(lineage="one", decided=[decided])] == [(6, ())]


def test_a_driver_that_is_late_is_stopped(spark: SparkSession, tmp_path: Path) -> None:
    sink = sink_at(tmp_path, format="parquet")
    first, other = stage(sink, 0, ROWS[:1]), stage(sink, 0, ROWS[:2], term=3, hash="another")
    sink.publish(first)
    with pytest.raises(FencedError, match="with another decision"):
        sink.publish(other)
    sink.publish(stage(sink, 1, ROWS[1:2], term=3))
    with pytest.raises(FencedError, match="batch 1 is already marked"):
        sink.publish(first)
    with pytest.raises(FencedError, match="newer Term 3"):
        sink.publish(stage(sink, 2, ROWS[2:3], term=2))
    assert len(in_parquet(tmp_path / "out")) == 2


def test_an_audit_finds_a_batch_that_was_not_handed_over(spark: SparkSession, tmp_path: Path) -> None:
    sink = sink_at(tmp_path, format="parquet")
    told = list(sink.audit(lineage="one", decided=[stage(sink, 0, ROWS)]))
    assert [each.rows for each in told] == [0]
    assert "decided, but not written" in told[0].violations[0]


def test_what_was_given_away_is_not_cleared(spark: SparkSession, tmp_path: Path) -> None:
    assert SparkWriterSink(place(tmp_path, format="parquet")).clear(owner="me", flow="flow") == 0
    sink = sink_at(tmp_path, format="parquet")
    assert sink.clear(owner="me", flow="flow") == 0
    sink.publish(stage(sink, 0, ROWS))
    with pytest.raises(Refused, match="cannot be removed"):
        sink.clear(owner="me", flow="flow", dry_run=True)


# --- what goes wrong ---


def test_a_writer_that_spark_does_not_have_is_told_at_the_start(spark: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(SinkError, match='no writer called "lance"') as told:
        sink_at(tmp_path, format="lance")
    assert "spark.jars.packages" in told.value.remedy


def test_a_row_that_the_writer_does_not_take_stops_the_flow_and_shows_no_secret(shelf: SparkSession, tmp_path: Path) -> None:
    sink = sink_at(tmp_path, format="shelf", options={"password": Secret("hunter2", "${secret:env/P}")})
    assert sink.redacted == ["password"]
    with pytest.raises(SinkError) as told:
        sink.publish(stage(sink, 0, [{"id": 7, "name": "poison"}]))
    assert "shelf" in told.value.message
    assert "did not accept batch 0: ValueError: no room for 7, says ***" in told.value.message
    assert "hunter2" not in "".join(traceback.format_exception(told.value))
    assert on_shelf(tmp_path / "out") == []


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("java.net.ConnectException: Connection refused", Unreachable),
        ("java.io.IOException: Disk quota exceeded", Unreachable),
        ("java.io.IOException: File /out/part-0 could only be written to 0 of the 1 minReplication nodes.", Unreachable),
        ("[SCHEMA_MISMATCH] a column too many", SinkError),
    ],
)
def test_a_place_that_is_away_is_tried_again_and_one_that_says_no_is_not(text: str, kind: type[Exception]) -> None:
    assert type(writer.fault(RuntimeError(f"Job aborted\nCaused by: {text}"), "kept", "no", [])) is kind


def test_a_full_disk_is_told_in_the_words_of_the_innermost_cause_and_tried_again() -> None:
    """As Spark 4.2 said it of a tmpfs of 256 KiB, less the calls."""
    said = (
        "An error occurred while calling o75.save.\n"
        ": org.apache.spark.SparkException: [TASK_WRITE_FAILED] Task failed while writing rows to file:/out/part-0.json. SQLSTATE: 58030\n"
        "\tat org.apache.spark.sql.errors.QueryExecutionErrors$.taskFailedWhileWritingRowsError(QueryExecutionErrors.scala:843)\n"
        "\tSuppressed: org.apache.spark.SparkException: [TASK_WRITE_FAILED] Task failed while writing rows to file:/out. SQLSTATE: 58030\n"
        "Caused by: org.apache.hadoop.fs.FSError: java.io.IOException: No space left on device\n\t... 1 more\n"
        "Caused by: java.io.IOException: No space left on device\n\t... 53 more\n"
    )
    told = writer.fault(RuntimeError(said), "kept", "json out did not accept batch 0", [])
    assert str(told).startswith('sink "kept": json out did not accept batch 0: java.io.IOException: No space left on device')
    assert isinstance(told, Unreachable)
    assert (told.code, told.remedy) == (
        "spark-away",
        "check that the target is up and has free space; a running flow retries automatically",
    )


def test_an_error_without_a_cause_is_told_and_not_the_call_that_met_it() -> None:
    said = (
        "An error occurred while calling o81.save.\n: ExitCodeException exitCode=1: chmod: cannot access 'out'\n\n\tat org.apache.hadoop…\n"
    )
    told = writer.fault(RuntimeError(said), "kept", "no", [])
    assert told.message == "sink \"kept\": no: ExitCodeException exitCode=1: chmod: cannot access 'out'"


def test_without_spark_a_command_says_that_a_run_is_needed(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sink = sink_at(tmp_path, format="parquet")
    decided = stage(sink, 0, ROWS)
    monkeypatch.setattr(writer, "_running", lambda: None)
    with pytest.raises(Refused) as told:
        sink_at(tmp_path, format="parquet").recover(decided, lineage="one", before=1)
    assert "run FLOW --once" in told.value.remedy


# --- flows ---

FLOW = """
version: 1
name: shop
sources: {orders: {type: files, path: data, format: json, schema: "id BIGINT NOT NULL, name STRING, at TIMESTAMP, tags ARRAY<STRING>"}}
sinks:
"""


def orders(*ids: int) -> list[dict[str, Any]]:
    return [{"id": id_, "name": f"n{id_ % 3}", "at": "2026-01-01T12:00:00.123456Z", "tags": ["a", None]} for id_ in ids]


def test_rows_come_to_folders_of_another_format_as_they_are(folder: FlowFolder) -> None:
    kept = "  kept: {from: orders, type: spark, format: orc, path: out, partition_by: [name], delivery: at_least_once}\n"
    folder.flow(FLOW + kept).data("data/a.jsonl", orders(*range(100)))
    result = folder.run()
    assert (result.state, result.violations) == ("finished", ())
    folder.data("data/b.jsonl", orders(100, 101))
    assert folder.run().violations == ()
    assert sorted(path.name for path in (folder.path / "out").glob("name=*")) == ["name=n0", "name=n1", "name=n2"]
    found = folder.spark.read.orc(str(folder.path / "out")).orderBy("id").collect()
    assert [row.id for row in found] == list(range(102))
    assert (found[5].name, found[5].tags, found[5].at.microsecond) == ("n2", ["a", None], 123456)


def scribengin(path: Path, *words: str, fault: str = "") -> subprocess.CompletedProcess[str]:
    env = os.environ | {"PYTHONPATH": str(writers.FOLDER), "SCRIBENGIN_FAULT": fault}
    command = [sys.executable, "-m", "scribengin.cli", *words]
    return subprocess.run(command, cwd=path, env=env, capture_output=True, text=True, timeout=300, start_new_session=True, check=False)


@pytest.mark.long
@pytest.mark.timeout(600)
def test_a_flow_that_is_killed_between_write_and_mark_loses_nothing_and_says_what_may_stand_twice(tmp_path: Path) -> None:
    sinks = (
        "  plain: {from: orders, type: spark, format: parquet, path: plain, delivery: at_least_once, together: q}\n"
        "  once: {from: orders, type: spark, format: shelf, path: once, together: q, transaction: {app: by, version: turn}}\n"
    )
    (tmp_path / "flow.yaml").write_text(FLOW + sinks)
    (tmp_path / "data").mkdir()

    def data(name: str, *ids: int) -> None:
        (tmp_path / "data" / name).write_text("".join(json.dumps(row) + "\n" for row in orders(*ids)))

    data("a.jsonl", *range(100))
    assert scribengin(tmp_path, "run", "flow.yaml", "--once", fault="publish.record.before@2:kill").returncode == -signal.SIGKILL
    assert (len(in_parquet(tmp_path / "plain")), len(on_shelf(tmp_path / "once"))) == (100, 100)
    data("b.jsonl", *range(100, 200))
    # the first pass is that of `once`, whose Batch 0 was not marked
    assert scribengin(tmp_path, "run", "flow.yaml", "--once", fault="publish.record.before@2:kill").returncode == -signal.SIGKILL
    assert (len(in_parquet(tmp_path / "plain")), len(on_shelf(tmp_path / "once"))) == (200, 100)
    ended = scribengin(tmp_path, "run", "flow.yaml", "--once")
    assert ended.returncode == 0, ended.stderr
    assert 'sink "plain": batch 1 (100 rows) is written again' in " ".join(ended.stderr.split())
    assert 'sink "once"' not in ended.stderr
    assert Counter(row["id"] for row in in_parquet(tmp_path / "plain")) == {n: 1 if n < 100 else 2 for n in range(200)}
    assert Counter(row["id"] for row in on_shelf(tmp_path / "once")) == dict.fromkeys(range(200), 1)
    audited = scribengin(tmp_path, "audit", "flow.yaml")
    assert audited.returncode == 0, audited.stdout + audited.stderr


@pytest.mark.long
@pytest.mark.needs("delta-spark")
@pytest.mark.timeout(900)
def test_delta_lake_leaves_out_a_batch_that_it_has(tmp_path: Path) -> None:
    from deltalake import DeltaTable

    from scribengin.embedded.jars import fetch

    once = "  once: {from: orders, type: spark, format: delta, path: out, transaction: {app: txnAppId, version: txnVersion}}\n"
    (tmp_path / "flow.yaml").write_text(FLOW + once)
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "a.jsonl").write_text("".join(json.dumps(row) + "\n" for row in orders(*range(100))))
    settings = {
        "spark.jars": ",".join(map(str, fetch("delta-spark", print))),
        "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
        "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
        "spark.databricks.delta.snapshotPartitions": "1",
    }
    given = [word for name, value in settings.items() for word in ("--spark-conf", f"{name}={value}")]
    killed = scribengin(tmp_path, "run", "flow.yaml", "--once", *given, fault="publish.record.before:kill")
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    assert scribengin(tmp_path, "run", "flow.yaml", "--once", *given).returncode == 0
    table = DeltaTable(tmp_path / "out")
    assert sorted(table.to_pyarrow_table().column("id").to_pylist()) == list(range(100))
    assert table.version() == 0, "one commit"
