"""Columns of a flow as columns of a table, and rows as the CSV that COPY reads."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from scribengin.core.types import type_of_arrow

if TYPE_CHECKING:
    import pyarrow as pa

    from scribengin.core.types import Type

_TYPES = {
    "BOOLEAN": "boolean",
    "TINYINT": "smallint",
    "SMALLINT": "smallint",
    "INT": "integer",
    "BIGINT": "bigint",
    "FLOAT": "real",
    "DOUBLE": "double precision",
    "STRING": "text",
    "BINARY": "bytea",
    "DATE": "date",
    "TIMESTAMP": "timestamp with time zone",
    "ARRAY": "jsonb",
    "MAP": "jsonb",
    "STRUCT": "jsonb",
}


def type_of(type_: Type) -> str:
    """The type of a column in a table that we create."""
    return f"numeric({type_.precision},{type_.scale})" if type_.name == "DECIMAL" else _TYPES[type_.name]


def as_csv(batch: pa.RecordBatch) -> bytes:
    """The rows in the form that COPY reads with FORMAT csv: values quoted, nulls unquoted."""
    import pyarrow as pa
    from pyarrow import csv

    plain = pa.table([_plain(column) for column in batch.columns], names=list(map(str, range(batch.num_columns))))
    out = pa.BufferOutputStream()
    csv.write_csv(plain, out, csv.WriteOptions(include_header=False, quoting_style="all_valid"))
    data: bytes = out.getvalue().to_pybytes()
    return data


def _plain(column: pa.Array) -> pa.Array:
    """A column that Arrow can write as CSV: binary as PostgreSQL's hex, nested values as JSON, instants with their zone."""
    import pyarrow as pa

    from scribengin.formats.json_lines import JSON, changed_for_text, iso_texts
    from scribengin.formats.rows import column_to_values

    kinds = pa.types
    if kinds.is_timestamp(column.type):
        return iso_texts(column)
    if kinds.is_binary(column.type):
        return pa.array([None if value is None else f"\\x{value.hex()}" for value in column.to_pylist()], pa.string())
    if kinds.is_nested(column.type):
        change = changed_for_text(type_of_arrow(column.type)) or _same
        return pa.array([None if value is None else JSON.encode(change(value)).decode() for value in column_to_values(column)], pa.string())
    return column


def _same(value: Any) -> Any:
    return value
