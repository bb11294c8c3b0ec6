"""What a plan says of rows that Spark leaves out by its own rules, and of which steps it says nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from scribengin.plan.queries import build_plan
from scribengin.plan.validate import validate_file

if TYPE_CHECKING:
    from pathlib import Path

SOURCES = {
    "a": 'format: json, watermark: ts 10m, schema: "id BIGINT NOT NULL, k STRING, tags ARRAY<STRING>, ts TIMESTAMP"',
    "c": 'format: json, watermark: at 10m, schema: "cid BIGINT, k STRING, at TIMESTAMP"',
    "e": 'format: json, watermark: at 10m, schema: "id BIGINT NOT NULL, at TIMESTAMP"',
    "n": 'format: json, static: true, schema: "nid BIGINT, k STRING"',
    "m": 'format: json, static: true, schema: "id BIGINT NOT NULL, text STRING"',
    "p": 'format: json, static: true, schema: "id BIGINT NOT NULL, k STRING"',
}
FLOW = """
version: 1
name: losses
sources: SOURCES
steps:
  s: STEP
sinks:
  kept: {from: s, type: files, path: out/kept, format: json}
"""
WITHIN = "time: {a: ts, c: at}, within: 5m"


def notes(tmp_path: Path, step: str) -> list[str]:
    read = step[step.index("from: ") :].split(": ")[1].partition("]")[0].strip("[").split(",")
    named = [name for name in SOURCES if name in " ".join(read).split()]
    sources = "{" + ", ".join(f"{name}: {{type: files, path: in/{name}, {SOURCES[name]}}}" for name in named) + "}"
    (tmp_path / "flow.yaml").write_text(FLOW.replace("SOURCES", sources).replace("STEP", step))
    flow, problems = validate_file(tmp_path / "flow.yaml", {})
    assert flow is not None
    assert not [str(problem) for problem in problems if problem.severity == "error"]
    return [hint for hint in build_plan(flow).hints if hint.startswith('"s": ')]


@pytest.mark.parametrize(
    ("step", "told"),
    [
        ("{from: a, select: {id: id, tag: explode(tags)}}", ["explode(tags) drops a row", "tags is null or empty", "explode_outer(tags)"]),
        ("{from: a, select: {id: id, tag: 'inline(transform(tags, x -> struct(x)))'}}", ["inline(", "inline_outer("]),
        (
            '{from: a, sql: "SELECT id, posexplode(tags) AS (p, t) FROM a"}',
            ["posexplode_outer(tags) keeps it", "sets such rows off against"],
        ),
        ('{from: a, sql: "SELECT id, t FROM a LATERAL VIEW explode(tags) x AS t"}', ["LATERAL VIEW explode(tags)", "LATERAL VIEW OUTER"]),
        ('{from: a, sql: "SELECT id, t FROM a LATERAL VIEW explode(arrays_zip(tags, tags)) x AS t"}', ["ARRAYS_ZIP(tags, tags) is null"]),
        ("{from: [a, n], join: {key: [k]}}", ["rows of a with null in k match no row", "how: left keeps them"]),
        ("{from: [a, p], join: {key: [id, k], how: semi}}", ["rows of a with null in k match no row"]),
        (f"{{from: [a, c], join: {{key: [k], how: right, {WITHIN}}}}}", ["rows of a with null in k", "how: full keeps them"]),
        ("{from: a, dedupe: {key: [k], time: ts, within: 1h}}", ["null counts as a value in k", "the ledger counts the others as folded"]),
        ("{from: a, dedupe: {key: [id, k]}}", ["null counts as a value in k", "equal in the rest of the key"]),
        ('{from: [a, n], sql: "SELECT a.id, n.nid FROM a JOIN n ON a.k = n.k"}', ["JOIN drops rows", "a.k and n.k"]),
        ('{from: [a, n], sql: "SELECT a.id, n.nid FROM a JOIN n USING (k)"}', ["rows with a null in k"]),
        ('{from: [a, e], sql: "SELECT id FROM a INTERSECT SELECT id FROM e"}', ["INTERSECT outputs equal rows once"]),
        ('{from: [a, e], sql: "SELECT id FROM a EXCEPT SELECT id FROM e"}', ["EXCEPT outputs equal rows once"]),
    ],
)
def test_rows_that_may_go_are_told_with_what_keeps_them(tmp_path: Path, step: str, told: list[str]) -> None:
    (note,) = notes(tmp_path, step)
    assert [text for text in told if text not in note] == []


def test_of_two_streams_each_is_told(tmp_path: Path) -> None:
    both = notes(tmp_path, f"{{from: [a, c], join: {{key: [k], {WITHIN}}}}}")
    assert [note.split(" with ")[0] for note in both] == ['"s": rows of a', '"s": rows of c']
    (right,) = notes(tmp_path, f"{{from: [a, c], join: {{key: [k], how: left, {WITHIN}}}}}")
    assert right.startswith('"s": rows of c')


@pytest.mark.parametrize(
    "step",
    [
        "{from: a, select: {id: id, tag: explode_outer(tags)}}",
        "{from: a, select: {id: id, tag: 'explode(array(1, 2))'}}",
        '{from: a, sql: "SELECT id, t FROM a LATERAL VIEW OUTER explode(tags) x AS t"}',
        '{from: a, sql: "SELECT id, t FROM a LATERAL VIEW explode_outer(tags) x AS t"}',
        "{from: [a, m], join: {key: [id]}}",
        "{from: [a, n], join: {key: [k], how: left}}",
        f"{{from: [a, e], join: {{key: [id], {WITHIN.replace('c: at', 'e: at')}}}}}",
        "{from: a, dedupe: {key: [id]}}",
        '{from: [a, n], sql: "SELECT a.id, n.nid FROM a LEFT JOIN n ON a.k = n.k"}',
        "{from: a, filter: k = 'x'}",
    ],
)
def test_where_none_goes_nothing_is_told(tmp_path: Path, step: str) -> None:
    assert notes(tmp_path, step) == []
