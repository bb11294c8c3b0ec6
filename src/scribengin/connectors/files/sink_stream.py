"""The writes of one task output to a files sink: staged files, one for each partition folder, and their write receipt."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from scribengin.connectors.contract import Receipt
from scribengin.connectors.files.compaction_state import segment_id
from scribengin.connectors.files.late_rows import LateRows, NewestTime
from scribengin.connectors.files.retention import is_marked
from scribengin.connectors.files.sink_partition import Partitions, too_long
from scribengin.connectors.files.time_path import TimePath
from scribengin.core import faults
from scribengin.core.storage import SummedFile, explained, make_folder, sync_folder
from scribengin.formats.contract import Bad
from scribengin.formats.encoders import JsonEncoder

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    import pyarrow as pa

    from scribengin.core.types import Schema
    from scribengin.formats.contract import Encoder, EncoderFactory

MAX_OPEN = 64
"""maximum number of open files of a task output; with more partitions the least recently used one is finished, and continued in another
file"""

_MOST_NAME, _MOST_PATH = 255, 3000
"""limits of file systems, in bytes: of the name of a folder, and of a path below the sink's own"""


@dataclass(frozen=True, slots=True)
class StagedPlace:
    """The place where a task output is staged, and the names of its files."""

    sink: str
    lineage: str
    batch: int
    unit: int
    attempt: str
    folder: Path

    @property
    def doing(self) -> str:
        """The action, for messages."""
        return f'sink "{self.sink}" cannot stage in {self.folder}; no row of the batch is visible, and the batch is run again'

    def staged_name(self, nth: int) -> str:
        """The name of the nth staged file. It is unique per attempt, and has no suffix that a reader would select."""
        return f"{self.unit:05d}-{self.attempt}-{nth:05d}"

    def final_name(self, folder: str, nth: int) -> str:
        """The name of the nth file in a partition folder, without the format's suffix: the same for every attempt."""
        id_ = segment_id(self.lineage, self.sink, folder)
        return f"{folder}part-{self.batch:010d}-{self.unit:05d}-{nth:03d}{id_}"


@dataclass(frozen=True, slots=True)
class SegmentRules:
    """How the files of a task output are written."""

    json: bool = False
    """True if the encoders write JSON, and accept it too"""
    header: bool = False
    """True if each file begins with the names of the columns"""
    csv: tuple[str, ...] | None = None
    """for CSV: all settings that affect the bytes and are not in the name; files in which they differ are not merged"""
    most_bytes: int | None = None
    """a file of this size is finished, and another one started"""
    hidden_below: int | None = None
    """a smaller file stays hidden until the compactor has merged it"""
    closed_us: int | None = None
    """a folder whose time ended by then is closed, in microseconds since 1970; so is one with a completion marker below `top`"""
    refuses_late: bool = False
    """True if rows for a closed folder are refused; otherwise they are hidden, and the compactor reopens the folder"""
    top: Path | None = None
    delay_us: int | None = None
    """how much newer than a folder's end rows must be to close it, in microseconds: write receipts then record what their rows close, see
    `late_rows`; None: they record nothing"""


