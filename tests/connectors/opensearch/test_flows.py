"""Flows into an index, by Spark: what a run does from its start to its audit."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from harness.faults.lives import run_life
from harness.faults.outcomes import Aim, Life
from scribengin.core.errors import InputError
from scribengin.local.dead_letter_replay import replay
from scribengin.local.dead_letters import Which
from scribengin.local.prepare import prepare
from scribengin.state.dead_letters import read_letters

if TYPE_CHECKING:
    from pathlib import Path

    from tests.conftest import FlowFolder
    from tests.connectors.opensearch.conftest import Index

FLOW = """
version: 1
name: shop
sources: {orders: {type: files, path: data, format: json, schema: "id BIGINT NOT NULL, customer STRING, amount DOUBLE, ts TIMESTAMP"}}
steps: {large: {from: orders, filter: amount >= 10}}
sinks: {kept: {from: large, type: TYPE, server: ["SERVER"], index: INDEX, records: RECORDS, MODE}}
"""


def orders(*ids: int, amount: float = 20.0, customer: str | None = "ada") -> list[dict[str, Any]]:
    return [{"id": id_, "customer": customer, "amount": amount, "ts": "2026-01-01T00:00:00Z"} for id_ in ids]


def filled(index: Index, flow: str = FLOW, mode: str = "mode: append") -> str:
    for name, value in {
        "TYPE": index.type,
        "SERVER": index.address,
        "INDEX": index.name,
        "RECORDS": index.options["records"],
        "MODE": mode,
    }.items():
        flow = flow.replace(name, value)
    return flow


def prepared(folder: FlowFolder) -> Any:
    return prepare(folder.path / "flow.yaml", state=None)


def letters(folder: FlowFolder) -> list[Any]:
    return list(read_letters(prepared(folder).tiers[0].folder.query("kept")))


def test_rows_come_to_an_index_that_is_made_with_a_mapping_of_their_columns(folder: FlowFolder, index: Index) -> None:
    folder.flow(filled(index)).data("data/a.jsonl", [*orders(1, 2, 3), *orders(4, amount=1)])
    assert folder.run().violations == ()
    assert sorted(row["id"] for row in index.documents()) == [1, 2, 3]
    mapping = index.ask("GET", "/_mapping")[index.name]["mappings"]
    assert (mapping["dynamic"], mapping["properties"]["ts"], mapping["properties"]["id"]) == ("strict", {"type": "date"}, {"type": "long"})


def test_rows_replace_those_of_their_key_and_an_update_of_an_aggregation_too(folder: FlowFolder, index: Index) -> None:
    flow = FLOW.replace("large: {from: orders, filter: amount >= 10}", "by: {from: orders, aggregate: AGG}")
    flow = flow.replace("from: large", "from: by").replace('ts TIMESTAMP"', 'ts TIMESTAMP", watermark: ts 1d')
    flow = flow.replace("AGG", "{by: [customer], window: {time: ts, size: 1h}, emit: update, columns: {n: count(*), total: sum(amount)}}")
    folder.flow(filled(index, flow, "mode: upsert, key: [customer, window_start]")).data(
        "data/a.jsonl", [*orders(1, 2), *orders(3, customer="bob")]
    )
    assert folder.run().violations == ()
    folder.data("data/b.jsonl", orders(4, amount=0.5))
    assert folder.run().violations == ()
    found = sorted((row["customer"], row["n"], row["total"]) for row in index.documents())
    assert found == [("ada", 3, 40.5), ("bob", 1, 20.0)]


def test_an_index_of_other_fields_stops_a_start_with_what_is_to_be_done(folder: FlowFolder, index: Index) -> None:
    index.ask("PUT", "", {"mappings": {"dynamic": "strict", "properties": {"id": {"type": "boolean"}, "customer": {"type": "keyword"}}}})
    folder.flow(filled(index)).data("data/a.jsonl", orders(1))
    with pytest.raises(InputError) as told:
        folder.run()
    assert {problem.code for problem in told.value.problems} == {"table-columns"}
    assert 'field "id" is boolean in the index, but BIGINT in the flow' in str(told.value)


def test_a_refused_row_that_is_replayed_comes_through_once_the_index_takes_it(folder: FlowFolder, index: Index) -> None:
    index.ask("PUT", "", {"mappings": {"properties": {"customer": {"type": "date"}}}})
    folder.flow(filled(index)).data("data/a.jsonl", [*orders(1, 2, customer="2026-01-01"), *orders(3)])
    (query,) = folder.run().queries
    assert (query.nodes["kept"].out, query.nodes["kept"].dead) == (2, 1)
    (letter,) = letters(folder)
    assert (letter.step, letter.reason) == ("kept", "refused")
    assert "failed to parse field [customer] of type [date]" in letter.message
    asked = replay(prepared(folder), Which())
    assert asked.asked == 1
    assert folder.run().violations == ()
    first, again = letters(folder)
    assert (first.replays, again.replays, again.step, again.record) == (0, 1, "kept", first.record)
    assert first.id != again.id

    index.ask("PUT", "/_mapping", {"properties": {"customer": {"type": "date", "ignore_malformed": True}}})
    assert replay(prepared(folder), Which()).asked == 1
    result = folder.run()
    assert result.violations == ()
    assert len(letters(folder)) == 2
    assert sorted(row["id"] for row in index.documents()) == [1, 2, 3]
    (query,) = result.queries
    assert (query.nodes["kept"].out, query.nodes["kept"].dead, query.nodes["kept"].replayed) == (3, 2, 2)


def test_rows_of_one_record_are_documents_of_their_own_also_when_one_of_them_comes_later(folder: FlowFolder, index: Index) -> None:
    steps = """
