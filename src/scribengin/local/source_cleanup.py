"""Releases files as `when_done` of a files source configures it, once every query of the flow that reads a file has acknowledged it."""

from __future__ import annotations

import time
from collections import deque
from dataclasses import dataclass, field
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING

from scribengin.connectors.files.globs import covers
from scribengin.connectors.files.pieces import pieces_of, root_of
from scribengin.connectors.files.release import release_file
from scribengin.connectors.files.retention import going, kept_top, leased
from scribengin.state.channel_acks import QueryKey
from scribengin.state.folder import StateFolder
from scribengin.state.source_log import SourceLog

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from scribengin.connectors.contract import SourceStream
    from scribengin.connectors.files.pieces import FilePiece
    from scribengin.local.prepare import PreparedFlow
    from scribengin.spec.model import Source
    from scribengin.state.channel_acks import FlowAcks


_NO_SINK = Path()


@dataclass(slots=True)
class _Reader:
    """A files source in one query. `mine` is True if this process runs the query, and so releases what it reads."""

    key: QueryKey
    source: Source
    path: Path
    log: SourceLog
    mine: bool
    lineage: str = ""
    entry: int = 0
    """the next entry of the log to examine"""
    open: deque[tuple[int, set[Path]]] = field(default_factory=deque)
    """entries with files that are not released yet"""

    @property
    def when_done(self) -> str:
        return str(self.source.options.get("when_done", "keep"))

    def place(self) -> int:
        """The number of entries whose files are all released."""
        return self.open[0][0] if self.open else self.entry


@dataclass(slots=True)
class _File:
    """A file that a reader has acknowledged and that is to be released."""

    root: Path
    piece: FilePiece
    readers: set[int]


class DoneFiles:
    """The files of one flow that are to be released. Used by one thread."""

    def __init__(self, folder: Path, readers: list[_Reader], say: Callable[[str], None], name: str = "") -> None:
        self._name = name
        self._folder = folder
        self._readers = readers
        self._say = say
        self._files: dict[Path, _File] = {}
        self._releasing = [reader for reader in readers if reader.when_done != "keep"]

    @staticmethod
    def of(prepared: PreparedFlow, say: Callable[[str], None]) -> DoneFiles:
        """The object for all queries of the flow, including those of tiers that run elsewhere. `say` receives why a file stays in its
        place."""
        readers = []
        folder = prepared.plan.flow.folder.resolve()
        mine = {tier.plan.tier for tier in prepared.tiers}
        for tier in prepared.plan.tiers:
            state = StateFolder(prepared.root, prepared.name, tier.tier)
            for query in tier.queries:
                for id_ in query.sources:
                    source = tier.flow.sources[id_]
                    if source.type == "files":
                        path = folder / Path(str(source.options["path"])).expanduser()
                        log = SourceLog(state.query(query.name).sources, id_)
                        readers.append(_Reader(QueryKey(tier.tier, query.name), source, path, log, tier.tier in mine))
        return DoneFiles(folder, readers, say, prepared.name)

    @property
    def wanted(self) -> bool:
        """True if the flow releases files at all."""
        return bool(self._releasing)

    def resume_at(self, key: QueryKey, lineage: str, places: Mapping[str, int]) -> None:
        """Continue where an earlier process has ended.

        Args:
            key: The query.
            lineage: Its lineage.
            places: Source → number of entries that were dealt with.
        """
        for reader in self._readers:
            if reader.key == key:
                reader.lineage, reader.entry = lineage, places.get(reader.source.id, 0)
                reader.open.clear()

    def release(self, standing: FlowAcks) -> dict[QueryKey, dict[str, int]]:
        """Release what every reader has acknowledged by now; returns query of this process → positions, as `resume_at` takes them."""
        if not self._releasing:
            return {}
        for index, reader in enumerate(self._readers):
            at = standing.queries[reader.key]
            if at.lineage and at.lineage != reader.lineage:
                self.resume_at(reader.key, at.lineage, {})
            through = at.released.get(reader.source.id, 0) if at.lineage else 0
            while reader.entry < through:
                paths = self._met(index, reader.log.read(reader.entry))
                if paths:
                    reader.open.append((reader.entry, paths))
                reader.entry += 1
        done = [path for path, file in self._files.items() if self._is_through(path, file)]
        for top, files in groupby(sorted(done, key=_top), _top):
            self._release(top, list(files))
        places: dict[QueryKey, dict[str, int]] = {}
        for reader in self._readers:
            while reader.open and not reader.open[0][1] & self._files.keys():
                reader.open.popleft()
            if reader.mine and reader.lineage:
                places.setdefault(reader.key, {})[reader.source.id] = reader.place()
        return places

    def _met(self, index: int, streams: list[SourceStream]) -> set[Path]:
        """Record that the reader has acknowledged these files; returns those that are to be released."""
        paths = set()
        for stream in streams:
            if stream.lost:  # the sink that wrote it deletes it
                continue
            root = self._folder / root_of(stream)
            for piece in pieces_of(stream):
                path = root / piece.path
                # a missing file was released before an interruption
                if any(covers(reader.path, path) for reader in self._releasing) and path.exists():
                    paths.add(path)
                    self._files.setdefault(path, _File(root, piece, set())).readers.add(index)
        return paths

    def _is_through(self, path: Path, file: _File) -> bool:
        return all(index in file.readers or not covers(reader.path, path) for index, reader in enumerate(self._readers))

    def _release(self, top: Path, paths: list[Path]) -> None:
        """Release those files that no other flow still has to read: for files below the folder `top` of a Scribengin sink, readers record
        that."""
        if top == _NO_SINK:
            for path in paths:
                self._let_go(path, self._files.pop(path))
            return
        free = [path for path in paths if not self._is_held(top, path)]
        if not free:
            return
        try:
            with going(top, {str(path.relative_to(top)) for path in free}, self._name):
                for path in free:
                    if not self._is_held(top, path):
                        self._let_go(path, self._files.pop(path))
        except OSError as error:
            self._say(f"files below {top} that were read are kept: the note for other readers cannot be written: {error}")

    def _is_held(self, top: Path, path: Path) -> bool:
        return leased(top, {str(path.relative_to(top))}, time.time(), but=self._name)

    def _let_go(self, path: Path, file: _File) -> None:
        """Delete or archive a file. If several sources configure it, archiving takes precedence."""
        saying = [reader for reader in self._releasing if covers(reader.path, path)]
        archive = next((reader for reader in saying if reader.when_done == "archive"), None)
        if not any(reader.mine for reader in saying):
            return
        target = None if archive is None else self._folder / Path(str(archive.source.options["archive"])).expanduser()
        why = release_file(file.root, file.piece, target)
        if why:
            self._say(why)


def _top(path: Path) -> Path:
    """The top folder of the sink that wrote the file; `_NO_SINK` if no sink did."""
    return kept_top(path.parent) or _NO_SINK
