"""Patterns mean what people write, in filters, selections, requirements and queries, in Spark and beside it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.spark.test_stateless_steps import letters, ran

if TYPE_CHECKING:
    from tests.conftest import FlowFolder

FLOW = r"""
version: 1
name: patterns
sources:
  rows: {type: files, path: data, format: json, schema: "v STRING"}
steps:
  single: {from: rows, filter: v RLIKE '^\d+$'}
  doubled: {from: rows, filter: v RLIKE '^\\d+$'}
  raw: {from: rows, filter: v RLIKE r'^\d+$'}
  parts: {from: rows, select: {v: v, n: "regexp_extract(v, '(\\d+)', 1)", s: "split(v, '\\.')[0]", r: "regexp_replace(v, '\\s+', '_')"}}
  like: {from: rows, filter: v LIKE '1\%%' OR v LIKE '%!_%' ESCAPE '!' OR v = 'C:\\data'}
  routed: {from: rows, route: {words: v RLIKE '\bcat\b', otherwise: rest}}
  queried: {from: routed.words, sql: "SELECT v FROM routed.words WHERE v RLIKE '^\\w+\\s'"}
  needed: {from: rows, filter: v <> 'ddd', require: {digits: v RLIKE '\d'}}
sinks:
  o_single: {from: single, type: files, path: out/single, format: json}
  o_doubled: {from: doubled, type: files, path: out/doubled, format: json}
  o_raw: {from: raw, type: files, path: out/raw, format: json}
  o_parts: {from: parts, type: files, path: out/parts, format: json}
  o_like: {from: like, type: files, path: out/like, format: json}
  o_queried: {from: queried, type: files, path: out/queried, format: json}
  o_needed: {from: needed, type: files, path: out/needed, format: json}
"""
VALUES = ("123", "ddd", "1.5", "a cat", "concat", "1%", "100", "a_b", "C:\\data")


def test_a_single_backslash_is_what_a_doubled_one_is(folder: FlowFolder) -> None:
    folder.flow(FLOW).data("data/a.jsonl", [{"v": value} for value in VALUES])
    ran(folder)

    def found(sink: str) -> list[str]:
        return [row["v"] for row in folder.read(f"out/{sink}")]

    assert found("single") == found("doubled") == found("raw") == ["123", "100"]
    assert found("like") == ["1%", "a_b", "C:\\data"]
    assert found("queried") == ["a cat"]
    assert found("needed") == ["123", "1.5", "1%", "100"]
    assert len(letters(folder, "patterns", "o_needed")) == 4
    parts = {row["v"]: (row["n"], row["s"], row["r"]) for row in folder.read("out/parts")}
    assert [parts[value] for value in ("1.5", "a cat", "ddd")] == [("1", "1", "1.5"), ("", "a cat", "a_cat"), ("", "ddd", "ddd")]
