"""The types with which msgspec decodes records of a Schema, and the corrections that msgspec does not do.

msgspec rejects what the parse contract rejects (a float for an int, a string for a number, numbers out of range, trailing text). The rest
is *mending* (correction): timestamps become UTC, decimals are made from their digits, FLOAT is rounded to 32 bits, fields that a nested
object does not have become None.

There are two ways. In the quick one msgspec makes numbers and times. It rejects a FLOAT or DOUBLE that may come from a whole number of more
digits, does not accept NaN, and rounds a time of more than six decimals: `json.long_times` tells whether bytes may contain one. The
*careful* way reads both as they are written, and loses no digit.
"""

from __future__ import annotations

import datetime as dt
import math
import re
import struct
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from typing import TYPE_CHECKING, Annotated, Any, Required, TypedDict

import msgspec

from scribengin.core.types import INTEGER_BITS

if TYPE_CHECKING:
    from collections.abc import Callable

    from scribengin.core.types import Field, Schema, Type

EXACT = 2**53
"""each whole number below it is a DOUBLE, and none above it rounds to one of these"""
_EXACT_FLOAT = 2**24
"""the same for a FLOAT"""
_SIMPLE: dict[str, Any] = {
    "BOOLEAN": bool,
    "FLOAT": Annotated[float, msgspec.Meta(gt=-_EXACT_FLOAT, lt=_EXACT_FLOAT)],
    "DOUBLE": Annotated[float, msgspec.Meta(gt=-EXACT, lt=EXACT)],
    "STRING": str,
    "BINARY": bytes,
    "DATE": dt.date,
    "TIMESTAMP": dt.datetime,
    "DECIMAL": msgspec.Raw,
    "RAW": msgspec.Raw,
}
_CAREFUL: dict[str, Any] = {"FLOAT": float | int | str, "DOUBLE": float | int | str, "TIMESTAMP": str}
NOT_FINITE = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}
"""the texts for numbers that JSON does not have"""
TRUNCATE = "`time: truncate` cuts the rest off"
"""the remedy for a time that is finer than a TIMESTAMP"""
_LONGEST = len("2026-01-01T00:00:00.000000")
"""a longer time may be finer than a TIMESTAMP"""
_FLOAT = struct.Struct("<f")
_PLAIN_NAME = re.compile(r'[^"\\\x00-\x1f]*\Z')
_KEYS = frozenset({"STRING", "DATE", "TIMESTAMP", *INTEGER_BITS})


class MisfitError(ValueError):
    """A value that does not fit its type. `path` grows from the inside out: `$.a.b`."""

    def __init__(self, reason: str, found: str) -> None:
        super().__init__(found)
        self.reason = reason
        self.found = found
        self.path: tuple[str, ...] = ()


def row_type(schema: Schema, *, careful: bool = False) -> Any:
    """A TypedDict: NOT NULL fields are required, the others may be missing or null. Raises ValueError, with the column, if JSON cannot
    represent a column."""
    return _typed_dict(schema.fields, careful=careful)


def holds(type_: Type, *names: str) -> bool:
    """True if `type_` is one of these types, or has a part that is."""
    return type_.name in names or any(holds(part, *names) for part in (*type_.parts, *(field.type for field in type_.fields)))


def has_plain_names(schema: Schema) -> bool:
    """True if the fields of a Struct can have the columns' names."""
    return all(map(_PLAIN_NAME.match, schema.names))


def struct_type(schema: Schema, *, texts: frozenset[str], strict: bool = False, careful: bool = False) -> Any:
    """A Struct with the fields `f0`, `f1`, …, which decodes faster than a dict.

    Args:
        schema: The columns.
        texts: Columns that stay texts.
        strict: True: other fields are an error.
        careful: True: the types of the careful way.
    """
    fields: list[Any] = []
    for index, field in enumerate(schema.fields):
        asked = str if field.name in texts else value_type(field.type, field.name, careful=careful)
        fields.append((f"f{index}", _or_none(asked), None) if field.nullable else (f"f{index}", asked))
    rename = {f"f{index}": field.name for index, field in enumerate(schema.fields)}
    return msgspec.defstruct("Record", fields, rename=rename, kw_only=True, gc=False, forbid_unknown_fields=strict)


def value_type(type_: Type, column: str, *, careful: bool = False) -> Any:
    """The type with which msgspec decodes one value."""
    if type_.name in INTEGER_BITS:
        half = 1 << (INTEGER_BITS[type_.name] - 1)
        return Annotated[int, msgspec.Meta(ge=-half, le=half - 1)]
    match type_.name:
        case "ARRAY":
            return list[_or_none(value_type(type_.parts[0], column, careful=careful))]  # type: ignore[misc]
        case "MAP":
            if type_.parts[0].name not in _KEYS:
                raise ValueError(f'column "{column}" is {type_}: keys of a JSON object must be {", ".join(sorted(_KEYS))}')
            key, value = (value_type(part, column, careful=careful) for part in type_.parts)
            return dict[key, _or_none(value)]  # type: ignore[misc,valid-type]
        case "STRUCT":
            return _typed_dict(type_.fields, careful=careful)
    return _CAREFUL.get(type_.name, _SIMPLE[type_.name]) if careful else _SIMPLE[type_.name]


def _typed_dict(fields: tuple[Field, ...], *, careful: bool) -> Any:
    items: dict[str, Any] = {}
    for field in fields:
        asked = value_type(field.type, field.name, careful=careful)
        # msgspec 0.22 compares keys with the UTF-8 form that a str caches on first use, and does not create it: without it, a name that is
        # not ASCII would be missing. Encoding the name creates it.
        msgspec.json.encode(field.name)
        # msgspec does not accept Raw for a required key; mending checks that it is present
        items[field.name] = _or_none(asked) if field.nullable or asked is msgspec.Raw else Required[asked]
    return TypedDict("Object", items, total=False)  # type: ignore[operator]


