"""Converts Arrow batches to Python rows and back, strictly.

`rows_to_batch` converts the output of a user's function: nothing is converted silently (no bool for BIGINT, no 1.0 for 1, no naive
datetime). `batch_to_rows` gives the values of docs/flow-file.md: aware datetimes in UTC, Decimal, dicts and lists.
"""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from scribengin.core.types import INTEGER_BITS, arrow_schema, type_of_arrow
from scribengin.formats.contract import Bad
from scribengin.formats.json_types import MisfitError, fit_decimal, to_float32, to_utc

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from scribengin.core.types import Field, Schema, Type

_EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
_PYTHON: dict[str, tuple[type, ...]] = {
    "BOOLEAN": (bool,),
    "TINYINT": (int,),
    "SMALLINT": (int,),
    "INT": (int,),
    "BIGINT": (int,),
    "FLOAT": (float, int),
    "DOUBLE": (float, int),
    "STRING": (str,),
    "BINARY": (bytes,),
    "DATE": (dt.date,),
    "TIMESTAMP": (dt.datetime,),
    "DECIMAL": (Decimal, int),
    "ARRAY": (list, tuple),
    "MAP": (dict,),
    "STRUCT": (dict,),
}
_AS_THEY_ARE = frozenset({"BOOLEAN", "STRING", "BINARY", "DATE", *INTEGER_BITS})
"""types whose values Arrow converts correctly if their Python type is correct"""


def rows_to_batch(rows: list[dict[str, Any]], schema: Schema, ordinals: Sequence[int]) -> tuple[pa.RecordBatch, list[Bad]]:
    """(the batch of the rows that fit `schema`, in their order; a Bad, which names the key, for each row that does not).

    A key that is left out is null. `rows` is not changed; `ordinals` are the ordinals of the Bads.
    """
    form = arrow_schema(schema)
    batch = _quick(rows, schema, form)
    if batch is not None:
        return batch, []
    good: list[dict[str, Any]] = []
    bad: list[Bad] = []
    for row, ordinal in zip(rows, ordinals, strict=True):
        try:
            good.append(_checked_fields(row, schema.fields))
        except MisfitError as misfit:
            bad.append(Bad(ordinal, misfit.reason, f'key "{"".join(misfit.path).lstrip(".")}": {misfit.found}'))
    arrays = [pa.array([row[field.name] for row in good], field.type) for field in form]
    return pa.RecordBatch.from_arrays(arrays, schema=form), bad


def settle_rows(rows: list[dict[str, Any]], schema: Schema) -> tuple[list[dict[str, Any]], list[Bad]]:
    """(the rows that fit `schema`, as `batch_to_rows` would give them; a Bad, by its index, for each row that does not).

    Returns `rows` itself if all of them already have that form: every key is present, and every value has the column's Python type.
    """
    if _are_settled(rows, schema):
        return rows, []
    batch, bad = rows_to_batch(rows, schema, range(len(rows)))
    return batch_to_rows(batch), bad


def _are_settled(rows: list[dict[str, Any]], schema: Schema) -> bool:
    if sum(map(len, rows)) != len(schema.fields) * len(rows):
        return False
    try:
        return all(_is_settled([row[field.name] for row in rows], field) for field in schema.fields)
    except (KeyError, UnicodeEncodeError):
        return False


def _is_settled(values: list[Any], field: Field) -> bool:
    kinds = _kinds(values, field)
    if not kinds:
        return kinds is not None
    values = [value for value in values if value is not None]
    name = field.type.name
    match name:
        case "TINYINT" | "SMALLINT" | "INT" | "BIGINT":
            half = 1 << (INTEGER_BITS[name] - 1)
            return kinds == {int} and -half <= min(values) and max(values) < half
        case "STRING":
            return kinds == {str} and "".join(values).encode() is not None
        case "TIMESTAMP":
            return kinds == {dt.datetime} and all(value.tzinfo is dt.UTC for value in values)
        case "DOUBLE":
            return kinds == {float}
    return name in _AS_THEY_ARE and kinds == {_PYTHON[name][0]}


