"""The reset that problems of indexes name: typed as it is printed, the flow writes them again."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.connectors.resets import resets_and_runs, stopped_as_its_place_goes

if TYPE_CHECKING:
    from tests.conftest import FlowFolder
    from tests.connectors.opensearch.conftest import Index

FLOW = """
version: 1
name: shop
sources: {rows: {type: files, path: data, format: json, schema: "id BIGINT NOT NULL", max_files: 1}}
sinks: {kept: {from: rows, type: TYPE, server: ["SERVER"], index: INDEX, records: RECORDS, mode: append}}
"""


@pytest.mark.executes("search-index")
def test_an_index_that_is_gone_is_written_again(folder: FlowFolder, index: Index, monkeypatch: pytest.MonkeyPatch) -> None:
    filled = {"TYPE": index.type, "SERVER": index.address, "INDEX": index.name, "RECORDS": index.options["records"]}
    text = FLOW
    for name, value in filled.items():
        text = text.replace(name, value)
    folder.flow(text).data("data/a.jsonl", [{"id": 1}])
    assert folder.run().state == "finished"
    folder.data("data/b.jsonl", [{"id": 2}]).data("data/c.jsonl", [{"id": 3}])
    remedy = stopped_as_its_place_goes(folder, "search-index", monkeypatch, lambda: index.ask("DELETE", ""))
    resets_and_runs(folder, remedy, monkeypatch)
    assert sorted(row["id"] for row in index.documents()) == [1, 2, 3]
