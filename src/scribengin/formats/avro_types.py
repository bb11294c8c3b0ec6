"""Converts values of a writer's Avro type to a column's type: which values fit, and their conversion.

As strict as the contract for JSON: no number is read as a text or a time, no float as a whole number, and misfits name their path.
Only the sizes of numbers may differ if no value changes; and a FLOAT is rounded to its 32 bits.
"""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from uuid import UUID

from scribengin.core.types import INTEGER_BITS
from scribengin.formats.avro_schema import NAMED, branches
from scribengin.formats.json_types import TRUNCATE, MisfitError, fit_decimal, to_double, to_float32

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from scribengin.core.types import Field, Type
    from scribengin.formats.avro_schema import WriterSchema

_EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
_FIRST_DAY = dt.date(1970, 1, 1)
FIRST_SECOND, LAST_SECOND = -62_135_596_800, 253_402_300_799
"""the years 1 to 9999, in seconds since 1970"""
FIRST_DAY, LAST_DAY = -719_162, 2_932_896
"""the same in days"""
PER_SECOND = {"millis": 1_000, "micros": 1_000_000, "nanos": 1_000_000_000}
_LONGEST_DECIMAL_BITS = 4096
_WORDS = {
    "boolean": "true or false",
    "int": "a whole number",
    "long": "a whole number",
    "float": "a floating-point number",
    "double": "a floating-point number",
    "string": "a string",
    "bytes": "bytes",
    "fixed": "bytes",
    "enum": "the symbol of an enum",
    "uuid": "a uuid",
    "date": "a date",
    "time-millis": "a time of day",
    "time-micros": "a time of day",
    "decimal": "a decimal",
    "array": "an array",
    "map": "a map",
    "record": "a record",
    "error": "a record",
}
_PLAIN: dict[str, tuple[str, ...]] = {
    "boolean": ("BOOLEAN",),
    "int": tuple(INTEGER_BITS),
    "long": tuple(INTEGER_BITS),
    "float": ("FLOAT", "DOUBLE"),
    "double": ("DOUBLE",),
    "string": ("STRING",),
    "enum": ("STRING",),
    "bytes": ("BINARY",),
    "fixed": ("BINARY",),
    "uuid": ("STRING",),
}
_SIZES = ({"int", "long"}, {"float", "double"})
"""types that differ only in how much they hold: what takes the larger takes both"""
_PYTHON = {
    "boolean": bool,
    "int": int,
    "long": int,
    "float": float,
    "double": float,
    "string": str,
    "enum": str,
    "bytes": bytes,
    "fixed": bytes,
    "array": list,
    "map": dict,
    "record": dict,
    "error": dict,
}


@dataclass(frozen=True, slots=True)
class Fit:
    """The conversion of values of one type for a column of another."""

    one: Callable[[Any], Any]
    """a value, never None, as the contract has it in Python; raises MisfitError"""
    plain: bool = False
    """True if Arrow accepts the values unchanged and rejects values that do not fit"""
    kind: str = ""
    """`date` or a timestamp's kind, where Arrow takes all values of a column in one go"""
    never: MisfitError | None = None
    """set if no value fits"""


def fit(schema: WriterSchema, node: Any, asked: Type, *, truncate: bool = False) -> Fit:
    """How values of `node` become values of `asked`. `truncate`: of a time what is finer than microseconds is cut off."""
    node, kind = schema.resolved(node), schema.kind(node)
    if kind == "union":
        return _fit_union(schema, branches(node), asked, truncate=truncate)
    if isinstance(node, dict) and isinstance(node["type"], list | dict) and "logicalType" not in node:
        return fit(schema, node["type"], asked, truncate=truncate)
    match kind, asked.name:
        case "null", _:
            return _null()
        case "array", "ARRAY":
            return _fit_array(fit(schema, node["items"], asked.parts[0], truncate=truncate))
        case "map", "MAP" if asked.parts[0].name == "STRING":
            return _fit_map(fit(schema, node["values"], asked.parts[1], truncate=truncate))
        case (("record" | "error"), "STRUCT"):
            return _fit_record(schema, node, asked.fields, truncate=truncate)
        case "decimal", "DECIMAL":
            return Fit(_decimal(node.get("scale") or 0, asked))
        case (("int" | "long"), "DECIMAL"):
            return Fit(lambda value: fit_decimal(str(value), asked))
        case (("int" | "long"), ("DOUBLE" | "FLOAT")):
            return Fit(_float(asked))
        case "double", "FLOAT":
            return Fit(_float(asked))
        case "uuid", _ if node["type"] == "fixed":
            if asked.name == "STRING":
                return Fit(lambda value: str(UUID(bytes=value)))
            kind = "fixed" if asked.name == "BINARY" else kind
        case "date", "DATE":
            return Fit(_day, kind=kind)
        case _, "TIMESTAMP" if "timestamp" in kind:
            return Fit(_instant(PER_SECOND[kind.rpartition("-")[2]], truncate=truncate), kind=kind)
    if asked.name in _PLAIN.get(kind, ()):
        return Fit(_whole(asked) if asked.name in INTEGER_BITS else _same, plain=True)
    return _never("a timestamp" if "timestamp" in kind else _WORDS.get(kind, kind))


