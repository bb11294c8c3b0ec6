"""The driver's part of the source: determines the next ranges of documents to read.

The first poll makes a plan: a point in time of each index, the greatest sequence number in each of its shards, and the number of documents.
All streams contain the plan, so that a restarted reader reads the same snapshot: from the same points in time while the server keeps them,
else from new ones, which must have as many documents left. Numbers above `settled` may still arrive although they are smaller than existing
ones: these few documents are a separate range, identified by the digest of its contents.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any

from scribengin.connectors.contract import Backlog, SourceStream
from scribengin.connectors.opensearch.view import DocumentDigest, Gone, Views
from scribengin.core.errors import ScribenginError, SourceError
from scribengin.core.remedies import start_over

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from scribengin.connectors.contract import BatchLimits
    from scribengin.connectors.opensearch.client import OpenSearchCluster

_Part = tuple[int, int]
"""(index, shard), as positions in the plan"""
_Range = tuple[_Part, int, int, int, str | None]
"""(part, after, upto, number of documents, digest)"""


class IndexReader:
    """The reader of a source and query; used by one thread."""

    def __init__(self, cluster: OpenSearchCluster, views: Views, options: Mapping[str, Any], names: Sequence[str]) -> None:
        self._cluster = cluster
        self._views = views
        self._index: str = options["index"]
        self._compares = options["on_change"] == "stop"
        self._max_rows: int = options["max_rows"]
        self._split: int = options["split"]
        self._names = names
        self._plan: list[dict[str, Any]] | None = None
        self._after: dict[_Part, int] = {}
        self._handed: dict[_Part, int] = {}
        self._ranges: Iterator[_Range] | None = None
        self._next: _Range | None = None
        self._done = False

    def restore(self, entries: Iterable[Sequence[SourceStream]]) -> None:
        """Continue after the restored entries."""
        for streams in entries:
            for stream in streams:
                place = stream.place
                self._plan = [dict(each) for each in place["plan"]]
                part: _Part = (place["part"][0], place["part"][1])
                self._after[part] = place["upto"]
                self._handed[part] = self._handed.get(part, 0) + (stream.rows or 0)
                self._done = place["last"]

    def split(self, limits: BatchLimits, *, final: bool = False) -> list[SourceStream]:  # noqa: ARG002 (what is there stays)
        """The next ranges; empty if the whole snapshot was handed out. Raises SourceError if the remaining documents have changed,
        Unreachable if the cluster is unavailable."""
        if self._done:
            return []
        most = min(self._max_rows, limits.max_rows or self._max_rows)
        if self._ranges is None:
            self._ranges = self._all_ranges(min(self._split, most))
            self._next = next(self._ranges, None)
        taken: list[_Range] = []
        rows = 0
        while self._next is not None and (not taken or rows + self._next[3] <= most):
            taken.append(self._next)
            rows += self._next[3]
            self._next = next(self._ranges, None)
        self._done = self._next is None
        streams = [self._stream(each, last=self._done and each is taken[-1]) for each in taken]
        for part, _, upto, count, _ in taken:
            self._after[part] = upto
            self._handed[part] = self._handed.get(part, 0) + count
        return streams

    def backlog(self) -> Backlog:
        """The number of documents of the snapshot that were not handed out yet; unknown before the first `split`."""
        if self._plan is None:
            return Backlog(rows=None)
        planned = sum(shard["rows"] + shard["tail"][1] for each in self._plan for shard in each["shards"])
        return Backlog(rows=0 if self._done else max(0, planned - sum(self._handed.values())))

    def notices(self) -> list[str]:
        """Returns no notices."""
        return []

    def hold(self, streams: Sequence[SourceStream]) -> None:
        """Does nothing; see HoldingReader. The points in time that streams name stay open."""

    def let_go(self, streams: Sequence[SourceStream]) -> None:
        """Close the points in time on the server, after the last stream of the snapshot was read."""
        if any(stream.place["last"] for stream in streams):
            with suppress(ScribenginError):
                for each in self._plan or ():
                    self._views.close(each["view"])

    # --- the plan ---

    def _all_ranges(self, rows: int) -> Iterator[_Range]:
        if self._plan is None:
            self._plan = [self._planned(name) for name in self._names]
        for number, each in enumerate(self._plan):
            for shard in range(len(each["shards"])):
                yield from self._ranges_of((number, shard), rows)

    def _planned(self, name: str) -> dict[str, Any]:
        """The plan of one index in its current state. The settled number is read before the point in time is opened, which then includes
        everything up to it."""
        try:
            shards = self._views.shards(name)
            view = self._views.open(name)
            found: list[dict[str, Any]] = []
            is_empty = self._views.is_empty(view)
            for number, shard in enumerate(shards):
                if is_empty:
                    found.append({"history": shard.history, "upto": -1, "rows": 0, "tail": [-1, 0, ""]})
                    continue
                slice_ = {"id": number, "max": len(shards)}
                last = self._views.last(view, slice_)
                upto = min(last, shard.settled)
                rows = self._views.count(view, slice_, -1, upto)
                tail: list[Any] = [last, 0, ""]
                if last > upto:
                    digest = DocumentDigest()
                    for hits in self._views.pages(view, slice_, upto, last, whole=False):
                        digest.add(hits)
                        tail[1] += len(hits)
                    tail[2] = str(digest)
                found.append({"history": shard.history, "upto": upto, "rows": rows, "tail": tail})
        except Gone as error:
            with suppress(Gone):
                self._views.shards(name)
            raise self._changed(f"{name} was deleted while it was read") from error
        return {"name": name, "view": view, "shards": found}

    def _ranges_of(self, part: _Part, rows: int) -> Iterator[_Range]:
        assert self._plan is not None
        shard = self._plan[part[0]]["shards"][part[1]]
        after = self._after.get(part, -1)
        last, in_tail, digest = shard["tail"]
        if after < shard["upto"]:
            for begin, end, count in self._cut(part, after, rows):
                yield part, begin, end, count, None
        if in_tail and after <= shard["upto"]:
            yield part, shard["upto"], last, in_tail, digest

    def _cut(self, part: _Part, after: int, rows: int) -> list[tuple[int, int, int]]:
        assert self._plan is not None
        each = self._plan[part[0]]
        shard = each["shards"][part[1]]
        slice_ = {"id": part[1], "max": len(each["shards"])}
        for _ in range(2):
            try:
                found = list(self._views.cut(each["view"], slice_, after, shard["upto"], rows))
                break
            except Gone:
                self._open_again(each)
        else:
            raise self._changed(f"{each['name']} cannot be opened within keep_alive")
        left, was = sum(count for _, _, count in found), shard["rows"] - self._handed.get(part, 0)
        if self._compares and left != was:
            raise self._changed(f"{each['name']}, shard {part[1]}, has {left} documents left; expected {was}")
        return found

    def _open_again(self, each: dict[str, Any]) -> None:
        try:
            now = self._views.shards(each["name"])
        except Gone as error:
            raise self._changed(f"{each['name']} was deleted") from error
        if self._compares and [shard.history for shard in now] != [shard["history"] for shard in each["shards"]]:
            raise self._changed(f"{each['name']} was recreated or restored")
        each["view"] = self._views.open(each["name"])

    def _stream(self, each: _Range, *, last: bool) -> SourceStream:
        part, after, upto, rows, digest = each
        assert self._plan is not None
        name = self._plan[part[0]]["name"]
        place = {"plan": self._plan, "part": list(part), "after": after, "upto": upto, "digest": digest, "last": last}
        return SourceStream(f"{name}/{part[1]}[{after + 1}:{upto + 1}]", place, rows=rows)

    def _changed(self, what: str) -> SourceError:
        return changed(self._cluster, self._index, what)


def changed(cluster: OpenSearchCluster, index: str, what: str) -> SourceError:
    """The error for documents that were handed out, or belong to the same snapshot, and do not exist any more."""
    return SourceError(
        f"{cluster.called}: {index} changed since its snapshot began, and the server does not keep that point in time any more: {what}",
        remedy=f"restore it; or, to continue with the current data at least once, set on_change: ignore; or {start_over()}; a longer "
        "keep_alive keeps the point in time for longer",
        code="search-changed",
    )
