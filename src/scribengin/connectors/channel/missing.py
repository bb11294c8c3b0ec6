"""Files of a channel that disappeared before they were read, or that no tier wrote: the commit records of the writing end say which files
must exist, and which may."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from scribengin.connectors.files.reader import FilesReader
from scribengin.connectors.files.sink_folders import lineages_in
from scribengin.core.errors import SourceError

if TYPE_CHECKING:
    from collections.abc import Collection

    from scribengin.connectors.contract import BatchLimits, SourceStream
    from scribengin.connectors.files.sink_folders import LineageFolder

_BATCH = re.compile(r"part-(\d{10})-")
"""how names of an upstream tier's files begin: with their Batch"""


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
        """As for any folder. Raises SourceError for a file that was published, not read, not released, and does not exist; and, before any
        file is read, for one that no commit record names: record batches under another name would be read twice."""
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

    def _look(self, now_s: float) -> None:
        super()._look(now_s)
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
        # a Batch's record is there before the first of its files
        if path not in self._awaited:
            named = _BATCH.match(path)
            records = [lineage.commits.read(int(named[1])) for lineage in lineages_in(self._discovery.root)] if named else []
            if not any(path == file["name"] for record in records if record is not None for file in record["files"]):
                return False
        self._known.add(path)
        return True

    def _hold(self, paths: Collection[str]) -> tuple[set[str], set[str]]:  # noqa: ARG002
        """A channel keeps all files that its readers have not acknowledged."""
        return set(), set()

    def _learn(self) -> None:
        for lineage in lineages_in(self._discovery.root):
            seen = max(self._seen.get(lineage.path.name, -1), lineage.read_released()[0])
            # the files of Batches up to the mark are all in their places
            mark = lineage.read_mark()
            if mark <= seen:
                continue
            for number, record in lineage.commits.since(seen + 1):
                if number > mark:
                    break
                for file in record["files"]:
                    self._awaited[file["name"]] = (lineage, number, file["rows"])
            self._seen[lineage.path.name] = mark
