"""The source: reads the documents of an index as they were at one moment, shard by shard, in the order of writing."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from scribengin.connectors.opensearch.client import OpenSearchCluster
from scribengin.connectors.opensearch.options import SOURCE
from scribengin.connectors.opensearch.reader import IndexReader, changed
from scribengin.connectors.opensearch.view import Api, DocumentDigest, Gone, Hit, Views
from scribengin.core.errors import SourceError, SourceMissing
from scribengin.formats.blocks import LineBlock

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from scribengin.connectors.contract import ConnectorContext, SourceStream
    from scribengin.core.types import Schema
    from scribengin.formats.json import JsonDecoder

_NOT_FOUND = 404


class IndexSource:
    """An index, an alias, or several indexes given by a pattern, as a source; picklable."""

    def __init__(self, place: ConnectorContext, api: Api) -> None:
        self.schema: Schema | None = place.schema
        self._options = SOURCE.filled(place.options)
        self._index: str = self._options["index"]
        self._compares = self._options["on_change"] == "stop"
        self._cluster = OpenSearchCluster(place.node, self._options["server"], self._options["config"], "source")
        self._views = Views(self._cluster, api, self._options["keep_alive"])

    def resolve_schema(self) -> Schema:
        """The declared columns. Raises SourceError if none are declared: a mapping does not say which fields are lists."""
        if self.schema is None:
            raise SourceError(
                f"{self._cluster.called} has no schema",
                remedy='add the columns to read: schema: "id BIGINT, name STRING"',
                code="schema-missing",
            )
        return self.schema

    def reader(self) -> IndexReader:
        """A new reader. Raises SourceError if there is no such index, Unreachable if the cluster does not answer."""
        return IndexReader(self._cluster, self._views, self._options, self._names())

    def decoder(self) -> JsonDecoder:
        """A decoder for JSON documents."""
        from scribengin.formats.json import JsonDecoder

        return JsonDecoder(self.resolve_schema())

    def read(self, stream: SourceStream) -> Iterator[LineBlock]:
        """The documents of the range. Raises SourceError after the last document if they differ from the logged ones."""
        place, rows, offset = stream.place, 0, 0
        digest = DocumentDigest()
        for block, hits in self._blocks(place, stream.label):
            block.offset, block.first_line = offset, rows + 1
            offset += len(block.data)
            rows += len(hits)
            digest.add(hits)
            yield block
        if not self._compares:
            return
        if rows != stream.rows:
            raise changed(self._cluster, self._index, f"found {rows} documents in {stream.label}, expected {stream.rows}")
        if place["digest"] not in (None, str(digest)):
            raise changed(self._cluster, self._index, f"the documents in {stream.label} differ")

    def _blocks(self, place: Mapping[str, Any], label: str) -> Iterator[tuple[LineBlock, list[Hit]]]:
        """Read from the point in time of the plan while the server keeps it, else from a new one."""
        index, shard = place["part"]
        planned = place["plan"][index]
        slice_ = {"id": shard, "max": len(planned["shards"])}
        after = place["after"]
        try:
            for hits in self._views.pages(planned["view"], slice_, after, place["upto"], whole=True):
                after = hits[-1].number
                yield self._block(hits, label), hits
            return
        except Gone:
            self._compare(planned)
        # documents that were received already are the same in any point in time, because their numbers do not change
        view = self._views.open(planned["name"])
        try:
            for hits in self._views.pages(view, slice_, after, place["upto"], whole=True):
                yield self._block(hits, label), hits
        except Gone as error:
            self._compare(planned)
            raise changed(self._cluster, self._index, f"{label} cannot be read within keep_alive") from error
        finally:
            self._views.close(view)

    def _compare(self, planned: Mapping[str, Any]) -> None:
        try:
            now = self._views.shards(planned["name"])
        except Gone as error:
            raise changed(self._cluster, self._index, f"{planned['name']} was deleted") from error
        if self._compares and [each.history for each in now] != [each["history"] for each in planned["shards"]]:
            raise changed(self._cluster, self._index, f"{planned['name']} was recreated or restored")

    def _block(self, hits: list[Hit], label: str) -> LineBlock:
        lines = [bytes(hit.source) for hit in hits]
        if not all(lines):
            raise SourceError(
                f"{self._cluster.called}: {self._index} stores no documents: _source is disabled",
                remedy="read another index",
                code="search-source",
            )
        data = b"\n".join(lines) + b"\n"
        if data.count(b"\n") != len(lines):  # the document was written on several lines
            data = b"\n".join(line.replace(b"\n", b" ") for line in lines) + b"\n"
        return LineBlock(label, data)

    def _names(self) -> list[str]:
        path = f"/{quote(self._index, safe='*,')}/_settings/index.uuid"
        answer = self._cluster.ask("GET", path, also=[_NOT_FOUND])
        found = {} if answer.status_code == _NOT_FOUND else answer.json()
        if not found:
            raise SourceMissing(
                f"{self._cluster.called}: there is no index {self._index} at {self._cluster}",
                remedy="correct `index`",
                code="search-index",
            )
        return sorted(found)
