"""Converts cells of the protocol to Arrow batches, column by column. A value that does not fit affects only its own row."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any
from uuid import UUID

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from scribengin.connectors.cassandra.columns import DAY_ZERO, FIXED
from scribengin.core.types import Type, arrow_type
from scribengin.formats.contract import Bad
from scribengin.formats.json_out import JSON, iso_texts
from scribengin.formats.table_blocks import TableBlock, Unfit, fitting

if TYPE_CHECKING:
    from collections.abc import Callable

    from scribengin.connectors.cassandra.table import Row
    from scribengin.core.types import Schema

_TEXT = Type("STRING")
_FORMS = FIXED | {"counter": FIXED["bigint"]}
_PROTOCOL = 4
_FIRST_DAY, _LAST_DAY = dt.date.min.toordinal() - dt.date(1970, 1, 1).toordinal(), dt.date.max.toordinal() - dt.date(1970, 1, 1).toordinal()
_DAY_MS = 86_400_000


class CassandraRowParser:
    """Converts the rows of one stream. `held` is column → type in the table; `kinds` are the client's types of the schema's columns."""

    def __init__(self, file: str, schema: Schema, held: Mapping[str, str], kinds: Sequence[Any]) -> None:
        self._file = file
        self._schema = schema
        self._columns = [(field, held[field.name], _value_of(kind)) for field, kind in zip(schema.fields, kinds, strict=True)]
        self._rows = 0

    def block(self, rows: Sequence[Row]) -> TableBlock:
        """Convert rows to a block. The first cell of each row is its token."""
        _, *cells = zip(*rows, strict=True)
        arrays, bad = [], dict[int, Bad]()
        for (field, there, value_of), column in zip(self._columns, cells, strict=True):
            array, unfit = column_of(column, there, field.type, value_of)
            arrays.append(array)
            for ordinal, shown in unfit.items():
                bad.setdefault(ordinal, Bad(ordinal, "type", f'field "{field.name}" is {shown}, which {field.type} cannot hold'))
        batch = pa.RecordBatch.from_arrays(arrays, names=list(self._schema.names))
        texts = self._texts(cells) if bad else None
        block = TableBlock(self._file, batch, self._rows, bad=[bad[ordinal] for ordinal in sorted(bad)], texts=texts)
        self._rows += len(rows)
        return block

    def _texts(self, cells: Iterable[Sequence[bytes | None]]) -> pa.RecordBatch:
        arrays = []
        for (_, there, value_of), column in zip(self._columns, cells, strict=True):
            array, unfit = column_of(column, there, _TEXT, value_of)
            arrays.append(pa.array([unfit.get(index, text) for index, text in enumerate(array.to_pylist())], pa.string()))
        return pa.RecordBatch.from_arrays(arrays, names=list(self._schema.names))


def column_of(cells: Sequence[bytes | None], there: str, asked: Type, value_of: Callable[[bytes], Any]) -> tuple[pa.Array, Unfit]:
    """The values of a column of type `there`, converted to the flow's type, and the values that do not fit, which are null.

    Args:
        cells: The encoded values; None for null.
        there: The type in the table.
        asked: The type in the flow.
        value_of: The client's decoder of that type.
    """
    form = arrow_type(asked)
    if there in ("text", "ascii"):
        return pa.array(cells, pa.binary()).cast(form), {}
    if there == "blob" and asked.name == "BINARY":
        return pa.array(cells, form), {}
    if there == "boolean":
        return pa.array([None if not cell else cell != b"\0" for cell in cells], pa.bool_()).cast(form), {}
    if there in ("date", "timestamp"):
        return _moments(cells, there, form)
    if there in _FORMS:
        numbers = _numbers(cells, _FORMS[there])
        return fitting(numbers.cast(pa.string()) if asked.name == "DECIMAL" else numbers, form)
    if asked.name in ("ARRAY", "MAP"):
        return _values(cells, form, lambda cell: _parts(value_of(cell)))
    texts, unfit = _values(cells, pa.string(), lambda cell: _text(value_of(cell)))
    if asked.name == "STRING":
        return texts, unfit
    found, more = fitting(texts, form)
    return found, unfit | more


def _numbers(cells: Sequence[bytes | None], form: str) -> pa.Array:
    """A value without bytes, which some column types allow, is read as null."""
    blank = bytes(int(form[2]))
    data = np.frombuffer(b"".join([cell or blank for cell in cells]), form)
    return pa.array(data.astype(form.replace(">", "=")), mask=np.array([not cell for cell in cells], bool))


def _moments(cells: Sequence[bytes | None], there: str, form: pa.DataType) -> tuple[pa.Array, Unfit]:
    counted = _numbers(cells, _FORMS[there]).cast(pa.int64())
    if there == "date":
        counted = pc.subtract(counted, DAY_ZERO)
    each = 1 if there == "date" else _DAY_MS
    holds = pc.and_(pc.greater_equal(counted, _FIRST_DAY * each), pc.less(counted, (_LAST_DAY + 1) * each))
    unfit = {}
    if pc.any(pc.invert(holds)).as_py():
        what = "days" if there == "date" else "milliseconds"
        outside = np.flatnonzero(np.asarray(pc.invert(holds).fill_null(False)))
        unfit = {int(index): f"{counted[int(index)].as_py()} {what} from 1970" for index in outside}
        counted = pc.if_else(holds, counted, None)
    if there == "date":
        return counted.cast(pa.int32()).cast(pa.date32()).cast(form), unfit
    moments = pc.multiply(counted, 1000).cast(pa.timestamp("us", tz="UTC"))
    return iso_texts(moments) if pa.types.is_string(form) else moments, unfit


def _values(cells: Sequence[bytes | None], form: pa.DataType, change: Callable[[bytes], Any]) -> tuple[pa.Array, Unfit]:
    values: list[Any] = []
    unfit: Unfit = {}
    for index, cell in enumerate(cells):
        try:
            values.append(None if cell is None else change(cell))
        except (ValueError, OverflowError):  # a time that the protocol allows and Python does not support
            values.append(None)
            unfit[index] = f"0x{cell.hex()}" if cell else ""
    return pa.array(values, form), unfit


def _value_of(kind: Any) -> Callable[[bytes], Any]:
    def value_of(cell: bytes) -> Any:
        return kind.from_binary(cell, _PROTOCOL)

    return value_of


def _parts(value: Any) -> Any:
    """A list, a set or a map in the form that Arrow expects."""
    if value is None:
        return None
    return list(value.items()) if isinstance(value, Mapping) else list(value)


def _text(value: Any) -> str | None:
    plain = _plain(value)
    if plain is None or isinstance(plain, str):
        return plain
    return JSON.encode(plain).decode() if isinstance(plain, dict | list) else str(plain)


def _plain(value: Any) -> Any:
    """The value as JSON; numbers and other values that JSON cannot express become texts."""
    match value:
        case None | bool() | int() | float() | str():
            return value
        case bytes():
            return f"0x{value.hex()}"
        case UUID():
            return str(value)
        case dt.datetime():
            return f"{value.isoformat(timespec='milliseconds')}Z"
        case Mapping():
            return {str(_plain(key)): _plain(each) for key, each in value.items()}
    if hasattr(value, "_asdict"):
        return {name: _plain(each) for name, each in value._asdict().items()}
    if isinstance(value, Iterable):
        return [_plain(each) for each in value]
    return str(value)
