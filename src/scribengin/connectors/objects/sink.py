"""The sink: tasks write objects with unique names; one manifest per Batch, put-if-absent, says which of them are committed."""

from __future__ import annotations

from abc import ABC, abstractmethod
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from itertools import groupby
from operator import itemgetter
from typing import TYPE_CHECKING, Any

from scribengin.connectors.files.late_rows import closed_after, delay_us
from scribengin.connectors.files.sink_records import found_besides, summarize_commits
from scribengin.connectors.files.time_path import TimePath
from scribengin.connectors.objects.address import ObjectsAddress
from scribengin.connectors.objects.audit import audit_objects
from scribengin.connectors.objects.compaction import begin
from scribengin.connectors.objects.compaction_log import CompactionLog, named
from scribengin.connectors.objects.maintenance import rolling_of
from scribengin.connectors.objects.manifests import CLAIMS, DATA, INTERNAL, Manifests, Owners, another_flow, lineages
from scribengin.connectors.objects.orphans import find_orphans
from scribengin.connectors.objects.sink_stream import ObjectsSinkStream, Rules
from scribengin.connectors.objects.staged_objects import complete, later_of
from scribengin.connectors.objects.trash import StoreTrash, can_keep, is_moving
from scribengin.connectors.staged_commit import StagedCommit, commit_record, is_closed
from scribengin.core import faults
from scribengin.core.errors import SinkError, Unreachable
from scribengin.formats.catalog import encoder_for

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping

    from scribengin.connectors.contract import BatchId, ConnectorContext, Decided, Published, SinkStream, Unaccounted
    from scribengin.connectors.objects.staged_objects import Later
    from scribengin.core.store import Store
    from scribengin.core.types import Schema

_AT_ONCE = 8
"""uploads that are completed concurrently"""


class PublishedObjects(ABC):
    """A prefix to which a manifest commits each Batch; a subclass defines what its objects become. Picklable."""

    exactly_once = True

    def __init__(self, place: ConnectorContext, address: ObjectsAddress, format: str) -> None:
        self.node = place.node
        self.format = format
        self._flow = place.flow
        self._owner = ""
        self._gaps = bool(place.member)
        self._address = address
        self._opened: Store | None = None

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_opened": None}

    @abstractmethod
    def stream(self, batch: BatchId, unit: int, attempt: str, schema: Schema) -> SinkStream:
        """Create a stream for one task output; it writes nothing before its first row. See StagingSink."""

    def check_place(self) -> None:
        """See PlaceChecking."""
        self._address.check_place()

    def check_ready(self, *, claimed: bool) -> None:
        """See `group.contract.MemberSink`."""
        if not claimed:
            self.check_place()
        elif not Owners(self._store).is_claimed():
            raise Unreachable(
                f'sink "{self.node}": {self._address} has no claim: this is not the place that the flow claimed',
                remedy="restore it, or correct the url",
                node=self.node,
            )

    def publish(self, decided: Decided) -> None:
        """Publish the Batch, in the steps of `staged_commit`. Raises FencedError or StateError; see the contract."""
        batch = decided.batch
        where = str(self._address)
        Owners(self._store).check(owner=self._owner, lineage=batch.lineage, sink=self.node, where=where)
        manifests = Manifests(self._store, batch.lineage)
        commit = StagedCommit(sink=self.node, where=where, log=manifests.commits, consecutive=False)
        record = commit.write(decided, self._record)
        kept = self._reveal(batch, record)
        manifests.notes.sweep(batch.number, [key for _, key in manifests.notes.staged(batch.number)], kept)
        if manifests.commits.wants_folding(batch.number, gaps=self._gaps):
            manifests.commits.fold(summarize)

    def recover(self, decided: Decided | None, *, lineage: str, before: int) -> None:
        """Publish the newest decision, then delete leftovers of tasks of decided Batches."""
        if decided is not None:
            self.publish(decided)
        manifests = Manifests(self._store, lineage)
        staged = ((number, key) for number, key in manifests.notes.staged() if number < before)
        for number, some in groupby(staged, key=itemgetter(0)):
            record = manifests.commits.read(number) or {}
            manifests.notes.sweep(number, [key for _, key in some], {file["name"] for file in record.get("files", ())})

    @property
    def _store(self) -> Store:
        opened = self._opened
        if opened is None:
            opened = self._opened = self._address.open()
        return opened

    def _record(self, decided: Decided, before: Mapping[str, Any] | None) -> dict[str, Any]:
        record = commit_record(decided, sink=self.node, owner=self._owner, format=self.format)
        return record | closed_after(before, record["files"])

    @abstractmethod
    def _reveal(self, batch: BatchId, record: Mapping[str, Any]) -> set[str]:
        """Make the objects of the record visible, unless that is done already. Returns the keys of the objects to keep: the other objects
        of the Batch are deleted."""


