"""The columns of files of typed formats, in Scribengin's types; columns without a matching type are left out, with a note."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from scribengin.core.types import Field, Schema, Type, type_of_arrow
from scribengin.formats.avro_schema import branches
from scribengin.formats.type_inference import can_name

if TYPE_CHECKING:
    from collections.abc import Iterable

    import pyarrow as pa

    from scribengin.formats.avro_schema import WriterSchema


_AVRO = {
    "boolean": "BOOLEAN",
    "int": "INT",
    "long": "BIGINT",
    "float": "FLOAT",
    "double": "DOUBLE",
    "string": "STRING",
    "enum": "STRING",
    "uuid": "STRING",
    "bytes": "BINARY",
    "fixed": "BINARY",
    "date": "DATE",
}
_ORDER = ("TINYINT", "SMALLINT", "INT", "BIGINT")


def arrow_columns(schema: pa.Schema, notes: list[str]) -> tuple[Field, ...]:
    """The columns of a Parquet file; a column of the type null becomes a STRING."""
    fields = []
    for each in schema:
        try:
            type_ = type_of_arrow(_plain(each.type), each.name)
        except ValueError:
            notes.append(f"{each.name} is left out: no column type matches {each.type}")
            continue
        fields.append(Field(each.name, type_))
    return _named(fields, notes)


def avro_columns(writer: WriterSchema, notes: list[str]) -> tuple[Field, ...]:
    """The columns of an Avro file."""
    return _named(_avro_fields(writer, writer.root, notes), notes)


def joined_columns(files: Iterable[tuple[str, tuple[Field, ...]]], notes: list[str]) -> Schema | None:
    """The columns of all files, each with its widest type; None if there are none. A type that cannot be combined with earlier ones is
    added to `notes` with its file."""
    found: dict[str, tuple[Field, str]] = {}
    for file, fields in files:
        for field in fields:
            if field.name not in found:
                found[field.name] = (field, file)
                continue
            before, first = found[field.name]
            wide = _wider(before.type, field.type)
            if wide is None:
                notes.append(f"{field.name} is {before.type} in {first}, but {field.type} in {file}: {_of_both(before.type, field.type)}")
            elif wide != before.type:
                found[field.name] = (Field(field.name, wide), first)
    return Schema(tuple(field for field, _ in found.values())) if found else None


def _plain(type_: pa.DataType) -> pa.DataType:
    """The Arrow type as which values are read: the value type of a dictionary, a signed type for unsigned numbers."""
    import pyarrow as pa

    kinds = pa.types
    if kinds.is_dictionary(type_):
        return _plain(type_.value_type)
    if kinds.is_unsigned_integer(type_):
        return {8: pa.int16(), 16: pa.int32()}.get(type_.bit_width, pa.int64())
    if kinds.is_fixed_size_binary(type_):
        return pa.binary()
    if kinds.is_date64(type_):
        return pa.date32()
    if kinds.is_null(type_):
        return pa.string()
    if kinds.is_float16(type_):
        return pa.float32()
    return type_


def _named(fields: Iterable[Field], notes: list[str]) -> tuple[Field, ...]:
    kept: dict[str, Field] = {}
    for field in fields:
        if not can_name(field.name):
            notes.append(f"the column {field.name!r} is left out: its name is not allowed in a schema")
        elif field.name.lower() in kept:
            notes.append(f"{field.name} is left out: another name differs only in upper and lower case, which SQL does not distinguish")
        else:
            kept[field.name.lower()] = field
    return tuple(kept.values())


def _wider(one: Type, other: Type) -> Type | None:
    """The type that fits both; None if there is none."""
    if one == other:
        return one
    if one.name in _ORDER and other.name in _ORDER:
        return max(one, other, key=lambda each: _ORDER.index(each.name))
    if {one.name, other.name} == {"FLOAT", "DOUBLE"}:
        return Type("DOUBLE")
    return None


def _of_both(one: Type, other: Type) -> str:
    if {one.name, other.name} & set(_ORDER) and {one.name, other.name} & {"FLOAT", "DOUBLE"}:
        return f"{one} takes the values that it can represent exactly; others become dead letters"
    return "no type fits both"


def _avro_fields(writer: WriterSchema, record: Any, notes: list[str]) -> list[Field]:
    fields = []
    for each in record["fields"]:
        type_ = _avro_type(writer, each["type"], notes)
        if type_ is None:
            notes.append(f"{each['name']} is left out: no column type matches its Avro type")
        else:
            fields.append(Field(each["name"], type_))
    return fields


def _avro_type(writer: WriterSchema, node: Any, notes: list[str]) -> Type | None:
    node, kind = writer.resolved(node), writer.kind(node)
    if kind == "union":
        types = {_avro_type(writer, each, notes) for each in branches(node)}
        return types.pop() if len(types) == 1 else None
    if isinstance(node, dict) and isinstance(node["type"], list | dict) and "logicalType" not in node:
        return _avro_type(writer, node["type"], notes)
    match kind:
        case "decimal":
            return Type("DECIMAL", precision=node["precision"], scale=node.get("scale") or 0) if node["precision"] <= 38 else None
        case "array":
            item = _avro_type(writer, node["items"], notes)
            return item and Type("ARRAY", parts=(item,))
        case "map":
            value = _avro_type(writer, node["values"], notes)
            return value and Type("MAP", parts=(Type("STRING"), value))
        case "record" | "error":
            fields = tuple(_avro_fields(writer, node, notes))
            return Type("STRUCT", fields=fields) if fields else None
    if "timestamp" in kind:
        return Type("TIMESTAMP")
    return Type(_AVRO[kind]) if kind in _AVRO else None
