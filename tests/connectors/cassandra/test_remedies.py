"""The reset that problems of tables name: typed as it is printed, the flow writes them again."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.connectors.cassandra.conftest import SUPERUSER
from tests.connectors.resets import resets_and_runs, stopped_as_its_place_goes

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


@pytest.mark.executes("cassandra-table")
def test_a_table_that_is_gone_is_written_again(folder: FlowFolder, space: Keyspace, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOGIN", SUPERUSER)
    text = FLOW
    for name, value in {"SERVER": space.address, "USER": SUPERUSER, "SPACE": space.name}.items():
        text = text.replace(name, value)
    folder.flow(text).data("data/a.jsonl", [{"id": 1}])
    assert folder.run().state == "finished"
    folder.data("data/b.jsonl", [{"id": 2}]).data("data/c.jsonl", [{"id": 3}])
    remedy = stopped_as_its_place_goes(folder, "cassandra-table", monkeypatch, lambda: space.ask("DROP TABLE kept"))
    resets_and_runs(folder, remedy, monkeypatch)
    assert sorted(row["id"] for row in space.rows()) == [1, 2, 3]
