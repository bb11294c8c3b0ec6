"""Files that readers see whole or not at all, each record once.

    <path>/part-<batch>-<unit>-<id>.jsonl             visible files; `<path>/day=2026-01-01/part-…` with `partition_by`
    <path>/_scribengin/owner.json                     the installations and lineages that write here; only the last one may write
    <path>/_scribengin/<lineage>/staged/<batch>/…     output of tasks, without a suffix
    <path>/_scribengin/<lineage>/batches/…            this sink's commit records, put-if-absent; see `core.numbered_log`
    <path>/_scribengin/<lineage>/hidden/…             with `roll`: committed segments, until the compactor has merged them
    <path>/_scribengin/<lineage>/merges/…             records of the compactor; see `compaction_state`
    <path>/_scribengin/<lineage>/keeping.json         maintenance settings of the folder; see `retention`

A Batch becomes visible by its commit record and then, file by file, by renames, which recovery completes.
"""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from scribengin.connectors.contract import removed_name
from scribengin.connectors.files.audit import Rolled, audit_files
from scribengin.connectors.files.compaction import begin
from scribengin.connectors.files.compaction_state import is_rolled, outputs_of
from scribengin.connectors.files.late_rows import closed_after
from scribengin.connectors.files.retention import COMPLETE, RetentionSettings
from scribengin.connectors.files.sink_claim import check_apart, check_claim, check_clear, check_flow, check_folder, claim, lineage_before
from scribengin.connectors.files.sink_folders import INTERNAL, RESTORE, LineageFolder, lineages_in, missing_text, remove_empty
from scribengin.connectors.files.sink_records import check_form, found_besides, summarize_commits
from scribengin.connectors.files.sink_stream import FilesSinkStream, SegmentRules, StagedPlace
from scribengin.connectors.files.time_path import TimePath
from scribengin.connectors.staged_commit import StagedCommit, commit_record
from scribengin.core import faults
from scribengin.core.errors import StateError, Unreachable
from scribengin.core.storage import make_folder, names_in, read_or_none, remove_drafts, remove_tree, sync_folder
from scribengin.formats.catalog import encoder_for

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping

    from scribengin.connectors.contract import BatchId, ConnectorContext, Decided, OriginStream, Published, SinkStream, Unaccounted
    from scribengin.core.types import Schema