def _or_none(asked: Any) -> Any:
    return asked if asked is msgspec.Raw else asked | None  # Raw accepts null as it is; beside None msgspec would ignore it


@dataclass(frozen=True, slots=True)
class Mending:
    """The correction of values. `careful`: after the careful way; `truncate`: a TIMESTAMP is cut to six decimals."""

    careful: bool = False
    truncate: bool = False

    def field(self, field: Field) -> Callable[[Any], Any] | None:
        """The correction of a field's value, None included; None if no correction is needed."""
        mend = self.value(field.type)
        if mend is None:
            return None
        if field.nullable or field.type.name not in ("DECIMAL", "RAW"):  # msgspec has checked NOT NULL
            return lambda value: None if value is None else mend(value)

        def mend_required(value: Any) -> Any:
            mended = None if value is None else mend(value)
            if mended is None:
                raise MisfitError("missing", "null")
            return mended

        return mend_required

    def value(self, type_: Type) -> Callable[[Any], Any] | None:
        """The conversion of msgspec's value, never None, to the contract's; it raises MisfitError. None if none is needed."""
        match type_.name:
            case "TIMESTAMP":
                return (lambda text: instant(text, truncate=self.truncate)) if self.careful else to_utc
            case "FLOAT":
                return to_float32
            case "DOUBLE":
                return to_double if self.careful else None
            case "DECIMAL":
                return _to_decimal(type_)
            case "RAW":
                return _to_text
            case "ARRAY":
                return _mend_array(self.value(type_.parts[0]))
            case "MAP":
                return _mend_map(self.value(type_.parts[0]), self.value(type_.parts[1]))
            case "STRUCT":
                return self.object(type_.fields)
        return None

    def object(self, fields: tuple[Field, ...]) -> Callable[[dict[str, Any]], dict[str, Any]]:
        """The correction of an object, in place: it adds missing fields and mends the others."""
        names = [field.name for field in fields]
        mends = [(field.name, mend) for field in fields if (mend := self.field(field)) is not None]

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
    """The instant in UTC; a time without offset is UTC already. Raises MisfitError for a year outside 1 to 9999."""
    if value.tzinfo is dt.UTC:
        return value
    if value.tzinfo is None:
        return value.replace(tzinfo=dt.UTC)
    try:
        return value.astimezone(dt.UTC)
    except OverflowError:
        raise MisfitError("out-of-range", f"{value.isoformat()}, which is outside the years 1 to 9999 in UTC") from None


_FINER = re.compile(r"(?<=[.,]\d{6})\d+")
_COMMA = re.compile(r"(?<=:\d\d),(?=\d)")
_SHORT_OFFSET = re.compile(r"(?<=:\d\d)((?:\.\d+)?[+-]\d\d)(\d\d)?\Z")
_INSTANT = msgspec.json.Decoder(dt.datetime)


def instant(text: str, *, truncate: bool = False) -> dt.datetime:
    """The instant of a text in ISO 8601, in UTC; also with a comma before the fraction, and an offset as `+0100` or `+01`.

    Raises MisfitError; also if it is finer than microseconds, unless `truncate` cuts that off.
    """
    plain = text
    finer = _FINER.search(text) if len(text) > _LONGEST else None
    if finer is not None:
        if finer[0].strip("0") and not truncate:
            raise MisfitError("out-of-range", f"{_shown(text)}, which is finer than microseconds ({TRUNCATE})")
        plain = text[: finer.start()] + text[finer.end() :]
    plain = _COMMA.sub(".", plain)
    if offset := _SHORT_OFFSET.search(plain):
        plain = f"{plain[: offset.start()]}{offset[1]}:{offset[2] or '00'}"
    try:
        return to_utc(_INSTANT.decode(msgspec.json.encode(plain)))
    except (msgspec.MsgspecError, UnicodeEncodeError):
        raise MisfitError("invalid-value", f'"{_shown(text)}", which is not a valid time') from None


def to_double(value: float | str) -> float:
    """The DOUBLE of a number as it was written, or of one of NOT_FINITE. Raises MisfitError for a whole number that a DOUBLE cannot
    represent."""
    if type(value) is float:
        return value
    if isinstance(value, str):
        return _not_finite(value)
    try:
        number = float(value)
    except OverflowError:
        raise MisfitError("out-of-range", _shown(str(value))) from None
    if number != value:
        raise MisfitError("out-of-range", f"{_shown(str(value))}, which would be rounded")
    return number


def to_float32(value: float | str) -> float:
    """The FLOAT of a number as it was written; a number with a fraction is rounded. Raises MisfitError for a whole number that a FLOAT
    cannot represent."""
    try:
        rounded: float = _FLOAT.unpack(_FLOAT.pack(value))[0]
    except OverflowError:
        raise MisfitError("out-of-range", _shown(repr(value))) from None
    except struct.error:
        return _not_finite(str(value))
    if rounded != value and type(value) is int:
        raise MisfitError("out-of-range", f"{_shown(str(value))}, which would be rounded")
    return rounded


def _not_finite(text: str) -> float:
    if text in NOT_FINITE:
        return NOT_FINITE[text]
    raise MisfitError("wrong-type", "a string")


def _to_text(raw: msgspec.Raw) -> str | None:
    """A text as it is, any other value as its JSON text."""
    text = bytes(raw)
    if text == b"null":
        return None
    try:
        return msgspec.json.decode(text, type=str) if text[:1] == b'"' else text.decode().replace("\r", "\n")
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise MisfitError("invalid-value", str(error)) from None


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
    """The number of that text, with `type_`'s scale. Raises MisfitError if digits would be lost."""
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
