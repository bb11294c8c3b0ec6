"""Snapshots of an index: a point in time on the server. Each of its slices is a shard, searched in the order of `_seq_no`.

A shard gives each write a sequence number, which the document keeps until it is written again. So documents may later disappear from a
range of numbers, but none can be added once every number up to its end is assigned and its write has reached all copies
(`global_checkpoint`).
"""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import blake2b
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import msgspec

from scribengin.connectors.opensearch.client import NO_INDEX
from scribengin.core.errors import Unreachable

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    import httpx2

    from scribengin.connectors.opensearch.client import OpenSearchCluster
    from scribengin.core.errors import ScribenginError

_NOT_FOUND, _AWAY = 404, 503
_MISSING, _NO_SHARD = "search_context_missing_exception", "no_shard_available_action_exception"
_FIRST_HITS, _MOST_HITS = 1_000, 10_000
"""first and greatest number of documents in a page; the second is the default of `index.max_result_window`"""
_PAGE_BYTES = 4 << 20
_BUCKETS = 1_000
_MOST = 1 << 62
"""above every sequence number"""


class Gone(Exception):
    """The server does not keep the point in time any more. Elasticsearch also answers this way for a deleted index, as if no shard were
    available: `Views.shards` checks whether the index has its shards."""


@dataclass(frozen=True, slots=True)
class Api:
    """The names of the point-in-time requests of one of the two servers."""

    open: str
    delete: str
    id_in: str
    id_of: str


OPENSEARCH = Api("_search/point_in_time", "/_search/point_in_time", "pit_id", "pit_id")
ELASTICSEARCH = Api("_pit", "/_pit", "id", "id")


@dataclass(frozen=True, slots=True)
class Shard:
    """A shard of an index: its identity, which changes after a restore or if the index is recreated, and the number up to which all writes
    have reached all of its copies."""

    history: str
    settled: int


class Hit(msgspec.Struct):
    """A document in the answer to a search."""

    id: str = msgspec.field(name="_id")
    number: int = msgspec.field(name="_seq_no", default=-1)
    term: int = msgspec.field(name="_primary_term", default=0)
    source: msgspec.Raw = msgspec.field(name="_source", default=msgspec.Raw())
    """the document as it was written; empty if it was not requested"""
    sort: list[int] = msgspec.field(default_factory=list)


class _Failure(msgspec.Struct):
    reason: dict[str, Any] = msgspec.field(default_factory=dict)


class _Shards(msgspec.Struct):
    failed: int = 0
    failures: list[_Failure] = msgspec.field(default_factory=list)


class _Total(msgspec.Struct):
    value: int = 0


class _Hits(msgspec.Struct):
    hits: list[Hit]
    total: _Total | None = None


class _Said(msgspec.Struct):
    hits: _Hits
    shards: _Shards = msgspec.field(name="_shards")
    timed_out: bool = False
    aggregations: dict[str, Any] = msgspec.field(default_factory=dict)


_DECODER = msgspec.json.Decoder(_Said)


class DocumentDigest:
    """A digest of documents in their order, from the sequence number, primary term and id of each."""

    def __init__(self) -> None:
        self._hash = blake2b(digest_size=16)

    def add(self, hits: list[Hit]) -> None:
        """Add the next documents."""
        self._hash.update(msgspec.json.encode([(hit.number, hit.term, hit.id) for hit in hits]))

    def __str__(self) -> str:
        return self._hash.hexdigest()


