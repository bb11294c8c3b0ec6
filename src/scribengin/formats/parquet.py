"""Parquet: matches rows that already have types with the declared columns, without loss."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from scribengin.core.types import INTEGER_BITS, arrow_schema, arrow_type, schema_of_arrow, type_of_arrow
from scribengin.formats.contract import Bad
from scribengin.formats.json_types import EXACT, TRUNCATE, holds
from scribengin.formats.table_blocks import TableBlock

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from scribengin.core.types import Field, Type

    Marks = NDArray[np.bool_]
    """a mask of the values that do not fit"""
    from collections.abc import Collection

    from scribengin.core.types import Schema


# Converts Arrow columns of any type to columns of a Schema, if no value changes. The rules are those of the parse contract. A type that
# never fits is an error of the whole column (`never_fits`); single values that do not fit are null in the result, and marked.


_KINDS = pa.types
_WIDEST = 38
"""digits of a DECIMAL"""


def never_fits(found: pa.DataType, asked: Type) -> bool:
    """True if no value of `found` except null can be a value of `asked`, or no object because a field is missing."""
    if _KINDS.is_null(found):
        return False
    if _KINDS.is_dictionary(found):
        return never_fits(found.value_type, asked)
    match asked.name:
        case "STRING":
            return not any(kind(found) for kind in (_KINDS.is_string, _KINDS.is_large_string, _KINDS.is_string_view))
        case "BINARY":
            kinds = (_KINDS.is_binary, _KINDS.is_large_binary, _KINDS.is_fixed_size_binary, _KINDS.is_binary_view)
            return not any(kind(found) for kind in kinds)
        case "DATE" | "TIMESTAMP":
            return not (_KINDS.is_date(found) or _KINDS.is_timestamp(found))
        case "DOUBLE":
            return not (_KINDS.is_floating(found) or _KINDS.is_integer(found))
        case "FLOAT":
            return not (_KINDS.is_float32(found) or _KINDS.is_float16(found) or _KINDS.is_integer(found))
        case "DECIMAL":
            return not (_KINDS.is_decimal(found) or _KINDS.is_integer(found))
        case "ARRAY":
            return not _is_list(found) or never_fits(found.value_type, asked.parts[0])
        case "MAP":
            return not _KINDS.is_map(found) or any(map(never_fits, (found.key_type, found.item_type), asked.parts))
        case "STRUCT":
            return not _KINDS.is_struct(found) or any(_lacks(found, field) for field in asked.fields)
    if asked.name in INTEGER_BITS:
        return not (_KINDS.is_integer(found) or _KINDS.is_floating(found))
    return type_of_arrow(found).name != asked.name


def _lacks(found: pa.StructType, field: Field) -> bool:
    at = found.get_field_index(field.name)
    return never_fits(found.field(at).type, field.type) if at >= 0 else not field.nullable


def _is_list(found: pa.DataType) -> bool:
    return bool(_KINDS.is_list(found) or _KINDS.is_large_list(found) or _KINDS.is_fixed_size_list(found))


def fitted(column: pa.Array, asked: Type, *, truncate: bool = False) -> tuple[pa.Array, Marks | None]:
    """Convert a column whose type may fit. `truncate`: times are cut to microseconds.

    Returns:
        (the column as `asked`, True for each value that does not fit; None if all fit).
    """
    form = arrow_type(asked)
    if column.type.equals(form) and asked.name != "STRUCT":
        return column, None
    if _KINDS.is_null(column.type):
        return pa.nulls(len(column), form), None
    if _KINDS.is_dictionary(column.type):
        return fitted(column.cast(column.type.value_type), asked, truncate=truncate)
    match asked.name:
        case "STRUCT":
            return _struct(column, asked, form, truncate=truncate)
        case "ARRAY" | "MAP":
            return _list(column, asked, form, truncate=truncate)
        case "TIMESTAMP":
            return _time(column, form, truncate=truncate)
        case "DATE" if _KINDS.is_timestamp(column.type):
            return _marked(column, column.cast(form), lambda days: days.cast(pa.timestamp("us")).cast(column.type))
        case "DECIMAL" if _KINDS.is_integer(column.type):
            column = column.cast(pa.decimal256(2 * _WIDEST, 0))
    try:
        return column.cast(form), None
    except pa.ArrowInvalid:
        pass
    if _KINDS.is_integer(column.type) and _KINDS.is_floating(form):
        return _whole_as_real(column, form)
    if _KINDS.is_floating(column.type):
        return _real_as_whole(column.cast(pa.float64()), form)
    return _one_by_one(column, form)


def _struct(column: pa.StructArray, asked: Type, form: pa.StructType, *, truncate: bool) -> tuple[pa.Array, Marks | None]:
    """Match fields by name: one that is missing is null, a surplus one is dropped."""
    there = dict(zip([field.name for field in column.type], column.flatten(), strict=True))
    null = _nulls(column)
    arrays: list[pa.Array] = []
    unfit: Marks | None = None
    for field, own in zip(asked.fields, form, strict=True):
        part, marks = (
            fitted(there[field.name], field.type, truncate=truncate) if field.name in there else (pa.nulls(len(column), own.type), None)
        )
        if not field.nullable and part.null_count:
            marks = _either(marks, _nulls(part) & ~null)
        unfit = _either(unfit, marks)
        arrays.append(part)
    return pa.StructArray.from_arrays(arrays, fields=list(form), mask=pa.array(null)), unfit


def _list(column: pa.Array, asked: Type, form: pa.DataType, *, truncate: bool) -> tuple[pa.Array, Marks | None]:
    """Convert lists of any kind, and maps."""
    null = _nulls(column)
    if _KINDS.is_fixed_size_list(column.type):
        lengths, parts = np.full(len(column), column.type.list_size), [column.flatten()]
    else:
        offsets = column.offsets.to_numpy()
        lengths, first, last = np.diff(offsets), offsets[0], offsets[-1]
        parts = [column.values] if asked.name == "ARRAY" else [column.keys, column.items]
        parts = [part.slice(first, last - first) for part in parts]
        if lengths[null].any():  # the values under a null do not belong to the column
            there = pa.array(np.repeat(~null, lengths))
            parts = [part.filter(there) for part in parts]
    lengths = np.where(null, 0, lengths)
    made = [fitted(part, type_, truncate=truncate) for part, type_ in zip(parts, asked.parts, strict=True)]
    begins = pa.array(np.concatenate(([0], np.cumsum(lengths))).astype(np.int32), mask=np.append(null, False))
    kind = pa.ListArray if asked.name == "ARRAY" else pa.MapArray
    array = kind.from_arrays(begins, *(part for part, _ in made)).cast(form)
    inner = _either(*(marks for _, marks in made)) if len(made) > 1 else made[0][1]
    if inner is None:
        return array, None
    unfit = np.zeros(len(column), np.bool_)
    unfit[np.repeat(np.arange(len(column)), lengths)[inner]] = True
    return array, unfit


def _time(column: pa.Array, form: pa.DataType, *, truncate: bool) -> tuple[pa.Array, Marks | None]:
    if _KINDS.is_date(column.type):
        return column.cast(pa.timestamp("us")).cast(form), None
    try:
        return column.cast(form), None
    except pa.ArrowInvalid:
        pass
    if column.type.unit != "ns":
        return _one_by_one(column, form)
    null = _nulls(column)
    counted = column.cast(pa.int64()).fill_null(0).to_numpy()
    times = pa.array(counted // 1000, mask=null).cast(form)  # not by Arrow's kernels: these round towards 1970, or overflow
    return (times, None) if truncate else _without(times, (counted % 1000 != 0) & ~null)


def _marked(column: pa.Array, made: pa.Array, back: object) -> tuple[pa.Array, Marks | None]:
    """`made` with null where `back` does not give the value of `column` again; and these positions."""
    kept = pc.equal(back(made), column).fill_null(True)  # type: ignore[operator]
    return _without(made, ~kept.to_numpy(zero_copy_only=False))


def _without(made: pa.Array, unfit: Marks) -> tuple[pa.Array, Marks | None]:
    if not unfit.any():
        return made, None
    return pc.if_else(pa.array(unfit), pa.scalar(None, made.type), made), unfit


def _whole_as_real(column: pa.Array, form: pa.DataType) -> tuple[pa.Array, Marks | None]:
    """Convert whole numbers to floats. Arrow's cast rejects all numbers above 2^53 (2^24), even those that a float represents exactly."""
    made = column.cast(form, safe=False)
    unfit = np.zeros(len(column), np.bool_)
    limit = EXACT if _KINDS.is_float64(form) else 2**24
    beyond = pc.or_(pc.greater(column.cast(pa.decimal128(_WIDEST, 0)), limit), pc.less(column.cast(pa.decimal128(_WIDEST, 0)), -limit))
    for index in pc.indices_nonzero(beyond.fill_null(False)).to_pylist():
        unfit[index] = int(made[index].as_py()) != column[index].as_py()
    return _without(made, unfit)


