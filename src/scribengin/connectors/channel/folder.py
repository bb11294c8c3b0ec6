"""A channel in a folder: files of record batches, published like those of the files sink and read like those of the files source."""

from __future__ import annotations

import os
import re
import shutil
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from scribengin.connectors.channel.wire import Wire, known_schema
from scribengin.connectors.contract import Receipt
from scribengin.connectors.files.pieces import pieces_of, root_of
from scribengin.connectors.files.reader import FilesReader
from scribengin.connectors.files.sink import PublishedFiles
from scribengin.connectors.files.sink_folders import INTERNAL, lineages_in
from scribengin.connectors.files.source import FilesSource
from scribengin.core import faults
from scribengin.core.errors import SourceError, Unreachable
from scribengin.core.storage import SummedFile, explained, make_folder, names_in, read_or_none, remove_tree, sync_folder
from scribengin.formats.constants import DIGESTS
from scribengin.formats.contract import RecordPlace
from scribengin.formats.packs import SUFFIX, PackDecoder, PackFileEncoder, damaged_block, pack_frames

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence

    import pyarrow as pa

    from scribengin.connectors.contract import BatchId, BatchLimits, ConnectorContext, Decided, SourceStream
    from scribengin.connectors.files.pieces import FilePiece
    from scribengin.connectors.files.sink_folders import LineageFolder
    from scribengin.connectors.files.sink_stream import StagedPlace
    from scribengin.core.types import Schema
    from scribengin.formats.contract import Bad
    from scribengin.formats.origins import Origins
    from scribengin.formats.packs import PackBlock, PackMaker


# Detects files of a channel that disappeared before they were read, or that no tier wrote: the commit records of the writing end say which
# files must exist, and which may.
# must exist, and which may.


_BATCH = re.compile(r"part-(\d{10})-")
"""matches the beginning of the name of an upstream tier's file, which contains its Batch"""


class ChannelReader(FilesReader):
    """A reader of a channel's folder. From the writing end it reads only the commit records, each once."""

    def __init__(self, *parts: Any, **more: Any) -> None:
        super().__init__(*parts, **more)
        self._seen: dict[str, int] = {}
        """lineage → the newest Batch whose record was read"""
        self._awaited: dict[str, tuple[LineageFolder, int, int]] = {}
        """path → lineage, Batch, rows, for files that are published and not read yet"""
        self._known: set[str] = set()
        """waiting paths that a commit record names"""
        self.quiet = True

    def split(self, limits: BatchLimits, *, final: bool = False) -> list[SourceStream]:
        """See FilesReader.

        Raises:
            SourceError: A file that was published, and neither read nor released, does not exist. Or no commit record names a file: it is
                not read, because record batches under another name would be read twice.
        """
        self._learn()
        streams = super().split(limits, final=final)
        gone = []
        for path, (lineage, number, rows) in list(self._awaited.items()):
            if path in self._taken:
                del self._awaited[path]
            elif path not in self._waiting and self._stat(path) is None:
                # released files were read by all readers of that time: a later reader starts after them
                if lineage.read_released()[0] >= number:
                    del self._awaited[path]
                else:
                    gone.append((path, rows))
        if gone:
            path, _ = gone[0]
            more = f", and {len(gone) - 1} more files" if len(gone) > 1 else ""
            raise SourceError(
                (
                    f"{self._discovery.root / path} is missing{more}: {sum((rows for _, rows in gone)):,} rows were written to the channel "
                    "and are not read yet"
                ),
                remedy="restore it from a backup, under its name; until then nothing is read, so that no row is skipped",
            )
        return streams

    def _update_waiting(self, now_s: float) -> None:
        super()._update_waiting(now_s)
        self._known &= self._waiting.keys()
        foreign = [path for path in self._waiting if path not in self._known and not self._is_handed_over(path)]
        if foreign:
            more = f", nor do {len(foreign) - 1} more files there" if len(foreign) > 1 else ""
            raise SourceError(
                f"{self._discovery.root / foreign[0]} does not belong to the upstream tier of this folder: no commit record names it{more}",
                remedy="it was not read; move it out of the folder, or, if it is a renamed file of the channel, restore its name; then "
                "run again",
                code="channel-foreign",
            )

    def _is_handed_over(self, path: str) -> bool:
        # the record of a Batch exists before the first of its files
        if path not in self._awaited:
            named = _BATCH.match(path)
            records = [lineage.commits.read(int(named[1])) for lineage in lineages_in(self._discovery.root)] if named else []
            if not any(path == file["name"] for record in records if record is not None for file in record["files"]):
                return False
        self._known.add(path)
        return True

    def _hold(self, paths: Collection[str]) -> tuple[set[str], set[str]]:  # noqa: ARG002
        """Holds nothing: the writing end keeps all files that its readers have not acknowledged."""
        return set(), set()

    def _learn(self) -> None:
        for lineage in lineages_in(self._discovery.root):
            seen = max(self._seen.get(lineage.path.name, -1), lineage.read_released()[0])
            # the files of Batches up to the mark have all been renamed
            mark = lineage.read_mark()
            if mark <= seen:
                continue
            for number, record in lineage.commits.since(seen + 1):
                if number > mark:
                    break
                for file in record["files"]:
                    self._awaited[file["name"]] = (lineage, number, file["rows"])
            self._seen[lineage.path.name] = mark


