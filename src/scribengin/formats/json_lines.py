"""Writes Arrow rows as JSON lines, and the texts common to JSON and CSV: instants, binary, numbers without a JSON form.

A number is written with the fewest digits that read back as the same number: for a FLOAT of its 32 bits, for a DECIMAL all of its type.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from scribengin.core.types import Type, type_of_arrow
from scribengin.formats.rows import batch_to_rows

if TYPE_CHECKING:
    from collections.abc import Callable

JSON = msgspec.json.Encoder(decimal_format="number")
_DOUBLE = Type("DOUBLE")
_PLAIN_SCALE = 6
"""decimals of so many digits behind the point are never written with an exponent"""


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
    """Of a FLOAT the DOUBLE that has the shortest digits which are read back as the FLOAT: 0.1, and not 0.10000000149011612."""
    return column.cast(pa.string()).cast(pa.float64()) if pa.types.is_float32(column.type) else column


def plain_texts(column: pa.Array) -> pa.Array:
    """A column's values as texts; decimals in plain digits, never with an exponent."""
    texts = column if pa.types.is_string(column.type) else column.cast(pa.string())
    if not pa.types.is_decimal(column.type) or column.type.scale <= _PLAIN_SCALE:
        return texts
    return pa.array([None if value is None else f"{value:f}" for value in column.to_pylist()], pa.string())


def iso_texts(column: pa.Array) -> pa.Array:
    """`2026-01-01T00:00:00.000000Z` of each timestamp."""
    plain = column.cast(pa.timestamp("us", tz=column.type.tz)).cast(pa.int64()).cast(pa.timestamp("us"))
    texts = pc.utf8_replace_slice(plain.cast(pa.string()), 10, 11, "T")
    return pc.binary_join_element_wise(texts, "Z", "")


def changed_for_text(type_: Type) -> Callable[[Any], Any] | None:
    """What brings a Python value to what the JSON encoder writes rightly by itself, or None where it does already."""
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
