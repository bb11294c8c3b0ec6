"""Flows into Delta tables, by Spark: what a run does from its start to its audit, and what is left when things die."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from harness.faults.delta_flows import read_delta
from harness.faults.lives import run_life
from harness.faults.outcomes import Aim, Life
from harness.object_stores import address, options
from scribengin.connectors.delta.stored import StorePlace
from scribengin.core.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from scribengin.embedded.objects import ObjectServer
    from tests.conftest import FlowFolder

    Read = Callable[[Path], list[dict[str, Any]]]

FLOW = """
version: 1
name: shop
sources: {orders: {type: files, path: data, format: json, schema: "id BIGINT NOT NULL, customer STRING, amount DOUBLE, ts TIMESTAMP"}}
steps: {large: {from: orders, filter: amount >= 10}}
sinks: {kept: {from: large, type: delta, path: kept, MODE}}
"""


def orders(*ids: int, amount: float = 20.0, customer: str | None = "ada") -> list[dict[str, Any]]:
    return [{"id": id_, "customer": customer, "amount": amount, "ts": "2026-01-01T00:00:00Z"} for id_ in ids]


def shop(folder: FlowFolder, mode: str = "mode: append") -> FlowFolder:
    return folder.flow(FLOW.replace("MODE", mode))


def test_rows_come_to_a_table_that_is_made_and_those_that_it_does_not_take_are_dead_letters(folder: FlowFolder, read: Read) -> None:
    shop(folder, "partition_by: [customer]").data("data/a.jsonl", [*orders(1, 2), *orders(3, customer=None), *orders(4, amount=1)])
    result = folder.run()
    assert (result.state, result.violations) == ("finished", ())
    folder.data("data/b.jsonl", [*orders(5, amount=500), *orders(6, customer="")])
    (query,) = folder.run().queries
    assert (query.nodes["kept"].out, query.nodes["kept"].dead) == (4, 1)  # of both runs
    rows = sorted((row["id"], row["customer"]) for row in read(folder.path / "kept"))
    assert rows == [(1, "ada"), (2, "ada"), (3, None), (5, "ada")]


def test_rows_replace_those_of_their_key_and_an_update_of_an_aggregation_too(folder: FlowFolder, read: Read) -> None:
    flow = FLOW.replace("large: {from: orders, filter: amount >= 10}", "by: {from: orders, aggregate: AGG}")
    flow = flow.replace("from: large", "from: by").replace("MODE", "mode: upsert, key: [customer, window_start]")
    flow = flow.replace('ts TIMESTAMP"', 'ts TIMESTAMP", watermark: ts 1d').replace(
        "AGG", "{by: [customer], window: {time: ts, size: 1h}, emit: update, columns: {n: count(*), total: sum(amount)}}"
    )
    folder.flow(flow).data("data/a.jsonl", [*orders(1, 2), *orders(3, customer="bob")])
    assert folder.run().violations == ()
    next_hour = [order | {"ts": "2026-01-01T01:30:00Z"} for order in orders(5, amount=7.0)]
    folder.data("data/b.jsonl", [*orders(4, amount=0.5), *next_hour])
    assert folder.run().violations == ()
    found = sorted((row["customer"], row["window_start"].hour, row["n"], row["total"]) for row in read(folder.path / "kept"))
    assert found == [("ada", 0, 3, 40.5), ("ada", 1, 1, 7.0), ("bob", 0, 1, 20.0)]


def test_a_table_of_other_columns_stops_a_start_with_what_is_to_be_done(folder: FlowFolder) -> None:
    DeltaTable.create(folder.path / "kept", pa.schema([("id", pa.string()), ("amount", pa.float64()), ("ts", pa.timestamp("us", "UTC"))]))
    shop(folder).data("data/a.jsonl", orders(1))
    with pytest.raises(InputError) as told:
        folder.run()
    problems = told.value.problems
    assert {problem.code for problem in problems} == {"table-columns"}
    assert len(problems) == 2
    assert 'column "id" is string in the table, but BIGINT in the flow' in str(told.value)
    assert problems[0].place.line == 6


def test_rows_come_to_a_table_in_a_store_over_two_runs(
    folder: FlowFolder, server: ObjectServer, prefix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    secret = options(server)["config"]["secret_access_key"]
    monkeypatch.setenv("STORE_SECRET", secret)
    given = options(server, prefix)
    login = f'config: {{access_key_id: {given["config"]["access_key_id"]}, secret_access_key: "${{secret:env/STORE_SECRET}}"}}'
    flow = FLOW.replace("path: kept", f'path: "{given["url"]}", endpoint: "{server.uri}", {login}')
    folder.flow(flow.replace("MODE", "mode: upsert, key: [id], partition_by: [customer]"))
    folder.data("data/a.jsonl", [*orders(1, 2), *orders(4, amount=1)])
    assert folder.run().violations == ()
    folder.data("data/b.jsonl", orders(2, 5, customer="bob"))
    result = folder.run()
    assert (result.state, result.violations) == ("finished", ())
    rows = read_delta(StorePlace(address(server, prefix)))
    assert sorted((row["id"], row["customer"]) for row in rows) == [(1, "ada"), (2, "bob"), (5, "bob")]
    written = [path for path in folder.path.rglob("*") if path.is_file() and secret.encode() in path.read_bytes()]
    assert written == [], "the secret stands in no state, plan or log"
    folder.flow(folder.path.joinpath("flow.yaml").read_text().replace("amount DOUBLE", "amount STRING"))
    with pytest.raises(InputError, match='column "amount" is double in the table, but STRING in the flow'):
        folder.run()


@pytest.mark.long
@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    ("kind", "route", "aims"),
    [
        ("coins", "files-to-delta", ("kill@publish.renamed", "two@decide.before")),
        ("aggregate", "files-to-delta-by-key", ("kill@publish.record.after", "recovery@publish.record.before")),
        ("coins", "files-to-delta-stored", ("server@stage.mid_write", "zombie@publish.record.after")),
    ],
)
def test_a_life_of_kills_loses_and_doubles_nothing(tmp_path: Path, kind: str, route: str, aims: tuple[str, ...]) -> None:
    life = Life(kind, route, False, tuple(Aim(*aim.split("@")) for aim in aims))
    outcome = run_life(life, 1, tmp_path / "life", limit_s=400)
    assert outcome.verdict == "passed", outcome
    assert all(outcome.reached), outcome
    assert outcome.looks > 0
