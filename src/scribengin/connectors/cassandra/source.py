"""The source: options become a reader (driver) and blocks of rows (executors), in token order."""

from __future__ import annotations

from typing import TYPE_CHECKING

from scribengin.connectors.cassandra.client import CassandraCluster
from scribengin.connectors.cassandra.options import SOURCE
from scribengin.connectors.cassandra.reader import CassandraReader, changed
from scribengin.connectors.cassandra.table import CassandraDigest, CassandraScan, columns_of, describe

if TYPE_CHECKING:
    from collections.abc import Iterator

    from scribengin.connectors.cassandra.table import CassandraTable
    from scribengin.connectors.contract import ConnectorContext, SourceStream
    from scribengin.core.types import Schema
    from scribengin.formats.table_blocks import TableBlock, TableDecoder


class CassandraSource:
    """One table; picklable."""

    def __init__(self, place: ConnectorContext) -> None:
        self.schema: Schema | None = place.schema
        self._options = SOURCE.filled(place.options)
        self._cluster = CassandraCluster(place.node, self._options, "source")
        self._compares = self._options["on_change"] == "stop"
        self._known: Schema | None = None

    def resolve_schema(self) -> Schema:
        """The declared columns, or the table's. Raises SourceError if the table does not exist or does not match the declared columns;
        Unreachable if the cluster does not answer."""
        if self._known is None:
            self._known = columns_of(self._cluster, self._describe(), self.schema)
        return self._known

    def reader(self) -> CassandraReader:
        """A fresh reader. Raises as `resolve_schema`."""
        table = self._describe()
        schema = columns_of(self._cluster, table, self.schema)
        return CassandraReader(self._cluster, table, self._scan(table, schema if self._compares else None), self._options)

    def decoder(self) -> TableDecoder:
        """A decoder for typed rows: it only reports values that did not fit."""
        from scribengin.formats.table_blocks import TableDecoder

        return TableDecoder(self.resolve_schema())

    def read(self, stream: SourceStream) -> Iterator[TableBlock]:
        """The rows of the range. Raises SourceError after the last row if they differ from the logged ones."""
        from scribengin.connectors.cassandra.rows import CassandraRowParser

        place, rows, digest = stream.place, 0, CassandraDigest()
        table = self._describe()
        schema = columns_of(self._cluster, table, self.schema)
        scan = self._scan(table, schema)
        parser = CassandraRowParser(str(table), schema, table.columns, scan.types()[1:])
        for page in scan.pages(place["after"], place["upto"]):
            if self._compares:
                digest.add(page)
            rows += len(page)
            yield parser.block(page)
        if self._compares and digest.text != place["digest"]:
            how = (
                f"found {rows} rows, expected {stream.rows}"
                if rows != stream.rows
                else "the number of rows is the same, but the rows differ"
            )
            raise changed(self._cluster, stream.label, how)

    def _describe(self) -> CassandraTable:
        return describe(self._cluster, self._options["keyspace"], self._options["table"])

    def _scan(self, table: CassandraTable, schema: Schema | None) -> CassandraScan:
        return CassandraScan(self._cluster, table, schema.names if schema else (), self._options["page"])