def _quick(rows: list[dict[str, Any]], schema: Schema, form: pa.Schema) -> pa.RecordBatch | None:
    """The whole batch, column by column, if every value fits and no row has a key that is not in the schema; else None."""
    keys = sum(map(len, rows))
    whole = keys == len(schema.fields) * len(rows)
    arrays = []
    try:
        for field, column in zip(schema.fields, form, strict=True):
            name = field.name
            if whole:
                values = [row[name] for row in rows]
            else:
                values = [row.get(name) for row in rows]
                keys -= sum([name in row for row in rows])
            array = _column(values, field, column.type)
            if array is None:
                return None
            arrays.append(array)
    except (KeyError, MisfitError, pa.ArrowException, UnicodeEncodeError, OverflowError):
        return None
    return pa.RecordBatch.from_arrays(arrays, schema=form) if whole or not keys else None


def _column(values: list[Any], field: Field, form: pa.DataType) -> pa.Array | None:
    """One column; None, or a MisfitError, if a value does not fit."""
    kinds = _kinds(values, field)
    if kinds is None:
        return None
    name = field.type.name
    if name == "TIMESTAMP" and kinds <= {dt.datetime} and all(value is None or value.tzinfo is dt.UTC for value in values):
        return pa.array(values, form)
    if (name == "DOUBLE" and kinds <= {float, int}) or (name in _AS_THEY_ARE and kinds <= {_PYTHON[name][0]}):
        return pa.array(values, form)
    return pa.array([None if value is None else _checked(value, field.type) for value in values], form)


def _kinds(values: list[Any], field: Field) -> set[type] | None:
    """The types of a column's values without null; None if a value is null in a NOT NULL column."""
    kinds = set(map(type, values))
    if type(None) not in kinds:
        return kinds
    return kinds - {type(None)} if field.nullable else None


def _checked_fields(row: Any, fields: tuple[Field, ...]) -> dict[str, Any]:
    """A new dict with all fields, each value checked and in the form that Arrow accepts. Raises MisfitError."""
    made: dict[str, Any] = {}
    for field in fields:
        value = row.get(field.name)
        try:
            if value is not None:
                value = _checked(value, field.type)
            elif not field.nullable:
                raise MisfitError("missing", f"is {'None' if field.name in row else 'missing'}; expected {field.type} NOT NULL")
        except MisfitError as misfit:
            misfit.path = (f".{field.name}", *misfit.path)
            raise
        made[field.name] = value
    if not row.keys() <= made.keys():
        surplus = MisfitError("surplus-key", f"is not in the schema ({', '.join(made)}); add it to the step's `schema:` or leave it out")
        surplus.path = (f".{next(key for key in row if key not in made)}",)
        raise surplus
    return made


def _checked(value: Any, type_: Type) -> Any:
    kind = type(value)
    if kind not in _PYTHON[type_.name] and (kind is bool or kind is dt.datetime or not isinstance(value, _PYTHON[type_.name])):
        raise MisfitError("wrong-type", f"found {_shown(value)} ({kind.__name__}); expected {type_}")
    match type_.name:
        case "TINYINT" | "SMALLINT" | "INT" | "BIGINT":
            half = 1 << (INTEGER_BITS[type_.name] - 1)
            if not -half <= value < half:
                raise MisfitError("out-of-range", f"found {value}; {type_} allows {-half} to {half - 1}")
        case "FLOAT" | "DOUBLE":
            return _checked_float(value, type_)
        case "STRING":
            try:
                value.encode()
            except UnicodeEncodeError:
                raise MisfitError("invalid-utf8", f"found {_shown(value)}, which has an unpaired surrogate") from None
        case "TIMESTAMP":
            if value.tzinfo is None:
                raise MisfitError(
                    "naive-datetime", f"found {value!r} without a zone; write value.replace(tzinfo=datetime.timezone.utc) if it is UTC"
                )
            return to_utc(value)
        case "DECIMAL":
            try:
                return fit_decimal(str(value), type_)
            except MisfitError as misfit:
                raise MisfitError(misfit.reason, f"found {misfit.found}; expected {type_}") from None
        case "STRUCT":
            return _checked_fields(value, type_.fields)
        case "ARRAY":
            return [_within(f"[{index}]", item, type_.parts[0]) for index, item in enumerate(value)]
        case "MAP":
            return [_checked_entry(key, item, type_) for key, item in value.items()]
    return value