class FilesSinkStream:
    """See the contract. Rows of one partition keep their order; several files of one task output and folder are ordered by name."""

    wants_ids = False

    def __init__(
        self,
        place: StagedPlace,
        schema: Schema,
        encoders: EncoderFactory,
        partition_by: tuple[str | TimePath, ...],
        rules: SegmentRules,
    ) -> None:
        self.json_needs: tuple[str, ...] | None = () if rules.json and not partition_by else None
        self._rules = rules
        by = next((part for part in partition_by if isinstance(part, TimePath)), None)
        # a marker counts only while it exists: if it was deleted, a Batch that is run again may write rows that were refused before
        self._late = LateRows(by, rules.closed_us, lambda folder: rules.top is not None and is_marked(rules.top, folder))
        self._place = place
        self._encoders = encoders
        self._partitions = Partitions(schema, partition_by) if partition_by else None
        self._schema = self._partitions.rest if self._partitions is not None else schema
        self._open: dict[str, _Segment] = {}
        self._begun: dict[str, int] = {}
        self._count = 0
        self._done: list[dict[str, Any]] = []

    def write(self, batch: pa.RecordBatch, ids: Sequence[str] | None = None) -> Sequence[Bad]:  # noqa: ARG002 (the contract's)
        """Stage the rows. Returns the rows that are too late for a closed folder, or whose folder has no valid name."""
        refused: list[Bad] = []
        with explained(self._place.doing):
            if self._partitions is None:
                if batch.num_rows:
                    self._segment("").write(batch)
                    self._finish_if_full("")
            else:
                for part in self._partitions.split(batch):
                    bad = self._refused(part.folder)
                    if bad is not None:
                        refused += [Bad(int(place), *bad) for place in part.places]
                        continue
                    self._segment(part.folder).write(part.rows, part.newest_us)
                    self._finish_if_full(part.folder)
            faults.reached("stage.mid_write")
        return sorted(refused, key=lambda bad: bad.ordinal)

    def write_json(
        self,
        lines: bytes,
        rows: int,
        columns: Mapping[str, pa.Array],  # noqa: ARG002 (no columns are requested)
        ids: Sequence[str] | None = None,  # noqa: ARG002 (the contract's)
    ) -> Sequence[Bad]:
        """Stage rows that are JSON."""
        with explained(self._place.doing):
            if rows:
                self._segment("").write_json(lines, rows)
                self._finish_if_full("")
            faults.reached("stage.mid_write")
        return ()

    def close(self) -> Receipt:
        """Finish the files and make them and their names durable."""
        with explained(self._place.doing):
            for folder in list(self._open):
                self._finish(folder)
            if self._done:
                sync_folder(self._place.folder)
        self._done.sort(key=lambda segment: segment["name"])
        rows, size = sum(each["rows"] for each in self._done), sum(each["bytes"] for each in self._done)
        return Receipt(self._place.sink, self._place.unit, rows, size, tuple(self._done))

    def abort(self) -> None:
        """Delete the staged files."""
        for segment in self._open.values():
            segment.abort()
        with suppress(OSError):
            for nth in range(self._count):
                (self._place.folder / self._place.staged_name(nth)).unlink(missing_ok=True)
            self._place.folder.rmdir()

    def _segment(self, folder: str) -> _Segment:
        segment = self._open.pop(folder, None)
        if segment is None:
            if len(self._open) >= MAX_OPEN:
                self._finish(next(iter(self._open)))
            if not self._count:
                make_folder(self._place.folder)
            nth = self._begun.get(folder, 0)
            self._begun[folder] = nth + 1
            staged = self._place.staged_name(self._count)
            self._count += 1
            path, name = self._place.folder / staged, self._place.final_name(folder, nth)
            hides = bool(self._late.why_closed(folder))
            segment = _Segment(path, name, self._schema, self._encoders, self._rules, hides=hides)
        self._open[folder] = segment  # the last position is that of the most recently used one
        return segment

    def _refused(self, folder: str) -> tuple[str, str] | None:
        """(reason, message) if the folder accepts no rows; None if it does."""
        if said := too_long(folder, most_name=_MOST_NAME, most_path=_MOST_PATH):
            return "too-large", said
        why = self._late.why_closed(folder) if self._rules.refuses_late else ""
        return ("late", why) if why else None

    def _finish_if_full(self, folder: str) -> None:
        most = self._rules.most_bytes
        if most is not None and self._open[folder].size >= most:
            self._finish(folder)

    def _finish(self, folder: str) -> None:
        self._done.append(self._open[folder].finish())
        del self._open[folder]


class _Segment:
    """One staged file."""

    def __init__(self, path: Path, name: str, schema: Schema, encoders: EncoderFactory, rules: SegmentRules, *, hides: bool) -> None:
        self._rules = rules
        self._hides = hides
        self._columns = schema.names
        self._newest = NewestTime()
        self._staged = path.name
        self._name = name
        self._file = SummedFile(path)
        self._rows = 0
        try:
            self._encoder: Encoder = encoders(self._file, schema)  # type: ignore[arg-type]
        except BaseException:
            self._file.close()
            raise

    @property
    def size(self) -> int:
        """The number of its bytes that have been written to the file."""
        return self._file.size

    def write(self, batch: pa.RecordBatch, newest_us: int | None = None) -> None:
        self._encoder.write(batch)
        self._rows += batch.num_rows
        self._newest.add(newest_us)

    def write_json(self, lines: bytes, rows: int) -> None:
        assert isinstance(self._encoder, JsonEncoder)
        self._encoder.write_lines(lines)
        self._rows += rows

    def finish(self) -> dict[str, Any]:
        self._encoder.close()
        self._file.sync()
        self._file.close()
        said: dict[str, Any] = {
            "staged": self._staged,
            "name": self._name + self._encoder.suffix,
            "rows": self._rows,
            "bytes": self._file.size,
            "crc": self._file.crc,
        }
        said |= self._newest.as_json(self._rules.delay_us)
        below = self._rules.hidden_below
        if self._hides or (below is not None and self._file.size < below):
            said |= {"hidden": True} | ({"header": True} if self._rules.header else {})
            if self._rules.csv is not None:
                said["form"] = [*self._rules.csv, *(() if self._rules.header else self._columns)]
        return said

    def abort(self) -> None:
        with suppress(Exception):  # an encoder may write its end to a disk that is full
            self._encoder.close()
        with suppress(OSError):
            self._file.close()
