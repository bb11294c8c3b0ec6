"""Flows into a table of Cassandra, by Spark: what a run does from its start to its audit, and what is left when the server dies."""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING, Any

import pytest

from harness.faults.lives import run_life
from harness.faults.outcomes import Aim, Life
from scribengin.core.errors import InputError
from scribengin.local.prepare import prepare
from scribengin.state.dead_letters import read_letters
from tests.connectors.cassandra.conftest import SUPERUSER
from tests.connectors.kafka.processes import scribengin

if TYPE_CHECKING:
    from pathlib import Path

    from tests.conftest import FlowFolder
    from tests.connectors.cassandra.conftest import Keyspace

FLOW = """
version: 1
name: shop
sources: {orders: {type: files, path: data, format: json, schema: "id BIGINT NOT NULL, customer STRING, amount DOUBLE, ts TIMESTAMP"}}
steps: {large: {from: orders, filter: amount >= 10}}
sinks:
  kept: {from: large, type: cassandra, server: ["SERVER"], config: {user: USER, password: "${env:LOGIN}"}, keyspace: SPACE, table: kept,
    MODE}
"""

COPY = """
version: 1
name: copy
sources:
  read: {type: cassandra, server: ["SERVER"], config: {user: USER, password: "${env:LOGIN}"}, keyspace: SPACE, table: kept,
    split: 8, max_rows: 16}
sinks: {out: {from: read, type: files, path: out, format: json}}
"""


@pytest.fixture(autouse=True)
def _login(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOGIN", SUPERUSER)


def orders(*ids: int, amount: float = 20.0, customer: str | None = "ada") -> list[dict[str, Any]]:
    return [{"id": id_, "customer": customer, "amount": amount, "ts": "2026-01-01T00:00:00Z"} for id_ in ids]


def filled(space: Keyspace, flow: str = FLOW, mode: str = "mode: append") -> str:
    for name, value in {"SERVER": space.address, "USER": SUPERUSER, "SPACE": space.name, "MODE": mode}.items():
        flow = flow.replace(name, value)
    return flow


def test_rows_come_to_a_table_that_is_made_and_those_that_it_does_not_take_are_dead_letters(folder: FlowFolder, space: Keyspace) -> None:
    folder.flow(filled(space)).data("data/a.jsonl", [*orders(1, 2, 3), *orders(4, amount=1)])
    assert folder.run().violations == ()
    assert sorted(row["id"] for row in space.rows()) == [1, 2, 3]
    folder.data("data/b.jsonl", [*orders(5), *orders(6, customer="x" * (5 << 20))])
    result = folder.run()
    (query,) = result.queries
    assert (query.nodes["kept"].out, query.nodes["kept"].dead, result.violations) == (4, 1, ())
    (letter,) = read_letters(prepare(folder.path / "flow.yaml", state=None).tiers[0].folder.query("kept"))
    assert (letter.step, letter.reason) == ("kept", "too-large")


def test_rows_replace_those_of_their_key_and_an_update_of_an_aggregation_too(folder: FlowFolder, space: Keyspace) -> None:
    flow = FLOW.replace("large: {from: orders, filter: amount >= 10}", "by: {from: orders, aggregate: AGG}")
    flow = flow.replace("from: large", "from: by").replace('ts TIMESTAMP"', 'ts TIMESTAMP", watermark: ts 1d')
    flow = flow.replace("AGG", "{by: [customer], window: {time: ts, size: 1h}, emit: update, columns: {n: count(*), total: sum(amount)}}")
    folder.flow(filled(space, flow, "mode: upsert, key: [customer, window_start]")).data(
        "data/a.jsonl", [*orders(1, 2), *orders(3, customer="bob")]
    )
    assert folder.run().violations == ()
    folder.data("data/b.jsonl", orders(4, amount=0.5))
    assert folder.run().violations == ()
    assert sorted((row["customer"], row["n"], row["total"]) for row in space.rows()) == [("ada", 3, 40.5), ("bob", 1, 20.0)]


def test_a_table_of_counters_stops_a_start_with_the_reason(folder: FlowFolder, space: Keyspace) -> None:
    space.ask("CREATE TABLE kept (id bigint PRIMARY KEY, n counter)")
    folder.flow(filled(space, mode="mode: upsert, key: [id]")).data("data/a.jsonl", orders(1))
    with pytest.raises(InputError) as told:
        folder.run()
    assert {problem.code for problem in told.value.problems} == {"table-columns"}
    assert "would be counted twice" in str(told.value)
    assert "counters do not support the lightweight transaction" in str(told.value)


@pytest.mark.long
def test_a_table_is_read_on_behind_a_kill_and_a_row_that_changed_meanwhile_stops_it(folder: FlowFolder, space: Keyspace) -> None:
    space.ask("CREATE TABLE kept (id bigint PRIMARY KEY, name text)")
    for number in range(40):
        space.ask("INSERT INTO kept (id, name) VALUES (%s, %s)", number, f"n{number}")
    folder.flow(filled(space, COPY))
    killed = scribengin(folder.path, "run", "flow.yaml", "--once", SCRIBENGIN_FAULT="decide.before@2:kill")
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    read = {row["id"] for row in folder.read("out")}
    assert 16 <= len(read) <= 18
    for number in set(range(40)) - read:
        space.ask("UPDATE kept SET name = 'changed' WHERE id = %s", number)
    stopped = folder.run()
    assert stopped.state == "failed"
    assert "changed after it was assigned" in stopped.queries[0].error
    assert "on_change: ignore" in stopped.queries[0].remedy
    assert {row["id"] for row in folder.read("out")} == read
    for number in range(40):
        space.ask("UPDATE kept SET name = %s WHERE id = %s", f"n{number}", number)
    assert folder.run().violations == ()
    assert sorted((row["id"], row["name"]) for row in folder.read("out")) == [(number, f"n{number}") for number in range(40)]


@pytest.mark.long
@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    ("kind", "route", "aims"),
    [
        ("coins", "files-to-cassandra", ("server@offer.sent", "kill@publish.record.before", "two@decide.before")),
        ("aggregate", "files-to-cassandra-by-key", ("kill@offer.sent", "recovery@publish.record.before")),
    ],
)
def test_a_life_of_kills_loses_and_doubles_nothing(tmp_path: Path, kind: str, route: str, aims: tuple[str, ...]) -> None:
    life = Life(kind, route, False, tuple(Aim(*aim.split("@")) for aim in aims))
    outcome = run_life(life, 1, tmp_path / "life", limit_s=600)
    assert outcome.verdict == "passed", outcome
    assert all(outcome.reached), outcome
    assert outcome.looks > 0
