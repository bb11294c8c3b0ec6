"""The columns that a source adds to those of its data: `metadata` adds where a record was read, `partition_columns` adds values from folder
names."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from scribengin.core.types import Field, Schema, Type, parse_schema

if TYPE_CHECKING:
    from collections.abc import Mapping

METADATA: Mapping[str, tuple[str, ...]] = {
    "file": ("STRING",),
    "file_name": ("STRING",),
    "file_size": ("BIGINT",),
    "file_time": ("TIMESTAMP",),
    "line": ("BIGINT", "INT"),
    "offset": ("BIGINT",),
    "row": ("BIGINT", "INT"),
    "topic": ("STRING",),
    "partition": ("INT", "BIGINT"),
    "timestamp": ("TIMESTAMP",),
    "key": ("STRING", "BINARY"),
    "headers": ("MAP<STRING, BINARY>",),
}
"""what `metadata` can name, over all sources, and the types that such a column may have; the first where the schema does not say"""


def added_fields(options: Mapping[str, Any]) -> tuple[Field, ...]:
    """The columns that `metadata` and `partition_columns` of a source add, in their order, where its schema does not have them."""
    taken, folders = options.get("metadata") or {}, options.get("partition_columns") or {}
    return (
        *(Field(name, _type(type_ or "STRING")) for name, type_ in folders.items()),
        *(Field(name, _type(METADATA[word][0])) for name, word in taken.items()),
    )


def with_added(schema: Schema, options: Mapping[str, Any]) -> Schema:
    """The schema with the missing `added_fields` appended."""
    return Schema((*schema.fields, *(field for field in added_fields(options) if field.name not in schema)))


def without_added(schema: Schema, options: Mapping[str, Any]) -> Schema:
    """The columns of the record itself, without the added ones."""
    added = {field.name for field in added_fields(options)}
    return Schema(tuple(field for field in schema.fields if field.name not in added))


def _type(text: str) -> Type:
    return parse_schema(f"x {text}").fields[0].type
