"""Decodes messages: records that arrive one by one, each with a value and coordinates of its own (Kafka), in the formats of lines, as plain
bytes, or as Avro.

JSON values are joined as lines and decoded like those of a file. A line feed inside a value is replaced by a carriage return: in JSON both
are white space, or both are an error.
"""

from __future__ import annotations

import datetime as dt
import io
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from scribengin.core.types import Schema, Type, arrow_schema
from scribengin.formats.blocks import LineBlock
from scribengin.formats.catalog import decoder_for
from scribengin.formats.contract import Bad, DecodedColumns, DecodedRows, RecordPlace
from scribengin.formats.encoders import CsvEncoder
from scribengin.formats.json_out import json_lines
from scribengin.formats.rows import rows_to_batch

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    import pyarrow as pa

    from scribengin.formats.avro_out import AvroMessages

    Values = Callable[[pa.RecordBatch], tuple[list[bytes | None], Sequence[Bad]]]
    """the value of each row, and the errors of the rows that have none because they do not fit"""
    from scribengin.formats.avro import Lookup
    from scribengin.formats.avro_schema import WriterSchema
    from scribengin.formats.contract import Block, Decoder, Structs, ValueDecoder


# Writes rows as values of messages, one for each row: the reverse of `MessageDecoder`.


def value_encoder(format: str, schema: Schema, options: Mapping[str, Any], avro: Callable[[Schema], AvroMessages] | None = None) -> Values:
    """A function that makes the message values of rows.

    In `text` and `binary` null has no value: the message deletes its key in a compacted topic.

    Args:
        format: The name of the format.
        schema: The columns of the rows.
        options: The options of the sink.
        avro: Returns the encoder for columns; only for avro.

    Raises:
        ValueError: The format is unknown, or cannot represent the columns.
    """
    match format:
        case "json":
            return _json
        case "csv":
            encoder = CsvEncoder(
                io.BytesIO(), schema, compression="none", delimiter=options["delimiter"], null=options["null"], header=False
            )
            return lambda rows: ([line.encode() for line in encoder.lines(rows)], ())
        case "text" | "binary":
            asked = "STRING" if format == "text" else "BINARY"
            if [field.type.name for field in schema.fields] != [asked]:
                raise ValueError(f"{format} needs exactly one {asked} column; found: {schema}")
            return _plain
        case "avro" if avro is not None:
            return avro(schema).encode_fitting
    raise ValueError(f"unknown format {format!r} of messages; formats are json, csv, text, binary, avro")


def _json(rows: pa.RecordBatch) -> tuple[list[bytes | None], Sequence[Bad]]:
    # the JSON written here contains no line feed: texts have it escaped
    values: list[bytes | None] = list(json_lines(rows).split(b"\n"))
    return values[: rows.num_rows], ()


def _plain(rows: pa.RecordBatch) -> tuple[list[bytes | None], Sequence[Bad]]:
    import pyarrow as pa

    return rows.column(0).cast(pa.binary()).to_pylist(), ()


PARTS: Mapping[str, tuple[str, ...]] = {
    "key": ("STRING", "BINARY"),
    "timestamp": ("TIMESTAMP",),
    "topic": ("STRING",),
    "partition": ("INT", "BIGINT"),
    "offset": ("BIGINT",),
    "headers": ("MAP",),
}
"""what a column can be taken from instead of the value, and the types that such a column may have; headers are MAP<STRING, BINARY> (of a
duplicate header the last value)"""
_EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)


@dataclass(slots=True)
class MessageBlock:
    """Messages of one partition in their order. All sequences have the same length; `timestamps_ms` are since 1970, None if unknown."""

    topic: str
    partition: int
    values: Sequence[bytes | None]
    offsets: Sequence[int]
    keys: Sequence[bytes | None] = ()
    timestamps_ms: Sequence[int | None] = ()
    headers: Sequence[Sequence[tuple[str, bytes | None]]] = ()
    """keys, times and headers are filled only if a column needs them"""

    def place(self, ordinal: int) -> RecordPlace:
        """`topic-partition`, and the offset as its row."""
        return RecordPlace(f"{self.topic}-{self.partition}", row=self.offsets[ordinal])

    def payload(self, ordinal: int) -> bytes:
        """The value; empty for none."""
        return self.values[ordinal] or b""

    def __len__(self) -> int:
        """The number of messages."""
        return len(self.values)


