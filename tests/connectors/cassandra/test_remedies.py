"""The reset that problems of tables name: typed as it is printed, the flow writes them again."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.connectors.cassandra.conftest import SUPERUSER
from tests.connectors.resets import fails_to_decide, resets_and_runs, stopped_as_its_place_goes, stopped_by, with_values

if TYPE_CHECKING:
    from tests.conftest import FlowFolder
    from tests.connectors.cassandra.conftest import Keyspace

FLOW = """
version: 1
name: shop
sources: {rows: {type: files, path: data, format: json, schema: "id BIGINT NOT NULL", max_files: 1}}
sinks:
  kept: {from: rows, type: cassandra, server: ["SERVER"], config: {user: USER, password: "${env:LOGIN}"}, keyspace: SPACE, table: kept,
    mode: append}
"""
COPY = """
version: 1
name: copy
sources: {read: {type: cassandra, server: ["SERVER"], config: {user: USER, password: "${env:LOGIN}"}, keyspace: SPACE, table: kept}}
sinks: {out: {from: read, type: files, path: out, format: json}}
"""


def filled(flow: str, space: Keyspace) -> str:
    return with_values(flow, {"SERVER": space.address, "USER": SUPERUSER, "SPACE": space.name})


@pytest.mark.executes("cassandra-table")
def test_a_table_that_is_gone_is_written_again(folder: FlowFolder, space: Keyspace, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOGIN", SUPERUSER)
    folder.flow(filled(FLOW, space)).data("data/a.jsonl", [{"id": 1}])
    assert folder.run().state == "finished"
    folder.data("data/b.jsonl", [{"id": 2}]).data("data/c.jsonl", [{"id": 3}])
    remedy = stopped_as_its_place_goes(folder, "cassandra-table", monkeypatch, lambda: space.ask("DROP TABLE kept"))
    resets_and_runs(folder, remedy, monkeypatch)
    assert sorted(row["id"] for row in space.rows()) == [1, 2, 3]


def test_a_table_that_somebody_drops_between_runs_is_told_and_not_made_anew(
    folder: FlowFolder, space: Keyspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LOGIN", SUPERUSER)
    folder.flow(filled(FLOW, space)).data("data/a.jsonl", [{"id": 1}])
    assert folder.run().state == "finished"
    space.ask("DROP TABLE kept")
    folder.data("data/b.jsonl", [{"id": 2}])
    resets_and_runs(folder, stopped_by(folder, "table-gone"), monkeypatch)
    assert sorted(row["id"] for row in space.rows()) == [1, 2]


@pytest.mark.executes("cassandra-changed")
def test_rows_that_changed_once_they_were_taken_are_read_again(
    folder: FlowFolder, space: Keyspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LOGIN", SUPERUSER)
    space.ask("CREATE TABLE kept (id BIGINT PRIMARY KEY)")
    for id_ in (1, 2):
        space.ask("INSERT INTO kept (id) VALUES (%s)", id_)
    folder.flow(filled(COPY, space))
    fails_to_decide(folder, monkeypatch)
    space.ask("DELETE FROM kept WHERE id = 1")
    resets_and_runs(folder, stopped_by(folder, "cassandra-changed"), monkeypatch)
    assert [row["id"] for row in folder.read("out")] == [2]
