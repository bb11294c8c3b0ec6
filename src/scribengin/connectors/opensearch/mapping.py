"""Columns of a flow as a mapping of an index."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from scribengin.core.types import Field, Schema, Type

_TYPES = {
    "BOOLEAN": "boolean",
    "TINYINT": "byte",
    "SMALLINT": "short",
    "INT": "integer",
    "BIGINT": "long",
    "FLOAT": "float",
    "DOUBLE": "double",
    "DECIMAL": "double",
    "BINARY": "binary",
    "DATE": "date",
    "TIMESTAMP": "date",
}
_WIDER = {
    "boolean": ("keyword", "text"),
    "byte": ("short", "integer", "long", "float", "double", "scaled_float", "keyword", "text"),
    "short": ("integer", "long", "float", "double", "scaled_float", "keyword", "text"),
    "integer": ("long", "double", "scaled_float", "keyword", "text"),
    "long": ("unsigned_long", "scaled_float", "keyword", "text"),
    "float": ("double", "scaled_float", "half_float", "keyword", "text"),
    "double": ("scaled_float", "float", "keyword", "text"),
    "date": ("date_nanos", "keyword", "text"),
    "binary": ("keyword", "text"),
    "text": ("keyword", "wildcard", "match_only_text", "constant_keyword", "ip", "date", "search_as_you_type", "completion", "geo_point"),
    "object": ("nested", "flattened", "flat_object"),
}
"""the mappings that each column type accepts, beside the default; a value that does not fit becomes a dead letter"""
_LONG_TEXT = 8191
"""maximum characters of a text that can be sorted and aggregated: four bytes each below Lucene's 32,766"""


def mapping_of(schema: Schema) -> dict[str, Any]:
    """The mapping of a new index; other fields are refused."""
    return {"dynamic": "strict", "properties": _properties(schema.fields)}


def unlike(schema: Schema, mapping: Mapping[str, Any]) -> list[str]:
    """Why an existing index does not accept rows with these columns, one sentence per reason."""
    held: Mapping[str, Any] = mapping.get("properties", {})
    found = []
    for field in schema.fields:
        if field.name not in held:
            if mapping.get("dynamic") in ("strict", "strict_allow_templates"):
                found.append(f'the index has no mapping for field "{field.name}", and accepts no unmapped fields')
            continue
        ours, there = _property(field.type).get("type", "object"), held[field.name].get("type", "object")
        if there != ours and there not in _WIDER.get(ours, ()):
            found.append(f'field "{field.name}" is {there} in the index, but {field.type} in the flow')
    return found


def _properties(fields: Iterable[Field]) -> dict[str, Any]:
    return {field.name: _property(field.type) for field in fields}


def _property(type_: Type) -> dict[str, Any]:
    match type_.name:
        case "STRING":
            return {"type": "text", "fields": {"keyword": {"type": "keyword", "ignore_above": _LONG_TEXT}}}
        case "ARRAY":
            return _property(type_.parts[0])
        case "MAP":
            return {"type": "object", "enabled": False}  # its keys are data: each would become a field
        case "STRUCT":
            return {"type": "object", "properties": _properties(type_.fields)}
    return {"type": _TYPES[type_.name]}
