"""Writes Arrow rows as JSON lines, and the texts common to JSON and CSV: instants, binary, numbers without a JSON form.

A number is written with the fewest digits that read back as the same number: for a FLOAT of its 32 bits, for a DECIMAL all digits of its
type.
"""

from __future__ import annotations

import datetime as dt
import math
from functools import lru_cache
from math import isfinite
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from scribengin.core.types import INTEGER_BITS, Type, arrow_schema, type_of_arrow
from scribengin.formats.json_types import has_plain_names, struct_type
from scribengin.formats.rows import batch_to_rows
from scribengin.formats.structs import readers_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from scribengin.core.types import Schema


JSON = msgspec.json.Encoder(decimal_format="number")
_DOUBLE = Type("DOUBLE")
_PLAIN_SCALE = 6
"""decimals with so many digits after the point are never written with an exponent"""


def json_lines(batch: pa.RecordBatch) -> bytes:
    """The rows as JSON, each ended by a line end."""
    arrays = []
    late: list[tuple[str, Callable[[Any], Any]]] = []
    for name, column in zip(batch.schema.names, batch.columns, strict=True):
        type_ = type_of_arrow(column.type)
        if type_.name == "TIMESTAMP":
            arrays.append(iso_texts(column))
            continue
        change = changed_for_text(type_)
        if type_.name in ("FLOAT", "DOUBLE"):
            column = shortest(column)  # noqa: PLW2901
            change = changed_for_text(_DOUBLE) if pc.all(pc.is_finite(column)).as_py() is False else None
        arrays.append(column)
        if change is not None:
            late.append((name, change))
    rows = batch_to_rows(pa.RecordBatch.from_arrays(arrays, names=batch.schema.names))
    for name, change in late:
        for row in rows:
            if row[name] is not None:
                row[name] = change(row[name])
    return JSON.encode_lines(rows)


def shortest(column: pa.Array) -> pa.Array:
    """For a FLOAT column the DOUBLEs with the fewest digits that read back as the FLOATs: 0.1, not 0.10000000149011612. Other columns
    unchanged."""
    return column.cast(pa.string()).cast(pa.float64()) if pa.types.is_float32(column.type) else column


def plain_texts(column: pa.Array) -> pa.Array:
    """A column's values as texts; decimals in plain digits, never with an exponent."""
    texts = column if pa.types.is_string(column.type) else column.cast(pa.string())
    if not pa.types.is_decimal(column.type) or column.type.scale <= _PLAIN_SCALE:
        return texts
    return pa.array([None if value is None else f"{value:f}" for value in column.to_pylist()], pa.string())


def iso_texts(column: pa.Array) -> pa.Array:
    """Each timestamp as text, such as `2026-01-01T00:00:00.000000Z`."""
    plain = column.cast(pa.timestamp("us", tz=column.type.tz)).cast(pa.int64()).cast(pa.timestamp("us"))
    texts = pc.utf8_replace_slice(plain.cast(pa.string()), 10, 11, "T")
    return pc.binary_join_element_wise(texts, "Z", "")


def changed_for_text(type_: Type) -> Callable[[Any], Any] | None:
    """The conversion of a Python value to one that the JSON encoder writes correctly; None if none is needed."""
    match type_.name:
        case "FLOAT":
            return lambda value: _finite(float(str(np.float32(value))))
        case "DOUBLE":
            return _finite
        case "DECIMAL" if type_.scale > _PLAIN_SCALE:
            return lambda value: msgspec.Raw(f"{value:f}".encode())
        case "TIMESTAMP":
            return lambda value: value.strftime("%Y-%m-%dT%H:%M:%S.%fZ").rjust(27, "0")
        case "ARRAY":
            change = changed_for_text(type_.parts[0])
            return None if change is None else lambda values: [None if value is None else change(value) for value in values]
        case "MAP":
            key, value = type_.parts
            return _change_map("{:f}".format if key.name == "DECIMAL" else changed_for_text(key), changed_for_text(value))
        case "STRUCT":
            changes = [(field.name, change) for field in type_.fields if (change := changed_for_text(field.type)) is not None]
            if not changes:
                return None
            return lambda row: row | {name: change(row[name]) for name, change in changes if row[name] is not None}
    return None


