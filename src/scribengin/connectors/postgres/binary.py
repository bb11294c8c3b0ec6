"""Rows in the bytes that COPY reads with FORMAT binary: the server has no texts to parse."""

from __future__ import annotations

import datetime as dt
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

_HEAD = b"PGCOPY\n\xff\r\n\0" + bytes(8)
_TAIL = b"\xff\xff"
_NUMBERS = {"int2": ">i2", "int4": ">i4", "int8": ">i8", "float4": ">f4", "float8": ">f8"}
"""type of the server → the layout of its bytes"""
_TEXTS = ("text", "varchar")
_UNIX, _DAY = dt.datetime(1970, 1, 1), dt.timedelta(days=1)
_AHEAD = dt.datetime(2000, 1, 1) - _UNIX
"""the server's epoch"""
_FIRST, _LAST = dt.datetime.min - _UNIX, dt.datetime.max - _UNIX
"""values outside this range are sent as text, which the server checks"""


def as_binary(batch: pa.RecordBatch, types: Mapping[str, str]) -> bytes | None:
    """The rows, for columns of these types (`typname`); None if they must be sent as text."""
    fields: list[pa.Array] = []
    for name, column in zip(batch.schema.names, batch.columns, strict=True):
        parts = _field(column, types.get(name, ""))
        if parts is None:
            return None
        fields += parts
    joined = pc.binary_join_element_wise(pa.scalar(batch.num_columns.to_bytes(2, "big"), pa.binary()), *fields, b"")
    _, offsets, data = joined.buffers()
    whole = data[: int(np.frombuffer(offsets, np.int32)[batch.num_rows])]
    return b"".join((_HEAD, whole, _TAIL))


def _field(column: pa.Array, type_: str) -> list[pa.Array] | None:
    """The field of each row (BINARY): its length, and its bytes."""
    form = column.type
    if type_ in _TEXTS and pa.types.is_string(form):
        return _of_any_length(column.cast(pa.binary()))
    if type_ == "bytea" and pa.types.is_binary(form):
        return _of_any_length(column)
    if type_ == "bool" and pa.types.is_boolean(form):
        return _of_one_length(column.cast(pa.uint8()), "u1")
    if type_ in ("timestamptz", "timestamp") and pa.types.is_timestamp(form):
        return _since(column.cast(pa.timestamp("us", tz="UTC"), safe=False).cast(pa.int64()), dt.timedelta(microseconds=1), ">i8")
    if type_ == "date" and pa.types.is_date32(form):
        return _since(column.cast(pa.int32()), _DAY, ">i4")
    if type_ in ("float4", "float8") and pa.types.is_floating(form):
        # for a narrower number the text is meant, 0.1, and not the bits
        return _of_one_length(column, _NUMBERS[type_]) if form.bit_width == 8 * np.dtype(_NUMBERS[type_]).itemsize else None
    if type_ in ("int2", "int4", "int8") and pa.types.is_signed_integer(form):
        return _of_one_length(column, _NUMBERS[type_]) if form.bit_width <= 8 * np.dtype(_NUMBERS[type_]).itemsize else None
    return None


def _since(counted: pa.Array, unit: dt.timedelta, wire: str) -> list[pa.Array] | None:
    """Times, in `unit`s since 1970."""
    ends = pc.min_max(counted)
    if ends["min"].as_py() is not None and not _FIRST // unit <= ends["min"].as_py() <= ends["max"].as_py() <= _LAST // unit:
        return None
    return _of_one_length(pc.subtract(counted, pa.scalar(_AHEAD // unit, counted.type)), wire)


def _of_one_length(column: pa.Array, wire: str) -> list[pa.Array]:
    """Numbers; a null has the length -1, and no bytes."""
    rows, size = len(column), np.dtype(wire).itemsize
    valid = column.is_valid().to_numpy(zero_copy_only=False)
    values = column.filter(column.is_valid()) if column.null_count else column
    wired: NDArray[np.uint8] = values.to_numpy(zero_copy_only=False).astype(wire).view(np.uint8).reshape(len(values), size)
    if not column.null_count:
        length = np.frombuffer(size.to_bytes(4, "big"), np.uint8)
        both = np.concatenate((np.broadcast_to(length, (rows, 4)), wired), axis=1)
        return [_binary(np.arange(rows + 1) * (4 + size), both)]
    lengths = np.where(valid, size, -1).astype(">i4")
    offsets = np.concatenate(([0], np.cumsum(valid) * size))
    return [_binary(np.arange(rows + 1) * 4, lengths), _binary(offsets, wired)]


def _of_any_length(column: pa.Array) -> list[pa.Array]:
    lengths = pc.binary_length(column).fill_null(-1).to_numpy(zero_copy_only=False).astype(">i4")
    return [_binary(np.arange(len(column) + 1) * 4, lengths), column.fill_null(b"") if column.null_count else column]


def _binary(offsets: NDArray[np.int64], data: NDArray[np.generic]) -> pa.Array:
    buffers = [None, pa.py_buffer(offsets.astype(np.int32)), pa.py_buffer(np.ascontiguousarray(data))]
    return pa.Array.from_buffers(pa.binary(), len(offsets) - 1, buffers)
