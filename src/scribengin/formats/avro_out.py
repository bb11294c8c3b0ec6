"""Encodes rows as Avro messages, plain or in the wire format of schema registries, and derives the Avro schema of columns.

Each value is written by the writer's schema, or rejected: no digit of a time or number is lost.
"""

from __future__ import annotations

import datetime as dt
import json
import re
from dataclasses import replace
from io import BytesIO
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from scribengin.core.types import INTEGER_BITS
from scribengin.formats.avro_schema import PER_SECOND, WriterSchema, branches, fastavro
from scribengin.formats.contract import Bad
from scribengin.formats.encoders import UnwritableError
from scribengin.formats.json_types import MisfitError
from scribengin.formats.rows import column_to_values

if TYPE_CHECKING:
    from collections.abc import Callable
    from decimal import Decimal

    from scribengin.core.types import Field, Schema, Type

    Change = Callable[[Any], Any]
    """converts a column's value to the value for fastavro; raises MisfitError"""

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z", re.ASCII)
_SIMPLE = {
    "BOOLEAN": "boolean",
    "TINYINT": "int",
    "SMALLINT": "int",
    "INT": "int",
    "BIGINT": "long",
    "FLOAT": "float",
    "DOUBLE": "double",
    "STRING": "string",
    "BINARY": "bytes",
}
_EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
_FIRST_DAY = dt.date(1970, 1, 1)
_BITS = {"int": 32, "long": 64}


def derive_schema(schema: Schema, name: str = "Record") -> str:
    """The Avro schema (JSON) of a record with these columns. Nullable columns may be null, which is their default; times are in
    microseconds.

    Raises ValueError for a name that Avro does not allow, and for a MAP whose keys are not STRING.
    """
    return json.dumps(_record(schema.fields, name))


def _record(fields: tuple[Field, ...], name: str) -> dict[str, Any]:
    for each in (name, *(field.name for field in fields)):
        if not _NAME.match(each):
            raise ValueError(f'"{each}" is not a valid Avro name: only ASCII letters, digits and _ are allowed')
    return {"type": "record", "name": name, "fields": [_field(field, f"{name}_{field.name}") for field in fields]}


def _field(field: Field, name: str) -> dict[str, Any]:
    type_ = _type(field.type, name)
    return {"name": field.name, "type": ["null", type_], "default": None} if field.nullable else {"name": field.name, "type": type_}


def _type(type_: Type, name: str) -> Any:
    match type_.name:
        case "DATE":
            return {"type": "int", "logicalType": "date"}
        case "TIMESTAMP":
            return {"type": "long", "logicalType": "timestamp-micros"}
        case "DECIMAL":
            return {"type": "bytes", "logicalType": "decimal", "precision": type_.precision, "scale": type_.scale}
        case "ARRAY":
            return {"type": "array", "items": ["null", _type(type_.parts[0], name)]}
        case "MAP":
            if type_.parts[0].name != "STRING":
                raise ValueError(f"Avro allows only texts as keys of a map; found {type_}")
            return {"type": "map", "values": ["null", _type(type_.parts[1], name)]}
        case "STRUCT":
            return _record(type_.fields, name)
    return _SIMPLE[type_.name]


