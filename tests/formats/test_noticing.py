"""What data have that their schema has not is noticed, and `lenient` makes null of what does not fit, and of nothing else."""

from __future__ import annotations

import json
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from scribengin.core.types import arrow_schema, parse_schema
from scribengin.formats.avro_container import AvroBlock
from scribengin.formats.avro_schema import LAST_SECOND, parse_writer
from scribengin.formats.blocks import ArrowBlock, LineBlock
from scribengin.formats.catalog import decoder_for
from scribengin.formats.column_notices import MOST, Noticer, UnfilledColumns
from scribengin.formats.csv_records import CsvBlock
from scribengin.formats.lenient import LearnedAvro, LenientDecoder
from scribengin.formats.notice import FormatNotice
from scribengin.formats.parquet import conformed
from scribengin.formats.type_inference import ObservedValues
from scribengin.spark.counting import gather_notices
from scribengin.spark.task_report import TaskReport

SCHEMA = parse_schema("id BIGINT NOT NULL, amount DOUBLE, at TIMESTAMP, exact DECIMAL(20,2)")


def json_block(*rows: dict[str, Any] | str) -> LineBlock:
    return LineBlock("a.jsonl", "".join((row if isinstance(row, str) else json.dumps(row)) + "\n" for row in rows).encode(), 0, 1)


def noticed(block: Any, format: str) -> list[tuple[Any, ...]]:
    noticer = Noticer("orders", SCHEMA, format)
    noticer.inspect(block)
    return [(each.column, each.kind, each.type, each.line) for each in noticer.found.values()]


def test_new_fields_of_the_records_that_are_looked_at_are_noticed_with_their_type() -> None:
    row = {"id": 1, "amount": 1.5, "at": None, "exact": 1, "more": {"x": [1.5]}, "empty": None}
    assert noticed(json_block(row), "json") == [("more", "new", "STRUCT<x: ARRAY<DOUBLE>>", 1)]
    assert noticed(json_block({"id": 1}, {"id": 2}, {"id": 3, "late": "2026-01-01"}), "json") == [("late", "new", "STRING", None)]
    assert noticed(json_block("no json", "[1]"), "json") == []


@pytest.mark.parametrize(
    ("value", "type_"),
    [
        (5, "DOUBLE"),
        (2**53 + 1, "BIGINT"),
        (2**70, "DOUBLE"),
        (True, "BOOLEAN"),
        ("2026-01-01T00:00:00Z", "STRING"),
        ([1, None, 2**60], "ARRAY<DOUBLE>"),
        ({"a": 1, "b": None, "A": "x"}, "STRUCT<A: STRING>"),
        ([{"a": 1}, {"b": "x"}], "ARRAY<STRUCT<a: DOUBLE, b: STRING>>"),
        ({"": 1}, "MAP<STRING, DOUBLE>"),
        ({f"k{index}": "x" for index in range(1000)}, "MAP<STRING, STRING>"),
    ],
)
def test_the_type_of_a_new_column_takes_what_is_likely_to_come(value: Any, type_: str) -> None:
    assert noticed(json_block({"id": 1, "more": value}), "json") == [("more", "new", type_, 1)]


def test_fields_of_objects_that_their_type_has_not_are_noticed_with_the_way_to_them() -> None:
    schema = parse_schema("id BIGINT, u STRUCT<a: BIGINT, in: STRUCT<x: BIGINT>>, l ARRAY<STRUCT<a: BIGINT>>, m MAP<STRING, BIGINT>")
    noticer = Noticer("orders", schema, "json")
    rows = [
        {"id": 1, "u": {"a": 1, "b": 2, "in": {"y": "t", "x": 1}}, "l": [{"a": 1, "c": True}], "m": {"any": 1}},
        {"id": 2, "u": {"b": "other", "n": None}, "l": [1], "m": 5},
        {"id": 3, "u": 7, "l": []},
    ]
    for row in rows:
        noticer.inspect(json_block(row))
    found = [(each.column, each.kind, each.type, each.line) for each in noticer.found.values()]
    assert found == [("u.b", "field", "DOUBLE", 1), ("u.in.y", "field", "STRING", 1), ("l.c", "field", "BOOLEAN", 1)]


