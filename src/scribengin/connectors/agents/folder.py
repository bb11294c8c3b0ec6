"""A channel in a folder, which gateways and the reading tier share.

    segments/GATEWAY-START-NNNNNN.frames    frames, appended
    segments/GATEWAY-START-NNNNNN.index     a line for each run in it: CRC32C in hex, a blank, the run as JSON
    commits/FLOW.TIER.json                  what a reading tier has committed

Each process of a gateway writes segments of its own. The frames are made durable before their lines are written, and the lines before the
agents are answered; a line that is torn by a crash was never answered.
"""

from __future__ import annotations

import os
import re
import secrets
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import google_crc32c
import msgspec

from scribengin.connectors.agents.contract import Arrival, CommitReport, StoredRun, WaitingBytes, least_committed
from scribengin.core import faults
from scribengin.core.errors import SourceError, Unreachable
from scribengin.core.records import canonical
from scribengin.core.storage import make_folder, names_in, read_or_none, replace, sync_folder

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

    from scribengin.connectors.agents.contract import AgentKey

SEGMENT_BYTES = 64 * 2**20
_SEGMENT_S = 3600.0
_DATA, _INDEX = ".frames", ".index"
_PLAIN = re.compile(r"[^A-Za-z0-9_.]")
_LINE_HEAD = 9
"""bytes before the JSON of a line: the checksum and a blank"""


def segments_of(path: Path) -> Path:
    """The folder of the segments."""
    return path / "segments"


class SegmentIndexes:
    """The index lines of all segments, each read once."""

    def __init__(self, path: Path) -> None:
        self._folder = segments_of(path)
        self.read_to: dict[str, int] = {}
        """segment → the place in its index up to which lines were read"""

    def read_new(self) -> Iterator[tuple[str, int, StoredRun]]:
        """(segment, place of its line in the index, run) for each new line. The lines of a segment are in order.

        Raises:
            Unreachable: The folder cannot be read.
        """
        try:
            names = sorted(name for name in names_in(self._folder) if name.endswith(_INDEX))
        except OSError as error:
            raise Unreachable(f"{self._folder} cannot be read: {error}", remedy="mount it, or grant access") from error
        for name in names:
            segment = name.removesuffix(_INDEX)
            yield from self._lines(segment)

    def _lines(self, segment: str) -> Iterator[tuple[str, int, StoredRun]]:
        at = self.read_to.get(segment, 0)
        path = self._folder / (segment + _INDEX)
        try:
            if path.stat().st_size <= at:
                return
            with path.open("rb") as file:
                file.seek(at)
                data = file.read()
        except FileNotFoundError:
            return
        except OSError as error:
            raise Unreachable(f"{path} cannot be read: {error}", remedy="mount it, or grant access") from error
        while (end := data.find(b"\n")) >= 0:
            line, data = data[:end], data[end + 1 :]
            run = _run_of(line)
            if run is None:
                return  # written at this moment on a file system that shows it in parts, or torn: it was not answered
            place, at = at, at + end + 1
            self.read_to[segment] = at
            yield segment, place, run

    def forget(self, names: Iterable[str]) -> None:
        """Drop the segments that are deleted."""
        for name in names:
            self.read_to.pop(name, None)


def _run_of(line: bytes) -> StoredRun | None:
    form = line[_LINE_HEAD:]
    try:
        if int(line[: _LINE_HEAD - 1], 16) != google_crc32c.value(form):
            return None
        return StoredRun.from_json(msgspec.json.decode(form))
    except (ValueError, msgspec.DecodeError):
        return None


