"""The reset that problems of tables name: typed as it is printed, the flow writes and reads its tables again."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tests.connectors.resets import fails_to_decide, resets_and_runs, stopped_by

if TYPE_CHECKING:
    from tests.conftest import FlowFolder

WRITES = """
version: 1
name: shop
sources: {rows: {type: files, path: data, format: json, schema: "id BIGINT NOT NULL"}}
sinks: {kept: {from: rows, type: postgres, server: "SERVER", table: kept, mode: append}}
"""
READS = """
version: 1
name: shop
sources: {rows: {type: postgres, server: "SERVER", table: given, schema: "id BIGINT"}}
sinks: {kept: {from: rows, type: files, path: out, format: json}}
"""


def flow(folder: FlowFolder, text: str, database: Any) -> None:
    info = database.info
    folder.flow(text.replace("SERVER", f"postgresql://{info.user}@{info.host}:{info.port}/{info.dbname}"))


@pytest.mark.executes("table-gone")
def test_a_table_that_is_gone_is_written_again(folder: FlowFolder, database: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    flow(folder, WRITES, database)
    folder.data("data/a.jsonl", [{"id": 1}])
    assert folder.run().state == "finished"
    database.execute("DROP TABLE kept")
    folder.data("data/b.jsonl", [{"id": 2}])
    resets_and_runs(folder, stopped_by(folder, "table-gone"), monkeypatch)
    assert [row["id"] for row in database.execute("SELECT id FROM kept ORDER BY id").fetchall()] == [1, 2]


@pytest.mark.executes("postgres-changed")
def test_rows_that_changed_once_they_were_taken_are_read_again(folder: FlowFolder, database: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    flow(folder, READS, database)
    database.execute("CREATE TABLE given (id BIGINT PRIMARY KEY, said TEXT); INSERT INTO given VALUES (1), (2)")
    fails_to_decide(folder, monkeypatch)
    database.execute("DELETE FROM given WHERE id = 1")
    others = "FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()"
    database.execute(f"SELECT pg_terminate_backend(pid) {others}")  # as when the process ends that holds the view of the rows
    resets_and_runs(folder, stopped_by(folder, "postgres-changed"), monkeypatch)
    assert [row["id"] for row in folder.read("out")] == [2]
