"""Converts values as users write them in test files (texts, numbers, lists, mappings) to values of a column's type, and back.

They have the meaning of JSON in the parse contract: a TIMESTAMP is a text in ISO 8601, BINARY is base64, NaN and the infinities are texts.
A DECIMAL may also be a text, so that no digit is lost, and a DOUBLE may be a whole number.
"""

from __future__ import annotations

import base64
import binascii
import datetime as dt
import math
import re
import struct
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from scribengin.core.types import INTEGER_BITS
from scribengin.formats.json_types import MisfitError, fit_decimal, to_utc

if TYPE_CHECKING:
    from collections.abc import Mapping

    from scribengin.core.types import Field, Schema, Type

_NOT_FINITE = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}
_DAY = re.compile(r"\d{4}-\d{2}-\d{2}\Z")


def typed_row(row: Mapping[str, Any], schema: Schema) -> dict[str, Any]:
    """The row with every column of `schema`, null if the row does not have it. Raises MisfitError, also for a column that is not in the
    schema.

    >>> from scribengin.core.types import parse_schema
    >>> typed_row({"id": 7}, parse_schema("id BIGINT, user STRING"))
    {'id': 7, 'user': None}
    """
    return _fields(row, schema.fields)


def typed_value(value: Any, type_: Type) -> Any:
    """The value as `batch_to_rows` gives it. Raises MisfitError with the found value."""
    if value is None:
        return None
    match type_.name:
        case "BOOLEAN":
            return _of_kind(value, bool)
        case "TINYINT" | "SMALLINT" | "INT" | "BIGINT":
            return _whole(value, INTEGER_BITS[type_.name])
        case "FLOAT" | "DOUBLE":
            return _real(value, single=type_.name == "FLOAT")
        case "DECIMAL":
            return _decimal(value, type_)
        case "STRING":
            return _of_kind(value, str)
        case "BINARY":
            return _binary(value)
        case "DATE":
            return _date(value)
        case "TIMESTAMP":
            return _timestamp(value)
        case "ARRAY":
            return [_inside(f"[{index}]", item, type_.parts[0]) for index, item in enumerate(_of_kind(value, list, tuple))]
        case "MAP":
            return {_key(key, type_.parts[0]): _inside(f"[{key!r}]", item, type_.parts[1]) for key, item in _of_kind(value, dict).items()}
        case "STRUCT":
            return _fields(_of_kind(value, dict), type_.fields)
    raise AssertionError(type_.name)


def written_value(value: Any) -> Any:
    """A value of `batch_to_rows` in the form that users write and `typed_value` reads back.

    >>> written_value({"at": dt.datetime(2026, 1, 1, tzinfo=dt.UTC), "sum": Decimal("1.50"), "raw": b"x"})
    {'at': '2026-01-01T00:00:00Z', 'sum': '1.50', 'raw': 'eA=='}
    """
    match value:
        case dt.datetime():
            return value.astimezone(dt.UTC).isoformat().replace("+00:00", "Z")
        case dt.date():
            return value.isoformat()
        case Decimal():
            return format(value, "f")
        case bytes():
            return base64.b64encode(value).decode()
        case float() if not math.isfinite(value):
            return next(text for text, known in _NOT_FINITE.items() if repr(known) == repr(value))
        case dict():
            return {written_value(key): written_value(item) for key, item in value.items()}
        case list() | tuple():
            return [written_value(item) for item in value]
    return value


def _fields(row: Mapping[str, Any], fields: tuple[Field, ...]) -> dict[str, Any]:
    names = [field.name for field in fields]
    for name in row:
        if name not in names:
            misfit = MisfitError("unknown", "the column does not exist")
            misfit.path = (f".{name}",)
            raise misfit
    return {field.name: _inside(f".{field.name}", row.get(field.name), field.type) for field in fields}


def _inside(part: str, value: Any, type_: Type) -> Any:
    try:
        return typed_value(value, type_)
    except MisfitError as misfit:
        misfit.path = (part, *misfit.path)
        raise


def _of_kind(value: Any, *kinds: type) -> Any:
    if isinstance(value, kinds):
        return value
    raise MisfitError("wrong-type", _shown(value))


def _whole(value: Any, bits: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise MisfitError("wrong-type", _shown(value))
    if not -(1 << (bits - 1)) <= value < 1 << (bits - 1):
        raise MisfitError("out-of-range", _shown(value))
    return value


def _real(value: Any, *, single: bool) -> float:
    if isinstance(value, str) and value in _NOT_FINITE:
        return _NOT_FINITE[value]
    if isinstance(value, bool) or not isinstance(value, (int, float, Decimal)):
        raise MisfitError("wrong-type", _shown(value))
    try:
        number = float(value)
        return float(struct.unpack("<f", struct.pack("<f", number))[0]) if single else number
    except OverflowError:
        raise MisfitError("out-of-range", _shown(value)) from None


def _decimal(value: Any, type_: Type) -> Decimal:
    if isinstance(value, bool) or not isinstance(value, (int, float, str, Decimal)):
        raise MisfitError("wrong-type", _shown(value))
    return fit_decimal(repr(value) if isinstance(value, float) else str(value), type_)


def _binary(value: Any) -> bytes:
    if isinstance(value, bytes):
        return value
    try:
        return base64.b64decode(_of_kind(value, str), validate=True)
    except binascii.Error:
        raise MisfitError("wrong-type", f"{_shown(value)}, which is not valid base64") from None


def _date(value: Any) -> dt.date:
    if isinstance(value, dt.date) and not isinstance(value, dt.datetime):
        return value
    try:
        if _DAY.match(_of_kind(value, str)):
            return dt.date.fromisoformat(value)
    except ValueError:
        pass
    raise MisfitError("wrong-type", _shown(value))


def _timestamp(value: Any) -> dt.datetime:
    if isinstance(value, dt.datetime):
        return to_utc(value)
    try:
        if not _DAY.match(_of_kind(value, str)):
            return to_utc(dt.datetime.fromisoformat(value))
    except ValueError:
        pass
    raise MisfitError("wrong-type", _shown(value))


def _key(key: Any, type_: Type) -> Any:
    if type_.name in INTEGER_BITS and isinstance(key, str) and re.fullmatch(r"-?\d+", key):
        return _whole(int(key), INTEGER_BITS[type_.name])
    return _inside(f"[{key!r}]", key, type_)


def _shown(value: Any) -> str:
    match value:
        case bool():
            return f"the boolean {str(value).lower()}"
        case int() | float() | Decimal():
            return f"the number {value}"
        case str():
            return f'the text "{value}"' if len(value) <= 60 else f'the text "{value[:57]}…"'
        case dict():
            return "a mapping"
        case list() | tuple():
            return "a list"
    return repr(value)
