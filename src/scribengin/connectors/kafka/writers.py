"""The writer schemas of Avro values: one file for all values, files by schema id, or a schema registry."""

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
    """A `Lookup` of schemas by id, from files."""

    schemas: Mapping[int, WriterSchema]

    def schema(self, schema_id: int) -> WriterSchema:
        """The schema with this id. Raises UnknownSchemaError if there is none."""
        if schema_id not in self.schemas:
            known = ", ".join(map(str, sorted(self.schemas)))
            raise UnknownSchemaError(f"it was written by schema {schema_id}, which avro_schemas does not have; it has {known}")
        return self.schemas[schema_id]


def open_writers(node: str, folder: Path, options: Mapping[str, Any]) -> WriterSchema | Lookup:
    """The writer schema, or the lookup of writer schemas, for a source's decoder. Files are read now; a registry is used when a value needs
    it.

    Args:
        node: The id of the source.
        folder: The folder to which paths of files are relative.
        options: The complete options of the source.

    Raises:
        SourceError: for none or several of the ways to give schemas, for a file that is not a schema, and for settings of an unused way.
        EnvironmentFault: if a package is missing.
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
