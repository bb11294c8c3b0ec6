"""A Delta table in an object store in which each Batch is one commit; the layout is described in `stored`.

As in a folder, but files cannot be renamed: tasks write them under their final names. Until the log names them they are not part of the
table. Leftovers of attempts are found by the keys that tasks announced before they wrote, as in `objects`.
"""

from __future__ import annotations

import io
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import IO, TYPE_CHECKING, Any, cast

from scribengin.connectors.delta.audit import audit_table, first_of, records_of, rows_written, written_by_others
from scribengin.connectors.delta.by_time import closed_before, columns_of, parts_of, pin, with_time
from scribengin.connectors.delta.columns import unlike, unnamed
from scribengin.connectors.delta.commits import TableCommits
from scribengin.connectors.delta.sink import foreign_rows
from scribengin.connectors.delta.sink_stream import DeltaSinkStream
from scribengin.connectors.delta.stored import ROWS, StoredLineage, StorePlace
from scribengin.connectors.delta.table_files import rows_of
from scribengin.connectors.files.late_rows import delay_us
from scribengin.connectors.files.time_path import TimePath
from scribengin.connectors.objects.address import ObjectsAddress
from scribengin.connectors.objects.manifests import CLAIMS, INTERNAL, Manifests, Owners, another_flow
from scribengin.connectors.objects.ranges import RangedFile
from scribengin.connectors.objects.sink import PublishedObjects
from scribengin.connectors.objects.sink_stream import ObjectsSinkStream, Rules
from scribengin.core.errors import StateError
from scribengin.core.remedies import start_over
from scribengin.formats.catalog import encoder_for

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

    import pyarrow.parquet as pq

    from scribengin.connectors.contract import BatchId, ConnectorContext, Decided, Published, Unaccounted
    from scribengin.core.store import Store
    from scribengin.core.types import Schema

_AT_ONCE = 8
"""number of files that are checked at a time"""