class ObjectsSink(PublishedObjects):
    """A sink that writes below one prefix. Executors get a pickled copy, from which they create streams."""

    def __init__(self, place: ConnectorContext) -> None:
        options = place.options
        super().__init__(place, ObjectsAddress.of(place.node, options, place.folder), options["format"])
        listed = options["visible"] == "listing"
        if listed and self._address.is_local:
            raise SinkError(
                f'sink "{self.node}": visible: listing needs multipart uploads, which a folder does not support',
                remedy="write `type: files` for a folder",
                code="objects-url",
                node=self.node,
            )
        rolls = rolling_of(options) is not None
        self._listed = listed
        self._rules = Rules(
            encoder_for(self.format, compression=options.get("compression") or "auto", options=options),
            tuple(part if isinstance(part, str) else TimePath.of(part) for part in options["partition_by"]),
            "" if listed else f"{DATA}/",
            listed and rolls,
            self.format == "json",
            (options.get("delimiter", ","), options.get("null", ""), options.get("header", True)) if self.format == "csv" else None,
            options["segment"],
            listed and not rolls,
            delay_us(options),
        )
        self._restorable: bool | None = None

    def prepare(self, *, owner: str, lineage: str, adopt: bool = False) -> None:
        """Claim the prefix, or confirm an existing claim; see the contract."""
        self._address = self._address.with_login()
        Owners(self._store).claim(owner=owner, lineage=lineage, sink=self.node, flow=self._flow, where=str(self._address), adopt=adopt)
        self._owner = owner
        self._begin(lineage)
        if self._listed:
            self._uploads()  # a missing access key is reported now

    def _begin(self, lineage: str) -> None:
        """Take over the folders by time of earlier lineages."""
        by = next((part for part in self._rules.partition_by if isinstance(part, TimePath)), None)
        if by is not None:
            closes = self._rules.delay_us is not None
            marked = begin(self._store, lineage, by, closes=closes, sink=self.node, where=str(self._address))
            self._rules = replace(self._rules, looks_for_markers=marked)

    def stream(self, batch: BatchId, unit: int, attempt: str, schema: Schema) -> ObjectsSinkStream:
        """Create a stream for one task output; it writes nothing before its first row. See StagingSink."""
        return ObjectsSinkStream(self.node, self._store, batch, unit, attempt, schema, self._rules_of(batch))

    def _rules_of(self, batch: BatchId) -> Rules:
        """The rules for a Batch, including the folders that the Batches before it closed: the same whenever the Batch is run."""
        if not any(isinstance(part, TimePath) for part in self._rules.partition_by):
            return self._rules
        before = Manifests(self._store, batch.lineage).commits.newest_below(batch.number)
        return replace(self._rules, closed_us=None if before is None else before[1].get("closed_us"))

    def audit(self, *, lineage: str, decided: Iterable[Decided], since: int | None = None) -> Iterator[Published]:
        """Verify every committed object; see `objects.audit`, and `group.contract.MemberSink` for `since`."""
        return audit_objects(self._store, lineage, decided, listed=self._listed, since=since)

    def unaccounted(self, known: Collection[str]) -> list[Unaccounted]:
        """See `CountingSink`."""
        logs = ((lineage, Manifests(self._store, lineage).commits) for lineage in lineages(self._store))
        return found_besides(known, logs, summarize, find_orphans(self._store))

    @property
    def place(self) -> str:
        """See `TrashSink`."""
        return str(self._address)

    @property
    def restorable(self) -> bool:
        """True if the store allows moving objects to its trash; checked once."""
        if self._restorable is None:
            self._restorable = can_keep(self._store)
        return self._restorable

    def move_to_trash(self, id_: str, *, owner: str, flow: str) -> int:
        """See `TrashSink`."""
        there = self._written(owner, flow)
        StoreTrash(self._store, id_).take(there)
        return len(there)

    def check_back(self, id_: str) -> None:
        """See `TrashSink`."""
        StoreTrash(self._store, id_).check_back()

    def move_back(self, id_: str) -> None:
        """See `TrashSink`."""
        StoreTrash(self._store, id_).give_back()

    def drop_trash(self, id_: str) -> None:
        """See `TrashSink`."""
        StoreTrash(self._store, id_).drop()

    def _written(self, owner: str, flow: str) -> list[str]:
        """The existing objects that manifests name. Raises Refused if others have written there too."""
        store = self._store
        where = str(self._address)
        Owners(store).check_clear(owner=owner, flow=flow, sink=self.node, where=where)
        if is_moving(store):
            return []
        names: list[str] = []
        for lineage in lineages(store):
            for _, record in Manifests(store, lineage).committed():
                if record["flow"] != flow:
                    raise another_flow(self.node, where, record["flow"])
            names += named(store, lineage)
        wanted = set(names)
        return [entry.key for entry in store.list() if entry.key in wanted]

    def clear(self, *, owner: str, flow: str, dry_run: bool = False) -> int:
        """Delete every object that a manifest names, staged objects, and the manifests; returns the number of objects."""
        store = self._store
        there = self._written(owner, flow)
        if dry_run:
            return len(there)
        for lineage in lineages(store):
            for notes in (Manifests(store, lineage).notes, CompactionLog(store, lineage).notes):
                for number, some in groupby(notes.staged(), key=itemgetter(0)):
                    notes.sweep(number, [key for _, key in some])
        store.delete(*there)
        # the claims last: if the process is killed before, the call can be repeated
        ours = [entry.key for entry in store.list(INTERNAL)]
        claims = [key for key in ours if key.startswith(CLAIMS)]
        store.delete(*(key for key in ours if key not in claims))
        store.delete(*claims)
        return len(there)

    def _uploads(self) -> Later:
        return later_of(self._store)

    def _reveal(self, batch: BatchId, record: Mapping[str, Any]) -> set[str]:
        """Complete the uploads that waited for this Batch; other objects count as soon as the manifest names them."""
        waiting = [file for file in record["files"] if "upload" in file]
        if waiting:
            uploads = self._uploads()
            complete(self._store, uploads, waiting[0], f"batch {batch.number}")
            faults.reached("publish.renamed")
            with ThreadPoolExecutor(_AT_ONCE) as threads:
                list(threads.map(lambda file: complete(self._store, uploads, file, f"batch {batch.number}"), waiting[1:]))
        return {file["name"] for file in record["files"]}


def summarize(summary: Any | None, records: Iterable[Any]) -> dict[str, int]:
    """The sum of folded manifests."""
    return summarize_commits(summary, (record for record in records if not is_closed(record)))
