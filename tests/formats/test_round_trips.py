"""What an encoder writes its decoder reads back, and rows survive Arrow."""

from __future__ import annotations

import gzip
import io
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from typed_rows import all_types, fields, flat_types, schemas, texts, typed

from scribengin.core import zstd
from scribengin.core.types import Field, Schema, Type, arrow_schema, parse_schema
from scribengin.formats.blocks import ArrowBlock, LineBlock
from scribengin.formats.catalog import decoder_for, encoder_for
from scribengin.formats.csv_records import CsvBlock
from scribengin.formats.encoders import UnwritableError
from scribengin.formats.parquet import conform
from scribengin.formats.rows import batch_to_rows, rows_to_batch

if TYPE_CHECKING:
    from scribengin.formats.contract import DecodedRows


def encoded(format_: str, schema: Schema, *batches: pa.RecordBatch, compression: str = "none", **options: Any) -> bytes:
    file = io.BytesIO()
    encoder = encoder_for(format_, compression=compression, options=options)(file, schema)
    for batch in batches:
        encoder.write(batch)
    encoder.close()
    return file.getvalue()


def batch_of(rows: list[dict[str, Any]], schema: Schema) -> pa.RecordBatch:
    batch, bad = rows_to_batch(rows, schema, range(len(rows)))
    assert bad == []
    return batch


def read_csv(data: bytes, schema: Schema, **options: Any) -> DecodedRows:
    return decoder_for("csv", schema, {}).rows(CsvBlock("f", data, **options))


@given(schemas)
def test_a_schema_is_read_back_from_its_own_text(schema: Schema) -> None:
    assert parse_schema(str(schema)) == schema


@given(typed(schemas))
def test_rows_survive_arrow(case: tuple[Schema, list[dict[str, Any]]]) -> None:
    schema, rows = case
    batch = batch_of(rows, schema)
    assert batch.schema == arrow_schema(schema)
    assert batch_to_rows(batch) == rows


@given(typed(schemas))
def test_json_reads_what_json_wrote(case: tuple[Schema, list[dict[str, Any]]]) -> None:
    schema, rows = case
    batch = batch_of(rows, schema)
    block = LineBlock("f", encoded("json", schema, batch, batch))
    decoder = decoder_for("json", schema, {})
    found = decoder.rows(block)
    assert (found.bad, found.rows) == ([], rows + rows)
    assert decoder.columns(block).batch == pa.concat_batches([batch, batch])


@given(typed(schemas))
def test_parquet_reads_what_parquet_wrote(case: tuple[Schema, list[dict[str, Any]]]) -> None:
    schema, rows = case
    table = pq.read_table(io.BytesIO(encoded("parquet", schema, batch_of(rows, schema), compression="zstd")))
    decoder = decoder_for("parquet", schema, {})
    for batch in table.combine_chunks().to_batches():
        found = decoder.rows(ArrowBlock("f", conform(batch, schema)))
        assert (found.bad, found.rows) == ([], rows)
    assert table.num_rows == len(rows)


@given(typed(fields(all_types, max_size=4).map(lambda found: Schema((*found, Field("last one", Type("BIGINT"), nullable=False))))))
def test_csv_reads_what_csv_wrote(case: tuple[Schema, list[dict[str, Any]]]) -> None:
    schema, rows = case
    data = encoded("csv", schema, batch_of(rows, schema), header=False)
    found = read_csv(data, schema)
    assert (found.bad, found.rows, found.skipped) == ([], rows, 0)


@given(typed(fields(flat_types, max_size=1).map(Schema)))
def test_csv_of_one_column_reads_back_or_is_refused(case: tuple[Schema, list[dict[str, Any]]]) -> None:
    schema, rows = case
    batch = batch_of(rows, schema)
    if any(value is None for row in rows for value in row.values()):
        with pytest.raises(UnwritableError):
            encoded("csv", schema, batch, header=False)
    else:
        found = read_csv(encoded("csv", schema, batch, header=False), schema)
        assert (found.bad, found.rows, found.skipped) == ([], rows, 0)


@given(texts)
def test_text_reads_back_or_is_refused(value: str) -> None:
    schema = parse_schema("value STRING NOT NULL")
    batch = batch_of([{"value": value}, {"value": "next"}], schema)
    if "\n" in value or value.endswith("\r"):
        with pytest.raises(UnwritableError):
            encoded("text", schema, batch)
    else:
        assert decoder_for("text", schema, {}).rows(LineBlock("f", encoded("text", schema, batch))).rows == [
            {"value": value},
            {"value": "next"},
        ]


@pytest.mark.parametrize(("format_", "suffix"), [("json", ".jsonl"), ("csv", ".csv"), ("text", ".txt")])
def test_compressed_text_is_the_same_text(format_: str, suffix: str) -> None:
    schema = parse_schema("value STRING NOT NULL")
    batch = batch_of([{"value": f"line {n}"} for n in range(1000)], schema)
    plain = encoded(format_, schema, batch)
    assert gzip.decompress(encoded(format_, schema, batch, compression="gzip")) == plain
    assert zstd.decompress(encoded(format_, schema, batch, compression="zstd")) == plain
    for compression, end in (("none", ""), ("gzip", ".gz"), ("zstd", ".zst")):
        assert encoder_for(format_, compression=compression)(io.BytesIO(), schema).suffix == suffix + end


