"""The columns of a source: those that it declares, and those that `metadata` and `partition_columns` add to them."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from scribengin.core.added_columns import METADATA, added_fields, with_added
from scribengin.core.types import Field, Schema, Type
from scribengin.spec.model import SchemaSpec
from scribengin.spec.nodes import Mapping

if TYPE_CHECKING:
    from collections.abc import Iterable

    from scribengin.spec.nodes import Node
    from scribengin.spec.reader import DocumentReader
    from scribengin.spec.sections import Read, SectionOwner

_TEXT = Schema((Field("value", Type("STRING")),))


def source_columns(reader: DocumentReader, read: Read, owner: SectionOwner) -> SchemaSpec | None:
    """The schema of a source with what its options add. A name that means two columns is noted as a Problem. None where the place alone
    knows the columns, or nobody does."""
    declared: SchemaSpec | None = read.values.get("schema")
    if not added_fields(read.options) or not isinstance(read.options.get("format", "json"), str):
        return declared
    if declared is None and read.options.get("format") != "text":
        _names_stand_once(reader, read, owner, ())
        return None
    spec = declared or SchemaSpec(_TEXT)
    _names_stand_once(reader, read, owner, spec.fields.names)
    _types_fit(reader, read, owner, spec.fields)
    return replace(spec, fields=with_added(spec.fields, read.options))


def _node(read: Read, option: str, column: str) -> Node:
    node = read.given[option][1]
    return node.entries[column][1] if isinstance(node, Mapping) else node


def _names_stand_once(reader: DocumentReader, read: Read, owner: SectionOwner, declared: Iterable[str]) -> None:
    """A list names what is added beside the columns of the data: one of these with such a name is another column."""
    metadata: dict[str, str] = read.options.get("metadata") or {}
    folders: dict[str, str] = read.options.get("partition_columns") or {}
    beside = {name.lower(): name for name in declared}
    for name, word in metadata.items():
        remedy = f"give it another name: metadata: {{{word}_of_record: {word}}}"
        if name.lower() in map(str.lower, folders):
            reader.error("twice", _node(read, "metadata", name), f'{owner.called} has "{name}" in metadata and partition_columns', remedy)
        elif name.lower() in beside and not (isinstance(read.given["metadata"][1], Mapping) and beside[name.lower()] == name):
            message = f'metadata of {owner.called} adds the column "{name}", and its schema has a column of that name'
            reader.error("twice", _node(read, "metadata", name), message, remedy)
    for name in folders:
        if name.lower() in beside and beside[name.lower()] != name:
            message = f'partition_columns of {owner.called} has "{name}", and the schema "{beside[name.lower()]}"'
            reader.error("twice", _node(read, "partition_columns", name), message, "write both alike")


def _types_fit(reader: DocumentReader, read: Read, owner: SectionOwner, declared: Schema) -> None:
    metadata: dict[str, str] = read.options.get("metadata") or {}
    folders: dict[str, str] = read.options.get("partition_columns") or {}
    for name, word in metadata.items():
        if name in declared and str(declared[name].type) not in METADATA[word]:
            message = f'the schema of {owner.called} has "{name}" as {declared[name].type}; {word} can be {" or ".join(METADATA[word])}'
            reader.error("bad-value", _node(read, "metadata", name), message, "correct its type, or leave it out of the schema")
    for field in added_fields({"partition_columns": folders}):
        type_ = declared[field.name].type if field.name in declared else field.type
        if folders[field.name] and type_ != field.type:
            message = f'partition_columns of {owner.called} has "{field.name}" as {field.type}, and the schema as {type_}'
            reader.error("bad-value", _node(read, "partition_columns", field.name), message, "write one type")
        elif type_.parts or type_.fields or type_.name == "BINARY":
            message = f'partition_columns of {owner.called} has "{field.name}", which is {type_}'
            reader.error("bad-value", _node(read, "partition_columns", field.name), message, "a folder's name holds a single value")