def test_fields_are_noticed_in_maps_and_in_the_last_item_of_a_list_and_hide_no_column_of_the_same_name() -> None:
    schema = parse_schema("m MAP<STRING, STRUCT<a: BIGINT>>, l ARRAY<STRUCT<a: BIGINT>>, d MAP<STRING, ARRAY<MAP<STRING, STRUCT<a: INT>>>>")
    row = {"m": {"k": {"a": 1, "b": 1}}, "l": [{"a": 1}, {"never": 1}, {"c": "x"}], "d": {"k": [{"j": {"e": True}}]}}
    fields = [("m.{}.b", "field", "DOUBLE"), ("l.c", "field", "STRING"), ("d.{}.{}.e", "field", "BOOLEAN")]
    for given, expected in (
        (row, fields),
        (row | {"l.c": 1}, [("l.c", "new", "DOUBLE"), *fields]),
        ({"m": [{"f": 1}], "l": {"f": 1}, "d": {"k": 7}}, []),
        ({"m": {}, "l": [], "d": {"k": []}}, []),
    ):
        noticer = Noticer("orders", schema, "json")
        noticer.inspect(json_block(given))
        assert [(each.column, each.kind, each.type) for each in noticer.found.values()] == expected

    noticer = Noticer("orders", schema, "json")
    noticer.inspect(json_block({"l": [{"c": 1}]}, {"l.c": "x"}, *[{"l": []}] * 3))
    assert list(noticer.found) == [("l.c", "field"), ("l.c", "new")], "also where the column comes later"


@pytest.mark.parametrize("value", [[], {}, {"a": None}, [1, "x"], [[]]])
def test_a_value_that_does_not_say_its_type_waits_for_one_that_does(value: Any) -> None:
    assert noticed(json_block({"id": 1, "more": value}), "json") == []


@pytest.mark.parametrize("text", ["[" * 300 + "]" * 300, '{"a":' * 300 + "1" + "}" * 300, "[" * 5000])
def test_no_depth_of_a_new_field_stops_anything(text: str) -> None:
    assert noticed(json_block('{"id": 1, "more": ' + text + "}"), "json") == []
    seen = ObservedValues()
    seen.add(json.loads(text if len(text) < 5000 else "1"))
    assert len(str(seen.type("more", []))) < 1000


def test_files_that_say_their_columns_tell_of_new_and_of_missing_ones() -> None:
    block = CsvBlock("a.csv", b"1,x\n", 0, 2, header=("id", "extra"))
    missing = [("amount", "missing", "DOUBLE", 2), ("at", "missing", "TIMESTAMP", 2), ("exact", "missing", "DECIMAL(20,2)", 2)]
    assert [each[:3] for each in noticed(block, "csv")] == [("extra", "new", "STRING"), *(each[:3] for each in missing)]
    batch = pa.record_batch({"id": [1]})
    found = noticed(ArrowBlock("a.parquet", batch, 0, (("id", "BIGINT"), ("b", "DATE"))), "parquet")
    assert found[0] == ("b", "new", "DATE", None)
    assert [each[0] for each in found[1:]] == ["amount", "at", "exact"]


def test_names_that_never_end_do_not_fill_the_ledger() -> None:
    noticer = Noticer("orders", SCHEMA, "json")
    noticer.inspect(json_block({f"key{index}": 1 for index in range(3000)}))
    assert len(noticer.found) == MOST
    known: set[tuple[str, str, str]] = set()
    for batch in range(5):
        reports = [TaskReport(noticed=[FormatNotice("s", f"key{batch}-{index}", "new", "STRING", "f") for index in range(40)])]
        known.update(each.key for each in gather_notices(reports, known))
    assert len(known) == MOST
    counted = FormatNotice("s", "amount", "nulled", "DOUBLE", "f", records=2)
    assert [each.records for each in gather_notices([TaskReport(noticed=[counted])] * 2, {("s", "amount", "nulled")})] == [4]


def test_columns_that_many_files_lack_hide_none_that_is_new() -> None:
    noticer = Noticer("orders", parse_schema(", ".join(f"c{index} BIGINT" for index in range(2 * MOST))), "csv")
    noticer.inspect(CsvBlock("a.csv", b"1\n", 0, 2, header=("c0",)))
    noticer.inspect(CsvBlock("b.csv", b"1,2\n", 0, 2, header=("c0", "extra")))
    assert ("extra", "new") in noticer.found
    assert len(noticer.found) == MOST + 1


