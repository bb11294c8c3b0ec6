"""Readers by manifest, and what no manifest names."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from harness.object_stores import opened, options
from scribengin.cli.main import main
from scribengin.connectors.contract import BatchId, ConnectorContext, Decided
from scribengin.connectors.objects import orphans
from scribengin.connectors.objects.manifests import Manifests
from scribengin.connectors.objects.options import SINK
from scribengin.connectors.objects.orphans import find_orphans, remove
from scribengin.connectors.objects.s3 import Uploads
from scribengin.connectors.objects.sink import ObjectsSink
from scribengin.core import faults
from scribengin.core.errors import SourceError
from scribengin.core.types import arrow_schema, parse_schema
from scribengin.reading import committed

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

    from scribengin.embedded.objects import ObjectServer

SCHEMA = parse_schema("id BIGINT NOT NULL, country STRING, amount DOUBLE")
ROWS = [{"id": n, "country": "de" if n % 2 else "fr", "amount": n / 4} for n in range(10)]


def sink_of(given: dict[str, Any]) -> ObjectsSink:
    from pathlib import Path

    sink = ObjectsSink(ConnectorContext("kept", Path("/nowhere"), SINK.filled(given), flow="flow"))
    sink.prepare(owner="me", lineage="one")
    return sink


def stage(sink: ObjectsSink, number: int, rows: list[dict[str, Any]], attempt: str = "a") -> Decided:
    batch = BatchId("flow", "query", "one", number, 1)
    stream = sink.stream(batch, 0, f"{attempt}{number}", SCHEMA)
    stream.write(pa.RecordBatch.from_pylist(rows, schema=arrow_schema(SCHEMA)))
    return Decided(batch, f"hash {number}", (stream.close(),))


def way(server: ObjectServer) -> dict[str, Any]:
    return {name: value for name, value in options(server).items() if name != "url"}


@pytest.mark.parametrize("format", ["parquet", "json", "csv"])
def test_a_dataset_has_the_rows_that_are_committed_and_no_others(server: ObjectServer, prefix: str, format: str) -> None:
    given = options(server, prefix, format=format, partition_by=("country",))
    sink = sink_of(given)
    sink.publish(stage(sink, 0, ROWS[:6]))
    stage(sink, 1, ROWS[6:8], attempt="failed")
    sink.publish(stage(sink, 1, ROWS[6:8]))
    stage(sink, 2, ROWS[8:])
    found = committed(given["url"], **way(server))
    assert (found.rows, found.format, [each.batch for each in found.objects]) == (8, format, [0, 0, 1, 1])
    assert sorted(found.dataset().to_table().to_pylist(), key=lambda row: row["id"]) == ROWS[:8]


def test_spark_reads_what_is_committed_and_no_others(spark: SparkSession, tmp_path: Path) -> None:
    given = {"url": f"file://{tmp_path}/out", "format": "parquet", "partition_by": ("country",)}
    sink = sink_of(given)
    sink.publish(stage(sink, 0, ROWS[:6]))
    stage(sink, 1, ROWS[6:])
    rows = committed(given["url"]).spark(spark).select("id", "country", "amount").collect()
    assert sorted((row.asDict() for row in rows), key=lambda row: row["id"]) == ROWS[:6]


@pytest.mark.long  # its jars, 20 MB, are for nothing else
@pytest.mark.parametrize("visible", ["manifest", "listing"])
def test_spark_reads_a_store_by_its_own_client(server: ObjectServer, prefix: str, visible: str) -> None:
    given = options(server, prefix, format="parquet", partition_by=("country",), visible=visible)
    sink = sink_of(given)
    sink.publish(stage(sink, 0, ROWS[:4]))
    sink.publish(stage(sink, 1, ROWS[4:6]))
    stage(sink, 2, ROWS[6:])
    asked = {"url": given["url"], **way(server), "listed": visible == "listing"}
    program = [sys.executable, "-m", "tests.connectors.objects.spark_over_s3a"]
    ended = subprocess.run(program, input=json.dumps(asked), capture_output=True, text=True, check=False, timeout=400)
    assert ended.returncode == 0, ended.stderr
    assert json.loads(ended.stdout) == ROWS[:6]


def test_a_batch_whose_objects_are_not_all_there_is_left_out(server: ObjectServer, prefix: str, monkeypatch: pytest.MonkeyPatch) -> None:
    given = options(server, prefix, format="parquet", visible="listing")
    sink = sink_of(given)
    sink.publish(stage(sink, 0, ROWS[:6]))
    seen = []
    monkeypatch.setattr(faults, "reached", lambda point: seen.append((point, committed(given["url"], **way(server)).rows)))
    decided = stage(sink, 1, ROWS[6:])
    sink.publish(decided)
    assert dict(seen)["publish.record.after"] == 6
    assert committed(given["url"], **way(server)).dataset().count_rows() == 10


def test_where_nothing_was_written_it_is_said(server: ObjectServer, prefix: str) -> None:
    with pytest.raises(SourceError, match="no sink has written to"):
        committed(options(server, prefix)["url"], **way(server))
    sink = sink_of(options(server, prefix, format="text"))
    found = committed(options(server, prefix)["url"], **way(server))
    with pytest.raises(SourceError, match="no committed object"):
        found.dataset()
    assert sink.format == "text"


def test_the_settings_for_spark_lead_to_the_store(server: ObjectServer, prefix: str) -> None:
    sink_of(options(server, prefix, format="json"))
    settings = committed(options(server, prefix)["url"], **way(server)).spark_settings()
    top = "spark.hadoop.fs.s3a."
    assert settings[f"{top}endpoint"] == server.uri
    assert (settings[f"{top}connection.ssl.enabled"], settings[f"{top}path.style.access"]) == ("false", "true")
    assert settings[f"{top}secret.key"] == options(server)["config"]["secret_access_key"]


FLOW = """
version: 1
name: shop
sources: {orders: {type: files, path: data, format: json, schema: "id BIGINT, country STRING, amount DOUBLE"}}
sinks: {kept: {from: orders, type: objects, url: "URL", endpoint: "ENDPOINT", format: json}}
"""


def answer(capfd: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, dict[str, Any]]:
    with pytest.raises(SystemExit) as left:
        main([*arguments, "--json"])
    return int(left.value.code or 0), json.loads(capfd.readouterr().out)


def test_the_command_lists_what_is_committed_of_a_flow_or_a_url(
    server: ObjectServer, prefix: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(server.credentials))
    given = options(server, prefix, format="json")
    sink = sink_of(given)
    decided = stage(sink, 0, ROWS[:6])
    sink.publish(decided)
    stage(sink, 1, ROWS[6:])
    flow = tmp_path / "flow.yaml"
    flow.write_text(FLOW.replace("URL", given["url"]).replace("ENDPOINT", server.uri))
    name = decided.receipts[0].segments[0]["name"]
    for where in ([str(flow)], [given["url"], "--endpoint", server.uri]):
        exit_, told = answer(capfd, "object", "list", *where)
        (listed,) = told["result"]
        assert (exit_, listed["rows"], [each["url"] for each in listed["files"]]) == (0, 6, [f"{given['url']}/{name}"])
    exit_, told = answer(capfd, "object", "list", str(flow), "--sink", "none")
    assert exit_ == 2
    assert "it has kept" in str(told)
    flow.write_text(FLOW.replace("type: objects", "type: files, path: out").partition(', url: "URL"')[0] + ", format: json}}\n")
    exit_, told = answer(capfd, "object", "list", str(flow))
    assert exit_ == 2
    assert "no sink of type objects" in str(told)


def test_orphans_are_what_no_manifest_names_and_no_batch_may_need(
    server: ObjectServer, prefix: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(server.credentials))
    given = options(server, prefix, format="json")
    sink, store = sink_of(given), opened(server, prefix)
    decided = stage(sink, 0, ROWS[:6])
    sink.publish(decided)
    late = stage(sink, 0, ROWS[:1], attempt="late").receipts[0].segments[0]["name"]
    Manifests(store, "one").notes.sweep(0, [], ())
    store.delete(f"_scribengin/one/staged/0000000000/{late}")  # it was swept while its task slept
    undecided = stage(sink, 1, ROWS[6:]).receipts[0].segments[0]["name"]
    store.put("theirs.csv", b"1")
    Uploads(store).begin("data/part-0000000000-00000-00000-asleep.jsonl")
    found = {each.key: each for each in find_orphans(store)}
    assert {key: each.kind for key, each in found.items()} == {
        late: "attempt",
        "theirs.csv": "foreign",
        "data/part-0000000000-00000-00000-asleep.jsonl": "upload",
    }
    assert found[late].may_be_used, "an hour it is left alone"
    monkeypatch.setattr(orphans, "OLD_S", -1.0)
    flow = tmp_path / "flow.yaml"
    flow.write_text(FLOW.replace("URL", given["url"]).replace("ENDPOINT", server.uri))
    _, told = answer(capfd, "maintain", str(flow), "--report")
    assert [each["removed"] for each in told["result"]] == [False] * 3
    _, told = answer(capfd, "maintain", str(flow), "--remove-orphans")
    assert {each["path"].rpartition("/")[2]: each["removed"] for each in told["result"]}["theirs.csv"] is False
    assert [each.kind for each in find_orphans(store)] == ["foreign"]
    assert store.head(undecided) is not None
    assert committed(given["url"], **way(server)).rows == 6
    remove(store, next(iter(find_orphans(store))))
    assert list(find_orphans(store)) == []
