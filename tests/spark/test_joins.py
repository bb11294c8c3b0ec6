"""Joins and intersections of streams, and of a stream with a table, against the same pairs found by plain loops."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

from tests.spark.test_stateful_steps import at, late
from tests.spark.test_stateless_steps import ran

if TYPE_CHECKING:
    from tests.conftest import FlowFolder

WITHIN = 5

# (id, key, minute) a file; each file is a Batch. What the first Batch saw rules what is late in the third: all before minute 30.
LEFT = [
    [(0, "a", 10), (1, "b", 11), (2, "a", 17), (3, "only_left", 40)],
    [(4, "c", 300), (5, None, 300), (9, "z", 28)],
    [(6, "a", 12), (7, "d", 301), (8, "e", 900)],
]
RIGHT = [
    [(10, "a", 13), (11, "b", 17), (12, "b", 16), (13, "only_right", 40)],
    [(14, "c", 304), (15, None, 300), (19, "z", 28)],
    [(16, "b", 12), (17, "d", 296), (18, "f", 900)],
]
OTHER = [
    [(20, "a", 12), (21, "c", 40)],
    [(22, "c", 303), (23, "d", 303)],
    [(24, "d", 302), (25, "a", 10), (27, "z", 27), (26, "g", 900)],
]
LATE = {6, 16, 25}
OPEN = {7, 8, 17, 18, 24, 26}
"""what may still wait for a partner when the run ends"""


def pairs(left: list[Any], right: list[Any]) -> set[tuple[int, int]]:
    return {(i, j) for i, key, m in left for j, other, n in right if key is not None and key == other and abs(m - n) <= WITHIN}


def on_time(files: list[list[tuple[int, str | None, int]]]) -> list[tuple[int, str | None, int]]:
    return [row for rows in files for row in rows if row[0] not in LATE]


def write(folder: FlowFolder, name: str, files: list[list[tuple[int, str | None, int]]], id_: str, time: str) -> None:
    for index, rows in enumerate(files):
        folder.data(f"{name}/{index}.jsonl", [{id_: row, "key": key, time: at(minute)} for row, key, minute in rows])


def test_streams_meet_within_their_span_and_lonely_rows_come_out_once_the_watermark_has_passed(folder: FlowFolder) -> None:
    source = "type: files, format: json, max_files: 1"
    folder.flow(f"""
version: 1
name: meetings
sources:
  a: {{path: a, {source}, schema: "l BIGINT, key STRING, ts TIMESTAMP", watermark: ts 10m}}
  b: {{path: b, {source}, schema: "r BIGINT, key STRING, at TIMESTAMP", watermark: at 10m}}
  c: {{path: c, {source}, schema: "o BIGINT, key STRING, ts TIMESTAMP", watermark: ts 10m}}
steps:
  named: {{from: b, select: {{r: r, key: key, ts: at}}}}
  pair: {{from: [a, named], merge: {{how: intersect, key: [key], time: ts, within: {WITHIN}m}}}}
  both: {{from: [pair, c], merge: {{how: intersect, key: [key], time: ts, within: {WITHIN}m}}}}
  left: {{from: [a, b], join: {{key: [key], how: left, time: {{a: ts, b: at}}, within: {WITHIN}m}}}}
  right: {{from: [a, b], join: {{key: [key], how: right, time: {{a: ts, b: at}}, within: {WITHIN}m}}}}
sinks:
  met: {{from: both, type: files, path: out/both, format: json}}
  lefts: {{from: left, type: files, path: out/left, format: json}}
  rights: {{from: right, type: files, path: out/right, format: json}}
""")
    write(folder, "a", LEFT, "l", "ts")
    write(folder, "b", RIGHT, "r", "at")
    write(folder, "c", OTHER, "o", "ts")
    result = ran(folder)

    left, right, other = on_time(LEFT), on_time(RIGHT), on_time(OTHER)
    found = pairs(left, right)
    assert found == {(0, 10), (2, 10), (1, 12), (2, 10), (4, 14), (9, 19), (7, 17)}
    matched = {i for pair in found for i in pair}
    for side, rows, index in (("left", left, 0), ("right", right, 1)):
        lonely = {(i, None)[:: 1 - 2 * index] for i, _, _ in rows if i not in matched | OPEN}
        read = Counter((row["l"], row["r"]) for row in folder.read(f"out/{side}"))
        assert read == dict.fromkeys(found | lonely, 1), side
        assert late(result, side) == 2
    thrice = {i for i, _ in found} & {i for i, _ in pairs(left, other)}
    assert 9 in thrice
    assert Counter(row["l"] for row in folder.read("out/both")) == dict.fromkeys(thrice, 1)
    # 27 stands behind the watermark, but not behind that of the second intersection, which waits for what the first may give
    assert late(result, "both") == 3
