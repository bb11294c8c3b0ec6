"""Columns of a flow as columns of a table, and rows as the CSV that COPY reads."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from scribengin.connectors.postgres.client import quoted
from scribengin.core.types import type_of_arrow

if TYPE_CHECKING:
    import pyarrow as pa

    from scribengin.core.types import Schema, Type

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
_INTEGERS = ("smallint", "integer", "bigint")
_TEXTS = ("text", "character varying", "character", "citext", "uuid", "json", "jsonb", "inet", "USER-DEFINED")
_WIDER = {
    "smallint": (*_INTEGERS, "numeric"),
    "integer": (*_INTEGERS[1:], "numeric"),
    "bigint": ("bigint", "numeric"),
    "real": ("real", "double precision"),
    "numeric": ("numeric",),
    "text": _TEXTS,
    "jsonb": ("jsonb", "json", "text"),
    "date": ("date", "timestamp without time zone", "timestamp with time zone"),
}
"""what our type may be written to, beside itself; a value that does not fit there after all is a dead letter"""


def type_of(type_: Type) -> str:
    """The type of a column that we make."""
    return f"numeric({type_.precision},{type_.scale})" if type_.name == "DECIMAL" else _TYPES[type_.name]


def made(schema: Schema, key: tuple[str, ...], *, without: str | None) -> str:
    """The columns of CREATE TABLE, but for the one called `without`."""
    fields = [field for field in schema.fields if field.name != without]
    lines = [f"{quoted(field.name)} {type_of(field.type)}{'' if field.nullable else ' NOT NULL'}" for field in fields]
    return ", ".join([*lines, f"PRIMARY KEY ({', '.join(map(quoted, key))})"] if key else lines)


def unlike(schema: Schema, held: dict[str, tuple[str, bool]]) -> list[str]:
    """What of a table that is there does not take `schema`, a sentence each. `held`: column → (type, must be given)."""
    found = []
    for field in schema.fields:
        if field.name not in held:
            found.append(f'the table has no column "{field.name}" ({type_of(field.type)})')
            continue
        ours, there = type_of(field.type).partition("(")[0], held[field.name][0]
        if there not in _WIDER.get(ours, (ours,)):
            found.append(f'column "{field.name}" is {there} in the table, the flow gives {field.type}')
    for name, (type_, must) in held.items():
        if must and name not in schema:
            found.append(f'the table asks for column "{name}" ({type_}), which the flow does not give')
    return found


def as_csv(batch: pa.RecordBatch) -> bytes:
    """The rows as COPY reads them under FORMAT csv: values in quotes, nulls without."""
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