class MessageDecoder:
    """Decodes `MessageBlock`s. A message without a value is skipped, like an empty line.

    `parts`: column → one of PARTS, for columns that are not taken from the value. `writer` is for avro: the schema of all values, or the
    look-up of each value's schema. Raises ValueError for columns that the format cannot decode.
    """

    def __init__(
        self,
        format: str,
        schema: Schema,
        options: Mapping[str, Any],
        parts: Mapping[str, str],
        writer: WriterSchema | Lookup | None = None,
    ) -> None:
        self.schema = schema
        self._parts = dict(parts)
        _check(schema, parts)
        own = Schema(tuple(field for field in schema.fields if field.name not in parts))
        self._values = _values_of(format, own, options, writer)
        self.structs: Callable[[Block], Structs] | None = self._values.structs if isinstance(self._values, _Lines) and not parts else None

    def rows(self, block: Block) -> DecodedRows:
        """The records as dicts with exactly the columns of the schema."""
        assert isinstance(block, MessageBlock)
        found = self._values.rows(block)
        if not self._parts:
            return found
        ordinals, bad, taken = self._taken(block, found.ordinals)
        kept = set(ordinals)
        names = self.schema.names
        rows = []
        for row, ordinal in zip(found.rows, found.ordinals, strict=True):
            if ordinal in kept:
                row |= {name: values[ordinal] for name, values in taken.items()}
                rows.append({name: row[name] for name in names})
        return DecodedRows(rows, ordinals, _in_order([*found.bad, *bad]), found.skipped)

    def columns(self, block: Block) -> DecodedColumns:
        """The records of `rows`, as one Arrow batch."""
        import pyarrow as pa

        assert isinstance(block, MessageBlock)
        found = self._values.columns(block)
        if not self._parts:
            return found
        ordinals, bad, taken = self._taken(block, found.ordinals)
        kept = set(ordinals)
        batch = found.batch if not bad else found.batch.filter(pa.array([ordinal in kept for ordinal in found.ordinals]))
        form = arrow_schema(self.schema)
        arrays = [
            pa.array(_entries([taken[column.name][ordinal] for ordinal in ordinals]), column.type)
            if column.name in taken
            else batch.column(column.name)
            for column in form
        ]
        return DecodedColumns(pa.RecordBatch.from_arrays(arrays, schema=form), ordinals, _in_order([*found.bad, *bad]), found.skipped)

    def _taken(self, block: MessageBlock, ordinals: Sequence[int]) -> tuple[Sequence[int], list[Bad], dict[str, Sequence[Any]]]:
        """(ordinals that are kept, the errors of the others, column → its values by ordinal)"""
        taken: dict[str, Sequence[Any]] = {}
        dead: dict[int, Bad] = {}
        for name, part in self._parts.items():
            column = self.schema[name]
            taken[name] = values = _part(block, part, column.type, dead)
            if not column.nullable:
                for ordinal, value in enumerate(values):
                    if value is None:
                        dead.setdefault(ordinal, Bad(ordinal, "missing", f'field "{name}": the message has no {part}; expected NOT NULL'))
        if not dead:
            return ordinals, [], taken
        given = set(ordinals)
        return [ordinal for ordinal in ordinals if ordinal not in dead], [bad for at, bad in dead.items() if at in given], taken


def _check(schema: Schema, parts: Mapping[str, str]) -> None:
    for name, part in parts.items():
        if name not in schema.names:
            raise ValueError(
                f'metadata names the column "{name}", which the schema does not have; its columns are {", ".join(schema.names)}'
            )
        asked = schema[name].type
        if asked.name not in PARTS[part] or (part == "headers" and str(asked) != "MAP<STRING, BINARY>"):
            allowed = "MAP<STRING, BINARY>" if part == "headers" else " or ".join(PARTS[part])
            raise ValueError(f'the column "{name}" is {asked}; {part} must be {allowed}')


