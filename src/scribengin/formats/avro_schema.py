"""Reads a writer's Avro schema, makes it safe for decoding, and converts values of its types to those of columns.

fastavro decodes with a copy without logical types, so that each value arrives as Avro stores it. This module converts it to the column's
type and reports which field did not fit. Defaults, aliases and documentation in a writer's schema are removed: decoding by the writer's own
schema needs none of them, and they are often wrong.
"""

from __future__ import annotations

import datetime as dt
import json
from dataclasses import dataclass
from functools import lru_cache
from importlib import import_module
from typing import TYPE_CHECKING, Any
from uuid import UUID

from scribengin.core.errors import EnvironmentFault
from scribengin.core.types import INTEGER_BITS
from scribengin.formats.json_types import TRUNCATE, MisfitError, fit_decimal, to_double, to_float32

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from pathlib import Path

    from scribengin.core.types import Field, Type


_KEPT = frozenset({"type", "name", "namespace", "fields", "items", "values", "symbols", "size"})
_LOGICAL = frozenset({"logicalType", "precision", "scale"})
_KINDS: dict[str, tuple[str, ...]] = {
    "date": ("int",),
    "time-millis": ("int",),
    "time-micros": ("long",),
    "timestamp-millis": ("long",),
    "timestamp-micros": ("long",),
    "timestamp-nanos": ("long",),
    "local-timestamp-millis": ("long",),
    "local-timestamp-micros": ("long",),
    "local-timestamp-nanos": ("long",),
    "decimal": ("bytes", "fixed"),
    "uuid": ("string", "fixed"),
}
"""logical type → the types that it may annotate; it has no meaning on other types (Avro's specification)"""
NAMED = frozenset({"record", "enum", "fixed", "error"})


class AvroSchemaError(ValueError):
    """An invalid Avro schema, or one that cannot be used for decoding; the text gives the reason."""


@dataclass(frozen=True, slots=True)
class WriterSchema:
    """The schema of a record as its writer has it. A node has fastavro's form: a name, a mapping, or a list (a union)."""

    parsed: Any
    """for fastavro: without logical types"""
    root: Mapping[str, Any]
    """the record with its logical types, all names in full"""
    names: Mapping[str, Any]
    """full name → the definition, as in `root`"""
    mixed: bool = False
    """True if a union has several named types: then only fastavro knows the type of a value"""

    def resolved(self, node: Any) -> Any:
        """The definition of a name; `node` itself if it is not a name."""
        if isinstance(node, dict) and isinstance(node["type"], str):
            return self.names.get(node["type"], node)
        return self.names.get(node, node) if isinstance(node, str) else node

    def kind(self, node: Any) -> str:
        """`union`, a logical type of the table above, or the name of the type."""
        node = self.resolved(node)
        if isinstance(node, list):
            return "union"
        if isinstance(node, str):
            return node
        logical, type_ = node.get("logicalType"), node["type"]
        if isinstance(type_, list | dict):
            return self.kind(type_)
        fits = logical in _KINDS and type_ in _KINDS[logical] and (logical != "uuid" or type_ == "string" or node["size"] == 16)
        return str(logical if fits else type_)


def fastavro() -> Any:
    """Import the module. Raises EnvironmentFault if it is not installed."""
    try:
        return import_module("fastavro")
    except ImportError as error:
        raise EnvironmentFault(
            f"format: avro needs the package fastavro: {error}", remedy="run: pip install 'scribengin[avro]'", code="avro-missing"
        ) from error


@lru_cache(maxsize=256)
def parse_writer(text: str, references: tuple[str, ...] = ()) -> WriterSchema:
    """Parse a schema.

    Args:
        text: The schema as JSON.
        references: Schemas that `text` refers to and does not contain, each after those that it needs itself.

    Raises:
        AvroSchemaError: It is not the schema of a record; or it has a type with which a few bytes of data could crash the process: a
            recursive type (fastavro follows it on the native stack) or an array of values of zero bytes.
    """
    if text.strip().isidentifier():
        text = json.dumps(text.strip())  # `string` without quotes, as some registries store it
    try:
        given = [json.loads(each) for each in (*references, text)]
    except ValueError as error:
        raise AvroSchemaError(f"it is not valid JSON: {error}") from None
    names: dict[str, Any] = {}
    root = _parsed([_only(each, _KEPT | _LOGICAL) for each in given], names)
    schema = WriterSchema(None, root if isinstance(root, dict) else {}, names)
    if schema.kind(root) not in ("record", "error"):
        raise AvroSchemaError(f"it is the schema of {_shown(root)}; expected a record, whose fields are columns")
    mixed = _check(schema, root, ())
    return WriterSchema(_parsed([_only(each, _KEPT) for each in given], {}), root, names, mixed)


