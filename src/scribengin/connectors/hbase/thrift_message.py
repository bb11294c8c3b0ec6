"""Rows as the call `putMultiple` of a Thrift server: the bytes of the binary protocol, built column by column."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow.compute as pc

from scribengin.connectors.hbase.cells import fixed, lengths

if TYPE_CHECKING:
    from scribengin.connectors.hbase.cells import Cells

METHOD = "putMultiple"
_STRING, _I64, _STRUCT, _LIST, _STOP = b"\x0b", b"\x0a", b"\x0c", b"\x0f", b"\x00"
_CALL = b"\x80\x01\x00\x01"


def put_message(table: str, cells: Cells) -> bytes:
    """The call: struct TPut of each row, with a TColumnValue of each of its cells."""
    times = _be(cells.versions, 8)
    parts = [fixed(_STRING + b"\0\1", _be(lengths(cells.keys), 4)), cells.keys]
    # the end of one cell is joined with the beginning of the next: another part for each would cost another copy of everything
    before: tuple[bytes | np.ndarray[Any, Any], ...] = (_LIST + b"\0\2" + _STRUCT + _number(len(cells.columns)),)
    ends = (_I64 + b"\0\4", times, _STOP)
    for name, values in cells.columns:
        family, _, qualifier = name.partition(b":")
        head = _STRING + b"\0\1" + _text(family) + _STRING + b"\0\2" + _text(qualifier) + _STRING + b"\0\3"
        parts += [fixed(*before, head, _be(lengths(values), 4)), values]
        before = ends
    parts.append(fixed(*ends, _STOP))
    joined = pc.binary_join_element_wise(*parts, b"")
    rows = len(cells.keys)
    offsets = np.frombuffer(joined.buffers()[1], np.int32)
    body = joined.buffers()[2][int(offsets[joined.offset]) : int(offsets[joined.offset + rows])]
    begin = _CALL + _text(METHOD.encode()) + _number(0)
    return b"".join([begin, _STRING, b"\0\1", _text(table.encode()), _LIST, b"\0\2", _STRUCT, _number(rows), body, _STOP])


def _be(numbers: np.ndarray[Any, Any], width: int) -> np.ndarray[Any, Any]:
    """Each number in that many bytes, the highest first.

    >>> _be(np.array([258]), 4).tolist()
    [[0, 0, 1, 2]]
    """
    return np.ascontiguousarray(numbers.astype(f">i{width}")).view(np.uint8).reshape(-1, width)


def _number(number: int) -> bytes:
    return number.to_bytes(4)


def _text(text: bytes) -> bytes:
    return _number(len(text)) + text
