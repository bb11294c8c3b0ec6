"""Messages, each with coordinates of its own: values as lines are decoded, columns from elsewhere, places of the dead."""

from __future__ import annotations

import datetime as dt
from typing import Any

import pytest

from scribengin.core.types import parse_schema
from scribengin.formats.json import JsonDecoder
from scribengin.formats.messages import MessageBlock, MessageDecoder

AT = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)
AT_MS = int(AT.timestamp() * 1000)


def block(*values: bytes | None, **more: Any) -> MessageBlock:
    return MessageBlock("tweets", 3, values, range(100, 100 + len(values)), **more)


def decoder(schema: str, format: str = "json", **parts: str) -> MessageDecoder:
    return MessageDecoder(format, parse_schema(schema), {"delimiter": ",", "null": ""}, parts)


def test_a_value_may_hold_line_feeds_where_json_may() -> None:
    made = decoder("id BIGINT, s STRING")
    found = made.rows(block(b'{"id": 1,\n "s": "a"}\n', b'{"id": 2, "s": "a\nb"}', b"", None, b'{"id": 3}'))
    assert found.rows == [{"id": 1, "s": "a"}, {"id": 3, "s": None}]
    assert (list(found.ordinals), found.skipped) == ([0, 4], 2)
    (bad,) = found.bad
    assert (bad.ordinal, bad.reason) == (1, "malformed")


@pytest.mark.parametrize("values", [[b'{"id": 1}'] * 5, [b'{"id": 1}', b"x", b'{"id": "1"}', b'{"id": 4}\n']])
def test_json_values_are_what_json_lines_are(values: list[bytes]) -> None:
    schema = parse_schema("id BIGINT, s STRING")
    lines = JsonDecoder(schema)
    made = decoder("id BIGINT, s STRING")
    alone = [lines.decode_values([value]) for value in values]
    assert made.rows(block(*values)).rows == [row for found in alone for row in found.rows]
    assert made.columns(block(*values)).batch.to_pylist() == [row for found in alone for row in found.rows]
    assert [each.reason for each in made.rows(block(*values)).bad] == [each.reason for found in alone for each in found.bad]
    assert made.structs is not None
    assert list(made.structs(block(*values)).ordinals) == [ordinal for ordinal, found in enumerate(alone) if found.rows]


def test_columns_come_from_key_time_and_coordinates_and_what_they_lack_is_dead() -> None:
    schema = "id BIGINT, k STRING NOT NULL, raw BINARY, at TIMESTAMP, t STRING, p INT, o BIGINT, h MAP<STRING, BINARY>"
    made = decoder(schema, k="key", raw="key", at="timestamp", t="topic", p="partition", o="offset", h="headers")
    arrived = block(
        b'{"id": 0}',
        b'{"id": 1}',
        b'{"id": "x"}',
        b'{"id": 3}',
        b'{"id": 4, "k": "of the value"}',
        keys=[b"a", None, b"c", b"\xff", b"e"],
        timestamps_ms=[AT_MS, AT_MS, AT_MS, AT_MS, None],
        headers=[[("x", b"1"), ("x", b"2")], [], [], [], [("y", None)]],
    )
    rows, columns = made.rows(arrived), made.columns(arrived)
    same = {"t": "tweets", "p": 3}
    assert rows.rows == [
        {"id": 0, "k": "a", "raw": b"a", "at": AT, **same, "o": 100, "h": {"x": b"2"}},
        {"id": 4, "k": "e", "raw": b"e", "at": None, **same, "o": 104, "h": {"y": None}},
    ]
    assert columns.batch.drop_columns(["h"]).to_pylist() == [{k: v for k, v in row.items() if k != "h"} for row in rows.rows]
    assert columns.batch.column("h").to_pylist() == [[("x", b"2")], [("y", None)]]
    told = [(each.ordinal, each.reason) for each in rows.bad]
    assert told == [(1, "missing"), (2, "wrong-type"), (3, "invalid-utf8")] == [(each.ordinal, each.reason) for each in columns.bad]
    assert list(rows.ordinals) == list(columns.ordinals) == [0, 4]
    assert made.structs is None


def test_a_column_keeps_a_value_of_any_kind_as_its_json_text() -> None:
    made = MessageDecoder("json", parse_schema("id BIGINT, any STRING"), {"json": {"text": ["any"]}}, {"id": "offset"})
    values = (b'{"any": {"n": 1.50}}', b'{"any": "plain"}', b'{"any": 12345678901234567890}', b'{"any": null}')
    texts = ['{"n": 1.50}', "plain", "12345678901234567890", None]
    assert [row["any"] for row in made.rows(block(*values)).rows] == texts
    assert made.columns(block(*values)).batch.column("any").to_pylist() == texts


def test_other_formats_take_each_value_by_itself() -> None:
    csv = decoder("a BIGINT, b STRING", "csv").rows(block(b"1,x", None, b"2,", b"3", b'4,"p\nq"\n'))
    assert (csv.rows, list(csv.ordinals), csv.skipped) == ([{"a": 1, "b": "x"}, {"a": 2, "b": None}, {"a": 4, "b": "p\nq"}], [0, 2, 4], 1)
    assert [(each.ordinal, each.reason) for each in csv.bad] == [(3, "ragged")]
    text = decoder("line STRING", "text").columns(block(b"a\nb", None, b"\xff", b""))
    assert (text.batch.to_pylist(), list(text.ordinals)) == ([{"line": "a\nb"}, {"line": ""}], [0, 3])
    assert [(each.ordinal, each.reason) for each in text.bad] == [(2, "invalid-utf8")]
    binary = decoder("v BINARY", "binary").rows(block(b"\xff", None, b""))
    assert (binary.rows, list(binary.ordinals), binary.skipped) == ([{"v": b"\xff"}, {"v": b""}], [0, 2], 1)


def test_a_dead_message_is_told_with_its_offset_and_its_own_bytes() -> None:
    arrived = block(b"{}", b"{\n")
    assert (arrived.place(1).file, arrived.place(1).row, arrived.payload(1)) == ("tweets-3", 101, b"{\n")


@pytest.mark.parametrize(
    ("schema", "parts", "told"),
    [
        ("id BIGINT", {"k": "key"}, 'the column "k", which the schema does not have'),
        ("k BIGINT", {"k": "key"}, "key must be STRING or BINARY"),
        ("h MAP<STRING, STRING>", {"h": "headers"}, "MAP<STRING, BINARY>"),
    ],
)
def test_columns_that_cannot_be_taken_are_told(schema: str, parts: dict[str, str], told: str) -> None:
    with pytest.raises(ValueError, match=told):
        MessageDecoder("json", parse_schema(schema), {}, parts)


def test_binary_has_one_column() -> None:
    with pytest.raises(ValueError, match="binary needs exactly one column"):
        decoder("a BINARY, b BIGINT", "binary")
