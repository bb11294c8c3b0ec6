"""From a Schema to the types that msgspec decodes by, and what msgspec does not check.

msgspec refuses what the parse contract refuses (a float for an int, a string for a number, numbers out of range, trailing text).
What is left to do after it is *mending*: timestamps become UTC, decimals are taken from their digits, FLOAT is brought to 32 bits,
fields that a nested object lacks become None.
"""

from __future__ import annotations

import datetime as dt
import re
import struct
from decimal import Decimal, InvalidOperation
from typing import TYPE_CHECKING, Annotated, Any, Required, TypedDict

import msgspec

from scribengin.core.types import INTEGER_BITS

if TYPE_CHECKING:
    from collections.abc import Callable

    from scribengin.core.types import Field, Schema, Type

_SIMPLE: dict[str, Any] = {
    "BOOLEAN": bool,
    "FLOAT": float,
    "DOUBLE": float,
    "STRING": str,
    "BINARY": bytes,
    "DATE": dt.date,
    "TIMESTAMP": dt.datetime,
    "DECIMAL": msgspec.Raw,
}
_PLAIN_NAME = re.compile(r'[^"\\\x00-\x1f]*\Z')
_KEYS = frozenset({"STRING", "DATE", "TIMESTAMP", *INTEGER_BITS})


class MisfitError(ValueError):
    """A value that its type cannot hold. `path` grows from the inside out: `$.a.b`."""

    def __init__(self, reason: str, found: str) -> None:
        super().__init__(found)
        self.reason = reason
        self.found = found
        self.path: tuple[str, ...] = ()


def row_type(schema: Schema) -> Any:
    """A TypedDict: NOT NULL fields are required, the others may be missing or null. Raises ValueError that names a column which
    JSON cannot hold."""
    return _typed_dict(schema.fields)


def has_plain_names(schema: Schema) -> bool:
    """True where a Struct's fields can have the columns' names."""
    return all(map(_PLAIN_NAME.match, schema.names))


def struct_type(schema: Schema, *, texts: frozenset[str], strict: bool = False) -> Any:
    """A Struct with the fields `f0`, `f1`, …: quicker to decode. The columns of `texts` are left as text; `strict` takes no others."""
    fields: list[Any] = []
    for index, field in enumerate(schema.fields):
        asked = str if field.name in texts else value_type(field.type, field.name)
        fields.append((f"f{index}", _or_none(asked), None) if field.nullable else (f"f{index}", asked))
    rename = {f"f{index}": field.name for index, field in enumerate(schema.fields)}
    return msgspec.defstruct("Record", fields, rename=rename, kw_only=True, gc=False, forbid_unknown_fields=strict)


def value_type(type_: Type, column: str) -> Any:
    """What msgspec decodes one value by."""
    if type_.name in INTEGER_BITS:
        half = 1 << (INTEGER_BITS[type_.name] - 1)
        return Annotated[int, msgspec.Meta(ge=-half, le=half - 1)]
    match type_.name:
        case "ARRAY":
            return list[_or_none(value_type(type_.parts[0], column))]  # type: ignore[misc]
        case "MAP":
            if type_.parts[0].name not in _KEYS:
                raise ValueError(f'column "{column}" is {type_}: keys of a JSON object can be {", ".join(sorted(_KEYS))} only')
            return dict[value_type(type_.parts[0], column), _or_none(value_type(type_.parts[1], column))]  # type: ignore[misc]
        case "STRUCT":
            return _typed_dict(type_.fields)
    return _SIMPLE[type_.name]


def _typed_dict(fields: tuple[Field, ...]) -> Any:
    items: dict[str, Any] = {}
    for field in fields:
        asked = value_type(field.type, field.name)
        # msgspec 0.22 compares keys with the UTF-8 that a str keeps once it was asked for, and does not ask: a name that is not
        # ASCII would be missing by chance. Encoding it asks.
        msgspec.json.encode(field.name)
        # msgspec does not take Raw for a required key; that it is there is checked when it is mended
        items[field.name] = _or_none(asked) if field.nullable or asked is msgspec.Raw else Required[asked]
    return TypedDict("Object", items, total=False)  # type: ignore[operator]


def _or_none(asked: Any) -> Any:
    return asked if asked is msgspec.Raw else asked | None  # Raw takes null as it is; beside None msgspec would ignore it


def field_mender(field: Field) -> Callable[[Any], Any] | None:
    """What mends a field's value, None included; None where there is nothing to mend."""
    mend = mender(field.type)
    if mend is None:
        return None
    if field.nullable or field.type.name != "DECIMAL":  # msgspec has seen to NOT NULL
        return lambda value: None if value is None else mend(value)

    def mend_required(value: Any) -> Any:
        mended = None if value is None else mend(value)
        if mended is None:
            raise MisfitError("missing", "null")
        return mended

    return mend_required