class PublishedFiles(ABC):
    """A folder in which Batches become visible file by file; a subclass defines the contents of the files. Picklable."""

    exactly_once = True
    restorable = True
    format: str
    """the format by which `audit` counts the rows of a file"""

    def __init__(self, place: ConnectorContext) -> None:
        self.node = place.node
        self._flow = place.flow
        self.path = Path(place.folder, place.options["path"])
        self._gaps = bool(place.member)
        self._keeps = str(self.path) not in place.kept_elsewhere
        """True if the sink itself folds its records, and deletes leftovers of attempts; otherwise maintenance does it"""
        self._owner = ""
        self._lineage = ""

    @abstractmethod
    def stream(self, batch: BatchId, unit: int, attempt: str, schema: Schema) -> SinkStream | OriginStream:
        """Create a stream for one task output; it creates no file before its first row. See StagingSink. A segment of its write receipt has
        `staged`, `name`, `rows`, `bytes`, `crc`."""

    def _staged_place(self, batch: BatchId, unit: int, attempt: str) -> StagedPlace:
        folder = self._of(batch.lineage).staged / f"{batch.number:010d}"
        return StagedPlace(self.node, batch.lineage, batch.number, unit, attempt, folder)

    def prepare(self, *, owner: str, lineage: str, adopt: bool = False) -> None:
        """Claim the folder, or confirm an existing claim; see the contract."""
        check_folder(self.path, sink=self.node)
        make_folder(self.path)
        claim(self.path, self._owner_file, owner=owner, lineage=lineage, sink=self.node, flow=self._flow, adopt=adopt)
        self._owner, self._lineage = owner, lineage

    def check_place(self) -> None:
        """See PlaceChecking."""
        check_folder(self.path, sink=self.node)

    def check_ready(self, *, claimed: bool) -> None:
        """See `group.contract.MemberSink`."""
        if not claimed:
            return
        if read_or_none(self._owner_file) is None:
            raise Unreachable(
                f"{self._owner_file} is missing: this is not the folder that the flow claimed",
                remedy="mount or restore it",
                node=self.node,
            )
        if not os.access(self.path, os.W_OK):
            raise Unreachable(f"cannot write to {self.path}", remedy="grant this user write access, or mount it writable", node=self.node)

    def publish(self, decided: Decided) -> None:
        """Write the commit record, then rename the files. Raises FencedError or StateError; see the contract."""
        self._publish(decided)

    def recover(self, decided: Decided | None, *, lineage: str, before: int) -> None:
        """Publish the newest decision, then delete leftovers of tasks of decided Batches."""
        if decided is not None:
            self._publish(decided)
        if not self._keeps:
            return
        place = self._of(lineage)
        staged = place.staged
        for name in names_in(staged):
            if name.isdigit() and int(name) < before:
                remove_tree(staged / name)
        for folder in (self.path / INTERNAL, place.path, place.commits.folder):
            remove_drafts(folder)

    def audit(self, *, lineage: str, decided: Iterable[Decided], since: int | None = None) -> Iterator[Published]:
        """Verify every committed file; see `files.audit`, and `group.contract.MemberSink` for `since`."""
        place = self._of(lineage)
        others = [each for each in lineages_in(self.path) if each.path.name != lineage]
        return audit_files(self.path, place, self.format, decided, Rolled(self.path, place, self.format), others=others, since=since)

    def release(self, *, lineage: str, through: int) -> None:
        """Delete the files of Batches up to `through`, which all their readers have acknowledged. The caller holds the query's lease.
        `audit` then counts their rows as found. Idempotent: it may be interrupted at any point and repeated."""
        place = self._of(lineage)
        released, swept = place.read_released()
        if through > released:
            place.write_released(through, swept)
        if through <= swept:
            return
        folders = set()
        for number, record in place.commits.since(swept + 1):
            if number > through:
                break
            for file in record["files"]:
                path = self.path / file["name"]
                with suppress(FileNotFoundError):
                    if path.stat().st_size == file["bytes"]:
                        path.unlink()
                        folders.add(path.parent)
        for folder in folders:
            sync_folder(folder)
        place.write_released(through, through)

    def clear(self, *, owner: str, flow: str, dry_run: bool = False) -> int:
        """Delete every file that a commit record names, and the records; see the contract."""
        there = self._written(owner, flow)
        if dry_run:
            return len(there)
        for file in there:
            file.unlink()
            remove_empty(file.parent, self.path)
        remove_tree(self.path / INTERNAL)
        return len(there)

    def move_away(self, kept: Path, *, owner: str, flow: str) -> int:
        """See `RestorableSink`."""
        files = self._written(owner, flow)
        folders = {kept, self.path}
        for file in files:
            to = kept / file.relative_to(self.path).with_name(removed_name(file.name))
            make_folder(to.parent)
            file.rename(to)
            folders.add(to.parent)
            remove_empty(file.parent, self.path)
            faults.reached("trash.moved")
        if (self.path / INTERNAL).exists():
            make_folder(kept)
            (self.path / INTERNAL).rename(kept / INTERNAL)
        for folder in folders:
            if folder.exists():
                sync_folder(folder)
        return len(files)

    def _written(self, owner: str, flow: str) -> list[Path]:
        """The existing files that commit records name. Raises Refused if others have written there too."""
        check_flow(self.path, sink=self.node, flow=flow)
        check_clear(self._owner_file, owner=owner, sink=self.node)
        commits = [record for lineage in lineages_in(self.path) for _, record in lineage.commits.since()]
        files = [self.path / file["name"] for record in commits for file in record["files"]]
        files += [self.path / name for lineage in lineages_in(self.path) for name in outputs_of(lineage)]
        files = sorted({*files, *(marker for file in files if (marker := file.with_name(COMPLETE)).exists())})
        return [file for file in files if file.exists()]

    @property
    def _owner_file(self) -> Path:
        return self.path / INTERNAL / "owner.json"

    def _of(self, lineage: str) -> LineageFolder:
        return LineageFolder(self.path / INTERNAL / lineage)

    def _publish(self, decided: Decided) -> None:
        """Publish the Batch, in the steps of `staged_commit`."""
        batch = decided.batch
        check_claim(self._owner_file, owner=self._owner, lineage=batch.lineage, sink=self.node)
        place = self._of(batch.lineage)
        commit = StagedCommit(sink=self.node, where=str(self.path), log=place.commits, consecutive=not self._gaps)
        record = commit.write(decided, self._record)
        if place.read_mark() >= batch.number:
            return  # if its rows are missing since, a reader or another process removed them; `audit` reports it
        self._reveal(place, batch, record)
        remove_tree(place.staged / f"{batch.number:010d}")
        place.write_mark(batch.number)
        if self._keeps and place.commits.wants_folding(batch.number, gaps=self._gaps):
            place.commits.fold(summarize_commits)

    def _record(self, decided: Decided, before: Mapping[str, Any] | None) -> dict[str, Any]:
        record = commit_record(decided, sink=self.node, owner=self._owner)
        times = [each["newest_us"] for each in (*record["files"], before or {}) if "newest_us" in each]
        return record | ({"newest_us": max(times)} if times else {}) | closed_after(before, record["files"])

    def _reveal(self, place: LineageFolder, batch: BatchId, record: Mapping[str, Any]) -> None:
        """Give the staged files their names, or, if they are hidden, move them to the lineage's folder. Each file may have been renamed
        before."""
        files = place.files_of(batch.number, record, self.path)
        folders = {final.parent for _, final in files}
        for folder in folders:
            make_folder(folder)
        for nth, (staged, final) in enumerate(files):
            hidden = "hidden" in record["files"][nth]
            if not (hidden and not final.exists() and not staged.exists() and is_rolled(place, record, batch.number, nth)):
                _rename(staged, final, batch)
            faults.reached("publish.renamed")
        for folder in folders:
            sync_folder(folder)