def test_of_large_records_few_are_looked_at() -> None:
    noticer = Noticer("orders", SCHEMA, "json")
    for index in range(8):
        noticer.inspect(json_block({"id": index, f"key{index}": "x" * 1000}, *({"id": 1, "more": "x" * 1000} for _ in range(9))))
    assert [column for column, _ in noticer.found] == ["key0", "more"]


def test_a_learned_column_makes_no_dead_letter_of_a_record_that_was_good_without_it() -> None:
    schema = parse_schema("id BIGINT, amount DOUBLE, more DOUBLE")
    lenient = LenientDecoder(decoder_for("json", schema, {}), Noticer("s", schema, "json"), {"format": "json"}, only=("more",))
    found = lenient.rows(json_block({"id": 1, "more": "x"}, {"id": 2, "amount": "x", "more": 1}, {"id": 3, "amount": "x", "more": "x"}))
    assert found.rows == [{"id": 1, "amount": None, "more": None}]
    assert [each.ordinal for each in found.bad] == [1, 2]


def test_a_learned_double_rounds_no_whole_number_that_comes_later() -> None:
    """Which is null and counted, as any other value that does not fit a learned column."""
    schema = parse_schema("id BIGINT, more DOUBLE")
    noticer = Noticer("s", schema, "json")
    lenient = LenientDecoder(decoder_for("json", schema, {}), noticer, {"format": "json"}, only=("more",))
    found = lenient.rows(json_block({"id": 1, "more": 2**53 + 1}, {"id": 2, "more": 7}))
    assert (found.rows, found.bad) == ([{"id": 1, "more": None}, {"id": 2, "more": 7.0}], [])
    assert noticer.found["more", "nulled"].records == 1


@pytest.mark.parametrize(
    ("type_", "given", "found"),
    [
        ("INT", pa.array([1, None, 3, 2**40]), [1, None, 3, None]),
        ("BIGINT", pa.array([1, 2**63], pa.uint64()), [1, None]),
        ("DECIMAL(5,1)", pa.array([Decimal("1.50"), Decimal("1.55"), Decimal("1111111.50")]), [Decimal("1.5"), None, None]),
        ("ARRAY<INT>", pa.array([[1, 2], [2**40], None, [], [4]]), [[1, 2], None, None, [], [4]]),
        ("STRUCT<a: INT>", pa.array([{"a": 2**40}, {"a": 2}]), [None, {"a": 2}]),
        ("INT", pa.array([7, 2**40, 7, None]).dictionary_encode(), [7, None, 7, None]),
        ("INT", pa.array(["x", None, "y"]), [None, None, None]),
    ],
)
def test_of_a_learned_column_of_a_typed_file_only_the_values_that_do_not_fit_are_null(type_: str, given: Any, found: list[Any]) -> None:
    schema = parse_schema(f"more {type_}")
    block = conformed("f", pa.record_batch({"more": given}), schema, learned=["more"])
    batch, unfit = block.batch, block.unfit
    assert not block.bad
    assert batch.column(0).to_pylist() == found
    assert batch.column(0).type == arrow_schema(schema).field(0).type
    assert unfit == {"more": found.count(None) - given.to_pylist().count(None)}


LINES = [
    '{"id": 1, "amount": 1.5, "at": "2026-01-01T00:00:00Z", "exact": 12345678901234567.25}',
    '{"id": 2, "amount": "x", "at": "2026-01-01T00:00:00Z", "exact": 12345678901234567.25}',
    '{"id": "3", "amount": 1}',
    "not json",
    "",
    '{"amount": 1}',
    '{"id": 4, "amount": "x", "at": 7, "exact": 1.255}',
    '{"id": 5}',
    "[1]",
    "7",
    '{"id": 1, "amount": "x"} x',
    '{"id": 1, "amount": "x"}{"id": 2}',
]