def fit_field(schema: WriterSchema, node: Any, field: Field, *, truncate: bool = False) -> Fit:
    """`fit` of the field of a record `node`, for all its values, None included. A field that the writer has not is null."""
    given = next((each for each in node["fields"] if each["name"] == field.name), None)
    found = _null() if given is None else fit(schema, given["type"], field.type, truncate=truncate)
    one = found.one
    never = found.never
    if given is None and not field.nullable:
        never = MisfitError("missing", "null")
    if never is not None:
        never = _at(f".{field.name}", never)

    def take(record: dict[str, Any]) -> Any:
        value = record.get(field.name)
        if value is not None:
            try:
                return one(value)
            except MisfitError as misfit:
                raise _at(f".{field.name}", misfit) from None
        if not field.nullable:
            raise _at(f".{field.name}", MisfitError("missing", "null"))
        return None

    return Fit(take, plain=found.plain, kind=found.kind, never=never)


def _same(value: Any) -> Any:
    return value


def _null() -> Fit:
    return Fit(_same, plain=True)


def _never(found: str) -> Fit:
    def refuse(value: Any) -> Any:  # noqa: ARG001 (no value fits)
        raise MisfitError("wrong-type", found)

    return Fit(refuse, never=MisfitError("wrong-type", found))


def _at(where: str, misfit: MisfitError) -> MisfitError:
    made = MisfitError(misfit.reason, misfit.found)
    made.path = (where, *misfit.path)
    return made


def _whole(asked: Type) -> Callable[[int], int]:
    half = 1 << (INTEGER_BITS[asked.name] - 1)

    def check(value: int) -> int:
        if not -half <= value < half:
            raise MisfitError("out-of-range", str(value))
        return value

    return check


def _float(asked: Type) -> Callable[[float], float]:
    return to_float32 if asked.name == "FLOAT" else to_double


def _day(days: int) -> dt.date:
    try:
        return _FIRST_DAY + dt.timedelta(days)
    except OverflowError:
        raise MisfitError("out-of-range", f"day {days} since 1970, which is outside the years 1 to 9999") from None


def _instant(per_second: int, *, truncate: bool) -> Callable[[int], dt.datetime]:
    def convert(value: int) -> dt.datetime:
        micros, rest = divmod(value * 1_000_000, per_second)
        if rest and not truncate:
            raise MisfitError("out-of-range", f"{value} nanoseconds since 1970, which is not a whole number of microseconds ({TRUNCATE})")
        try:
            return _EPOCH + dt.timedelta(microseconds=micros)
        except OverflowError:
            raise MisfitError("out-of-range", f"{micros} microseconds since 1970, which is outside the years 1 to 9999") from None

    return convert


def _decimal(scale: int, asked: Type) -> Callable[[bytes], Any]:
    def convert(value: bytes) -> Any:
        number = int.from_bytes(value, "big", signed=True)
        if number.bit_length() > _LONGEST_DECIMAL_BITS:
            raise MisfitError("out-of-range", f"a decimal of {len(value)} bytes")
        return fit_decimal(f"{number}E-{scale}", asked)

    return convert


def _fit_array(item: Fit) -> Fit:
    def convert(values: list[Any]) -> list[Any]:
        return [None if value is None else _within(f"[{index}]", item.one, value) for index, value in enumerate(values)]

    return Fit(convert, plain=item.plain, never=item.never and _at("[0]", item.never))


def _fit_map(item: Fit) -> Fit:
    def convert(values: dict[str, Any]) -> dict[str, Any]:
        return {key: None if value is None else _within(f"[{key!r}]", item.one, value) for key, value in values.items()}

    return Fit(convert, plain=item.plain, never=item.never and _at("['…']", item.never))


def _within(where: str, one: Callable[[Any], Any], value: Any) -> Any:
    try:
        return one(value)
    except MisfitError as misfit:
        raise _at(where, misfit) from None


def _fit_record(schema: WriterSchema, node: Any, fields: tuple[Field, ...], *, truncate: bool) -> Fit:
    inner = {field.name: fit_field(schema, node, field, truncate=truncate) for field in fields}

    def convert(record: dict[str, Any]) -> dict[str, Any]:
        return {name: each.one(record) for name, each in inner.items()}

    plain = all(each.plain for each in inner.values()) and all(field.nullable for field in fields)
    return Fit(convert, plain=plain, never=next((each.never for each in inner.values() if each.never is not None), None))


def _fit_union(schema: WriterSchema, found: Sequence[Any], asked: Type, *, truncate: bool) -> Fit:
    """Of one branch beside null, that branch's. Of several, by what Python makes of them; fastavro gives (full name, value) where
    several have names."""
    if not found:
        return _null()
    fits = [fit(schema, branch, asked, truncate=truncate) for branch in found]
    if len(found) == 1:
        return fits[0]
    resolved = [schema.resolved(branch) for branch in found]
    types = [each["type"] if isinstance(each, dict) else each for each in resolved]
    several = sum(type_ in NAMED for type_ in types) > 1
    by_name: dict[str, Fit] = {}
    by_type: dict[type, tuple[str, Fit]] = {}
    for node, type_, each in zip(resolved, types, fits, strict=True):
        if several and type_ in NAMED:
            by_name[node["name"]] = each
            continue
        kind, python = schema.kind(node), _PYTHON[type_]
        other, known = by_type.get(python, ("", each))
        if {other, kind} in _SIZES:
            by_type[python] = (kind, each) if kind in ("long", "double") else (other, known)
        elif other and not (each.plain and known.plain) and (each.never is None or known.never is None):
            return _never(f"a value that is {other} or {kind}, which cannot be distinguished")
        else:
            by_type[python] = (kind, each)
    if all(each.never is not None for each in fits):
        return fits[0]

    def choose(value: Any) -> Any:
        if isinstance(value, tuple):
            return by_name[value[0]].one(value[1])
        return by_type[type(value)][1].one(value)

    return Fit(choose, plain=not by_name and all(each.plain for each in fits) and len(by_type) == 1)
