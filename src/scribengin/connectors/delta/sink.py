"""A Delta table in which each Batch is one commit.

    <path>/_delta_log/…                               the table's log, which readers use
    <path>/part-<batch>-<unit>-<id>.parquet           committed files; `<path>/day=2026-01-01/part-…` with `partition_by`
    <path>/_scribengin/owner.json                     the installations and lineages that write here; only the last one may write
    <path>/_scribengin/<lineage>/generation.json      the number of its commits in the log; see `commits`
    <path>/_scribengin/<lineage>/staged/<batch>/…     output of tasks: below a `_`, which no vacuum reads
    <path>/_scribengin/<lineage>/batches/…            this sink's commit records, put-if-absent; see `core.numbered_log`

A Batch becomes visible as a whole, with the commit to the log. The record is written first: it settles which decision is used. Then the
files are renamed; recovery continues from the record. With `mode: upsert` the staged files are not renamed, but merged.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from scribengin.connectors.delta.audit import audit_table, first_of, rows_written, written_by_others
from scribengin.connectors.delta.by_time import closed_before, columns_of, parts_of, pin, with_time
from scribengin.connectors.delta.columns import unlike, unnamed
from scribengin.connectors.delta.commits import TableCommits
from scribengin.connectors.delta.folder import FolderPlace
from scribengin.connectors.delta.sink_stream import DeltaSinkStream
from scribengin.connectors.delta.table_files import rows_of
from scribengin.connectors.files.late_rows import delay_us
from scribengin.connectors.files.sink import PublishedFiles
from scribengin.connectors.files.sink_claim import check_clear, check_flow, claim
from scribengin.connectors.files.sink_folders import INTERNAL, lineages_in
from scribengin.connectors.files.sink_stream import FilesSinkStream, SegmentRules
from scribengin.connectors.files.time_path import TimePath
from scribengin.core.errors import Refused
from scribengin.core.remedies import add_to_outputs, start_over
from scribengin.core.storage import make_folder, read_or_none, remove_tree
from scribengin.formats.catalog import encoder_for

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping
    from pathlib import Path
    from typing import Any

    import pyarrow.parquet as pq

    from scribengin.connectors.contract import BatchId, ConnectorContext, Decided, Published, Unaccounted
    from scribengin.connectors.files.sink_folders import LineageFolder
    from scribengin.core.types import Schema


class DeltaSink(PublishedFiles):
    """A sink that writes a table in a folder. Executors get a pickled copy, from which they create streams."""

    format = "parquet"
    restorable = False  # the table's log cannot be moved to a trash; its older versions keep the rows for a while

    def __init__(self, place: ConnectorContext) -> None:
        super().__init__(place)
        options = place.options
        self._mode: str = options["mode"]
        self._key = tuple(options["key"]) if self._mode == "upsert" else ()
        self._parts = parts_of(options)
        self._partition_by = columns_of(self._parts)
        self._by_time = any(isinstance(part, TimePath) for part in self._parts)
        self._delay_us = delay_us(options)
        self._closed_us: int | None = None
        """the table's closing time when it was claimed, including folders that earlier lineages closed"""
        self._evolve: str = options["evolve"]
        self._most_bytes: int | None = options["segment"]
        self._table = FolderPlace(place.node, self.path)
        self._commits = TableCommits(self._table, self._mode, self._key, options["version"], self._partition_by, self._evolve)

    def prepare(self, *, owner: str, lineage: str, adopt: bool = False) -> None:
        """Claim the table, or confirm an existing claim of this lineage. Raises Refused if it holds rows of others, unless `adopt`;
        SinkError if the place holds something that is not a table."""
        if not adopt and read_or_none(self._owner_file) is None:
            table = self._table.open()
            if table is not None and rows_of(table):
                raise foreign_rows(self.node, str(self.path), "it holds rows that this lineage did not write")
        make_folder(self.path)
        claim(self.path, self._owner_file, owner=owner, lineage=lineage, sink=self.node, flow=self._flow, adopt=adopt, looked=True)
        self._owner, self._lineage = owner, lineage
        place = self._of(lineage)
        make_folder(place.path)
        self._commits.claim(place, [each for each in lineages_in(self.path) if each.path != place.path])
        pin(self._table, place, self._parts, closes=self._delay_us is not None)
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
        """Create a stream for one task output. See StagingSink."""
        place = self._staged_place(batch, unit, attempt)
        # files to be merged keep their order
        by = () if self._mode == "upsert" else self._parts
        closed_us = closed_before(self._of(batch.lineage), batch.number, self._closed_us) if self._by_time else None
        rules = SegmentRules(most_bytes=self._most_bytes, closed_us=closed_us, refuses_late=True, delay_us=self._delay_us)
        staging = FilesSinkStream(place, schema, encoder_for("parquet"), by, rules)
        return DeltaSinkStream(staging, partial(footer, place.folder), place.doing, schema, self._key, self._parts)

    def audit(self, *, lineage: str, decided: Iterable[Decided], since: int | None = None) -> Iterator[Published]:
        """Compare the decisions with the records, the log and the files; see `audit`. `since`: see `group.contract.MemberSink`."""
        return audit_table(self._commits, self._of(lineage), lineages_in(self.path), self._mode, decided, since)

    def unaccounted(self, known: Collection[str]) -> list[Unaccounted]:
        """See `CountingSink`."""
        return written_by_others(lineages_in(self.path), known)

    def clear(self, *, owner: str, flow: str, dry_run: bool = False) -> int:
        """Remove all rows from the table, by one commit, and delete the records and the claim; returns the number of rows. Readers of an
        older version still find them until `maintain` cleans them up. Raises Refused if they may include rows of others."""
        check_flow(self.path, sink=self.node, flow=flow)
        check_clear(self._owner_file, owner=owner, sink=self.node)
        lineages = lineages_in(self.path)
        table = self._table.open()
        if read_or_none(self._owner_file) is None or table is None:
            rows = 0
        else:
            rows = rows_of(table)
            written = sum(map(rows_written, lineages))
            first = first_of(self._commits, lineages)
            if first is not None and self._commits.rows_before(first):
                raise foreign_rows(self.node, str(self.path), "it already held rows of other writers when the flow started to write there")
            if self._mode == "append" and rows > written:
                raise foreign_rows(self.node, str(self.path), f"it holds {rows - written} rows that no batch wrote")
        if not dry_run:
            if rows:
                self._commits.empty()
            self._commits.reopen()
            remove_tree(self.path / INTERNAL)
        return rows

    def _reveal(self, place: LineageFolder, batch: BatchId, record: Mapping[str, Any]) -> None:
        """Give the staged files the names that the log will use, which no reader sees until then; then commit them, or merge their rows."""
        if not record["files"]:
            return
        if self._mode != "upsert":
            super()._reveal(place, batch, record)
        staged = place.staged / f"{batch.number:010d}"
        self._commits.commit(place, batch.number, record, lambda file: (str(staged / file["staged"]), staged / file["staged"]))


def foreign_rows(node: str, place: str, why: str) -> Refused:
    """The error for a table that contains rows of others.

    Args:
        node: The id of the sink.
        place: The name of the table, for messages.
        why: The rows that were found, for the message.
    """
    return Refused(
        f'sink "{node}": the table {place}: {why}',
        remedy=f"{start_over()}; or {add_to_outputs()}",
        code="output-foreign",
        node=node,
    )


def footer(folder: Path, segment: Mapping[str, Any]) -> pq.FileMetaData:
    """The footer of a Parquet file that was staged in the folder."""
    import pyarrow.parquet as pq

    return pq.read_metadata(folder / segment["staged"])
