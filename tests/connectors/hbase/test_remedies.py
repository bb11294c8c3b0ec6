"""The reset that problems of tables name: typed as it is printed, the flow writes them again."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.connectors.resets import fails_to_decide, resets_and_runs, stopped_as_its_place_goes, stopped_by, with_values

if TYPE_CHECKING:
    from tests.conftest import FlowFolder
    from tests.connectors.hbase.conftest import Table

FLOW = """
version: 1
name: shop
sources: {rows: {type: files, path: data, format: json, schema: "id BIGINT NOT NULL", max_files: 1}}
sinks: {kept: {from: rows, type: hbase, server: ["SERVER"], table: TABLE, records: RECORDS, mode: append}}
"""
COPY = """
version: 1
name: copy
sources: {read: {type: hbase, server: ["SERVER"], table: TABLE, schema: "id BIGINT NOT NULL, name STRING", row: "o-{id:8}"}}
sinks: {out: {from: read, type: files, path: out, format: json}}
"""


def filled(flow: str, table: Table) -> str:
    return with_values(flow, {"SERVER": table.server, "TABLE": table.name, "RECORDS": table.options["records"]})


def drop(table: Table) -> None:
    table.http.delete(f"{table.address}/{table.name}/schema").raise_for_status()


@pytest.mark.executes("hbase-table")
def test_a_table_that_is_gone_is_written_again(folder: FlowFolder, table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    folder.flow(filled(FLOW, table)).data("data/a.jsonl", [{"id": 1}])
    assert folder.run().state == "finished"
    folder.data("data/b.jsonl", [{"id": 2}]).data("data/c.jsonl", [{"id": 3}])

    remedy = stopped_as_its_place_goes(folder, "hbase-table", monkeypatch, lambda: drop(table))
    resets_and_runs(folder, remedy, monkeypatch)
    assert len(table.rows()) == 3


def test_a_table_that_somebody_drops_between_runs_is_told_and_not_made_anew(
    folder: FlowFolder, table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder.flow(filled(FLOW, table)).data("data/a.jsonl", [{"id": 1}])
    assert folder.run().state == "finished"
    drop(table)
    folder.data("data/b.jsonl", [{"id": 2}])
    resets_and_runs(folder, stopped_by(folder, "table-gone"), monkeypatch)
    assert len(table.rows()) == 2


@pytest.mark.executes("hbase-changed")
def test_rows_that_changed_once_they_were_taken_are_read_again(folder: FlowFolder, table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    table.make("d")
    for id_ in (1, 2):
        table.put(f"o-{id_:08}", "d:name", "ada")
    folder.flow(filled(COPY, table))
    fails_to_decide(folder, monkeypatch)
    table.put("o-00000001", "d:name", "bob")
    resets_and_runs(folder, stopped_by(folder, "hbase-changed"), monkeypatch)
    assert sorted(row["name"] for row in folder.read("out")) == ["ada", "bob"]
