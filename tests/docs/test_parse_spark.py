"""docs/bad-records.md lists where `parse: spark` deviates from the strict reader: each line of the table is run."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

from doc_pages import ROOT

if TYPE_CHECKING:
    from tests.conftest import FlowFolder

_TABLE = re.compile(r"<!-- deviations -->.*?<!-- /deviations -->", re.DOTALL)
_ROW = re.compile(r"^\| `(.+?)` \| (.+?) \| (.+?) \|$", re.MULTILINE)
_COLUMNS = re.compile(r"the columns are `([^`]+)`")


def test_each_line_is_read_as_the_page_says(folder: FlowFolder) -> None:
    page = (ROOT / "docs/bad-records.md").read_text()
    found = _COLUMNS.search(page)
    table = _TABLE.search(page)
    assert found
    assert table
    rows = _ROW.findall(table[0])
    assert len(rows) > 10
    source = f'{{type: files, path: data, format: json, schema: "{found[1]}"'
    folder.flow(
        f"version: 1\nname: deviations\nsources:\n  strict: {source}}}\n  loose: {source}, parse: spark}}\n"
        "sinks:\n  a: {from: strict, type: files, path: a, format: json}\n  b: {from: loose, type: files, path: b, format: json}\n"
    )
    folder.data("data/lines.jsonl", [line for line, _, _ in rows])
    result = folder.run()
    assert result.state == "finished", result.problems
    for column, name in ((1, "a"), (2, "b")):
        assert [given(row) for row in folder.read(name)] == [json.loads(row[column].strip("`")) for row in rows if row[column] != "dead"]


def given(row: dict[str, Any]) -> dict[str, Any]:
    """The fields that are there."""
    return {name: value for name, value in row.items() if value is not None}