class StoredDeltaSink(PublishedObjects):
    """A sink that writes a table in a store. Executors get a pickled copy, from which they create streams."""

    def __init__(self, place: ConnectorContext) -> None:
        options = place.options
        super().__init__(place, ObjectsAddress.of(place.node, {**options, "url": options["path"]}, place.folder), "parquet")
        self._mode: str = options["mode"]
        self._key = tuple(options["key"]) if self._mode == "upsert" else ()
        self._parts = parts_of(options)
        self._partition_by = columns_of(self._parts)
        self._by_time = any(isinstance(part, TimePath) for part in self._parts)
        self._closed_us: int | None = None
        """the table's closing time when it was claimed, including folders that earlier lineages closed"""
        self._evolve: str = options["evolve"]
        self._rules = Rules(
            encoder_for(self.format),
            # files to be merged keep their order
            () if self._key else self._parts,
            f"{ROWS}/" if self._key else "",
            hidden=False,
            json=False,
            csv=None,
            most_bytes=options["segment"],
            listed=False,
            delay_us=delay_us(options),
        )
        self._table = StorePlace(self._address)
        self._commits = TableCommits(self._table, self._mode, self._key, options["version"], self._partition_by, self._evolve)

    def prepare(self, *, owner: str, lineage: str, adopt: bool = False) -> None:
        """Claim the table, or confirm an existing claim of this lineage. Raises Refused if it holds rows of others, unless `adopt`;
        SinkError if the place holds something that is not a table, or the store would let two writers commit."""
        self._address = self._table.address = self._address.with_login()
        owners = Owners(self._store)
        if not adopt and not owners.claims():
            table = self._table.open()
            if table is not None and rows_of(table):
                raise foreign_rows(self.node, str(self._table), "it holds rows that this lineage did not write")
        owners.claim(owner=owner, lineage=lineage, sink=self.node, flow=self._flow, where=str(self._table), adopt=adopt, looked=True)
        self._owner = owner
        self._commits.claim(self._of(lineage), [each for each in self._table.lineages() if each.name != lineage])
        pin(self._table, self._of(lineage), self._parts, closes=self._rules.delay_us is not None)
        # after the claim: from now on nothing that an earlier lineage has staged can be committed to the table
        self._closed_us = self._commits.closed_us() if self._by_time else None

    def unlike(self, schema: Schema) -> list[str]:
        """Why the existing table does not accept the columns, one sentence per reason, and names that no table accepts."""
        table = self._table.open()
        schema = with_time(schema, self._parts)
        found = unnamed(schema)
        if table is not None:
            found += unlike(schema, table, key=self._key, partition_by=self._partition_by, evolve=self._evolve, mode=self._mode)
        return found

    def stream(self, batch: BatchId, unit: int, attempt: str, schema: Schema) -> DeltaSinkStream:
        """Create a stream for one task output; it writes nothing before its first row. See StagingSink."""
        closed_us = closed_before(self._of(batch.lineage), batch.number, self._closed_us) if self._by_time else None
        staging = ObjectsSinkStream(self.node, self._store, batch, unit, attempt, schema, replace(self._rules, closed_us=closed_us))
        doing = f'sink "{self.node}" cannot stage in {self._table}; no row of the batch is visible, and the batch is run again'
        return DeltaSinkStream(staging, self._footer, doing, schema, self._key, self._parts)

    def audit(self, *, lineage: str, decided: Iterable[Decided], since: int | None = None) -> Iterator[Published]:
        """Compare the decisions with the records, the log and the files; see `audit`, and `group.contract.MemberSink` for `since`."""
        return audit_table(self._commits, self._of(lineage), self._table.lineages(), self._mode, decided, since)

    def unaccounted(self, known: Collection[str]) -> list[Unaccounted]:
        """See `CountingSink`."""
        return written_by_others(self._table.lineages(), known)

    def clear(self, *, owner: str, flow: str, dry_run: bool = False) -> int:
        """Remove all rows from the table, by one commit, and delete the records and the claim; returns the number of rows. Readers of an
        older version still find them until `maintain` cleans them up. Raises Refused if they may include rows of others."""
        store = self._store
        owners = Owners(store)
        owners.check_clear(owner=owner, flow=flow, sink=self.node, where=str(self._table))
        known = self._table.lineages()
        for each in known:
            theirs = next((record["flow"] for _, record in records_of(each) if record["flow"] != flow), None)
            if theirs is not None:
                raise another_flow(self.node, str(self._table), theirs)
        table = self._table.open()
        rows = 0 if table is None or not known else rows_of(table)
        if rows:
            first = first_of(self._commits, known)
            if first is not None and self._commits.rows_before(first):
                raise foreign_rows(
                    self.node, str(self._table), "it already held rows of other writers when the flow started to write there"
                )
            written = sum(map(rows_written, known))
            if self._mode == "append" and rows > written:
                raise foreign_rows(self.node, str(self._table), f"it holds {rows - written} rows that no batch wrote")
        if dry_run:
            return rows
        if rows:
            self._commits.empty()
        self._commits.reopen()
        for each in known:
            # recorded files stay with the table's older versions
            kept = {file["name"] for _, record in records_of(each) for file in record["files"]}
            manifests = Manifests(store, each.name)
            for number, key in list(manifests.notes.staged()):
                manifests.notes.sweep(number, [key], kept)
        # the claims last: if the process is killed before, the call can be repeated
        ours = [entry.key for entry in store.list(INTERNAL)]
        claims = [key for key in ours if key.startswith(CLAIMS)]
        store.delete(*(key for key in ours if key not in claims))
        store.delete(*claims)
        return rows

    @property
    def _store(self) -> Store:
        return self._table.store

    def _reveal(self, batch: BatchId, record: Mapping[str, Any]) -> set[str]:
        """Commit the files to the table, or merge their rows, unless that is done already. Returns the names of the files to keep."""
        files = record["files"]
        place = self._of(batch.lineage)
        # a merge that changes nothing makes no commit; a mark records that it was done
        if files and not (self._key and place.read_mark() >= batch.number):
            self._commits.commit(place, batch.number, record, self._opened_rows, lambda: self._check_there(files, batch))
            if self._key:
                place.write_mark(batch.number)
        return set() if self._key else {file["name"] for file in files}

    def _of(self, lineage: str) -> StoredLineage:
        return StoredLineage(self._store, lineage)

    def _footer(self, segment: Mapping[str, Any]) -> pq.FileMetaData:
        import pyarrow.parquet as pq

        return pq.read_metadata(cast("IO[bytes]", RangedFile(self._store, segment["name"], segment["bytes"])))

    def _opened_rows(self, file: Mapping[str, Any]) -> tuple[str, Any]:
        return f"{self._table}/{file['name']}", io.BytesIO(self._store.get(file["name"]) or b"")

    def _check_there(self, files: Sequence[Mapping[str, Any]], batch: BatchId) -> None:
        """Raise StateError if a file that the log is about to name does not exist."""

        def lost(file: Mapping[str, Any]) -> bool:
            found = self._store.head(file["name"])
            return found is None or found.size != file["bytes"]

        with ThreadPoolExecutor(_AT_ONCE) as threads:
            gone = next((file for file, is_lost in zip(files, threads.map(lost, files), strict=True) if is_lost), None)
        if gone is not None:
            raise StateError(
                f"batch {batch.number} names {self._table}/{gone['name']}, which is missing",
                remedy=f"restore the file from a backup, or {start_over()}; and find out what deletes files there that are not in the "
                "table yet: a vacuum with no retention, or a rule of the bucket",
                node=self.node,
            )