@pytest.mark.parametrize("form", ["rows", "columns", "structs"])
def test_lenient_keeps_every_other_value_of_a_record_exactly(form: str) -> None:
    schema = parse_schema(str(SCHEMA).replace(", exact DECIMAL(20,2)", "")) if form == "structs" else SCHEMA
    strict = decoder_for("json", schema, {})
    noticer = Noticer("orders", schema, "json")
    lenient = LenientDecoder(strict, noticer, {"format": "json"})
    block = LineBlock("a.jsonl", "\n".join(LINES).encode() + b"\n", 0, 1)
    if form == "columns":
        columns = lenient.columns(block)
        rows, ordinals, bad = columns.batch.to_pylist(), list(columns.ordinals), columns.bad
    else:
        found = lenient.rows(block) if form == "rows" else lenient.structs(block)  # type: ignore[misc]
        rows, ordinals, bad = found.rows, list(found.ordinals), found.bad
    assert ordinals == [0, 1, 6, 7]
    assert [each.ordinal for each in bad] == [2, 3, 5, 8, 9, 10, 11]
    good = strict.rows(LineBlock("a.jsonl", LINES[0].encode(), 0, 1)).rows[0]
    assert rows[0] == good
    assert rows[1] == good | {"id": 2, "amount": None}
    assert rows[2] == dict.fromkeys(schema.names) | {"id": 4}
    counts = {column: notice.records for (column, kind), notice in noticer.found.items() if kind == "nulled"}
    assert counts == {"amount": 2, "at": 1} | ({} if form == "structs" else {"exact": 1})


def test_lenient_csv_makes_null_of_a_cell_and_leaves_ragged_records_dead() -> None:
    schema = parse_schema("id BIGINT NOT NULL, amount DOUBLE")
    lenient = LenientDecoder(decoder_for("csv", schema, {}), Noticer("s", schema, "csv"), {"format": "csv"})
    found = lenient.rows(CsvBlock("a.csv", b'1,2\n2,"o,ops"\nbad,1\n3\n', 0, 2, header=("id", "amount")))
    assert found.rows == [{"id": 1, "amount": 2.0}, {"id": 2, "amount": None}]
    assert [(each.ordinal, each.reason) for each in found.bad] == [(2, "wrong-type"), (3, "ragged")]


def test_a_block_without_mistakes_is_given_as_strict_gives_it() -> None:
    schema = parse_schema("id BIGINT, amount DOUBLE")
    strict = decoder_for("json", schema, {})
    lenient = LenientDecoder(strict, Noticer("s", schema, "json"), {"format": "json"})
    assert lenient.structs is not None
    assert type(lenient.structs(json_block({"id": 1}))).__name__ == "Structs"


def test_lenient_json_makes_null_of_what_lenient_csv_does() -> None:
    schema = parse_schema("id BIGINT NOT NULL, d DATE, t TIMESTAMP, b BINARY, n BIGINT, l ARRAY<STRUCT<x: BIGINT NOT NULL>>")
    lenient = LenientDecoder(decoder_for("json", schema, {}), Noticer("s", schema, "json"), {"format": "json"})
    rows = [{"d": "x"}, {"t": "x"}, {"b": "!"}, {"n": "x"}, {"n": 2**70}, {"l": [{"x": None}]}, {"l": [{}]}, {"l": 1}]
    found = lenient.rows(json_block(*({"id": 1} | row for row in rows), {"n": 1}))
    assert found.rows == [dict.fromkeys(schema.names) | {"id": 1}] * len(rows)
    assert [each.ordinal for each in found.bad] == [len(rows)]


def test_a_learned_column_of_avro_keeps_what_fits_whatever_a_neighbour_holds() -> None:
    fields = [
        {"name": "id", "type": ["null", "long"]},
        {"name": "n", "type": ["null", "long", "string"]},
        {"name": "at", "type": ["null", {"type": "long", "logicalType": "timestamp-micros"}]},
    ]
    writer = parse_writer(json.dumps({"type": "record", "name": "r", "fields": fields}))
    far = (LAST_SECOND + 1) * 10**6 - 1  # the last microsecond of the year 9999
    records = [{"id": 1, "n": "x", "at": far}, {"id": None, "n": 2, "at": 0}, {"id": 3, "n": 3, "at": None}]
    block = AvroBlock("a.avro", writer, records, 0, lambda: 0, {})
    schema = parse_schema("id BIGINT NOT NULL, n BIGINT, at TIMESTAMP")
    noticer = Noticer("s", schema, "avro")
    found = LearnedAvro(schema, noticer, ["n", "at"]).columns(block)
    assert list(found.ordinals) == [0, 2]
    assert found.batch.column("n").to_pylist() == [None, 3]
    assert found.batch.column("at").cast(pa.int64()).to_pylist() == [far, None]
    assert [bad.ordinal for bad in found.bad] == [1]
    assert {key: notice.records for key, notice in noticer.found.items()} == {("n", "nulled"): 1}


