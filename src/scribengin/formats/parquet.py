"""Parquet: matches rows that already have types with the declared columns, without loss."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from scribengin.core.types import arrow_schema, schema_of_arrow
from scribengin.formats.arrow_fit import fitted, never_fits
from scribengin.formats.contract import Bad
from scribengin.formats.json_types import TRUNCATE, holds
from scribengin.formats.table_blocks import TableBlock

if TYPE_CHECKING:
    from collections.abc import Collection

    from scribengin.core.types import Field, Schema


_SHOWN = 100


class ColumnMismatchError(ValueError):
    """A file's column does not match the schema; the message has the column, the found and the expected type."""


def conform(batch: pa.RecordBatch, schema: Schema) -> pa.RecordBatch:
    """The declared columns of `batch`, by exact name, in Arrow's form of the schema; a missing column is null.

    Raises ColumnMismatchError if a value does not fit the declared type.
    """
    block = conformed("", batch, schema)
    if block.bad:
        raise ColumnMismatchError(f"has a row that does not fit: {block.bad[0].message}")
    return block.batch


def conformed(
    file: str,
    batch: pa.RecordBatch,
    schema: Schema,
    *,
    first_row: int = 0,
    columns: tuple[tuple[str, str], ...] | None = None,
    learned: Collection[str] = (),
    truncate: bool = False,
) -> TableBlock:
    """The same for rows of a file, as a block that marks rows that do not fit.

    A value that a column of `learned` cannot hold is null, and counted. `truncate`: of a time what is finer than microseconds is cut off.
    Raises ColumnMismatchError for a declared column of a type of which no value fits.
    """
    arrays: list[pa.Array] = []
    bad: dict[int, Bad] = {}
    unfit: dict[str, int] = {}
    texts: dict[str, pa.Array] = {}
    for field, form in zip(schema.fields, arrow_schema(schema), strict=True):
        at = batch.schema.get_field_index(field.name)
        if at < 0:
            if not field.nullable and field.name not in learned:
                raise ColumnMismatchError(f'has no column "{field.name}", which is NOT NULL')
            arrays.append(pa.nulls(batch.num_rows, form.type))
            continue
        column = batch.column(at)
        if never_fits(column.type, field.type):
            if field.name not in learned:
                raise ColumnMismatchError(f'has column "{field.name}" as {column.type}; expected {field.type}')
            made, marks = pa.nulls(batch.num_rows, form.type), column.is_valid().to_numpy(zero_copy_only=False)
        else:
            made, marks = fitted(column, field.type, truncate=truncate)
        arrays.append(made)
        if marks is None or not marks.any():
            continue
        indexes = pc.indices_nonzero(pa.array(marks)).to_pylist()
        if field.name in learned:
            unfit[field.name] = len(indexes)
            arrays[-1] = pc.if_else(pa.array(marks), pa.scalar(None, form.type), made)
            continue
        shown = {index: _shown(column, index) for index in indexes}
        texts[field.name] = pa.array([shown.get(index) for index in range(batch.num_rows)], pa.string())
        for index in indexes:
            if index not in bad:
                bad[index] = Bad(index, "out-of-range", _misfit(field, shown[index]))
    made_batch = pa.RecordBatch.from_arrays(arrays, names=[field.name for field in schema.fields])
    rows = None
    if bad:
        as_found = [texts.get(name, column) for name, column in zip(made_batch.schema.names, arrays, strict=True)]
        rows = pa.RecordBatch.from_arrays(as_found, names=made_batch.schema.names)
    return TableBlock(file, made_batch, first_row, columns, unfit, bad=[bad[index] for index in sorted(bad)], texts=rows)


def _misfit(field: Field, found: str) -> str:
    finer = f", which may be finer than microseconds ({TRUNCATE})" if holds(field.type, "TIMESTAMP") else ""
    return f'field "{field.name}": found {found if len(found) <= _SHOWN else found[: _SHOWN - 3] + "..."}{finer}; expected {field.type}'


def _shown(column: pa.Array, index: int) -> str:
    """The value as a text, with all its digits."""
    try:
        found: str = column.slice(index, 1).cast(pa.string())[0].as_py()
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        found = str(column[index])
    return found


def declared_by(schema: pa.Schema) -> Schema:
    """The Schema of a file, every column nullable. Raises ValueError that names a column whose type has no word here."""
    found = schema_of_arrow(schema)
    return replace(found, fields=tuple(replace(field, nullable=True) for field in found.fields))
