"""Reads a writer's Avro schema, makes it safe for decoding, and traverses it.

fastavro decodes by a copy without logical types, so that each value comes as Avro stores it: turning it into the column's type, and
telling which field did not fit, is ours (`avro_types`). What a writer says of defaults, aliases and documentation is left out: decoding
by the writer's own schema needs none of it, and writers get it wrong.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import lru_cache
from importlib import import_module
from typing import TYPE_CHECKING, Any

from scribengin.core.errors import EnvironmentFault

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

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
"""logical type → what it may annotate; on anything else it means nothing (Avro's specification)"""
NAMED = frozenset({"record", "enum", "fixed", "error"})


class AvroSchemaError(ValueError):
    """An invalid Avro schema, or one that cannot be used for decoding; the text gives the reason."""


@dataclass(frozen=True, slots=True)
class WriterSchema:
    """The schema of a record as its writer has it. Nodes are what fastavro makes of them: a name, a mapping, or a list (a union)."""

    parsed: Any
    """for fastavro: no logical types"""
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
        """`union`, a logical type of the table above, or the type's own word."""
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
    """The schema in `text`; `references` are schemas that it names and that are not in it, each behind those that it needs itself.

    Raises AvroSchemaError if it is not the schema of a record, and for two kinds with which a few bytes could crash the process: recursive
    types (fastavro follows them on the native stack) and arrays of values of zero bytes.
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
    """The text of a schema file (.avsc); types that it names and does not define come from files of that name beside it.

    Raises AvroSchemaError, which names the file.
    """
    load = fastavro().schema.load_schema
    try:
        path.read_bytes()  # fastavro does not say why it cannot
        loaded = load(str(path), _write_hint=False)
    except OSError as error:
        raise AvroSchemaError(f"{path} cannot be read: {error.strerror or error}") from error
    except Exception as error:  # json, fastavro and what it does not foresee (a TypeError for a number)
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
    except Exception as error:  # its own classes, and TypeError and KeyError for what it does not foresee
        raise AvroSchemaError(f"it is not a valid Avro schema: {error}") from None
    return parsed


def _only(node: Any, keys: frozenset[str]) -> Any:
    """The schema with these keys alone."""
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
        return True  # the branch's number
    kind = schema.kind(node)
    if kind in ("record", "error"):
        return any(_takes_bytes(schema, field["type"]) for field in node["fields"])
    return kind != "null" and not (kind == "fixed" and node["size"] == 0)


def _shown(node: Any) -> str:
    text = json.dumps({key: value for key, value in node.items() if not key.startswith("__")} if isinstance(node, dict) else node)
    return text if len(text) <= 60 else text[:57] + "..."