class FolderChannelWriter:
    """The writing end, see `ChannelWriter`."""

    def __init__(self, path: Path, *, name: str, retention_s: float, readers: Sequence[str] = ()) -> None:
        """Open the channel.

        Args:
            path: Its folder.
            name: The name of the gateway.
            retention_s: How long segments are kept after all their records were committed, in seconds.
            readers: The tiers that read it, as `FLOW.TIER`: their reports count, and no others.

        Raises:
            Unreachable: The folder cannot be made.
        """
        self._path = path
        self._name = name
        self._stem = f"{_PLAIN.sub('_', name)}-{secrets.token_hex(6)}"
        self._retention_s = retention_s
        self._readers = tuple(readers)
        self._number = 0
        self._data: Any = None
        self._index: Any = None
        self._begun_s = 0.0
        self._size = 0
        self._indexes = SegmentIndexes(path)
        self._waiting = WaitingBytes()
        self._newest: dict[str, dict[AgentKey, int]] = {}
        """segment → agent → the number after its last record there: for the retention"""
        self._committed: dict[AgentKey, int] = {}
        self._swept_s = 0.0
        try:
            make_folder(segments_of(path))
            make_folder(path / "commits")
        except OSError as error:
            raise Unreachable(f"the channel's folder {path} cannot be made: {error}", remedy="mount it, or grant access") from error

    def append(self, arrivals: Sequence[Arrival]) -> None:
        """See `ChannelWriter`."""
        try:
            self._append(arrivals)
        except OSError as error:
            self._end_segment()
            raise Unreachable(
                f"{self._path} cannot be written: {error}", remedy="make room, or grant access; agents keep their records"
            ) from error

    def _append(self, arrivals: Sequence[Arrival]) -> None:
        if self._data is None or self._size >= SEGMENT_BYTES or time.monotonic() - self._begun_s > _SEGMENT_S:
            self._begin_segment()
        segment, now_ms = f"{self._stem}-{self._number:06d}", int(time.time() * 1000)
        lines = []
        for arrival in arrivals:
            self._data.write(arrival.frames)
            run = StoredRun.of(arrival, now_ms, self._name, (segment, self._size, self._size + len(arrival.frames)))
            self._size += len(arrival.frames)
            form = canonical(run.as_json())
            lines.append(b"%08x %s\n" % (google_crc32c.value(form), form))
        self._data.flush()
        faults.reached("gateway.written")
        os.fdatasync(self._data.fileno())
        self._index.write(b"".join(lines))
        self._index.flush()
        faults.reached("gateway.indexed")
        os.fdatasync(self._index.fileno())

    def _begin_segment(self) -> None:
        self._end_segment()
        self._number += 1
        folder, segment = segments_of(self._path), f"{self._stem}-{self._number:06d}"
        self._data = (folder / (segment + _DATA)).open("xb")
        self._index = (folder / (segment + _INDEX)).open("xb")
        sync_folder(folder)
        self._size, self._begun_s = 0, time.monotonic()

    def _end_segment(self) -> None:
        for file in (self._data, self._index):
            if file is not None:
                with suppress(OSError):
                    file.close()
        self._data = self._index = None

    def stored(self) -> Mapping[AgentKey, int]:
        """See `ChannelWriter`."""
        for segment, _, run in self._indexes.read_new():
            self._waiting.put(run)
            newest = self._newest.setdefault(segment, {})
            newest[run.key] = max(run.next, newest.get(run.key, 0))
        return self._waiting.stored

    def committed(self) -> Mapping[AgentKey, int]:
        """See `ChannelWriter`."""
        self._committed = least_committed(read_reports(self._path, self._readers))
        self._waiting.settle(self._committed)
        self._sweep()
        return self._committed

    def waiting_bytes(self) -> int:
        """See `ChannelWriter`."""
        return self._waiting.bytes

    def _sweep(self) -> None:
        """Delete segments whose records are all committed, after the retention. A segment that is still written is not deleted."""
        now_s = time.monotonic()
        if now_s - self._swept_s < min(60.0, self._retention_s):
            return
        self._swept_s = now_s
        folder, own = segments_of(self._path), f"{self._stem}-{self._number:06d}"
        for segment, newest in list(self._newest.items()):
            if segment == own or any(next_ > self._committed.get(key, 0) for key, next_ in newest.items()):
                continue
            index = folder / (segment + _INDEX)
            with suppress(OSError):
                if time.time() - index.stat().st_mtime > max(self._retention_s, 2 * _SEGMENT_S):
                    (folder / (segment + _DATA)).unlink(missing_ok=True)
                    index.unlink()
                    del self._newest[segment]
                    self._indexes.forget([segment])

    def close(self) -> None:
        """See `ChannelWriter`."""
        self._end_segment()


def read_reports(path: Path, readers: Sequence[str]) -> list[CommitReport]:
    """The reports of the reading tiers; an empty one for a tier that has not written any. Raises Unreachable."""
    reports = []
    for reader in readers:
        try:
            data = read_or_none(path / "commits" / f"{reader}.json")
        except OSError as error:
            raise Unreachable(f"{path / 'commits'} cannot be read: {error}", remedy="mount it, or grant access") from error
        reports.append(CommitReport(reader) if data is None else msgspec.json.decode(data, type=CommitReport))
    return reports


def write_report(path: Path, report: CommitReport) -> None:
    """Write what a tier has committed. Raises OSError."""
    make_folder(path / "commits")
    replace(path / "commits" / f"{report.reader}.json", msgspec.json.encode(report))


def read_run(path: Path, segment: str, start: int, end: int, node: str) -> bytes:
    """The bytes of a run. Raises SourceError if they are not there."""
    data_path = segments_of(path) / (segment + _DATA)
    try:
        with data_path.open("rb") as file:
            file.seek(start)
            data = file.read(end - start)
    except OSError as error:
        raise SourceError(f"{data_path} cannot be read: {error}", remedy="mount or restore it", node=node) from error
    if len(data) != end - start:
        raise SourceError(
            f"{data_path} ends at byte {start + len(data):,}, but its index has records up to byte {end:,}",
            remedy="restore it from a backup; until then nothing is read, so that no record is skipped",
            code="data-loss",
            node=node,
        )
    return data
