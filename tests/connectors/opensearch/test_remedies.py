"""The reset that problems of indexes name: typed as it is printed, the flow writes them again."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from scribengin.connectors.opensearch.view import Views
from tests.connectors.opensearch.test_source import close
from tests.connectors.resets import fails_to_decide, resets_and_runs, stopped_as_its_place_goes, stopped_by, with_values

if TYPE_CHECKING:
    from tests.conftest import FlowFolder
    from tests.connectors.opensearch.conftest import Index

FLOW = """
version: 1
name: shop
sources: {rows: {type: files, path: data, format: json, schema: "id BIGINT NOT NULL", max_files: 1}}
sinks: {kept: {from: rows, type: TYPE, server: ["SERVER"], index: INDEX, records: RECORDS, mode: append}}
"""
COPY = """
version: 1
name: copy
sources: {read: {type: TYPE, server: ["SERVER"], index: INDEX, schema: "id BIGINT"}}
sinks: {out: {from: read, type: files, path: out, format: json}}
"""


def filled(flow: str, index: Index) -> str:
    return with_values(flow, {"TYPE": index.type, "SERVER": index.address, "INDEX": index.name, "RECORDS": index.options["records"]})


@pytest.mark.executes("search-index")
def test_an_index_that_is_gone_is_written_again(folder: FlowFolder, index: Index, monkeypatch: pytest.MonkeyPatch) -> None:
    folder.flow(filled(FLOW, index)).data("data/a.jsonl", [{"id": 1}])
    assert folder.run().state == "finished"
    folder.data("data/b.jsonl", [{"id": 2}]).data("data/c.jsonl", [{"id": 3}])
    remedy = stopped_as_its_place_goes(folder, "search-index", monkeypatch, lambda: index.ask("DELETE", ""))
    resets_and_runs(folder, remedy, monkeypatch)
    assert sorted(row["id"] for row in index.documents()) == [1, 2, 3]


def test_an_index_that_somebody_deletes_between_runs_is_told_and_not_made_anew(
    folder: FlowFolder, index: Index, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder.flow(filled(FLOW, index)).data("data/a.jsonl", [{"id": 1}])
    assert folder.run().state == "finished"
    index.ask("DELETE", "")
    folder.data("data/b.jsonl", [{"id": 2}])
    resets_and_runs(folder, stopped_by(folder, "table-gone"), monkeypatch)
    assert sorted(row["id"] for row in index.documents()) == [1, 2]


@pytest.mark.executes("search-changed")
def test_documents_that_changed_after_they_were_taken_are_read_again(
    folder: FlowFolder, index: Index, monkeypatch: pytest.MonkeyPatch
) -> None:
    views: list[str] = []
    opens = Views.open

    def noted(self: Views, name: str) -> str:
        views.append(opens(self, name))
        return views[-1]

    monkeypatch.setattr(Views, "open", noted)
    for id_ in (1, 2):
        index.ask("PUT", f"/_doc/{id_}?refresh=true", {"id": id_})
    folder.flow(filled(COPY, index))
    fails_to_decide(folder, monkeypatch)
    for view in views:
        close(index, view)
    index.ask("DELETE", "/_doc/1?refresh=true")
    resets_and_runs(folder, stopped_by(folder, "search-changed"), monkeypatch)
    assert [row["id"] for row in folder.read("out")] == [2]