def read_schema_file(path: Path) -> str:
    """The text of a schema file (.avsc). Types that it refers to and does not define are read from files of that name in the same folder.

    Raises AvroSchemaError, which names the file.
    """
    load = fastavro().schema.load_schema
    try:
        path.read_bytes()  # fastavro does not report why it cannot read a file
        loaded = load(str(path), _write_hint=False)
    except OSError as error:
        raise AvroSchemaError(f"{path} cannot be read: {error.strerror or error}") from error
    except Exception as error:  # errors of json and fastavro, and other ones (a TypeError for a number)
        raise AvroSchemaError(f"{path} is not a valid Avro schema: {error}") from error
    text = json.dumps(loaded)
    try:
        parse_writer(text)
    except AvroSchemaError as error:
        raise AvroSchemaError(f"{path}: {error}") from None
    return text


def branches(node: Any) -> Sequence[Any]:
    """For a union its types without null, for another node the node itself."""
    return [each for each in node if each not in ("null", {"type": "null"})] if isinstance(node, list) else [node]


def _parsed(given: list[Any], names: dict[str, Any]) -> Any:
    parse = fastavro().parse_schema
    try:
        for each in given:
            parsed = parse(each, named_schemas=names)
    except Exception as error:  # fastavro's own errors, and TypeError and KeyError for schemas that it does not expect
        raise AvroSchemaError(f"it is not a valid Avro schema: {error}") from None
    return parsed


def _only(node: Any, keys: frozenset[str]) -> Any:
    """The schema reduced to these keys."""
    if isinstance(node, list):
        return [_only(each, keys) for each in node]
    if not isinstance(node, dict):
        return node
    made = {key: _only(value, keys) if key in ("type", "items", "values") else value for key, value in node.items() if key in keys}
    if isinstance(made.get("fields"), list):
        made["fields"] = [
            {"name": field.get("name"), "type": _only(field.get("type"), keys)} if isinstance(field, dict) else field
            for field in made["fields"]
        ]
    return made


def _check(schema: WriterSchema, node: Any, above: tuple[str, ...]) -> bool:
    """Raise AvroSchemaError for a recursive type, or an array of zero-byte values. `above` are the names on the path to `node`.

    Return True if there is a union of several named types.
    """
    node = schema.resolved(node)
    if isinstance(node, dict) and node["type"] in NAMED:
        if node["name"] in above:
            raise AvroSchemaError(f"its type {node['name']} is recursive; recursive types cannot be columns")
        above = (*above, node["name"])
    mixed = [_check(schema, part, above) for part in _parts(node)]
    if isinstance(node, dict) and node["type"] == "array" and not _takes_bytes(schema, node["items"]):
        raise AvroSchemaError("it has an array of values of zero bytes; a few bytes of data could fill all memory")
    if isinstance(node, list):
        resolved = [schema.resolved(each) for each in node]
        mixed.append(sum(isinstance(each, dict) and each["type"] in NAMED for each in resolved) > 1)
    return any(mixed)


def _parts(node: Any) -> Iterator[Any]:
    if isinstance(node, list):
        yield from node
    elif isinstance(node, dict):
        yield from (field["type"] for field in node.get("fields", ()))
        yield from (node[key] for key in ("items", "values") if key in node)
        if isinstance(node["type"], list | dict):
            yield node["type"]


def _takes_bytes(schema: WriterSchema, node: Any) -> bool:
    node = schema.resolved(node)
    if isinstance(node, list):
        return True  # the number of the branch
    kind = schema.kind(node)
    if kind in ("record", "error"):
        return any(_takes_bytes(schema, field["type"]) for field in node["fields"])
    return kind != "null" and not (kind == "fixed" and node["size"] == 0)


def _shown(node: Any) -> str:
    text = json.dumps({key: value for key, value in node.items() if not key.startswith("__")} if isinstance(node, dict) else node)
    return text if len(text) <= 60 else text[:57] + "..."


# Converts values of a writer's Avro type to a column's type. As strict as the contract for JSON: a number is not read as a text or a time,
# a float is not read as a whole number, and errors name the path of the value. Only the sizes of numbers may differ if no value changes; a
# FLOAT is rounded to its 32 bits.


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
"""types that differ only in their range: a column that accepts the larger accepts both"""
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
    """converts a value, never None, to the contract's Python form; raises MisfitError"""
    plain: bool = False
    """True if Arrow accepts the values unchanged and rejects values that do not fit"""
    kind: str = ""
    """`date` or the kind of a timestamp, if Arrow converts all values of a column at once; else empty"""
    never: MisfitError | None = None
    """set if no value fits, except null or an empty array or map"""


def fit(schema: WriterSchema, node: Any, asked: Type, *, truncate: bool = False) -> Fit:
    """The conversion of values of `node` to type `asked`. `truncate`: a time is cut to microseconds."""
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
    """The conversion for a field of records of type `node`, for all its values, None included. A field that the writer does not have is
    null."""
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
    """The conversion of a union. With one branch besides null it is that of the branch. With several, the Python type of the value selects
    the branch; if several branches are named types, fastavro gives (full name, value)."""
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