def _part(block: MessageBlock, part: str, type_: Type, dead: dict[int, Bad]) -> Sequence[Any]:
    match part:
        case "key":
            return block.keys if type_.name == "BINARY" else [_text(ordinal, key, dead) for ordinal, key in enumerate(block.keys)]
        case "timestamp":
            return [None if ms is None else _EPOCH + dt.timedelta(milliseconds=ms) for ms in block.timestamps_ms]
        case "topic":
            return [block.topic] * len(block)
        case "partition":
            return [block.partition] * len(block)
        case "offset":
            return block.offsets
    return [dict(headers) for headers in block.headers]


def _text(ordinal: int, key: bytes | None, dead: dict[int, Bad]) -> str | None:
    try:
        return None if key is None else key.decode()
    except UnicodeDecodeError as error:
        dead.setdefault(ordinal, Bad(ordinal, "invalid-utf8", f"byte {error.start} of the key is not UTF-8: {error.reason}"))
        return None


def _entries(values: list[Any]) -> list[Any]:
    return [list(value.items()) if isinstance(value, dict) else value for value in values]


def _in_order(bad: list[Bad]) -> list[Bad]:
    return sorted(bad, key=lambda each: each.ordinal)


def _values_of(format: str, schema: Schema, options: Mapping[str, Any], writer: WriterSchema | Lookup | None) -> _Lines | _Alone | _Avro:
    if format == "json":
        return _Lines(schema, options)
    if format == "avro":
        assert writer is not None
        return _Avro(schema, writer, truncate=options.get("time") == "truncate")
    return _Alone(format, schema, options)


class _Lines:
    """Decodes all values together, as lines."""

    def __init__(self, schema: Schema, options: Mapping[str, Any]) -> None:
        self._decoder: Decoder = decoder_for("json", schema, options)
        inner: Callable[[Block], Structs] | None = getattr(self._decoder, "structs", None)
        self.structs: Callable[[Block], Structs] | None = None if inner is None else lambda block: inner(_as_lines(block))

    def rows(self, block: MessageBlock) -> DecodedRows:
        return self._decoder.rows(_as_lines(block))

    def columns(self, block: MessageBlock) -> DecodedColumns:
        return self._decoder.columns(_as_lines(block))


def _as_lines(block: Block) -> LineBlock:
    assert isinstance(block, MessageBlock)
    values = [value or b"" for value in block.values]
    data = b"\n".join([*values, b""])
    if data.count(b"\n") != len(values):
        data = b"\n".join([*(value.replace(b"\n", b"\r") for value in values), b""])
    return LineBlock(f"{block.topic}-{block.partition}", data)


class _Avro:
    """Decodes each value with its writer's schema."""

    def __init__(self, schema: Schema, writer: WriterSchema | Lookup, *, truncate: bool) -> None:
        from scribengin.formats.avro import AvroDecoder

        self._decoder = AvroDecoder(schema, writer, truncate=truncate)

    def rows(self, block: MessageBlock) -> DecodedRows:
        return self._decoder.rows(block.values)

    def columns(self, block: MessageBlock) -> DecodedColumns:
        return self._decoder.columns(block.values)


@dataclass
class _Alone:
    """Decodes each value by itself."""

    format: str
    schema: Schema
    options: Mapping[str, Any]
    _decoder: ValueDecoder | None = field(init=False, default=None)

    def __post_init__(self) -> None:
        if self.format == "binary":
            if [each.type.name for each in self.schema.fields] != ["BINARY"]:
                raise ValueError(f"binary needs exactly one column, such as value BINARY; found: {self.schema}")
        else:
            self._decoder = decoder_for(self.format, self.schema, self.options)  # type: ignore[assignment]

    def rows(self, block: MessageBlock) -> DecodedRows:
        there = [ordinal for ordinal, value in enumerate(block.values) if value is not None]
        values = [block.values[ordinal] for ordinal in there]
        skipped = len(block) - len(there)
        if self._decoder is None:
            (name,) = self.schema.names
            return DecodedRows([{name: value} for value in values], there, [], skipped)
        found = self._decoder.decode_values(values)
        bad = [Bad(there[each.ordinal], each.reason, each.message) for each in found.bad]
        return DecodedRows(found.rows, [there[ordinal] for ordinal in found.ordinals], bad, skipped + found.skipped)

    def columns(self, block: MessageBlock) -> DecodedColumns:
        found = self.rows(block)
        batch, _ = rows_to_batch(found.rows, self.schema, found.ordinals)
        return DecodedColumns(batch, found.ordinals, found.bad, found.skipped)