def read(noticer: Noticer, *blocks: LineBlock, form: str = "rows") -> list[tuple[Any, ...]]:
    decoder = decoder_for("json", SCHEMA, {})
    for block in blocks:
        noticer.inspect(block)
        noticer.decoded(getattr(decoder, form)(block))
    noticer.end()
    return [(each.column, each.kind, each.type, each.file, each.records) for each in noticer.found.values()]


def file_of(name: str, *rows: dict[str, Any]) -> LineBlock:
    return LineBlock(name, "".join(json.dumps(row) + "\n" for row in rows).encode(), 0, 1)


def test_the_first_record_of_every_file_is_looked_at_however_small_the_files_are() -> None:
    noticer = Noticer("orders", SCHEMA, "json")
    plain = [file_of(f"{name}.jsonl", {"id": 1, "amount": 1.5}) for name in "abcdefghijklmnopqrst"]
    found = read(noticer, *plain, file_of("z.jsonl", {"id": 2, "more": "x"}), file_of("zz.jsonl", {"id": 3, "last": True}))
    assert found == [("more", "new", "STRING", "z.jsonl", 0), ("last", "new", "BOOLEAN", "zz.jsonl", 0)]


@pytest.mark.parametrize("form", ["rows", "columns"])
def test_both_halves_of_a_rename_are_noticed(form: str) -> None:
    noticer = Noticer("orders", SCHEMA, "json")
    good, renamed = {"id": 1, "amount": 1.5, "exact": 1}, {"id": 2, "Amount": 2.5, "exact": 2}
    found = read(noticer, file_of("a.jsonl", good), file_of("b.jsonl", renamed, renamed), file_of("c.jsonl", good), form=form)
    assert found == [("Amount", "new", "DOUBLE", "b.jsonl", 0), ("amount", "renamed", "Amount", "b.jsonl", 2)]


def test_a_column_that_a_later_record_has_is_not_renamed() -> None:
    noticer = Noticer("orders", SCHEMA, "json")
    found = read(noticer, file_of("b.jsonl", {"id": 2, "Amount": 2.5}, {"id": 3, "amount": 2.5}))
    assert found == [("Amount", "new", "DOUBLE", "b.jsonl", 0)]


@pytest.mark.parametrize("form", ["rows", "columns", "structs"])
def test_a_column_is_null_while_no_record_has_a_value(form: str) -> None:
    schema = parse_schema("id BIGINT NOT NULL, zero BIGINT, no BOOLEAN, never STRING, late STRING")
    decoder, noticer = decoder_for("json", schema, {}), Noticer("orders", schema, "json", learned=())
    blocks = [file_of("a.jsonl", *({"id": n, "zero": 0, "no": False} for n in range(20))) for _ in range(12)]
    last = file_of("a.jsonl", *({"id": n, "late": "x"} for n in range(20)))
    for block in blocks:
        noticer.decoded(getattr(decoder, form)(block))
    assert noticer.nulls.columns == ["never", "late"]
    noticer.decoded(getattr(decoder, form)(last))
    assert noticer.nulls.columns == ["never"]
    assert noticer.nulls.records <= 13 * 20


def test_a_column_without_a_value_in_a_batch_is_told_once_and_only_of_enough_records() -> None:
    def report(records: int, *columns: str) -> TaskReport:
        return TaskReport(nulls={"orders": UnfilledColumns(records=records, columns=dict.fromkeys(columns, "STRING"))})

    def told(*reports: TaskReport, known: tuple[tuple[str, str, str], ...] = ()) -> list[tuple[str, str, int]]:
        return [(each.column, each.kind, each.records) for each in gather_notices(reports, known)]

    assert told(report(6, "a", "b"), report(6, "b", "c")) == [("b", "null", 12)]
    assert told(report(4, "b"), report(5, "b")) == []
    assert told(report(12, "b"), known=(("orders", "b", "null"),)) == []
    assert told(report(12, "b"), known=(("orders", "b", "missing"),)) == [], "that a file lacks it was told"
    renamed = TaskReport(noticed=[FormatNotice("orders", "b", "renamed", "B", "b.jsonl", records=12)])
    assert told(report(12, "b"), renamed) == [("b", "renamed", 12)]
    assert told(renamed, known=(("orders", "b", "renamed"),)) == []
