"""The schema that an Avro value was written with: one for all, files by their ids, or from a schema registry."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from scribengin.core.errors import SourceError
from scribengin.formats.avro import UnknownSchemaError
from scribengin.formats.avro_schema import AvroSchemaError, parse_writer, read_schema_file

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from scribengin.formats.avro import Lookup
    from scribengin.formats.avro_schema import WriterSchema

_WAYS = ("registry", "avro_schemas", "avro_schema")


@dataclass(frozen=True)
class SchemaFiles:
    """Schemas by id, from files."""

    schemas: Mapping[int, WriterSchema]

    def schema(self, schema_id: int) -> WriterSchema:
        """Raises UnknownSchemaError."""
        if schema_id not in self.schemas:
            known = ", ".join(map(str, sorted(self.schemas)))
            raise UnknownSchemaError(f"it was written by schema {schema_id}, which avro_schemas does not have; it has {known}")
        return self.schemas[schema_id]


def open_writers(node: str, folder: Path, options: Mapping[str, Any]) -> WriterSchema | Lookup:
    """The writer schema for a source's decoder, from its (complete) options; files are read now, a registry is used when a value needs it.

    Raises SourceError for no way or several ways, for a file that is not a schema, and for settings of an unused way; EnvironmentFault if a
    package is missing.
    """
    given = [name for name in _WAYS if options[name]]
    if len(given) != 1:
        found = " and ".join(given) if given else "none of them"
        raise SourceError(
            f'''source "{node}" reads avro and has {found}; expected one of {", ".join(_WAYS)}''',
            remedy="write registry: URL for values in a schema registry's wire format; avro_schema: FILE for plain Avro",
            node=node,
        )
    if options["registry_config"] and not options["registry"]:
        raise SourceError(
            f'source "{node}" has registry_config, but reads its schemas from {given[0]}', remedy="remove registry_config", node=node
        )
    if options["registry"]:
        from scribengin.connectors.kafka.schema_registry import SchemaRegistry

        return SchemaRegistry(node, options)
    try:
        if options["avro_schema"]:
            return parse_writer(read_schema_file(folder / options["avro_schema"]))
        return SchemaFiles({_id(key): parse_writer(read_schema_file(folder / path)) for key, path in options["avro_schemas"].items()})
    except AvroSchemaError as error:
        raise SourceError(f'source "{node}": {error}', remedy=f"correct the file, or {given[0]}", node=node) from error


def _id(key: str) -> int:
    if key.isascii() and key.isdigit() and int(key) < 1 << 32:
        return int(key)
    raise AvroSchemaError(f'avro_schemas has the id "{key}"; expected a 32-bit number')
