"""Arrow rows as JSON lines, and the texts that JSON and CSV share: instants, binary, numbers that JSON has no word for."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from scribengin.core.types import type_of_arrow
from scribengin.formats.rows import batch_to_rows

if TYPE_CHECKING:
    from collections.abc import Callable

    from scribengin.core.types import Type

JSON = msgspec.json.Encoder(decimal_format="number")


def json_lines(batch: pa.RecordBatch) -> bytes:
    """The rows as JSON, each ended by a line end."""
    arrays = []
    late: list[tuple[str, Callable[[Any], Any]]] = []
    for name, column in zip(batch.schema.names, batch.columns, strict=True):
        type_ = type_of_arrow(column.type)
        if type_.name == "TIMESTAMP":
            arrays.append(iso_texts(column))
            continue
        arrays.append(column)
        change = changed_for_text(type_)
        if change is not None and not (type_.name in ("FLOAT", "DOUBLE") and pc.all(pc.is_finite(column)).as_py() is not False):
            late.append((name, change))
    rows = batch_to_rows(pa.RecordBatch.from_arrays(arrays, names=batch.schema.names))
    for name, change in late:
        for row in rows:
            if row[name] is not None:
                row[name] = change(row[name])
    return JSON.encode_lines(rows)


def iso_texts(column: pa.Array) -> pa.Array:
    """`2026-01-01T00:00:00.000000Z` of each timestamp."""
    plain = column.cast(pa.timestamp("us", tz=column.type.tz)).cast(pa.int64()).cast(pa.timestamp("us"))
    texts = pc.utf8_replace_slice(plain.cast(pa.string()), 10, 11, "T")
    return pc.binary_join_element_wise(texts, "Z", "")


def changed_for_text(type_: Type) -> Callable[[Any], Any] | None:
    """What brings a Python value to what the JSON encoder writes rightly by itself, or None where it does already."""
    match type_.name:
        case "FLOAT" | "DOUBLE":
            return lambda value: value if math.isfinite(value) else "NaN" if math.isnan(value) else f"{'-' * (value < 0)}Infinity"
        case "TIMESTAMP":
            return lambda value: value.strftime("%Y-%m-%dT%H:%M:%S.%fZ").rjust(27, "0")
        case "ARRAY":
            change = changed_for_text(type_.parts[0])
            return None if change is None else lambda values: [None if value is None else change(value) for value in values]
        case "MAP":
            return _change_map(changed_for_text(type_.parts[0]), changed_for_text(type_.parts[1]))
        case "STRUCT":
            changes = [(field.name, change) for field in type_.fields if (change := changed_for_text(field.type)) is not None]
            if not changes:
                return None
            return lambda row: row | {name: change(row[name]) for name, change in changes if row[name] is not None}
    return None


def _change_map(key: Callable[[Any], Any] | None, value: Callable[[Any], Any] | None) -> Callable[[Any], Any] | None:
    if key is None and value is None:
        return None
    return lambda entries: {k if key is None else key(k): v if v is None or value is None else value(v) for k, v in entries.items()}
