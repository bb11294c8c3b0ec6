"""The output of COPY as Arrow batches, parsed column by column; a value that does not fit affects only its own row."""

from __future__ import annotations

from binascii import unhexlify
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import csv

from scribengin.core.types import arrow_schema
from scribengin.formats.contract import Bad
from scribengin.formats.table_blocks import TableBlock

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from scribengin.core.types import Schema

XMIN = "\0xmin"
"""an additional column: the transaction that wrote the row"""


class PostgresRowParser:
    """Rows of one stream. `with_xmin`: the rows have one more column at the end, the transaction that wrote them."""

    def __init__(self, file: str, schema: Schema, *, with_xmin: bool) -> None:
        self._file = file
        self._schema = schema
        self._form = arrow_schema(schema)
        more = [XMIN] if with_xmin else []
        self._names = [*schema.names, *more]
        kinds = {each.name: pa.string() if pa.types.is_binary(each.type) else each.type for each in self._form}
        self._types = kinds | dict.fromkeys(more, pa.uint32())
        self._hex = [each.name for each in self._form if pa.types.is_binary(each.type)]
        self._with_xmin = with_xmin
        self._rows = 0

    def block(self, data: bytes) -> tuple[TableBlock, NDArray[np.uint32] | None]:
        """Whole rows as one block, and the transactions that wrote them."""
        try:
            table, bad, texts = self._parsed(data, self._types), list[Bad](), None
        except pa.ArrowInvalid:
            whole = self._parsed(data, dict.fromkeys(self._names, pa.string()))
            table, bad = self._row_by_row(whole)
            texts = whole.select(list(self._schema.names))
        xmin = table.column(XMIN).to_numpy() if self._with_xmin else None
        columns = [_bytes_of(table.column(name)) if name in self._hex else table.column(name) for name in self._schema.names]
        batch = pa.RecordBatch.from_arrays(columns, names=list(self._schema.names))
        block = TableBlock(self._file, batch, self._rows, bad=bad, texts=texts)
        self._rows += batch.num_rows
        return block, xmin

    def _parsed(self, data: bytes, types: dict[str, pa.DataType]) -> pa.RecordBatch:
        read = csv.ReadOptions(use_threads=False, block_size=len(data) + 1, column_names=self._names)
        convert = csv.ConvertOptions(
            column_types=types,
            null_values=[""],
            strings_can_be_null=True,
            quoted_strings_can_be_null=False,
            true_values=["t"],
            false_values=["f"],
        )
        parse = csv.ParseOptions(newlines_in_values=True, ignore_empty_lines=False)
        table = csv.read_csv(pa.BufferReader(data), read, parse, convert)
        batch = table.combine_chunks().to_batches()[0]
        for column in batch.columns:
            if pa.types.is_decimal(column.type):  # whose digits the reader does not count
                column.validate(full=True)
        return batch

    def _row_by_row(self, texts: pa.RecordBatch) -> tuple[pa.RecordBatch, list[Bad]]:
        """Parse each value by itself if its column as a whole does not parse; a value that does not fit is null, and its row bad."""
        columns, bad = [], dict[int, Bad]()
        for name in self._names:
            form, column = self._types[name], texts.column(name)
            try:
                columns.append(_cast(column, form))
                continue
            except pa.ArrowInvalid:
                pass
            values = []
            for ordinal, value in enumerate(column):
                try:
                    values.append(_cast(pa.array([value.as_py()], pa.string()), form))
                except pa.ArrowInvalid:
                    values.append(pa.nulls(1, form))
                    message = f'field "{name}" is {value.as_py()}, which {self._schema[name].type} cannot hold'
                    bad.setdefault(ordinal, Bad(ordinal, "type", message))
            columns.append(pa.concat_arrays(values))
        return pa.RecordBatch.from_arrays(columns, names=self._names), [bad[ordinal] for ordinal in sorted(bad)]


def _cast(column: pa.Array, form: pa.DataType) -> pa.Array:
    """Texts in the server's format, as `form`. Raises ArrowInvalid."""
    if pa.types.is_boolean(form):
        return pc.equal(column, "t")
    return column.cast(form)


def _bytes_of(column: pa.Array) -> pa.Array:
    """Bytes from hex digits, all of them at once."""
    column = pa.concat_arrays([column])  # a separate array, without an offset
    validity, offsets, data = column.buffers()
    halved = np.frombuffer(offsets, np.int32, len(column) + 1) // 2
    plain = unhexlify(b"" if data is None else memoryview(data)[: int(halved[-1]) * 2])
    return pa.Array.from_buffers(pa.binary(), len(column), [validity, pa.py_buffer(halved), pa.py_buffer(plain)], column.null_count)


def written_since(xmin: NDArray[np.uint32], oldest: int, now: int) -> bool:
    """Whether any of these transactions may have been running, or not yet started, when `oldest` was the oldest running one. `now`: the
    next transaction number. All numbers are complete except `xmin`, of which the server keeps 32 bits: a row older than 2^32 transactions
    may be considered new, but never a new one old."""
    if not 0 <= now - oldest < 1 << 32:  # negative: from a restored server
        return True
    behind: Any = xmin - np.uint32(oldest & 0xFFFFFFFF)
    return bool(len(xmin)) and int(behind.min()) < now - oldest
