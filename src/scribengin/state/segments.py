"""Files of JSON lines that tasks write beside a Batch: `<folder>/<batch>/<attempt>.jsonl`. A file counts only if a decision names it."""

from __future__ import annotations

import zlib
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import msgspec

from scribengin.core.errors import ScribenginError, StateError
from scribengin.core.storage import SummedFile, make_folder, read_or_none, sync_folder
from scribengin.state.contract import LineSegment

if TYPE_CHECKING:
    from pathlib import Path


class LineWriter:
    """Writes the lines of one attempt, all of one Batch, on an executor. Creates no file before the first line."""

    def __init__(self, folder: Path, attempt: str) -> None:
        self._folder = folder
        self._attempt = attempt
        self._file: SummedFile | None = None
        self._name = ""
        self._rows = 0
        self._kept = False

    def append(self, batch: int, line: Any) -> None:
        """Append a value as a line, which is durable after `close`. Raises OSError."""
        if self._file is None:
            folder = self._folder / f"{batch:010d}"
            make_folder(folder)
            self._name = f"{folder.name}/{self._attempt}.jsonl"
            self._file = SummedFile(folder / f"{self._attempt}.jsonl")
        self._file.write(msgspec.json.encode(line) + b"\n")
        self._rows += 1

    def close(self) -> LineSegment | None:
        """Make the lines durable and return their segment; None if there are none."""
        if self._file is None:
            return None
        with self._file as file:
            file.sync()
        sync_folder((self._folder / self._name).parent)
        return LineSegment(self._name, self._rows, self._file.size, self._file.crc)

    def keep(self, *, kept: bool = True) -> None:
        """Choose whether `abort` leaves the durable file in place, because a record may name it already. Recovery deletes what no record
        names."""
        self._kept = kept

    def abort(self) -> None:
        """Delete what was written, unless `keep` was called. Never raises."""
        if self._file is None or self._kept:
            return
        path = self._folder / self._name
        with suppress(OSError, ScribenginError):  # if the disk is full, nothing is durable anyway
            self._file.close()
        with suppress(OSError, ScribenginError):  # other attempts write to that folder; recovery deletes what is left
            path.unlink(missing_ok=True)
            path.parent.rmdir()


def read_lines(folder: Path, segment: LineSegment, what: str) -> list[bytes]:
    """The lines of one segment. Raises StateError if the file is missing, torn or changed; `what` is for its message."""
    path = folder / segment.name
    data = read_or_none(path)
    if data is None:
        raise StateError(f"{segment.rows} {what} in {path} are missing", remedy="restore the file from a backup")
    if len(data) != segment.bytes or zlib.crc32(data) != segment.crc:
        raise StateError(
            f"the {what} in {path} were changed: found {len(data)} bytes, expected {segment.bytes}",
            remedy="restore the file from a backup",
        )
    return data.splitlines()