class UnfitError(UnwritableError):
    """A value that does not fit its type in the Avro schema; `reason` as in dead letters."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message, remedy="change the Avro schema, or convert the rows in a step before")
        self.reason = reason


class AvroMessages:
    """Encodes batches with the columns of `schema` by `writer`; with `schema_id` in a registry's wire format.

    Raises ValueError if the two do not match: a column that `writer` does not have, a field of `writer` that is not nullable and has no
    column, and types whose values would change.
    """

    def __init__(self, schema: Schema, writer: WriterSchema, schema_id: int | None = None) -> None:
        self._schema = schema
        self._parsed = writer.parsed
        self._prefix = b"" if schema_id is None else b"\0" + schema_id.to_bytes(4, "big")
        self._changes = _fields(writer, writer.root, schema.fields, top=True)
        self._write = fastavro().schemaless_writer

    def encode(self, batch: pa.RecordBatch) -> list[bytes]:
        """One message for each row, in order. Raises UnfitError, which names the column, for a value that does not fit its type in Avro."""
        columns = []
        for field, change in zip(self._schema.fields, self._changes, strict=True):
            column = batch.column(field.name)
            try:
                columns.append(_changed(column, field, change))
            except MisfitError as misfit:
                where = "".join((f".{field.name}", *misfit.path)).lstrip(".")
                raise UnfitError(
                    misfit.reason, f'column "{where}" has {misfit.found}; it does not fit its type in the Avro schema'
                ) from None
        names = self._schema.names
        out, write, parsed, prefix = BytesIO(), self._write, self._parsed, self._prefix
        ends = [0]
        for values in zip(*columns, strict=True):
            out.write(prefix)
            write(out, parsed, dict(zip(names, values, strict=True)), disable_tuple_notation=True)
            ends.append(out.tell())
        whole = out.getvalue()
        return [whole[start:end] for start, end in pairwise(ends)]

    def encode_fitting(self, batch: pa.RecordBatch) -> tuple[list[bytes | None], list[Bad]]:
        """(one message for each row, None for rows that do not fit; the errors of these rows)."""
        try:
            return [*self.encode(batch)], []
        except UnfitError as error:
            if batch.num_rows == 1:
                return [None], [Bad(0, error.reason, error.message)]
        # few of many rows do not fit: bisection finds them in some twenty attempts
        half = batch.num_rows // 2
        first, unfit = self.encode_fitting(batch.slice(0, half))
        second, more = self.encode_fitting(batch.slice(half))
        return first + second, unfit + [replace(each, ordinal=each.ordinal + half) for each in more]


def _changed(column: pa.Array, field: Field, change: Change | None) -> list[Any]:
    if field.type.name == "TIMESTAMP" and change is not None:
        values = column.cast(pa.timestamp("us", "UTC")).cast(pa.int64()).to_pylist()
    else:
        values = column_to_values(column)
    return values if change is None else [change(value) for value in values]


def _fields(writer: WriterSchema, node: Any, fields: tuple[Field, ...], *, top: bool = False) -> list[Change | None]:
    """The conversion of the values of each field. At the `top`, the columns of a batch, times arrive as microseconds."""
    given = {field["name"]: field["type"] for field in node["fields"]}
    for name, type_ in given.items():
        if name not in {field.name for field in fields} and "null" not in (type_ if isinstance(type_, list) else [type_]):
            raise ValueError(f'the Avro schema has the field "{name}", which is not nullable, but no column has that name')
    changes = []
    for field in fields:
        if field.name not in given:
            raise ValueError(f'the Avro schema has no field for the column "{field.name}"; its fields are {", ".join(given)}')
        changes.append(_or_null(writer, given[field.name], field.type, f'the column "{field.name}"', top=top))
    return changes


def _or_null(writer: WriterSchema, node: Any, type_: Type, where: str, *, top: bool = False) -> Change | None:
    """The conversion of a value, which may be None; returns None if values stay unchanged."""
    node = writer.resolved(node)
    nullable = isinstance(node, list) and len(branches(node)) < len(node)
    types = branches(node)
    if len(types) != 1:
        raise ValueError(f"{where} is a union of several types in the Avro schema; expected one, or one and null")
    change = _change(writer, types[0], type_, where, top=top)
    if change is None and nullable:
        return None

    def changed(value: Any) -> Any:
        if value is None:
            if nullable:
                return None
            raise MisfitError("missing", "null")
        return value if change is None else change(value)

    return changed


def _change(writer: WriterSchema, node: Any, type_: Type, where: str, *, top: bool) -> Change | None:
    node, kind = writer.resolved(node), writer.kind(node)
    match type_.name, kind:
        case (("TINYINT" | "SMALLINT" | "INT" | "BIGINT"), ("int" | "long")):
            return None if _BITS[kind] >= INTEGER_BITS[type_.name] else _fitting(_BITS[kind])
        case ("BOOLEAN", "boolean") | ("FLOAT", "float" | "double") | ("DOUBLE", "double") | ("STRING", "string") | ("BINARY", "bytes"):
            return None
        case "BINARY", "fixed":
            return _sized(node["size"])
        case "STRING", "enum":
            return _symbol(frozenset(node["symbols"]))
        case "DATE", "date":
            return lambda value: (value - _FIRST_DAY).days
        case "TIMESTAMP", _ if kind.startswith("timestamp"):
            scaled = _scaled(PER_SECOND[kind.rpartition("-")[2]])
            return scaled if top else lambda value: scaled((value - _EPOCH) // dt.timedelta(microseconds=1))
        case "DECIMAL", "decimal":
            return _unscaled(node)
        case "ARRAY", "array":
            return _items(_or_null(writer, node["items"], type_.parts[0], f"an item of {where}"))
        case "MAP", "map" if type_.parts[0].name == "STRING":
            return _entries(_or_null(writer, node["values"], type_.parts[1], f"a value of {where}"))
        case "STRUCT", "record":
            return _struct(type_.fields, _fields(writer, node, type_.fields))
    raise ValueError(f"{where} is {type_}, which does not fit {kind} in the Avro schema")


def _fitting(bits: int) -> Callable[[int], int]:
    half = 1 << (bits - 1)

    def check(value: int) -> int:
        if not -half <= value < half:
            raise MisfitError("out-of-range", str(value))
        return value

    return check


def _sized(size: int) -> Callable[[bytes], bytes]:
    def check(value: bytes) -> bytes:
        if len(value) != size:
            raise MisfitError("out-of-range", f"{len(value)} bytes")
        return value

    return check


def _symbol(symbols: frozenset[str]) -> Callable[[str], str]:
    def check(value: str) -> str:
        if value not in symbols:
            raise MisfitError("invalid-value", f'"{value[:60]}"')
        return value

    return check


def _scaled(per_second: int) -> Callable[[int], int]:
    def convert(micros: int) -> int:
        value, rest = divmod(micros * per_second, 1_000_000)
        if rest:
            raise MisfitError("out-of-range", f"{micros} microseconds since 1970, which is not a whole number of milliseconds")
        if not -(1 << 63) <= value < 1 << 63:
            raise MisfitError("out-of-range", f"{micros} microseconds since 1970")
        return value

    return convert


def _unscaled(node: Any) -> Callable[[Decimal], bytes]:
    scale: int = node.get("scale") or 0
    precision: int | None = node.get("precision")
    size: int | None = node.get("size")

    def convert(value: Decimal) -> bytes:
        sign, digits, exponent = value.as_tuple()
        assert isinstance(exponent, int)
        number = int("".join(map(str, digits)))
        whole: int
        whole, rest = divmod(number * 10 ** max(0, exponent + scale), 10 ** max(0, -exponent - scale))
        number = -whole if sign else whole
        length = (number.bit_length() + 8) // 8 if number >= 0 else ((-number - 1).bit_length() + 8) // 8
        if rest or (precision and len(str(whole)) > precision) or (size is not None and length > size):
            raise MisfitError("out-of-range", str(value))
        return number.to_bytes(length if size is None else size, "big", signed=True)

    return convert


def _items(change: Change | None) -> Callable[[list[Any]], list[Any]] | None:
    return None if change is None else lambda values: [change(value) for value in values]


def _entries(change: Change | None) -> Callable[[dict[str, Any]], dict[str, Any]] | None:
    return None if change is None else lambda values: {key: change(value) for key, value in values.items()}


def _struct(fields: tuple[Field, ...], changes: list[Change | None]) -> Callable[[dict[str, Any]], dict[str, Any]]:
    pairs = [(field.name, change) for field, change in zip(fields, changes, strict=True)]

    def convert(row: dict[str, Any]) -> dict[str, Any]:
        return {name: row[name] if change is None else _within(f".{name}", change, row[name]) for name, change in pairs}

    return convert


def _within(where: str, change: Change, value: Any) -> Any:
    try:
        return change(value)
    except MisfitError as misfit:
        misfit.path = (where, *misfit.path)
        raise