def _checked_float(value: float, type_: Type) -> float:
    try:
        number = float(value)
    except OverflowError:
        raise MisfitError("out-of-range", f"found {_shown(value)}; expected {type_}") from None
    if type(value) is int and (number if type_.name == "DOUBLE" else to_float32(number)) != value:
        raise MisfitError("out-of-range", f"found {_shown(value)}, which would be rounded; expected {type_}")
    if type_.name == "FLOAT" and 3.4028235677973366e38 <= abs(number) < float("inf"):
        raise MisfitError("out-of-range", f"found {number!r}; expected FLOAT")
    return number


def _checked_entry(key: Any, value: Any, type_: Type) -> tuple[Any, Any]:
    if key is None:
        raise MisfitError("missing", f"a key of {type_} is None")
    return _within(f"[{key!r}]", key, type_.parts[0]), _within(f"[{key!r}]", value, type_.parts[1])


def _within(where: str, value: Any, type_: Type) -> Any:
    if value is None:
        return None
    try:
        return _checked(value, type_)
    except MisfitError as misfit:
        misfit.path = (where, *misfit.path)
        raise


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."


def batch_to_rows(batch: pa.RecordBatch) -> list[dict[str, Any]]:
    """One dict for each row, keys in the order of the columns."""
    names = batch.schema.names
    if not names:
        return [{} for _ in range(batch.num_rows)]
    columns = [column_to_values(column) for column in batch.columns]
    variables = [f"v{index}" for index in range(len(names))]
    # A dict display with literal keys is twice as fast as dict(zip(names, values)).
    items = ", ".join(f"{name!r}: {variable}" for name, variable in zip(names, variables, strict=True))
    make: Callable[..., list[dict[str, Any]]] = eval(f"lambda rows: [{{{items}}} for {', '.join(variables)}, in rows]")
    return make(zip(*columns, strict=True))


def column_to_values(column: pa.Array) -> list[Any]:
    """The Python values of one column; faster than `to_pylist`, and datetimes have `datetime.timezone.utc`."""
    type_ = type_of_arrow(column.type)
    match type_.name:
        case "TIMESTAMP":
            micros = column.cast(pa.timestamp("us", tz=column.type.tz)).cast(pa.int64())
            since = micros.cast(pa.duration("us")).to_numpy(zero_copy_only=False).tolist()
            return [None if delta is None else _EPOCH + delta for delta in since]
        case "ARRAY" | "MAP" | "STRUCT":
            return [None if value is None else _nested(value, type_) for value in column.to_pylist()]
    values: list[Any] = column.to_pylist()
    return values


def _nested(value: Any, type_: Type) -> Any:
    """The value with dicts for map entries and `datetime.UTC` for datetimes, at any depth."""
    if value is None:
        return None
    match type_.name:
        case "TIMESTAMP":
            return value.replace(tzinfo=dt.UTC)
        case "ARRAY":
            return [_nested(item, type_.parts[0]) for item in value]
        case "MAP":
            return {_nested(key, type_.parts[0]): _nested(item, type_.parts[1]) for key, item in value}
        case "STRUCT":
            return {field.name: _nested(value[field.name], field.type) for field in type_.fields}
    return value
