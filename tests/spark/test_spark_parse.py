"""`parse: spark` is Spark's own reader with its deviations; what it cannot read at all is a dead letter here too."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.spark.test_stateless_steps import letters, ran

if TYPE_CHECKING:
    from tests.conftest import FlowFolder


def test_lines_are_read_by_sparks_parsers_and_none_is_silently_null(folder: FlowFolder) -> None:
    folder.flow("""
version: 1
name: lenient
sources:
  objects: {type: files, path: json, format: json, parse: spark, schema: "n BIGINT NOT NULL, word STRING"}
  cells: {type: files, path: csv, format: csv, parse: spark, header: false, schema: "n BIGINT, word STRING"}
steps:
  big: {from: cells, filter: n > 1}
sinks:
  a: {from: objects, type: files, path: out/a, format: json}
  b: {from: big, type: files, path: out/b, format: json}
""")
    folder.data("json/a.jsonl", ['{"n": 1, "word": "a"}', "", "{'n': 2, 'word': 3}", "{", '{"n": "x"}', '{"n": 4} {"n": 5}'])
    folder.data("csv/a.csv", ["1,a", "2,b", "x,c", "3,d"])
    result = ran(folder)

    assert folder.read("out/a") == [{"n": 1, "word": "a"}, {"n": 2, "word": "3"}, {"n": 4, "word": None}]
    assert folder.read("out/b") == [{"n": 2, "word": "b"}, {"n": 3, "word": "d"}]
    found = [(letter.step, letter.reason, letter.line, letter.payload) for letter in letters(folder, "lenient", "a")]
    assert found == [("objects", "malformed", 4, b"{"), ("objects", "malformed", 5, b'{"n": "x"}')]
    assert [(letter.step, letter.line) for letter in letters(folder, "lenient", "b")] == [("cells", 3)]
    counts = result.queries[0].nodes["objects"]
    assert (counts.rows_in, counts.out, counts.filtered, counts.dead) == (6, 3, 1, 2)
