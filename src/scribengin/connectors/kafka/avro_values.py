"""The Avro schema of a sink's values: read from a file, or derived from the rows' columns; with its id in a schema registry."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any

from scribengin.connectors.kafka.options import avro_fault
from scribengin.core.errors import SinkError
from scribengin.formats.avro_out import AvroMessages, derive_schema
from scribengin.formats.avro_schema import AvroSchemaError, WriterSchema, parse_writer, read_schema_file

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from scribengin.core.types import Schema


class AvroValues:
    """Creates the Avro encoder of one sink from the sink's complete options. Picklable: the file is read in the driver, and its text is
    sent with the pickled object; each process sends its own request to the registry, once per schema.

    Raises SinkError for contradictory options.
    """

    def __init__(self, node: str, folder: Path, options: Mapping[str, Any]) -> None:
        self._node = node
        self._options = options
        self._path = None if options["avro_schema"] is None else folder / options["avro_schema"]
        self._text: str | None = None
        topic = str(options["topic"])
        self._subject = options["subject"] or f"{topic}-value"
        if (fault := avro_fault(options)) is not None:
            raise self._wrong(*fault[1:])

    def load_schemas(self) -> None:
        """Read and register the schemas that are known before any row is written. Raises SinkError for a file that is not a schema, or a
        schema that the registry rejects; Unreachable if the registry does not answer."""
        if self._path is not None:
            self._id(self._file())

    def __call__(self, schema: Schema) -> AvroMessages:
        """Returns the encoder for rows of `schema`. Raises ValueError if the row schema and the Avro schema are incompatible; else as
        `load_schemas`."""
        text = derive_schema(schema) if self._path is None else self._file()
        # check first, because a registered schema stays registered
        AvroMessages(schema, _parsed(text))
        return AvroMessages(schema, _parsed(text), self._id(text))

    def _file(self) -> str:
        assert self._path is not None
        if self._text is None:
            try:
                self._text = read_schema_file(self._path)
            except AvroSchemaError as error:
                raise self._wrong(str(error), "correct the file, or avro_schema") from error
        return self._text

    def _id(self, text: str) -> int | None:
        """The id of the schema in the registry; None if values are plain Avro, without a registry."""
        if not self._options["registry"]:
            return None
        from scribengin.connectors.kafka.schema_registry import SchemaRegistry

        return SchemaRegistry(self._node, self._options, "sink").register(self._subject, text)

    def _wrong(self, what: str, remedy: str) -> SinkError:
        return SinkError(f'sink "{self._node}" {what}', remedy=remedy, code="kafka-avro", node=self._node)


@lru_cache(maxsize=64)
def _parsed(text: str) -> WriterSchema:
    return parse_writer(text)
