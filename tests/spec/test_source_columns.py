"""`metadata` and `partition_columns` in a flow file: the columns that they add, and names and types that cannot be."""

from __future__ import annotations

from pathlib import Path

import pytest

from scribengin.connectors import catalog
from scribengin.plan.resolve import source_columns
from scribengin.plan.validate import validate_file
from scribengin.spec.dump import dump_flow
from scribengin.spec.parse import parse_flow

FILES = "type: files, path: data, format: json, schema: 'id INT'"
KAFKA = "type: kafka, bootstrap: 'localhost:9092', topics: [t], format: json, schema: 'id INT'"


def flow_text(source: str) -> str:
    return f"version: 1\nname: shop\nsources:\n  s: {{{source}}}\nsinks:\n  kept: {{from: s, type: console}}\n"


def columns(source: str) -> str:
    types = {"source_types": catalog.source_types(), "sink_types": catalog.sink_types()}
    parsed = parse_flow(flow_text(source), "flow.yaml", folder=Path(), environment={}, **types)
    assert [str(problem) for problem in parsed.problems] == []
    assert parsed.flow is not None
    again = parse_flow(dump_flow(parsed.flow, **types), "flow.yaml", folder=Path(), environment={}, **types)
    assert again.flow is not None
    assert again.flow.sources == parsed.flow.sources
    found = source_columns(parsed.flow.sources["s"])
    return "?" if found is None else ", ".join(map(str, found))


@pytest.mark.parametrize(
    ("source", "found"),
    [
        (FILES, "id INT"),
        (f"{FILES}, metadata: [file, line]", "id INT, file STRING, line BIGINT"),
        (f"{FILES}, metadata: file", "id INT, file STRING"),
        (f"{FILES}, metadata: {{src: file_name, at: file_time}}", "id INT, src STRING, at TIMESTAMP"),
        ("type: files, path: d, format: json, schema: 'nr INT, id INT', metadata: {nr: line}", "nr INT, id INT"),
        ("type: files, path: d, format: text, metadata: [offset]", "value STRING, offset BIGINT"),
        ("type: files, path: d, format: parquet, metadata: [row]", "?"),
        (f"{FILES}, partition_columns: {{day: DATE, hour: INT}}", "id INT, day DATE, hour INT"),
        (f"{FILES}, partition_columns: [country]", "id INT, country STRING"),
        ("type: files, path: d, format: csv, schema: 'day DATE, id INT', partition_columns: [day]", "day DATE, id INT"),
        (
            "type: objects, url: 's3://b/p', format: json, schema: id INT, metadata: [file], partition_columns: [c]",
            "id INT, c STRING, file STRING",
        ),
        ("type: hdfs, url: 'hdfs://n:1/p', format: json, schema: id INT, metadata: [file]", "id INT, file STRING"),
        (
            f"{KAFKA}, metadata: [topic, partition, offset, timestamp, key, headers]",
            "id INT, topic STRING, partition INT, offset BIGINT, timestamp TIMESTAMP, key STRING, headers MAP<STRING, BINARY>",
        ),
        (f"{KAFKA}, metadata: {{k: key}}", "id INT, k STRING"),
    ],
)
def test_options_add_columns(source: str, found: str) -> None:
    assert columns(source) == found


@pytest.mark.parametrize(
    ("source", "code", "says"),
    [
        (f"{FILES}, metadata: [topic]", "bad-choice", "file, file_name, file_size, file_time, line, offset, row"),
        (f"{FILES}, metadata: [lines]", "bad-choice", 'did you mean "line"?'),
        (f"{FILES}, metadata: {{src: fil}}", "bad-choice", 'did you mean "file"?'),
        (f"{KAFKA}, metadata: [file]", "bad-choice", "key, timestamp, topic, partition, offset, headers"),
        ("type: files, path: d, format: json, schema: 'id INT, file STRING', metadata: [file]", "twice", "{file_of_record: file}"),
        ("type: files, path: d, format: json, schema: 'id INT, FILE STRING', metadata: [file]", "twice", "{file_of_record: file}"),
        (f"{FILES}, metadata: [line], partition_columns: {{line: INT}}", "twice", "another name"),
        ("type: files, path: d, format: json, schema: 'id INT, n STRING', metadata: {n: line}", "bad-value", "BIGINT or INT"),
        ("type: files, path: d, format: json, schema: 'id INT, day STRING', partition_columns: {day: DATE}", "bad-value", "one type"),
        (f"{FILES}, partition_columns: {{day: DAT}}", "schema-syntax", 'did you mean "DATE"?'),
        (f"{FILES}, partition_columns: {{day: ARRAY<INT>}}", "bad-value", "single value"),
        (f"{FILES}, metadata: [row]", "option-not-of-format", "line"),
        ("type: files, path: d, format: parquet, metadata: [line]", "option-not-of-format", "row"),
        (f"{FILES}, json: {{shape: list}}", "bad-choice", "lines"),
        (f"{FILES}, json: {{records: Records}}", "bad-value", "$.Records[*]"),
        (f"{FILES}, json: {{records: '$.r[*]', shape: array}}", "bad-value", "take `shape` out"),
        (f"{FILES}, json: {{shape: array}}, growing: true", "bad-value", "take `growing` out"),
        (f"{FILES}, json: {{shape: array}}, parse: spark", "bad-value", "take `parse` out"),
        (f"{FILES}, json: {{text: [id]}}", "bad-value", "id STRING"),
        (f"{FILES}, json: {{text: [other]}}", "bad-value", "other STRING"),
        (f"{FILES}, multiline: {{start: x}}", "option-not-of-format", "text"),
        ("type: files, path: d, format: text, multiline: {start: '('}", "bad-value", "regular expression"),
        ("type: files, path: d, format: text, multiline: {}", "missing-key", "start"),
        (f"{FILES}, parse: spark, metadata: [file]", "option-not-of-format", "parse: spark"),
    ],
)
def test_mistakes_are_told_at_their_line(tmp_path: Path, source: str, code: str, says: str) -> None:
    (tmp_path / "flow.yaml").write_text(flow_text(source))
    _, problems = validate_file(tmp_path / "flow.yaml", {})
    assert [problem.code for problem in problems] == [code]
    assert problems[0].place.line == 4
    assert says in f"{problems[0].message} {problems[0].remedy}"