def mender(type_: Type) -> Callable[[Any], Any] | None:
    """What makes msgspec's value the contract's, or None where it is already. Raises MisfitError. Takes no None."""
    match type_.name:
        case "TIMESTAMP":
            return to_utc
        case "FLOAT":
            return _to_float32
        case "DECIMAL":
            return _to_decimal(type_)
        case "ARRAY":
            return _mend_array(mender(type_.parts[0]))
        case "MAP":
            return _mend_map(mender(type_.parts[0]), mender(type_.parts[1]))
        case "STRUCT":
            return mend_object(type_.fields)
    return None


def mend_object(fields: tuple[Field, ...]) -> Callable[[dict[str, Any]], dict[str, Any]]:
    """Fills in what is missing and mends the rest, in place."""
    names = [field.name for field in fields]
    mends = [(field.name, mend) for field in fields if (mend := field_mender(field)) is not None]

    def mend_fields(row: dict[str, Any]) -> dict[str, Any]:
        if len(row) != len(names):
            for name in names:
                row.setdefault(name, None)
        for name, mend in mends:
            try:
                row[name] = mend(row[name])
            except MisfitError as misfit:
                misfit.path = (f".{name}", *misfit.path)
                raise
        return row

    return mend_fields


def to_utc(value: dt.datetime) -> dt.datetime:
    """The instant in UTC; without offset it is UTC."""
    if value.tzinfo is dt.UTC:
        return value
    if value.tzinfo is None:
        return value.replace(tzinfo=dt.UTC)
    try:
        return value.astimezone(dt.UTC)
    except OverflowError:
        raise MisfitError("out-of-range", f"{value.isoformat()}, which is outside the years 1 to 9999 in UTC") from None


def _to_float32(value: float) -> float:
    try:
        rounded: float = struct.unpack("<f", struct.pack("<f", value))[0]
    except OverflowError:
        raise MisfitError("out-of-range", repr(value)) from None
    return rounded


def _to_decimal(type_: Type) -> Callable[[msgspec.Raw], Decimal | None]:
    def mend(raw: msgspec.Raw) -> Decimal | None:
        text = bytes(raw).decode()
        if text == "null":
            return None
        if text[0] not in "-0123456789":
            raise MisfitError("wrong-type", _shown(text))
        return fit_decimal(text, type_)

    return mend


def fit_decimal(text: str, type_: Type) -> Decimal:
    """The number of that text, with `type_`'s scale. Raises MisfitError where digits would be lost."""
    try:
        number = Decimal(text)
        sign, digits, exponent = number.as_tuple()
    except InvalidOperation:
        raise MisfitError("wrong-type", _shown(text)) from None
    if not isinstance(exponent, int):
        raise MisfitError("out-of-range", _shown(text))
    if not number:
        return Decimal((0, (0,), -type_.scale))
    shift = exponent + type_.scale
    if len(digits) + shift > type_.precision:
        raise MisfitError("out-of-range", _shown(text))
    if shift >= 0:
        return Decimal((sign, (*digits, *(0,) * shift), -type_.scale))
    if any(digits[shift:]):
        raise MisfitError("out-of-range", f"{_shown(text)}, which has more than {type_.scale} decimals")
    return Decimal((sign, digits[:shift], -type_.scale))


def _mend_array(mend: Callable[[Any], Any] | None) -> Callable[[list[Any]], list[Any]] | None:
    if mend is None:
        return None

    def mend_items(values: list[Any]) -> list[Any]:
        for index, value in enumerate(values):
            if value is not None:
                try:
                    values[index] = mend(value)
                except MisfitError as misfit:
                    misfit.path = (f"[{index}]", *misfit.path)
                    raise
        return values

    return mend_items


def _mend_map(key: Callable[[Any], Any] | None, value: Callable[[Any], Any] | None) -> Callable[[dict[Any, Any]], dict[Any, Any]] | None:
    if key is None and value is None:
        return None

    def mend_entries(entries: dict[Any, Any]) -> dict[Any, Any]:
        mended = {}
        for k, v in entries.items():
            try:
                mended[k if key is None else key(k)] = v if v is None or value is None else value(v)
            except MisfitError as misfit:
                misfit.path = (f"[{k!r}]", *misfit.path)
                raise
        return mended

    return mend_entries


def _shown(text: str) -> str:
    return text if len(text) <= 60 else text[:57] + "..."