@pytest.mark.parametrize("compression", ["none", "gzip", "zstd", "snappy"])
def test_parquet_is_compressed_as_asked(compression: str) -> None:
    schema = parse_schema("id BIGINT, ts TIMESTAMP")
    batch = batch_of([{"id": n, "ts": None} for n in range(1000)], schema)
    footer = pq.read_metadata(io.BytesIO(encoded("parquet", schema, batch, compression=compression)))
    assert footer.row_group(0).column(0).compression == {"none": "UNCOMPRESSED"}.get(compression, compression.upper())


def test_many_small_batches_make_one_row_group() -> None:
    schema = parse_schema("id BIGINT")
    batch = batch_of([{"id": n} for n in range(10)], schema)
    assert pq.read_metadata(io.BytesIO(encoded("parquet", schema, *[batch] * 100))).num_row_groups == 1


def test_a_compression_that_the_format_does_not_know_is_refused() -> None:
    with pytest.raises(ValueError, match="json knows no compression 'snappy'; it knows none, gzip, zstd"):
        encoder_for("json", compression="snappy")


def test_json_writes_what_the_documentation_says() -> None:
    schema = parse_schema("ts TIMESTAMP, d DECIMAL(6,3), b BINARY, x DOUBLE, s STRUCT<at: TIMESTAMP>, day DATE, n BIGINT")
    import datetime as dt
    from decimal import Decimal

    at = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)
    row = {"ts": at, "d": Decimal("1.50"), "b": b"\xff", "x": float("inf"), "s": {"at": at}, "day": at.date(), "n": None}
    assert encoded("json", schema, batch_of([row], schema)) == (
        b'{"ts":"2026-01-01T00:00:00.000000Z","d":1.500,"b":"/w==","x":"Infinity",'
        b'"s":{"at":"2026-01-01T00:00:00.000000Z"},"day":"2026-01-01","n":null}\n'
    )


@settings(max_examples=30)
@given(typed(schemas, max_size=2))
def test_the_payload_of_an_arrow_row_is_its_json(case: tuple[Schema, list[dict[str, Any]]]) -> None:
    schema, rows = case
    block = ArrowBlock("f", batch_of(rows, schema), first_row=5)
    for ordinal, row in enumerate(rows):
        assert decoder_for("json", schema, {}).rows(LineBlock("f", block.payload(ordinal))).rows == [row]
        assert block.place(ordinal).row == 5 + ordinal


NUMBERS = parse_schema(
    "f FLOAT, d DOUBLE, p DECIMAL(20,8), z DECIMAL(20,10), a ARRAY<FLOAT>, s STRUCT<p: DECIMAL(20,8)>, m MAP<STRING, FLOAT>"
)


def test_numbers_are_written_in_the_shortest_digits_that_are_read_back() -> None:
    from decimal import Decimal

    small = Decimal("0.00000001")
    row = {"f": 0.1, "d": 0.1, "p": small, "z": Decimal(0), "a": [0.1, None], "s": {"p": small}, "m": {"x": 3.4e38}}
    batch = batch_of([row, {"f": 16777216, "d": 1e16, "p": Decimal(-7)}, {}], NUMBERS)
    assert encoded("json", NUMBERS, batch).decode().splitlines() == [
        '{"f":0.1,"d":0.1,"p":0.00000001,"z":0.0000000000,"a":[0.1,null],"s":{"p":0.00000001},"m":{"x":3.4e38}}',
        '{"f":16777216.0,"d":1e16,"p":-7.00000000,"z":null,"a":null,"s":null,"m":null}',
        '{"f":null,"d":null,"p":null,"z":null,"a":null,"s":null,"m":null}',
    ]
    flat = Schema(NUMBERS.fields[:4])
    assert encoded("csv", flat, batch.select(list(flat.names)), header=False) == (
        b"0.1,0.1,0.00000001,0.0000000000\n16777216.0,1e16,-7.00000000,\n,,,\n"
    )


@given(st.lists(st.tuples(st.floats(width=32), st.floats(), st.decimals(-9999, 9999, places=8))))
def test_any_number_comes_back_from_json_and_csv(values: list[tuple[float, float, Any]]) -> None:
    """NaN, the infinities and -0.0 among them."""
    schema = parse_schema("f FLOAT, d DOUBLE, p DECIMAL(20,8)")
    batch = batch_of([dict(zip(schema.names, value, strict=True)) for value in values], schema)
    for found in (
        decoder_for("json", schema, {}).columns(LineBlock("f", encoded("json", schema, batch))),
        decoder_for("csv", schema, {}).columns(CsvBlock("f", encoded("csv", schema, batch, header=False))),
    ):
        assert not found.bad
        assert repr(found.batch.to_pydict()) == repr(batch.to_pydict())
