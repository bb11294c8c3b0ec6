"""Flows into a table of HBase, by Spark: what a run does from its start to its audit."""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING, Any

import pytest

from harness.faults.lives import run_life
from harness.faults.outcomes import Aim, Life
from scribengin.core.errors import InputError
from scribengin.local.dead_letter_replay import replay
from scribengin.local.dead_letters import Which
from scribengin.local.prepare import prepare
from scribengin.state.dead_letters import read_letters
from tests.connectors.hbase.conftest import BOTH
from tests.connectors.kafka.processes import scribengin

if TYPE_CHECKING:
    from pathlib import Path

    from tests.conftest import FlowFolder
    from tests.connectors.hbase.conftest import Table

FLOW = """
version: 1
name: shop
sources: {orders: {type: files, path: data, format: json, schema: "id BIGINT NOT NULL, customer STRING, amount DOUBLE, ts TIMESTAMP"}}
steps: {large: {from: orders, filter: amount >= 10}}
sinks: {kept: {from: large, type: hbase, server: ["SERVER"], table: TABLE, records: RECORDS, MODE}}
"""
COPY = """
version: 1
name: copy
sources:
  read: {type: hbase, server: ["SERVER"], table: TABLE, schema: "id BIGINT NOT NULL, name STRING", row: "o-{id:8}", split: 8, max_rows: 16}
sinks: {out: {from: read, type: files, path: out, format: json}}
"""
LARGE = "x" * (10 << 20)


def orders(*ids: int, amount: float = 20.0, customer: str | None = "ada") -> list[dict[str, Any]]:
    return [{"id": id_, "customer": customer, "amount": amount, "ts": "2026-01-01T00:00:00Z"} for id_ in ids]


def filled(table: Table, flow: str = FLOW, mode: str = "mode: append") -> str:
    for name, value in {"SERVER": table.server, "TABLE": table.name, "RECORDS": table.options["records"], "MODE": mode}.items():
        flow = flow.replace(name, value)
    return flow


def test_rows_replace_those_of_their_key_and_an_update_of_an_aggregation_too(folder: FlowFolder, table: Table) -> None:
    flow = FLOW.replace("large: {from: orders, filter: amount >= 10}", "by: {from: orders, aggregate: AGG}")
    flow = flow.replace("from: large", "from: by").replace('ts TIMESTAMP"', 'ts TIMESTAMP", watermark: ts 1d')
    flow = flow.replace("AGG", "{by: [customer], window: {time: ts, size: 1h}, emit: update, columns: {n: count(*), total: sum(amount)}}")
    mode = 'mode: upsert, key: [customer, window_start], row: "{customer}@{window_start}", columns: {n: "c:n"}'
    folder.flow(filled(table, flow, mode)).data("data/a.jsonl", [*orders(1, 2), *orders(3, customer="bob")])
    assert folder.run().violations == ()
    folder.data("data/b.jsonl", orders(4, amount=0.5))
    assert folder.run().violations == ()
    assert {key: (row["c:n"], row["d:total"]) for key, row in table.cells().items()} == {
        "ada@2026-01-01T00:00:00.000000Z": (b"3", b"40.5"),
        "bob@2026-01-01T00:00:00.000000Z": (b"1", b"20.0"),
    }


def test_a_table_that_does_not_fit_stops_a_start_with_what_is_to_be_done(folder: FlowFolder, table: Table) -> None:
    table.make("other")
    folder.flow(filled(table)).data("data/a.jsonl", orders(1))
    with pytest.raises(InputError) as told:
        folder.run()
    assert {problem.code for problem in told.value.problems} == {"table-columns"}
    assert 'the table has no column family "d"; it has other' in str(told.value)


@BOTH
def test_a_row_that_is_too_large_is_a_letter_and_the_others_stand_there(folder: FlowFolder, table: Table) -> None:
    folder.flow(filled(table)).data("data/a.jsonl", [*orders(1, 2), *orders(3, customer=LARGE)])
    result = folder.run()
    assert result.violations == ()
    (query,) = result.queries
    assert (query.nodes["kept"].out, query.nodes["kept"].dead) == (2, 1)
    flow = prepare(folder.path / "flow.yaml", state=None)
    (letter,) = read_letters(flow.tiers[0].folder.query("kept"))
    assert (letter.step, letter.reason) == ("kept", "too-large")
    assert "hbase.client.keyvalue.maxsize" in letter.message
    assert replay(flow, Which()).asked == 1
    assert folder.run().violations == ()
    assert sorted(row["id"] for row in table.rows()) == ["1", "2"]


@pytest.mark.long
def test_a_table_is_read_on_behind_a_kill_and_a_row_that_changed_meanwhile_stops_it(folder: FlowFolder, table: Table) -> None:
    table.make()
    table.put_rows({b"o-%08d" % number: {"d:name": b"n%d" % number} for number in range(40)} | {b"none": {"d:name": b"x"}})
    folder.flow(filled(table, COPY))
    killed = scribengin(folder.path, "run", "flow.yaml", "--once", SCRIBENGIN_FAULT="decide.before@2:kill")
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    assert sorted(row["id"] for row in folder.read("out")) == list(range(15))  # and the one that sorts first
    table.put(f"o-{20:08}", "d:name", "changed")
    stopped = folder.run()
    assert stopped.state == "failed"
    assert "changed after it was assigned" in stopped.queries[0].error
    assert "on_change: ignore" in stopped.queries[0].remedy
    assert len(folder.read("out")) == 15
    table.put(f"o-{20:08}", "d:name", "n20")
    result = folder.run()
    assert (result.violations, result.queries[0].nodes["read"].dead) == ((), 1)
    assert sorted((row["id"], row["name"]) for row in folder.read("out")) == [(number, f"n{number}") for number in range(40)]
    (letter,) = read_letters(prepare(folder.path / "flow.yaml", state=None).tiers[0].folder.query("out"))
    assert letter.message == "the row key none does not match `row`"


@pytest.mark.long
@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    ("kind", "route", "aims"),
    [
        ("tail", "files-to-hbase", ("server@decide.after",)),
        ("tail", "files-to-hbase-by-thrift", ("kill@offer.sent", "server@offer.sent")),
        ("coins", "files-to-hbase", ("kill@offer.sent", "server@decide.after")),
        ("aggregate", "files-to-hbase-by-key", ("server@offer.sent", "two@decide.before", "recovery@publish.record.before")),
    ],
)
def test_a_life_of_kills_loses_and_doubles_nothing(public_path: Path, kind: str, route: str, aims: tuple[str, ...]) -> None:
    life = Life(kind, route, False, tuple(Aim(*aim.split("@")) for aim in aims))
    outcome = run_life(life, 1, public_path / "life", limit_s=400)
    assert outcome.verdict == "passed", outcome
    assert all(outcome.reached), outcome
    assert outcome.looks > 0