def pair(row):
    return [row, row | {"amount": row["amount"] + 1}]


def check(row):
    if row["amount"] in BAD:
        raise ValueError("not so")
    return True
"""
    large = 'two: {from: orders, python: "steps:pair"}, large: {from: two, python: "steps:check"}'
    flow = FLOW.replace("large: {from: orders, filter: amount >= 10}", large)
    folder.flow(filled(index, flow)).steps(f"BAD = {{20.0, 31.0}}\n{steps}").data("data/a.jsonl", [*orders(1, 2), *orders(3, amount=30)])
    assert folder.run().violations == ()
    assert sorted((row["id"], row["amount"]) for row in index.documents()) == [(1, 21), (2, 21), (3, 30)]
    folder.steps(f"BAD = {{0.0}}\n{steps}")
    assert replay(prepared(folder), Which()).asked == 3
    assert folder.run().violations == ()
    assert sorted((row["id"], row["amount"]) for row in index.documents()) == [(1, 20), (1, 21), (2, 20), (2, 21), (3, 30), (3, 31)]


@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    ("kind", "route", "aims"),
    [
        pytest.param("tail", "files-to-opensearch", ("kill@offer.sent",), marks=pytest.mark.long),
        pytest.param(
            "coins", "files-to-opensearch", ("kill@offer.sent", "two@decide.before", "server@decide.after"), marks=pytest.mark.long
        ),
        pytest.param(
            "aggregate", "files-to-opensearch-by-key", ("kill@settle.offered", "recovery@publish.record.before"), marks=pytest.mark.long
        ),
        pytest.param(
            "aggregate",
            "files-to-elasticsearch-by-key",
            ("kill@offer.sent", "server@decide.after", "zombie@settle.offered"),
            marks=pytest.mark.long,
        ),
    ],
)
def test_a_life_of_kills_loses_and_doubles_nothing(public_path: Path, kind: str, route: str, aims: tuple[str, ...]) -> None:
    life = Life(kind, route, False, tuple(Aim(*aim.split("@")) for aim in aims))
    outcome = run_life(life, 1, public_path / "life", limit_s=400)
    assert outcome.verdict == "passed", outcome
    assert all(outcome.reached), outcome
    assert outcome.looks > 0
