"""The reset that problems of tables name: typed as it is printed, the flow writes them again."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.connectors.resets import resets_and_runs, stopped_as_its_place_goes

if TYPE_CHECKING:
    from tests.conftest import FlowFolder
    from tests.connectors.hbase.conftest import Table

FLOW = """
version: 1
name: shop
sources: {rows: {type: files, path: data, format: json, schema: "id BIGINT NOT NULL", max_files: 1}}
sinks: {kept: {from: rows, type: hbase, server: ["SERVER"], table: TABLE, records: RECORDS, mode: append}}
"""


@pytest.mark.executes("hbase-table")
def test_a_table_that_is_gone_is_written_again(folder: FlowFolder, table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    text = FLOW
    for name, value in {"SERVER": table.server, "TABLE": table.name, "RECORDS": table.options["records"]}.items():
        text = text.replace(name, value)
    folder.flow(text).data("data/a.jsonl", [{"id": 1}])
    assert folder.run().state == "finished"
    folder.data("data/b.jsonl", [{"id": 2}]).data("data/c.jsonl", [{"id": 3}])

    def drop() -> None:
        table.http.delete(f"{table.address}/{table.name}/schema").raise_for_status()

    resets_and_runs(folder, stopped_as_its_place_goes(folder, "hbase-table", monkeypatch, drop), monkeypatch)
    assert len(table.rows()) == 3
