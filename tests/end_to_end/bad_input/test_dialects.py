"""Flows over CSV and text of other programs: what is read, what stops before the first Batch, and what goes on when somebody agrees."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from scribengin.core.errors import SourceError
from scribengin.state.columns import ColumnsAcceptance

if TYPE_CHECKING:
    from tests.conftest import FlowFolder as Folder

READS = """\
version: 1
name: read
sources:
  places:
    {type: files, path: places, format: csv, delimiter: "\\t", quote: none, "null": ["\\\\N", ""], schema: "id INT, name STRING, n INT"}
  lines: {type: files, path: lines, format: text, encoding: utf-16, comment: "#"}
steps:
  parsed:
    from: lines
    parse: {column: value, format: csv, delimiter: "||", trim: true, quoted_null: typed, schema: "id INT, day DATE, t STRING"}
sinks:
  kept: {from: places, type: files, path: out/places, format: json, together: all}
  made: {from: parsed, type: files, path: out/made, format: json, together: all}
"""
STOPS = """\
version: 1
name: stop
sources:
  rows: {{type: files, path: data, format: csv, schema: "id INT, name STRING, amount INT"{more}}}
sinks:
  kept: {{from: rows, type: files, path: out, format: json}}
"""


def test_a_flow_reads_files_as_other_programs_write_them(folder: Folder) -> None:
    (folder.path / "lines").mkdir()
    (folder.path / "lines/a.log").write_bytes('# begun\r\n1 || "2026-01-01" || "a||b"\r\n2||""||"ä"\r\nx||""||y\r\n'.encode("utf-16"))
    (folder.path / "places").mkdir()
    (folder.path / "places/a.tsv").write_text('id\tname\tn\n1\t"North\t5\n2\tSouth"\t\\N\n3\t5" pipe\t\n')
    result = folder.flow(READS).run()
    assert result.state == "finished"
    assert folder.read("out/places") == [
        {"id": 1, "name": '"North', "n": 5},
        {"id": 2, "name": 'South"', "n": None},
        {"id": 3, "name": '5" pipe', "n": None},
    ]
    assert folder.read("out/made") == [{"id": 1, "day": "2026-01-01", "t": "a||b"}, {"id": 2, "day": None, "t": "ä"}]
    (query,) = result.queries
    assert query.rows.dead == 1
    assert result.balanced


def test_a_source_whose_first_file_has_other_columns_stops_before_the_first_batch(folder: Folder) -> None:
    (folder.path / "data").mkdir()
    (folder.path / "data/a.csv").write_text("id, name, amount\n1, Ada, 5\n")
    folder.flow(STOPS.format(more=""))
    with pytest.raises(SourceError, match="has 1 of the 3 columns") as told:
        folder.run()
    assert told.value.code == "source-columns"
    assert told.value.place is not None
    assert told.value.place.line == 4
    assert "trim: true" in told.value.remedy
    assert not (folder.path / "out").exists() or not folder.read("out")
    (query,) = folder.run(word=ColumnsAcceptance("2026-01-01T00:00:00Z")).queries
    assert [note for note in query.notes if 'has no column "name"' in note and "a.csv" in note], "the summary says it again"
    assert folder.read("out") == [{"id": 1, "name": None, "amount": None}]
    (folder.path / "data/b.csv").write_text("id, name, amount\n2, Bob, 6\n")
    assert folder.run().state == "finished"  # it has begun, and goes on
    assert [row["id"] for row in folder.read("out")] == [1, 2]


def test_what_is_told_is_what_reads_it(folder: Folder) -> None:
    (folder.path / "data").mkdir()
    (folder.path / "data/a.csv").write_text("id, name, amount\n1, Ada, 5\n")
    assert folder.flow(STOPS.format(more=", trim: true")).run().state == "finished"
    assert folder.read("out") == [{"id": 1, "name": "Ada", "amount": 5}]


def test_a_file_without_a_record_is_reported(folder: Folder) -> None:
    (folder.path / "data").mkdir()
    (folder.path / "data/a.csv").write_text("id,name 1,Ada 2,Bob")
    said: list[str] = []
    result = folder.flow(STOPS.format(more="").replace(", name STRING, amount INT", "")).run(lambda view: said.extend(view.notices))
    assert result.state == "finished"
    assert any("no record" in text and "a.csv" in text for text in said)
