"""The source: creates the reader for the driver, and reads blocks of rows on executors, in row key order."""

from __future__ import annotations

from base64 import b64decode
from typing import TYPE_CHECKING

from scribengin.connectors.hbase.gateway import open_gateway
from scribengin.connectors.hbase.gateway_contract import ValueRow
from scribengin.connectors.hbase.options import SOURCE
from scribengin.connectors.hbase.reader import TableReader
from scribengin.connectors.hbase.scan import HBaseScan
from scribengin.connectors.hbase.table import ExpectedTable, changed

if TYPE_CHECKING:
    from collections.abc import Iterator

    from scribengin.connectors.contract import ConnectorContext, SourceStream
    from scribengin.core.types import Schema
    from scribengin.formats.table_blocks import TableBlock, TableDecoder


class TableSource:
    """A table as a source; picklable."""

    def __init__(self, place: ConnectorContext) -> None:
        self.schema: Schema | None = place.schema
        self._options = SOURCE.filled(place.options)
        self._cluster = open_gateway(place.node, self._options["server"], self._options["config"], "source")
        self._compares = self._options["on_change"] == "stop"

    def resolve_schema(self) -> Schema:
        """The declared columns. Raises SourceError if none are declared, or if the table does not match them; Unreachable if the cluster
        does not answer."""
        wanted = self._wanted()
        wanted.check(self._cluster)
        return wanted.schema

    def reader(self) -> TableReader:
        """A new reader. Raises as `resolve_schema`."""
        wanted = self._wanted()
        wanted.check(self._cluster)
        return TableReader(self._cluster, wanted, self._options)

    def decoder(self) -> TableDecoder:
        """A decoder for typed rows, which only reports the values that did not fit."""
        from scribengin.formats.table_blocks import TableDecoder

        return TableDecoder(self._wanted().schema)

    def read(self, stream: SourceStream) -> Iterator[TableBlock]:
        """The rows of the range. Raises SourceError after the last row if they differ from the logged ones."""
        from scribengin.connectors.hbase.reader import HBaseRowParser

        wanted, place = self._wanted(), stream.place
        scan = HBaseScan(
            self._cluster,
            wanted.table,
            ValueRow,
            page=self._options["page"],
            columns=wanted.columns,
            part="all" if wanted.cells else "first",
        )
        parser = HBaseRowParser(wanted.table, wanted.schema, wanted.names, wanted.template, self._options["values"])
        rows, digest = 0, wanted.digest()
        for page in scan.pages(b64decode(place["after"]), b64decode(place["upto"]), stream.rows):
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

    def _wanted(self) -> ExpectedTable:
        return ExpectedTable(self._cluster, self._options, self.schema)