def _real_as_whole(column: pa.Array, form: pa.DataType) -> tuple[pa.Array, Marks | None]:
    values = column.to_numpy(zero_copy_only=False)
    half = 2.0 ** (form.bit_width - 1)
    with np.errstate(invalid="ignore"):
        unfit = ~((values >= -half) & (values < half) & (np.trunc(values) == values)) & ~_nulls(column)
    return (
        _without(pc.if_else(pa.array(unfit), pa.scalar(None, column.type), column).cast(form), unfit)
        if unfit.any()
        else (column.cast(form), None)
    )


def _one_by_one(column: pa.Array, form: pa.DataType) -> tuple[pa.Array, Marks | None]:
    """Cast by bisection; values that the cast rejects become null."""
    made = pa.concat_arrays(_halved(column, form))
    unfit: Marks = _nulls(made) & ~_nulls(column)
    return made, unfit if unfit.any() else None


def _halved(column: pa.Array, form: pa.DataType) -> list[pa.Array]:
    try:
        return [column.cast(form)]
    except pa.ArrowInvalid:
        if len(column) == 1:
            return [pa.nulls(1, form)]
    half = len(column) // 2
    return _halved(column.slice(0, half), form) + _halved(column.slice(half), form)


def _nulls(column: pa.Array) -> Marks:
    nulls: Marks = column.is_null().to_numpy(zero_copy_only=False)
    return nulls


def _either(one: Marks | None, other: Marks | None) -> Marks | None:
    if one is None or other is None:
        return other if one is None else one
    return one | other


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
    """The declared columns of rows of a file, as a block that marks rows that do not fit.

    Args:
        file: The name of the file.
        batch: The rows.
        schema: The declared columns.
        first_row: The number of the first row in the file, from 0.
        columns: All columns of the file with their types.
        learned: Columns that the flow does not declare: a value that does not fit one becomes null and is counted.
        truncate: Times are cut to microseconds.

    Raises:
        ColumnMismatchError: A declared column has a type of which no value fits, or a NOT NULL column is missing.
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
    """The Schema of a file, every column nullable. Raises ValueError, with the column, for a type that has no equivalent in a flow file."""
    found = schema_of_arrow(schema)
    return replace(found, fields=tuple(replace(field, nullable=True) for field in found.fields))
