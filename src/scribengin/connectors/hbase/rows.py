"""Rows of a scan as Arrow batches, column by column; a value that does not fit affects only its own row."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from scribengin.connectors.hbase.scan import shown as key_shown
from scribengin.connectors.hbase.values import column_of, shown
from scribengin.formats.contract import Bad
from scribengin.formats.table_blocks import TableBlock

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from scribengin.connectors.hbase.cell_names import CellNames
    from scribengin.connectors.hbase.cells import Values
    from scribengin.connectors.hbase.gateway import ValueRow
    from scribengin.connectors.hbase.row_keys import Template
    from scribengin.core.types import Schema


class HBaseRowParser:
    """Rows of one stream. `template`: the columns in row keys; all others are cells."""

    def __init__(self, file: str, schema: Schema, names: CellNames, template: Template, values: Values) -> None:
        self._file = file
        self._schema = schema
        self._template = template
        self._values = values
        self._columns = [name for name in schema.names if name not in template.names]
        self._wanted = pa.array([names.cell(name).encode() for name in self._columns], pa.binary())
        self._rows = 0

    def block(self, rows: Sequence[ValueRow]) -> TableBlock:
        """The rows as a block."""
        keys = pa.array([row.key for row in rows], pa.binary())
        in_key = self._template.columns(keys) if self._template.names else {}
        cells = in_key | self._cells(rows)
        arrays, bad = [], dict[int, Bad]()
        for name in list(in_key)[:1]:
            for index in pc.indices_nonzero(in_key[name].is_null()).to_pylist():
                bad[index] = Bad(index, "type", f"the row key {key_shown(rows[index].key)} does not match `row`")
        for field in self._schema.fields:
            of_key = field.name in in_key
            array, unfit = column_of(cells[field.name], field, "text" if of_key else self._values, of_key=of_key)
            arrays.append(array)
            for index, value in unfit.items():
                bad.setdefault(index, Bad(index, "type", f'field "{field.name}" is {value}, which {field.type} cannot hold'))
        names = list(self._schema.names)
        batch = pa.RecordBatch.from_arrays(arrays, names=names)
        texts = self._texts(keys, cells) if bad else None
        block = TableBlock(self._file, batch, self._rows, bad=[bad[index] for index in sorted(bad)], texts=texts)
        self._rows += len(rows)
        return block

    def _cells(self, rows: Sequence[ValueRow]) -> dict[str, pa.Array]:
        """Column → value of its cell in each row, null if there is none."""
        if not self._columns:
            return {}
        counts = np.fromiter((len(row.cells) for row in rows), np.int64, len(rows))
        held = pa.array([cell.column for row in rows for cell in row.cells], pa.binary())
        values = pa.array([cell.value for row in rows for cell in row.cells], pa.binary())
        codes = np.asarray(pc.index_in(held, self._wanted).fill_null(-1))
        at = np.full((len(self._columns), len(rows)), -1, np.int64)
        wanted = np.flatnonzero(codes >= 0)
        at[codes[wanted], np.repeat(np.arange(len(rows)), counts)[wanted]] = wanted
        return {name: values.take(pa.array(each, mask=each < 0)) for name, each in zip(self._columns, at, strict=True)}

    def _texts(self, keys: pa.Array, cells: Mapping[str, pa.Array]) -> pa.RecordBatch:
        """The input row for a dead letter, with the row key first."""
        given = {"row key": keys} | dict(cells)
        texts = [pa.array([None if each is None else shown(each) for each in column.to_pylist()], pa.string()) for column in given.values()]
        return pa.RecordBatch.from_arrays(texts, names=list(given))