def _finite(value: float) -> float | str:
    return value if math.isfinite(value) else "NaN" if math.isnan(value) else f"{'-' * (value < 0)}Infinity"


def _change_map(key: Callable[[Any], Any] | None, value: Callable[[Any], Any] | None) -> Callable[[Any], Any] | None:
    if key is None and value is None:
        return None
    return lambda entries: {k if key is None else key(k): v if v is None or value is None else value(v) for k, v in entries.items()}


# Writes Python rows as JSON without converting them to Arrow, which takes a third of the time for sinks that write JSON. The output is byte
# for byte that of `rows_to_batch` and `json_lines` for the same rows, or nothing: every special case (a value that does not fit, another
# zone, NaN) is left to these two, which report it.


_PLAIN = frozenset({"BOOLEAN", "DOUBLE", "STRING", "TIMESTAMP", *INTEGER_BITS})
"""types that msgspec checks and writes exactly like the other two functions"""
_UTC = frozenset({dt.UTC})


def json_rows(schema: Schema, needs: Sequence[str]) -> JsonRows | None:
    """The writer for rows of `schema`, with the columns `needs` besides; None if the schema has a type or a name that must be converted by
    Arrow."""
    return _json_rows(schema, tuple(needs))


@lru_cache(maxsize=64)  # each task output needs it again; making the types costs more than many rows
def _json_rows(schema: Schema, needs: tuple[str, ...]) -> JsonRows | None:
    plain = has_plain_names(schema) and all(field.type.name in _PLAIN for field in schema.fields)
    return JsonRows(schema, needs) if plain else None


class JsonRows:
    """Makes JSON lines of rows, and some of their columns as Arrow. See `json_rows`. Stateless."""

    def __init__(self, schema: Schema, needs: Sequence[str]) -> None:
        self.schema = schema
        record = struct_type(schema, texts=frozenset(), strict=True)
        self._rows = list[record]  # type: ignore[valid-type]
        # the form that is written, in which instants are texts
        times = [index for index, field in enumerate(schema.fields) if field.type.name == "TIMESTAMP"]
        names = {f"f{index}": field.name for index, field in enumerate(schema.fields)}
        self._written = msgspec.defstruct("Written", [(name, Any) for name in names], rename=names, gc=False)
        given = ", ".join(f"t{index}" if index in times else f"struct.f{index}" for index in range(len(schema.fields)))
        each = ", ".join(["struct", *(f"t{index}" for index in times)])
        self._with_texts: Callable[[Any, Any], list[Any]] = eval(f"lambda new, rows: [new({given}) for {each} in rows]")
        form, readers = arrow_schema(schema), readers_of(schema)
        self._times = [(form.field(index).type, readers[index]) for index in times]
        self._floats = [readers[index] for index, field in enumerate(schema.fields) if field.type.name == "DOUBLE"]
        self._needs = {name: (form.field(name).type, readers[schema.names.index(name)]) for name in needs}

    def of_rows(self, rows: list[dict[str, Any]]) -> tuple[bytes, Mapping[str, pa.Array]] | None:
        """(one line per row, each needed column); None if a row must be converted by Arrow."""
        try:
            # only JSON's own types are converted: a text is not read as an instant
            structs = msgspec.convert(rows, self._rows, builtin_types=(dt.datetime,))
        except (msgspec.ValidationError, UnicodeEncodeError, OverflowError):
            return None
        return self.of_structs(structs)

    def of_structs(self, structs: list[Any]) -> tuple[bytes, Mapping[str, pa.Array]] | None:
        """The result of `of_rows`, for Structs of the schema."""
        for read in self._floats:
            if not all(value is None or isfinite(value) for value in read(structs)):
                return None
        try:
            written = structs
            if self._times:
                texts = []
                for type_, read in self._times:
                    values = read(structs)
                    if not {value.tzinfo for value in values if value is not None} <= _UTC:
                        return None
                    texts.append(iso_texts(pa.array(values, type_)).to_pylist())
                written = self._with_texts(self._written, zip(structs, *texts, strict=True))
            lines = JSON.encode_lines(written)
        except (UnicodeEncodeError, TypeError):  # half a surrogate pair; a subclass of str
            return None
        return lines, {name: pa.array(read(structs), type_) for name, (type_, read) in self._needs.items()}
