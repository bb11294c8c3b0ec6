"""Contents of cells as columns: the inverse of `cells.values_of`."""

from __future__ import annotations

import datetime as dt
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from scribengin.core.types import Field, Schema, Type, arrow_type
from scribengin.formats.blocks import LineBlock
from scribengin.formats.json import JsonDecoder
from scribengin.formats.table_blocks import Unfit, fitting

if TYPE_CHECKING:
    from scribengin.connectors.hbase.cells import Values

_FIXED = {
    "BOOLEAN": ">i1",
    "TINYINT": ">i1",
    "SMALLINT": ">i2",
    "INT": ">i4",
    "BIGINT": ">i8",
    "FLOAT": ">f4",
    "DOUBLE": ">f8",
    "TIMESTAMP": ">i8",
}
_TEXTS = ("STRING", "BINARY")
_EPOCH = dt.date(1970, 1, 1).toordinal()
_DAY_MS = 86_400_000
_LEAST_MS, _BEHIND_MS = (dt.date.min.toordinal() - _EPOCH) * _DAY_MS, (dt.date.max.toordinal() - _EPOCH + 1) * _DAY_MS
_HAS_ZONE = r"[T ].*(Z|[+-]\d\d(:?\d\d)?)$"


def column_of(cells: pa.Array, field: Field, form: Values, *, of_key: bool = False) -> tuple[pa.Array, Unfit]:
    """The values of a column from its cells, as bytes; null if a row has none, or its value does not fit. An empty cell is null, but the
    empty text if the column is NOT NULL, or is part of the row key (`of_key`)."""
    asked = field.type
    if not (asked.name in _TEXTS and (of_key or not field.nullable)):
        cells = pc.if_else(pc.equal(pc.binary_length(cells), 0), pa.scalar(None, pa.binary()), cells)
    if asked.name == "BINARY":
        return cells, {}
    if form == "binary" and asked.name in _FIXED:
        return _fixed(cells, asked)
    if asked.name in ("ARRAY", "MAP", "STRUCT"):
        return _nested(cells, asked)
    texts, unfit = fitting(cells, pa.string())
    if asked.name == "STRING":
        return texts, unfit
    zoned = texts
    if asked.name == "TIMESTAMP":
        zoned = pc.if_else(pc.match_substring_regex(texts, _HAS_ZONE), texts, pc.binary_join_element_wise(texts, "Z", ""))
    found, wrong = fitting(zoned, arrow_type(asked))
    rounded = _rounded(texts, found) if asked.name in ("FLOAT", "DOUBLE") else []
    if rounded:
        found = pc.if_else(pa.array(np.isin(np.arange(len(found)), rounded)), pa.scalar(None, found.type), found)
    return found, unfit | {index: texts[index].as_py() for index in (*wrong, *rounded)}


def _rounded(texts: pa.Array, found: pa.Array) -> list[int]:
    """Where an integer changed by the conversion."""
    long = pc.indices_nonzero(pc.match_substring_regex(texts, r"^-?\d{8,}$").fill_null(False)).to_pylist()
    return [index for index in long if found[index].is_valid and int(texts[index].as_py()) != found[index].as_py()]


def _fixed(cells: pa.Array, asked: Type) -> tuple[pa.Array, Unfit]:
    """Decoded as by HBase's class `Bytes`; a value of another length does not fit."""
    kind = np.dtype(_FIXED[asked.name])
    holds = pc.equal(pc.binary_length(cells), kind.itemsize).fill_null(False)
    wrong = pc.indices_nonzero(pc.and_(pc.invert(holds), cells.is_valid())).to_pylist()
    unfit = {index: f"0x{cells[index].as_py().hex()}, not {kind.itemsize} bytes" for index in wrong}
    filled = pc.if_else(holds, cells, pa.scalar(bytes(kind.itemsize), pa.binary()))
    numbers = np.frombuffer(b"".join(filled.to_pylist()), kind).astype(kind.newbyteorder("="))
    missing = ~np.asarray(holds)
    if asked.name == "BOOLEAN":
        return pa.array(numbers != 0, mask=missing), unfit
    if asked.name != "TIMESTAMP":
        return pa.array(numbers, mask=missing), unfit
    outside = ((numbers < _LEAST_MS) | (numbers >= _BEHIND_MS)) & ~missing
    unfit |= {int(index): f"{numbers[index]} milliseconds from 1970" for index in np.flatnonzero(outside)}
    found = pa.array(np.where(outside, 0, numbers), pa.int64(), mask=missing | outside)
    return pc.multiply(found, 1000).cast(arrow_type(asked)), unfit


def _nested(cells: pa.Array, asked: Type) -> tuple[pa.Array, Unfit]:
    """Decoded as JSON, each value as a line of its own."""
    lines = [b'{"v":' + (b"null" if cell is None else cell.replace(b"\n", b" ")) + b"}" for cell in cells.to_pylist()]
    found = JsonDecoder(Schema((Field("v", asked),))).columns(LineBlock("", b"\n".join(lines) + b"\n"))
    at = np.full(len(cells), -1, np.int64)
    at[np.asarray(found.ordinals, np.int64)] = np.arange(len(found.ordinals))
    values = found.batch.column("v").take(pa.array(at, mask=at < 0))
    return values, {int(index): shown(cells[int(index)].as_py()) for index in np.flatnonzero(at < 0)}


def shown(cell: bytes) -> str:
    """For people: text, or its bytes in hex."""
    try:
        text = cell.decode()
    except UnicodeDecodeError:
        return f"0x{cell.hex()}"
    return text if all(char.isprintable() or char in "\t\r\n" for char in text) else f"0x{cell.hex()}"
