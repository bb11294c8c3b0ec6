"""Rows as the message in which a REST server accepts many cells at once (`CellSet`, Protocol Buffers), built column by column.

Lengths and timestamps are written with as many bytes as the greatest could need, which the format allows. So all have the same width, and
no work is done per row.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from scribengin.core.types import type_of_arrow
from scribengin.formats.json_out import JSON, changed_for_text, iso_texts, plain_texts, shortest
from scribengin.formats.rows import column_to_values

if TYPE_CHECKING:
    from collections.abc import Sequence

Values = Literal["text", "binary"]
_LENGTH, _TIME = 4, 9
"""number of bytes of a length, which is below 2 ** 28, and of a timestamp, which has 63 bits"""
_INTEGERS = {"TINYINT": ">i1", "SMALLINT": ">i2", "INT": ">i4", "BIGINT": ">i8", "FLOAT": ">f4", "DOUBLE": ">f8"}


def values_of(column: pa.Array, form: Values) -> pa.Array:
    """Encode the values of a column; null becomes an empty value. With `binary`, numbers, booleans and timestamps are encoded as by HBase's
    class `Bytes`; everything else is text, as in JSON but without the quotes."""
    type_ = type_of_arrow(column.type)
    name = type_.name
    if form == "binary" and name in (*_INTEGERS, "BOOLEAN", "TIMESTAMP"):
        return _binary(column, name)
    if name == "BINARY":
        found = column
    elif name == "TIMESTAMP":
        found = iso_texts(column)
    elif name in ("STRING", "BOOLEAN", "DECIMAL", "DATE", *_INTEGERS) and name not in ("FLOAT", "DOUBLE"):
        found = plain_texts(column)
    elif name in ("FLOAT", "DOUBLE") and pc.all(pc.is_finite(column)).as_py() is not False:
        # all at once: no number contains a comma
        found = pa.array(
            [None if text == b"null" else text for text in JSON.encode(shortest(column).to_pylist())[1:-1].split(b",")][: len(column)]
        )
    else:
        change = changed_for_text(type_) or (lambda value: value)
        found = pa.array([None if value is None else _text(change(value)) for value in column_to_values(column)], pa.binary())
    return pc.fill_null(found.cast(pa.binary()), b"")


@dataclass(frozen=True, slots=True)
class Cells:
    """Rows: their keys, the (name, values) of their cells, and the timestamp of each row."""

    keys: pa.Array
    columns: Sequence[tuple[bytes, pa.Array]]
    versions: np.ndarray[Any, Any]

    def some(self, at: np.ndarray[Any, Any]) -> Cells:
        """The rows at these indexes."""
        indexes = pa.array(at)
        return Cells(self.keys.take(indexes), [(name, values.take(indexes)) for name, values in self.columns], self.versions[at])

    def message(self) -> bytes:
        """The message with all rows."""
        rows = len(self.keys)
        times = _varints(self.versions, _TIME)
        parts: list[pa.Array] = []
        length = np.full(rows, 1 + _LENGTH, np.int64) + lengths(self.keys)
        for name, values in self.columns:
            sizes = lengths(values)
            column = b"\x12" + _varint(len(name)) + name + b"\x18"
            inner = len(column) + _TIME + 1 + _LENGTH + sizes
            parts += [fixed(b"\x12", _varints(inner, _LENGTH), column, times, b"\x22", _varints(sizes, _LENGTH)), values]
            length += 1 + _LENGTH + inner
        head = fixed(b"\x0a", _varints(length, _LENGTH), b"\x0a", _varints(lengths(self.keys), _LENGTH))
        joined = pc.binary_join_element_wise(head, self.keys, *parts, b"")
        offsets = np.frombuffer(joined.buffers()[1], np.int32)
        message: bytes = joined.buffers()[2][int(offsets[joined.offset]) : int(offsets[joined.offset + rows])].to_pybytes()
        return message


def _text(value: Any) -> bytes:
    return value.encode() if isinstance(value, str) else JSON.encode(value)


def _binary(column: pa.Array, name: str) -> pa.Array:
    missing = np.asarray(column.is_null())
    if name == "BOOLEAN":
        numbers = -np.asarray(column.cast(pa.int8()).fill_null(0)).astype("i1")
        form = ">i1"
    elif name == "TIMESTAMP":
        numbers = np.asarray(column.cast(pa.timestamp("us", tz=column.type.tz)).cast(pa.int64()).fill_null(0)) // 1000
        form = ">i8"
    else:
        numbers, form = np.asarray(column.fill_null(0)), _INTEGERS[name]
    data = numbers.astype(form)
    ends = np.concatenate([[0], np.cumsum(np.where(missing, 0, data.itemsize))]).astype(np.int32)
    return pa.Array.from_buffers(pa.binary(), len(column), [None, pa.py_buffer(ends), pa.py_buffer(data[~missing].tobytes())])


def lengths(column: pa.Array) -> np.ndarray[Any, Any]:
    """The size of each value, in bytes."""
    return np.asarray(pc.binary_length(column)).astype(np.int64)


def _varint(number: int) -> bytes:
    return _varints(np.array([number], np.int64), _LENGTH).tobytes()


def _varints(numbers: np.ndarray[Any, Any], width: int) -> np.ndarray[Any, Any]:
    """Each number with seven bits per byte, the lowest first; all bytes but the last have the continuation bit.

    >>> _varints(np.array([300]), 4).tolist()
    [[172, 130, 128, 0]]
    """
    found = (numbers[:, None] >> (7 * np.arange(width))) & 0x7F
    found[:, :-1] |= 0x80
    return found.astype(np.uint8)


def fixed(*parts: bytes | np.ndarray[Any, Any]) -> pa.Array:
    """Concatenate the parts of each row: bytes that are the same for all rows, and one row of each matrix."""
    rows = next(len(part) for part in parts if isinstance(part, np.ndarray))
    each = [np.tile(np.frombuffer(part, np.uint8), (rows, 1)) if isinstance(part, bytes) else part for part in parts]
    block = np.concatenate(each, axis=1)
    ends = np.arange(rows + 1, dtype=np.int32) * block.shape[1]
    return pa.Array.from_buffers(pa.binary(), rows, [None, pa.py_buffer(ends.astype(np.int32)), pa.py_buffer(block.tobytes())])