class FilesSink(PublishedFiles):
    """A sink that writes files into one folder. Executors get a pickled copy, from which they create streams."""

    def __init__(self, place: ConnectorContext) -> None:
        super().__init__(place)
        options = place.options
        self._options = {name: options.get(name) for name in ("format", "partition_by", "evolve")}
        self.format = options["format"]
        by = options.get("partition_by") or ()
        self._partition_by = tuple(part if isinstance(part, str) else TimePath.of(part) for part in by)
        self._keeping = RetentionSettings.of(place.node, options)
        self._most_bytes: int | None = options.get("segment")
        self._header = self.format == "csv" and options.get("header", True)
        self._csv = (options.get("delimiter", ","), options.get("null", "")) if self.format == "csv" else None
        self._encoders = encoder_for(self.format, compression=options.get("compression") or "auto", options=options)

    def prepare(self, *, owner: str, lineage: str, adopt: bool = False) -> None:
        """See the contract."""
        check_folder(self.path, sink=self.node)
        check_apart(self.path, sink=self.node)
        super().prepare(owner=owner, lineage=lineage, adopt=adopt)
        check_form(self.path, self._options, sink=self.node)
        before = lineage_before(self._owner_file, lineage)
        begin(self.path, self._of(lineage), self._keeping, self._of(before) if before else None)
        for place in lineages_in(self.path):
            if place.path.name != lineage:
                self._keeping.write_to_earlier(place)

    def stream(self, batch: BatchId, unit: int, attempt: str, schema: Schema) -> FilesSinkStream:
        """See the contract."""
        place = self._staged_place(batch, unit, attempt)
        return FilesSinkStream(place, schema, self._encoders, self._partition_by, self._rules(batch))

    def unaccounted(self, known: Collection[str]) -> list[Unaccounted]:
        """See `CountingSink`."""
        from scribengin.connectors.files.orphans import find_orphans  # only audits need it

        logs = ((lineage.path.name, lineage.commits) for lineage in lineages_in(self.path))
        return found_besides(known, logs, summarize_commits, find_orphans(self.path))

    def _publish(self, decided: Decided) -> None:
        if any("hidden" in segment for receipt in decided.receipts for segment in receipt.segments):
            # also without options for compaction: rows for a folder with a completion marker are hidden there, and a compactor must show
            # them
            self._keeping.write(self._of(decided.batch.lineage), always=True)
        super()._publish(decided)

    def _rules(self, batch: BatchId) -> SegmentRules:
        keeping, closed_us = self._keeping, None
        if keeping.close_delay_s is not None:
            # by the commits before it, so that it is the same whenever the Batch is run; tasks themselves check for earlier completion
            # markers
            before = self._of(batch.lineage).commits.newest_below(batch.number)
            closed_us = None if before is None else keeping.closed_us(before[1].get("newest_us"))
        return SegmentRules(
            json=self.format == "json",
            header=self._header,
            csv=self._csv,
            most_bytes=self._most_bytes,
            hidden_below=keeping.roll_bytes,
            closed_us=closed_us,
            refuses_late=keeping.refuses_late,
            top=self.path,
        )


def _rename(staged: Path, final: Path, batch: BatchId) -> None:
    """Rename a file, unless that is done already."""
    if final.exists():
        if staged.exists():
            raise StateError(
                f"{final} already exists, although batch {batch.number} has not published it",
                remedy="move that file away: Scribengin did not write it; then run the flow again",
            )
        return
    try:
        staged.rename(final)
    except FileNotFoundError:
        if not final.exists():
            raise StateError(missing_text(batch.number, final, staged), remedy=RESTORE) from None
