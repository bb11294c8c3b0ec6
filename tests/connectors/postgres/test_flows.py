"""Flows into tables, by Spark: what a run does from its start to its audit, and what is left when things die."""

from __future__ import annotations

import errno
from typing import TYPE_CHECKING, Any

import pytest

from harness.faults.lives import run_life
from harness.faults.outcomes import Aim, Life
from scribengin.core.errors import InputError
from scribengin.local.audit import audit_flow
from scribengin.local.prepare import prepare
from scribengin.state.decisions import Decisions

if TYPE_CHECKING:
    from pathlib import Path

    from tests.conftest import FlowFolder

FLOW = """
version: 1
name: shop
sources: {orders: {type: files, path: data, format: json, schema: "id BIGINT NOT NULL, customer STRING, amount DOUBLE, ts TIMESTAMP"}}
steps: {large: {from: orders, filter: amount >= 10}}
sinks: {kept: {from: large, type: postgres, server: "SERVER", table: kept, MODE}}
"""


def orders(*ids: int, amount: float = 20.0, customer: str | None = "ada") -> list[dict[str, Any]]:
    return [{"id": id_, "customer": customer, "amount": amount, "ts": "2026-01-01T00:00:00Z"} for id_ in ids]


def uri(database: Any) -> str:
    return f"postgresql://{database.info.user}@{database.info.host}:{database.info.port}/{database.info.dbname}"


def _no_room(*_: Any, **__: Any) -> None:
    raise OSError(errno.ENOSPC, "no space left on device")


def shop(folder: FlowFolder, database: Any, mode: str = "mode: append") -> FlowFolder:
    return folder.flow(FLOW.replace("SERVER", uri(database)).replace("MODE", mode))


def test_rows_come_to_a_table_that_is_made_and_those_that_it_does_not_take_are_dead_letters(folder: FlowFolder, database: Any) -> None:
    shop(folder, database).data("data/a.jsonl", [*orders(1, 2, 3), *orders(4, amount=1)])
    result = folder.run()
    assert (result.state, result.violations) == ("finished", ())
    assert [row["id"] for row in database.execute("SELECT id FROM kept ORDER BY id").fetchall()] == [1, 2, 3]
    database.execute("ALTER TABLE kept ADD CHECK (id < 100)")
    folder.data("data/b.jsonl", [*orders(5, 500), *orders(6, customer="a\0b")])
    (query,) = folder.run().queries
    assert (query.nodes["kept"].out, query.nodes["kept"].dead) == (4, 2)  # of both runs
    assert database.execute("SELECT count(*) AS n FROM kept").fetchone()["n"] == 4


def test_rows_replace_those_of_their_key_and_an_update_of_an_aggregation_too(folder: FlowFolder, database: Any) -> None:
    flow = FLOW.replace("SERVER", uri(database)).replace(
        "large: {from: orders, filter: amount >= 10}", "by: {from: orders, aggregate: AGG}"
    )
    flow = flow.replace("from: large", "from: by").replace("MODE", "mode: upsert, key: [customer, window_start]")
    flow = flow.replace('ts TIMESTAMP"', 'ts TIMESTAMP", watermark: ts 1d').replace(
        "AGG", "{by: [customer], window: {time: ts, size: 1h}, emit: update, columns: {n: count(*), total: sum(amount)}}"
    )
    folder.flow(flow).data("data/a.jsonl", [*orders(1, 2), *orders(3, customer="bob")])
    assert folder.run().violations == ()
    folder.data("data/b.jsonl", orders(4, amount=0.5))
    assert folder.run().violations == ()
    found = database.execute("SELECT customer, n, total FROM kept ORDER BY customer").fetchall()
    assert found == [{"customer": "ada", "n": 3, "total": 40.5}, {"customer": "bob", "n": 1, "total": 20.0}]


