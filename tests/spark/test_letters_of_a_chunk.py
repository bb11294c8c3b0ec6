"""Letters of many rows at once say of each what it would have said alone, in the order in which the rows died."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from scribengin.core.types import parse_schema
from scribengin.formats.blocks import LineBlock
from scribengin.formats.catalog import decoder_for
from scribengin.spark.chunk import BlockOrigin, Chunk
from scribengin.spark.dead_letter_writer import DeadLetterWriter, LetterRules
from scribengin.state.dead_letters import read_segment
from scribengin.state.folder import QueryFolder

if TYPE_CHECKING:
    from pathlib import Path

    from scribengin.state.contract import DeadLetter

SCHEMA = parse_schema("id BIGINT, at TIMESTAMP, x DOUBLE, text STRING")
ROWS = 700
"""more than wait at once"""


def lines(file: str, begin: int = 0) -> LineBlock:
    rows = [{"id": begin + n, "at": "2026-01-01T00:00:00Z", "x": None if n % 3 else 1.5, "text": "é" * (n % 7)} for n in range(ROWS)]
    rows[5]["text"] = "x" * 70_000
    return LineBlock(file, b"".join(json.dumps(row).encode() + b"\n" for row in rows), 0, 1)


def chunk(kind: str, block: LineBlock) -> Chunk:
    decoder, origin = decoder_for("json", SCHEMA, {}), BlockOrigin("rows", block, 0, "s")
    if kind == "arrow":
        columns = decoder.columns(block)
        return Chunk(origin, columns.ordinals, batch=columns.batch)
    found = decoder.structs(block)  # type: ignore[attr-defined]
    made = Chunk(origin, found.ordinals, structs=(found.form, found.structs))
    return made if kind == "structs" else Chunk(origin, found.ordinals, rows=made.rows)


@pytest.fixture
def letters(tmp_path: Path) -> DeadLetterWriter:
    return DeadLetterWriter(LetterRules(QueryFolder(tmp_path).dead, "q", {"careless": "drop"}), 0, "a")


def read(letters: DeadLetterWriter, folder: Path) -> list[DeadLetter]:
    segment = letters.close()
    assert segment is not None
    return list(read_segment(QueryFolder(folder), segment))


@pytest.mark.parametrize("kind", ["structs", "arrow", "dicts"])
def test_each_row_is_that_which_came_in_the_order_in_which_they_died(letters: DeadLetterWriter, tmp_path: Path, kind: str) -> None:
    died: list[tuple[str, int]] = []
    for file in ("a", "b"):
        rows = chunk(kind, lines(file, 1000 if file == "b" else 0))
        for index in range(0, ROWS, 2):
            letters.bury("step", rows, index, "raised", "no", came=SCHEMA)
            letters.bury("careless", rows, index, "raised", "no", came=SCHEMA)
            letters.bury("blind", rows, index + 1, "raised", "no")
            died += [(file, index), (file, index + 1)]
        if kind == "dicts":  # a step behind may do so
            for row in rows.rows:
                row["id"] = -1
    found = read(letters, tmp_path)
    assert [(letter.file, letter.line) for letter in found] == [(file, index + 1) for file, index in died]
    assert {letter.step for letter in found} == {"step", "blind"}
    assert not any(letter.came for letter in found if letter.step == "blind")
    for letter in found:
        if letter.step == "step":
            record = json.loads(letter.payload)
            assert json.loads(letter.came) == record | {"at": "2026-01-01T00:00:00.000000Z"}


def test_a_long_row_is_left_out_and_costs_the_others_nothing(letters: DeadLetterWriter, tmp_path: Path) -> None:
    for kind in ("structs", "arrow"):
        rows = chunk(kind, lines(kind))
        for index in range(4, 7):
            letters.bury("step", rows, index, "raised", "no", came=SCHEMA)
    assert [bool(letter.came) for letter in read(letters, tmp_path)] == [True, False, True] * 2


def test_of_rows_that_no_column_can_hold_the_others_are_kept(letters: DeadLetterWriter, tmp_path: Path) -> None:
    block = lines("a")
    rows = Chunk(BlockOrigin("rows", block, 0, "s"), range(3), rows=[{"id": 1}, {"id": object()}, {"id": 3}])
    for index in range(3):
        letters.bury("step", rows, index, "raised", "no", came=parse_schema("id BIGINT"))
    assert [letter.came for letter in read(letters, tmp_path)] == ['{"id":1}', "", '{"id":3}']


def test_where_a_line_begins_is_said_of_each(letters: DeadLetterWriter, tmp_path: Path) -> None:
    block = LineBlock("a", '{"id": 1}\r\n\n{"id": 2}\n{"id": "é"}'.encode(), 100)
    rows = Chunk(BlockOrigin("rows", block, 0, "s"), [0, 2, 3], rows=[{}, {}, {}])
    for index in (2, 0, 1):
        letters.bury("step", rows, index, "raised", "no")
    assert [letter.offset for letter in read(letters, tmp_path)] == [122, 100, 112]


def test_of_rows_together_of_which_one_does_not_fit_the_others_are_kept(letters: DeadLetterWriter, tmp_path: Path) -> None:
    rows, came = chunk("structs", lines("a")), parse_schema("id BIGINT, at TIMESTAMP, x DOUBLE NOT NULL, text STRING")
    for index in range(6, 10):
        letters.bury("step", rows, index, "raised", "no", came=came)
    assert [json.loads(letter.came or "{}").get("id") for letter in read(letters, tmp_path)] == [6, None, None, 9]