_MOST_BYTES = 64 * 2**20
_STREAM_BYTES = 32 * 2**20


class FolderChannelSink(PublishedFiles):
    """The writing end of a channel in a folder. It is claimed, published, recovered and audited like a folder of a files sink.

    If the edge does not block its upstream tier, task outputs are staged in the state folder (`<work>/<lineage>/staged/<number>/…`),
    because the channel may be unavailable, and are copied to the channel when their Batch is published.
    """

    format = "packs"

    def __init__(self, place: ConnectorContext) -> None:
        super().__init__(place)
        self._wire = Wire(place)
        self._work = None if place.options["durability"] == "end_to_end" else place.work

    def stream(self, batch: BatchId, unit: int, attempt: str, schema: Schema) -> PackFile:
        """See the contract."""
        return PackFile(self._staged_place(batch, unit, attempt), self._wire.maker(schema, batch, unit, most=_MOST_BYTES))

    def publish(self, decided: Decided) -> None:
        """See the contract."""
        self._copy_over(decided)
        super().publish(decided)
        if self._work is not None:
            remove_tree(self._own_staged(self._work, decided.batch))

    def recover(self, decided: Decided | None, *, lineage: str, before: int) -> None:
        """See the contract."""
        if self._work is not None:
            if decided is not None:
                self._copy_over(decided)
            staged = self._work / lineage / "staged"
            for name in names_in(staged):
                if name.isdigit() and int(name) < before:
                    remove_tree(staged / name)
        super().recover(decided, lineage=lineage, before=before)

    def discard(self, batch: BatchId) -> None:
        """Delete the staged files of a dropped Batch."""
        if self._work is not None:
            remove_tree(self._own_staged(self._work, batch))

    def newest_published(self, lineage: str) -> int:
        """The newest Batch with a commit record; -1 if there is none."""
        newest = self._of(lineage).commits.newest()
        return -1 if newest is None else newest

    def _staged_place(self, batch: BatchId, unit: int, attempt: str) -> StagedPlace:
        place = super()._staged_place(batch, unit, attempt)
        return place if self._work is None else replace(place, folder=self._own_staged(self._work, batch))

    def _own_staged(self, work: Path, batch: BatchId) -> Path:
        return work / batch.lineage / "staged" / f"{batch.number:010d}"

    def _copy_over(self, decided: Decided) -> None:
        """Copy missing files to the channel's own staging folder. A file appears there completely or not at all."""
        batch, place = decided.batch, self._of(decided.batch.lineage)
        if self._work is None or place.read_mark() >= batch.number:
            return
        own, there = self._own_staged(self._work, batch), place.staged / f"{batch.number:010d}"
        for receipt in decided.receipts:
            for segment in receipt.segments:
                kept, copied = own / segment["staged"], there / segment["staged"]
                if copied.exists() or not kept.exists() or (self.path / segment["name"]).exists():
                    continue
                make_folder(there)
                draft = there / f".{copied.name}"
                with explained(f"{copied} cannot be written"):
                    shutil.copyfile(kept, draft)
                    with draft.open("rb+") as file:
                        os.fsync(file.fileno())
                    draft.replace(copied)
                    sync_folder(there)