class Views:
    """Opens and reads points in time of a cluster's indexes."""

    def __init__(self, cluster: OpenSearchCluster, api: Api, keep_alive_s: float) -> None:
        self._cluster = cluster
        self._api = api
        self._keep = f"{max(1, round(keep_alive_s))}s"

    def shards(self, name: str) -> list[Shard]:
        """The shards of an index, in order. Raises Gone if there is no such index, Unreachable if one of its shards is unavailable."""
        wanted = "indices.*.shards.*.routing.primary,indices.*.shards.*.seq_no,indices.*.shards.*.commit.user_data.history_uuid"
        answer = self._cluster.ask("GET", f"{_path(name)}/_stats?level=shards&filter_path=_shards.failed,{wanted}", also=[_NOT_FOUND])
        found = answer.json().get("indices", {}).get(name) if answer.status_code != _NOT_FOUND else None
        if found is None:
            raise Gone
        primaries = {
            int(number): Shard(copy["commit"]["user_data"]["history_uuid"], copy["seq_no"]["global_checkpoint"])
            for number, copies in found.get("shards", {}).items()
            for copy in copies
            if copy["routing"]["primary"]
        }
        settings = self._cluster.ask("GET", f"{_path(name)}/_settings/index.number_of_shards?flat_settings=true").json()
        many = int(settings[name]["settings"]["index.number_of_shards"])
        if len(primaries) < many:
            raise self._away(f"{many - len(primaries)} of {many} shards of {name} are missing")
        return [primaries[number] for number in range(many)]

    def open(self, name: str) -> str:
        """Open a point in time of the current state, and return its id. Raises Unreachable if a copy is unavailable; as `ask` if there is
        no such index."""
        said = self._cluster.ask("POST", f"{_path(name)}/_refresh").json()
        if said["_shards"]["failed"]:
            raise self._away(f"{said['_shards']['failed']} copies of {name} do not answer")
        answer = self._cluster.ask("POST", f"{_path(name)}/{self._api.open}?keep_alive={self._keep}")
        id_: str = answer.json()[self._api.id_in]
        return id_

    def close(self, id_: str) -> None:
        """Close a point in time on the server, unless it has expired."""
        given: Any = [id_] if self._api is OPENSEARCH else id_
        self._cluster.ask("DELETE", self._api.delete, json={self._api.id_of: given}, also=[_NOT_FOUND])

    def pages(self, id_: str, slice_: Mapping[str, int], after: int, upto: int, *, whole: bool) -> Iterator[list[Hit]]:
        """The documents with sequence numbers from `after` (exclusive) to `upto` (inclusive), in order, in pages. Raises Gone.

        Args:
            id_: The point in time.
            slice_: The slice: `id` is the shard, `max` the number of shards.
            after: The number before the first one.
            upto: The last number.
            whole: Whether to return the contents of the documents.
        """
        size = _FIRST_HITS
        asked = {"seq_no_primary_term": True, "_source": whole, "sort": [{"_seq_no": "asc"}], "track_total_hits": False}
        begins: dict[str, Any] = {}
        while True:
            answer = self._search(id_, slice_, after, upto, {**asked, **begins, "size": size})
            hits = self._decoded(answer).hits.hits
            if hits:
                yield hits
            if len(hits) < size:
                return
            begins = {"search_after": hits[-1].sort}
            by_size = size * _PAGE_BYTES // max(1, len(answer.content))
            size = max(1, min(_MOST_HITS, 2 * size, by_size))

    def count(self, id_: str, slice_: Mapping[str, int], after: int, upto: int) -> int:
        """The number of documents in a range of a slice; see `pages`. Raises Gone.

        Args:
            id_: The point in time.
            slice_: The slice; see `pages`.
            after: The number before the first one.
            upto: The last number.
        """
        total = self._decoded(self._search(id_, slice_, after, upto, {"size": 0, "track_total_hits": True})).hits.total
        return total.value if total is not None else 0

    def is_empty(self, id_: str) -> bool:
        """True if no shard has a document. Then other requests are impossible: an index without a mapping cannot be sliced. Raises Gone."""
        return not self.count(id_, {"id": 0, "max": 1}, -1, _MOST)

    def last(self, id_: str, slice_: Mapping[str, int]) -> int:
        """The greatest sequence number in a slice; -1 if it has no documents. Raises Gone."""
        asked = {"size": 1, "_source": False, "seq_no_primary_term": True, "sort": [{"_seq_no": "desc"}]}
        hits = self._decoded(self._search(id_, slice_, -1, _MOST, asked)).hits.hits
        return hits[0].number if hits else -1

    def cut(self, id_: str, slice_: Mapping[str, int], after: int, upto: int, rows: int) -> Iterator[tuple[int, int, int]]:
        """Divide a range of a slice into consecutive ranges (after, upto, number of documents) with about `rows` documents or fewer. Raises
        Gone.

        Args:
            id_: The point in time.
            slice_: The slice; see `pages`.
            after: The number before the first one.
            upto: The last number.
            rows: The wanted maximum of documents in a range.
        """
        width = -(-(upto - after) // _BUCKETS)
        histogram = {"field": "_seq_no", "interval": width, "offset": (after + 1) % width, "min_doc_count": 1}
        asked = {"size": 0, "track_total_hits": False, "aggs": {"numbers": {"histogram": histogram}}}
        begin, held = after, 0
        end = after
        for bucket in self._decoded(self._search(id_, slice_, after, upto, asked)).aggregations["numbers"]["buckets"]:
            first, count = int(bucket["key"]), int(bucket["doc_count"])
            if held and held + count > rows:
                yield begin, end, held
                begin, held = end, 0
            if count > rows and width > 1:
                # numbers that are close together: most of the others belong to documents that were written again
                yield from self.cut(id_, slice_, first - 1, min(upto, first + width - 1), rows)
                begin = end = min(upto, first + width - 1)
                continue
            held += count
            end = min(upto, first + width - 1)
        if held:
            yield begin, end, held

    def _search(self, id_: str, slice_: Mapping[str, int], after: int, upto: int, asked: Mapping[str, Any]) -> httpx2.Response:
        body = {"query": {"range": {"_seq_no": {"gt": after, "lte": upto}}}, "pit": {"id": id_, "keep_alive": self._keep}, **asked}
        if slice_["max"] > 1:
            body["slice"] = slice_
        answer = self._cluster.ask("POST", "/_search", json=body, also=[_NOT_FOUND, _AWAY])
        if answer.status_code in (_NOT_FOUND, _AWAY):
            if any(reason in answer.text for reason in (_MISSING, NO_INDEX, _NO_SHARD)):
                raise Gone
            raise self._cluster.refused(answer, "POST /_search")
        return answer

    def _decoded(self, answer: httpx2.Response) -> _Said:
        said = _DECODER.decode(answer.content)
        if any(failure.reason.get("type") == _MISSING for failure in said.shards.failures):
            raise Gone
        if said.shards.failed or said.timed_out:
            why = next((str(failure.reason.get("reason")) for failure in said.shards.failures), "in time")
            raise self._away(f"{said.shards.failed} shards do not answer: {why}")
        return said

    def _away(self, what: str) -> ScribenginError:
        remedy = "check that the cluster is healthy; a running flow retries automatically"
        return Unreachable(f"{self._cluster.called}: {self._cluster}: {what}", remedy=remedy, code="search-away")


def _path(name: str) -> str:
    return f"/{quote(name, safe='*,')}"
