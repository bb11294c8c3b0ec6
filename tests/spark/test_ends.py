"""Sources and sinks beside plain files, what aggregations emit, and flows written in Python."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow.dataset as ds

from scribengin.local.audit import audit_flow
from scribengin.local.contract import RunSettings
from scribengin.local.prepare import prepare
from scribengin.local.run import run_flow
from tests.spark.test_stateless_steps import ran

if TYPE_CHECKING:
    import pytest

    from tests.conftest import FlowFolder


def test_sequences_fill_folders_and_consoles_show_what_each_emit_gives(folder: FlowFolder, capfd: pytest.CaptureFixture[str]) -> None:
    folder.flow("""
version: 1
name: ends
sources:
  ticks: {type: sequence, rows: 600, max_rows: 400, rate: 1000000, watermark: ts 1m}
steps:
  named: {from: ticks, select: {id: id, ts: ts, kind: "CASE WHEN id % 3 = 0 THEN 'three' END"}}
  newest: {from: named, aggregate: {by: [kind], emit: complete, columns: {n: count(*)}}}
  changed: {from: named, aggregate: {window: {time: ts, size: 5m}, emit: update, columns: {n: count(*)}}}
sinks:
  parted: {from: named, type: files, path: out, format: parquet, partition_by: [kind]}
  shown: {from: newest, type: console}
  moved: {from: changed, type: console}
""")
    result = ran(folder)
    told = capfd.readouterr().err

    rows = ds.dataset(folder.path / "out", partitioning="hive").to_table()
    assert sorted(rows["id"].to_pylist()) == list(range(600))
    assert sum(1 for kind in rows["kind"].to_pylist() if kind == "three") == 200
    assert '{"kind":"three","n":134}' in told
    assert '{"kind":"three","n":200}' in told
    assert told.count('"window_start":"2026-01-01T00:05:00') == 2
    assert result.balanced
    held = {query.name: [counts.held for counts in query.nodes.values() if counts.held] for query in result.queries}
    assert held == {"parted": [], "shown": [2], "moved": held["moved"]}
    audit = audit_flow(prepare(folder.path / "flow.yaml", state=None))
    assert {report.query: [counts.held for counts in report.totals.nodes.values() if counts.held] for report in audit.reports} == held


FLOW = """
from scribengin import Flow, source, to


class Adds:
    def open(self):
        self.more = 100

    def __call__(self, row):
        return {**row, "n": row["n"] + self.more}


def no_five(row):
    return row["n"] != 5


def split(row):
    return to("low", row) if row["n"] < 103 else row


numbers = source("files", path="data", format="json", schema="n BIGINT")
sorted_ = numbers.map(no_five).python(Adds, id="adds").python(split, id="split", branches=["low"])
flow = Flow(
    "written",
    sorted_.filter("n % 2 = 0").to("files", id="high", path="high", format="json"),
    sorted_["low"].to("files", id="low", path="low", format="json"),
)
"""


def test_a_flow_written_in_python_runs_with_its_functions_as_objects(folder: FlowFolder) -> None:
    (folder.path / "flow.py").write_text(FLOW)
    folder.data("data/a.jsonl", [{"n": n} for n in range(8)])
    result = run_flow(folder.path / "flow.py", RunSettings(once=True), lambda view: None, spark=folder.spark)

    assert [(query.name, query.error) for query in result.queries] == [("high", ""), ("low", "")]
    assert folder.read("high") == [{"n": 104}, {"n": 106}]
    assert folder.read("low") == [{"n": n} for n in (100, 101, 102)]
    assert result.balanced