def test_a_table_of_other_columns_stops_a_start_with_what_is_to_be_done(folder: FlowFolder, database: Any) -> None:
    database.execute("CREATE TABLE kept (id text, amount double precision, ts timestamptz, country text NOT NULL)")
    shop(folder, database).data("data/a.jsonl", orders(1))
    with pytest.raises(InputError) as told:
        folder.run()
    problems = told.value.problems
    assert {problem.code for problem in problems} == {"table-columns"}
    assert len(problems) == 3
    assert 'column "id" is text in the table, but BIGINT in the flow' in str(told.value)
    assert problems[0].place.line == 6


UNITS = "visible: unit"


def test_tasks_write_to_the_table_itself_where_that_is_said(folder: FlowFolder, database: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    shop(folder, database, UNITS).data("data/a.jsonl", orders(1, 2, 3)).data("data/b.jsonl", [*orders(4, customer="a\0b"), *orders(5)])
    monkeypatch.setattr(Decisions, "decide", _no_room)
    assert folder.run().state == "failed"
    assert sorted(row["id"] for row in database.execute("SELECT id FROM kept").fetchall()) == [1, 2, 3, 5], "units are seen as they commit"
    monkeypatch.undo()

    shop(folder, database)  # written again as a whole, rows would stand there twice
    refused = folder.run()
    assert (refused.state, [problem.code for problem in refused.problems]) == ("failed", ["batch-begun"])
    shop(folder, database, UNITS)
    result = folder.run()
    assert (result.state, result.violations) == ("finished", ())
    (query,) = result.queries
    assert (query.nodes["kept"].out, query.nodes["kept"].dead) == (4, 1)
    assert sorted(row["id"] for row in database.execute("SELECT id FROM kept").fetchall()) == [1, 2, 3, 5]

    shop(folder, database).data("data/c.jsonl", orders(6))
    assert folder.run().violations == ()
    assert database.execute("SELECT count(*) AS n FROM kept").fetchone()["n"] == 5


def test_a_flow_that_is_edited_and_edited_back_in_the_midst_of_a_batch_can_be_audited(
    folder: FlowFolder, database: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    database.execute("CREATE TABLE kept (id bigint, customer text, amount float8, ts timestamptz)")
    database.execute("ALTER TABLE kept ADD CONSTRAINT one_id UNIQUE (id) DEFERRABLE INITIALLY DEFERRED")
    shop(folder, database, UNITS).data("data/a.jsonl", orders(1, 2, 2))
    assert folder.run().state == "failed"  # the Batch has begun, and nothing of it is committed
    database.execute("ALTER TABLE kept DROP CONSTRAINT one_id")
    edited = FLOW.replace("SERVER", uri(database)).replace("MODE", UNITS)
    edited = edited.replace("amount >= 10}}", "amount >= 10}, again: {from: large, filter: amount >= 11}}")
    folder.flow(edited.replace("from: large, type", "from: again, type"))
    with monkeypatch.context() as patch:
        patch.setattr(Decisions, "decide", _no_room)
        assert folder.run().state == "failed"  # all of it is committed, none is decided
    shop(folder, database, UNITS)
    assert folder.run().state == "finished"
    assert database.execute("SELECT count(*) AS n FROM kept").fetchone()["n"] == 3
    assert audit_flow(prepare(folder.path / "flow.yaml", state=None)).balanced


@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    ("kind", "route", "aims"),
    [
        pytest.param(
            "tail",
            "files-to-postgres-by-unit",
            ("die@transaction.commit.after", "kill@transaction.commit.before", "zombie@transaction.sent", "server@transaction.sent"),
            marks=pytest.mark.long,
        ),
        pytest.param("tail", "files-to-postgres", ("kill@publish.record.before", "server@decide.after"), marks=pytest.mark.long),
        pytest.param("tail", "postgres-to-files", ("server@source.logged",), marks=pytest.mark.long),
        pytest.param(
            "coins", "files-to-postgres", ("kill@publish.record.before", "two@decide.before", "server@decide.after"), marks=pytest.mark.long
        ),
        pytest.param(
            "aggregate", "files-to-postgres-by-key", ("kill@publish.record.after", "recovery@publish.record.before"), marks=pytest.mark.long
        ),
        pytest.param(
            "tail",
            "postgres-to-files",
            ("kill@stage.mid_write", "server@source.logged", "two@decide.before", "zombie@decide.after"),
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
