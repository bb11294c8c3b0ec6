"""Writes rows as values of messages, one for each row: the reverse of `messages`."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING, Any

from scribengin.formats.encoders import CsvEncoder
from scribengin.formats.json_lines import json_lines

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    import pyarrow as pa

    from scribengin.core.types import Schema
    from scribengin.formats.avro_out import AvroMessages
    from scribengin.formats.contract import Bad

    Values = Callable[[pa.RecordBatch], tuple[list[bytes | None], Sequence[Bad]]]
    """the value of each row, and which rows have none because they do not fit"""


def value_encoder(format: str, schema: Schema, options: Mapping[str, Any], avro: Callable[[Schema], AvroMessages] | None = None) -> Values:
    """Return the function that makes the values of rows of `schema`. Raises ValueError for columns that the format cannot represent.
    `avro` has the Avro schema: for that format alone.

    In `text` and `binary` null is no value: a message that deletes its key in a compacted topic.
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
    # a line feed cannot stand inside of JSON that was written here: texts have it escaped
    values: list[bytes | None] = list(json_lines(rows).split(b"\n"))
    return values[: rows.num_rows], ()


def _plain(rows: pa.RecordBatch) -> tuple[list[bytes | None], Sequence[Bad]]:
    import pyarrow as pa

    return rows.column(0).cast(pa.binary()).to_pylist(), ()