class PackFile:
    """A stream that writes the record batches of one task output to one staged file. See OriginStream."""

    wants_origins = True

    def __init__(self, place: StagedPlace, packs: PackMaker) -> None:
        self._place = place
        self._packs = packs
        self._path = place.folder / place.staged_name(0)
        self._file: SummedFile | None = None
        self._encoder: PackFileEncoder | None = None
        self._rows = 0
        self._digest = 0

    def write_from(self, batch: pa.RecordBatch, origins: Origins) -> Sequence[Bad]:
        """Stage the rows as record batches."""
        made, bad = self._packs.make(batch, origins)
        with explained(self._place.doing):
            for pack in made:
                self._begun().write(pack.value)
                self._rows += pack.rows
                self._digest = (self._digest + pack.digest) % DIGESTS
            faults.reached("stage.mid_write")
        return bad

    def _begun(self) -> PackFileEncoder:
        if self._encoder is None:
            make_folder(self._place.folder)
            self._file = SummedFile(self._path)
            self._encoder = PackFileEncoder(self._file)  # type: ignore[arg-type]
        return self._encoder

    def close(self) -> Receipt:
        """Make the file and its name durable."""
        if self._file is None:
            return Receipt(self._place.sink, self._place.unit, 0, 0)
        with explained(self._place.doing):
            self._file.sync()
            self._file.close()
            sync_folder(self._place.folder)
        segment = {
            "staged": self._path.name,
            "name": self._place.final_name("", 0) + SUFFIX,
            "rows": self._rows,
            "bytes": self._file.size,
            "crc": self._file.crc,
        }
        return Receipt(self._place.sink, self._place.unit, self._rows, self._file.size, (segment,), self._digest)

    def abort(self) -> None:
        """Remove the staged file."""
        with suppress(OSError):
            if self._file is not None:
                self._file.close()
                self._path.unlink(missing_ok=True)
            self._place.folder.rmdir()


class FolderChannelSource(FilesSource):
    """The reading end of a channel in a folder."""

    handed_over = True
    _readers = ChannelReader

    def __init__(self, place: ConnectorContext) -> None:
        self._wire = Wire(place)
        folder = Path(place.folder, place.options["path"])
        options = {"path": str(folder / f"part-*{SUFFIX}"), "format": "packs", "settle": 0.0, "split": _STREAM_BYTES}
        super().__init__(replace(place, options=options | {"max_bytes": place.options["max_bytes"]}))
        self._home = folder

    def resolve_schema(self) -> Schema:
        """The columns that the upstream tier writes. Raises SourceError if they are not known yet."""
        return known_schema(self.schema, self._wire.id, self._node)

    def reader(self) -> FilesReader:
        """A reader of the folder; the folder is created if the upstream tier has not created it yet. Other contents of the folder are not
        reported."""
        make_folder(self._home)
        return super().reader()

    def _divide(self, path: Path, piece: FilePiece) -> list[FilePiece]:  # noqa: ARG002 (packs are of any length)
        return [piece]

    def check_ready(self, *, begun: bool) -> None:
        """See `group.contract.MemberSource`."""
        if begun and read_or_none(self._home / INTERNAL / "owner.json") is None:
            raise Unreachable(f"{self._home} is not the folder that was read before", remedy="mount or restore it", node=self._node)

    def decoder(self) -> PackDecoder:
        """A decoder for record batches."""
        return PackDecoder(self.resolve_schema())

    def read(self, stream: SourceStream) -> Iterator[PackBlock]:
        """The record batches of the stream. Raises SourceError for a file that differs from its record."""
        root = self._folder / root_of(stream)
        for piece in pieces_of(stream):
            path = root / piece.path
            with self._opened(path, piece) as file:
                for frame in pack_frames(file, piece.start, piece.end):
                    place = RecordPlace(piece.path, offset=frame.offset)
                    if frame.fault is not None:
                        yield damaged_block(place, frame.fault, frame.value)
                    else:
                        yield from self._wire.packs([(frame.value, place)])
