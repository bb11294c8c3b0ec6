"""The columns of a flow as columns of a table, and their values as bytes of the protocol."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from uuid import UUID

from scribengin.core.types import type_of_arrow

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    import numpy as np
    import pyarrow as pa

    from scribengin.core.types import Schema, Type

Cells = list[bytes | None]

_TYPES = {
    "BOOLEAN": "boolean",
    "TINYINT": "tinyint",
    "SMALLINT": "smallint",
    "INT": "int",
    "BIGINT": "bigint",
    "FLOAT": "float",
    "DOUBLE": "double",
    "DECIMAL": "decimal",
    "STRING": "text",
    "BINARY": "blob",
    "DATE": "date",
    "TIMESTAMP": "timestamp",
}
_INTEGERS = ("tinyint", "smallint", "int", "bigint", "varint")
_WIDER = {
    "tinyint": _INTEGERS,
    "smallint": _INTEGERS[1:],
    "int": _INTEGERS[2:],
    "bigint": _INTEGERS[3:],
    "float": ("float", "double"),
    "text": ("text", "ascii", "uuid", "timeuuid"),
}
"""flow type → column types that it may be written to; a value that does not fit becomes a dead letter"""
FIXED = {
    "tinyint": ">i1",
    "smallint": ">i2",
    "int": ">i4",
    "bigint": ">i8",
    "float": ">f4",
    "double": ">f8",
    "timestamp": ">i8",
    "date": ">u4",
}
DAY_ZERO = 1 << 31
"""1970-01-01 as a date of the protocol"""


def type_of(type_: Type) -> str:
    """The column type in a table that the sink creates. Types with fields are stored as JSON in a text column."""
    if type_.name == "ARRAY" and (element := _TYPES.get(type_.parts[0].name)):
        return f"frozen<list<{element}>>"
    if type_.name == "MAP" and all(part.name in _TYPES for part in type_.parts):
        return f"frozen<map<{', '.join(_TYPES[part.name] for part in type_.parts)}>>"
    return _TYPES.get(type_.name, "text")


def unlike(schema: Schema, held: Mapping[str, str]) -> list[str]:
    """Why an existing table does not accept `schema`, one sentence per reason. `held` is column → type of the table."""
    found = []
    for field in schema.fields:
        ours, there = type_of(field.type), held.get(field.name)
        if there is None:
            found.append(f'the table has no column "{field.name}" ({ours})')
        elif there.startswith("list<"):
            why = (
                "a row that is sent again would duplicate the elements, and a lightweight transaction (IF), which would prevent that, "
                "takes no"
            )
            found.append(f'column "{field.name}" is {there}: {why} time of writing; make it frozen')
        elif there not in _WIDER.get(ours, (ours, ours.removeprefix("frozen<").removesuffix(">"))):
            found.append(f'column "{field.name}" is {there} in the table, but {field.type} in the flow')
    return found


def cells_of(column: pa.Array, there: str, serialize: Callable[[Any], bytes]) -> tuple[Cells, dict[int, str]]:
    """Encode the values of a column for a table column of type `there`; returns the bytes, and index → error for values that cannot be
    encoded.

    Args:
        column: The values.
        there: The type of the column in the table.
        serialize: The client's encoder, for types without a faster way.
    """
    import pyarrow as pa

    kind = type_of_arrow(column.type).name
    if there in ("text", "ascii") and kind == "STRING":
        return column.cast(pa.binary()).to_pylist(), {}
    if there in ("uuid", "timeuuid"):
        return _uuids(column, there)
    if kind == "BINARY":
        return column.to_pylist(), {}
    if there in FIXED:
        return _fixed(column, FIXED[there]), {}
    if kind == "BOOLEAN":
        return [None if value is None else b"\1" if value else b"\0" for value in column.to_pylist()], {}
    return _one_by_one(column, there, serialize)


def _fixed(column: pa.Array, form: str) -> Cells:
    import numpy as np
    import pyarrow as pa

    missing = np.asarray(column.is_null())
    if pa.types.is_timestamp(column.type):
        numbers: np.ndarray[Any, Any] = _numbers(column.cast(pa.timestamp("us", tz=column.type.tz)).cast(pa.int64())) // 1000
    elif pa.types.is_date(column.type):
        numbers = _numbers(column.cast(pa.int32())).astype(np.int64) + DAY_ZERO
    else:
        numbers = _numbers(column)
    data = numbers.astype(form).tobytes()
    width = int(form[2])
    cells: Cells = [data[at : at + width] for at in range(0, len(data), width)]
    for index in np.flatnonzero(missing):
        cells[index] = None
    return cells


def _numbers(column: pa.Array) -> np.ndarray[Any, Any]:
    import numpy as np

    return np.asarray(column.fill_null(0))


def _uuids(column: pa.Array, there: str) -> tuple[Cells, dict[int, str]]:
    cells: Cells = []
    wrong: dict[int, str] = {}
    for index, value in enumerate(column.to_pylist()):
        try:
            cells.append(None if value is None else UUID(value).bytes)
        except ValueError:
            cells.append(None)
            wrong[index] = f'"{value}" is not a valid {there}'
    return cells, wrong


def _one_by_one(column: pa.Array, there: str, serialize: Callable[[Any], bytes]) -> tuple[Cells, dict[int, str]]:
    from scribengin.formats.json_out import JSON, changed_for_text
    from scribengin.formats.rows import column_to_values

    change = changed_for_text(type_of_arrow(column.type)) or (lambda value: value)
    cells: Cells = []
    wrong: dict[int, str] = {}
    for index, value in enumerate(column_to_values(column)):
        try:
            cells.append(None if value is None else JSON.encode(change(value)) if there == "text" else serialize(value))
        except (TypeError, ValueError) as error:
            cells.append(None)
            wrong[index] = " ".join(str(error).split())
    return cells, wrong
