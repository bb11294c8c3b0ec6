"""Parquet: rows that have types already, matched against the declared columns without loss."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from scribengin.core.types import INTEGER_BITS, arrow_schema, schema_of_arrow, type_of_arrow
from scribengin.formats.blocks import ArrowBlock, DamageBlock
from scribengin.formats.contract import Bad, Columns, Rows
from scribengin.formats.rows import batch_to_rows

if TYPE_CHECKING:
    from collections.abc import Collection

    from scribengin.core.types import Field, Schema, Type
    from scribengin.formats.contract import Block


class ArrowDecoder:
    """Takes `ArrowBlock`s whose batches have the schema's columns already (see `conform`): only NOT NULL is left to check."""

    def __init__(self, schema: Schema) -> None:
        self.schema = schema
        self._needed = [field.name for field in schema.fields if not field.nullable]
        self._form = arrow_schema(schema)

    def rows(self, block: Block) -> Rows:
        """The rows as dicts."""
        columns = self.columns(block)
        return Rows(batch_to_rows(columns.batch), columns.ordinals, columns.bad)

    def columns(self, block: Block) -> Columns:
        """The block's own batch, without the rows that lack what is NOT NULL."""
        if isinstance(block, DamageBlock):
            return Columns(pa.RecordBatch.from_pylist([], self._form), [], block.bad())
        assert isinstance(block, ArrowBlock)
        batch = block.batch
        bad: dict[int, Bad] = {}
        for name in self._needed:
            column = batch.column(name)
            if column.null_count:
                for ordinal in pc.indices_nonzero(column.is_null()).to_pylist():
                    bad.setdefault(ordinal, Bad(ordinal, "missing", f'field "{name}" is null and NOT NULL'))
        if not bad:
            return Columns(pa.RecordBatch.from_arrays(batch.columns, schema=self._form), range(batch.num_rows))
        kept = [ordinal for ordinal in range(batch.num_rows) if ordinal not in bad]
        good = batch.take(pa.array(kept, pa.int64()))
        return Columns(pa.RecordBatch.from_arrays(good.columns, schema=self._form), kept, [bad[ordinal] for ordinal in sorted(bad)])


class ColumnMismatchError(ValueError):
    """A file's column is not what the schema declares; says which, what was found and what is asked."""


def conform(batch: pa.RecordBatch, schema: Schema, learned: Collection[str] = (), unfit: dict[str, int] | None = None) -> pa.RecordBatch:
    """The declared columns of `batch`, by exact name, in Arrow's form of the schema; a column that is not there is null.

    Integers may be widened or narrowed and decimals and timestamps change their scale where every value stays what it is;
    a timestamp without zone is UTC. Raises ColumnMismatchError for everything else; in a column of `learned` what does not fit is null
    then, and counted in `unfit`: the one value, or every value of a column that has another type.
    """
    arrays = []
    for field, form in zip(schema.fields, arrow_schema(schema), strict=True):
        if batch.schema.get_field_index(field.name) < 0:
            if field.nullable:
                arrays.append(pa.nulls(batch.num_rows, form.type))
                continue
            raise ColumnMismatchError(f'has no column "{field.name}", which is NOT NULL')
        column = batch.column(field.name)
        if not column.type.equals(form.type):
            try:
                column = _cast(column, field, form.type)
            except ColumnMismatchError:
                if field.name not in learned:
                    raise
                found = _fitting(column, form.type) if _fits(column.type, field.type) else pa.nulls(batch.num_rows, form.type)
                if unfit is not None and column.null_count < found.null_count:
                    unfit[field.name] = found.null_count - column.null_count
                column = found
        arrays.append(column)
    names = [field.name for field in schema.fields]
    return pa.RecordBatch.from_arrays(arrays, names=names)


def _cast(column: pa.Array, field: Field, form: pa.DataType) -> pa.Array:
    if not _fits(column.type, field.type):
        raise ColumnMismatchError(f'has column "{field.name}" as {column.type}; asked is {field.type}')
    try:
        return column.cast(form)
    except pa.ArrowInvalid as error:
        message = f'has a value in column "{field.name}" ({column.type}) that {field.type} cannot hold: {error}'
        raise ColumnMismatchError(message) from None


def _fitting(column: pa.Array, form: pa.DataType) -> pa.Array:
    """`column` as `form`, null where the value does not fit."""
    with suppress(pa.ArrowNotImplementedError):  # of lists and structs
        again = column.cast(form, safe=False).cast(column.type, safe=False)
        column = pc.if_else(pc.equal(again, column), column, pa.scalar(None, column.type))
    return pa.concat_arrays(_halved(column, form))


def _halved(column: pa.Array, form: pa.DataType) -> list[pa.Array]:
    """Halved until the cast takes each: it tells what an unsafe one there and back hides (unsigned integers, the digits of a decimal)."""
    try:
        # copied: of a slice of lists the cast looks at the values of all
        return [pa.concat_arrays([column]).cast(form)]
    except pa.ArrowInvalid:
        if len(column) == 1:
            return [pa.nulls(1, form)]
    half = len(column) // 2
    return _halved(column.slice(0, half), form) + _halved(column.slice(half), form)


def _fits(found: pa.DataType, asked: Type) -> bool:
    """True if values of `found` can be what `asked` says, one for one; whether each of them fits, the cast tells."""
    kinds = pa.types
    if kinds.is_dictionary(found):
        return _fits(found.value_type, asked)
    match asked.name:
        case "STRING":
            return any(kind(found) for kind in (kinds.is_string, kinds.is_large_string, kinds.is_string_view))
        case "BINARY":
            return bool(
                kinds.is_binary(found) or kinds.is_large_binary(found) or kinds.is_fixed_size_binary(found) or kinds.is_binary_view(found)
            )
        case "DATE":
            return bool(kinds.is_date(found))
        case "TIMESTAMP":
            return bool(kinds.is_timestamp(found))
        case "DOUBLE":
            return bool(kinds.is_floating(found))
        case "FLOAT":
            return bool(kinds.is_float32(found) or kinds.is_float16(found))
        case "DECIMAL":
            return bool(kinds.is_decimal(found))
        case "ARRAY":
            lists = kinds.is_list(found) or kinds.is_large_list(found) or kinds.is_fixed_size_list(found)
            return bool(lists and _fits(found.value_type, asked.parts[0]))
        case "MAP":
            return bool(kinds.is_map(found) and _fits(found.key_type, asked.parts[0]) and _fits(found.item_type, asked.parts[1]))
        case "STRUCT":
            names = [field.name for field in asked.fields]
            return bool(
                kinds.is_struct(found)
                and [field.name for field in found] == names
                and all(_fits(part.type, field.type) for part, field in zip(found, asked.fields, strict=True))
            )
    if asked.name in INTEGER_BITS:
        return bool(kinds.is_integer(found))
    return bool(kinds.is_null(found)) or type_of_arrow(found).name == asked.name


def declared_by(schema: pa.Schema) -> Schema:
    """The Schema of a file, every column nullable. Raises ValueError that names a column whose type has no word here."""
    found = schema_of_arrow(schema)
    return replace(found, fields=tuple(replace(field, nullable=True) for field in found.fields))
