"""The writes of one task output: objects that no manifest names yet, and their write receipt."""

from __future__ import annotations

import io
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from scribengin.connectors.contract import Receipt
from scribengin.connectors.files.late_rows import LateRows, NewestTime
from scribengin.connectors.files.sink_partition import Partitions, too_long
from scribengin.connectors.files.time_path import TimePath
from scribengin.connectors.objects.compaction_log import hidden_root
from scribengin.connectors.objects.manifests import Manifests
from scribengin.connectors.objects.retention import is_marked
from scribengin.connectors.objects.staged_objects import later_of
from scribengin.core import faults
from scribengin.formats.contract import Bad
from scribengin.formats.encoders import JsonEncoder

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import pyarrow as pa

    from scribengin.connectors.contract import BatchId
    from scribengin.connectors.objects.staged_objects import Later, LaterWriter
    from scribengin.core.store import Store, StoreWriter
    from scribengin.core.types import Schema
    from scribengin.formats.contract import Encoder, EncoderFactory

MAX_OPEN = 32
"""maximum number of open objects of a task output, each with up to a part in memory; with more partitions the least recently used one is
finished, and continued in another object"""
_FINISHED_AT_ONCE = 8
_MOST_NAME, _MOST_FOLDER = 255, 600
"""limits in bytes: of a name, for stores over a disk, and of a partition folder; a key has 1,024 including its prefix and suffix"""


@dataclass(frozen=True, slots=True)
class Rules:
    """How a sink's objects are written."""

    encoders: EncoderFactory
    partition_by: tuple[str | TimePath, ...]
    root: str
    """prefix of the objects' keys; for hidden ones of a lineage, `hidden_root` precedes it"""
    hidden: bool
    """True if the written objects stay hidden until a compactor merges them"""
    json: bool
    """True if the encoders write JSON, and accept it too"""
    csv: tuple[str, str, bool] | None
    """how CSV is written: delimiter, null, with a header"""
    most_bytes: int | None
    listed: bool
    """True if uploads are completed only when their Batch is published"""
    delay_us: int | None = None
    """how much newer than a folder's end rows must be to close it, in microseconds: write receipts then record what their rows close, see
    `late_rows`; None: they record nothing"""
    closed_us: int | None = None
    """a folder whose time ended by then is closed; microseconds since 1970"""
    looks_for_markers: bool = False
    """True if a folder with a completion marker is closed too: an earlier lineage may have written the marker"""


class ObjectsSinkStream:
    """See the contract. Rows of one partition keep their order; several objects of one task output and folder are ordered by name."""

    wants_ids = False

    def __init__(self, sink: str, store: Store, batch: BatchId, unit: int, attempt: str, schema: Schema, rules: Rules) -> None:
        self._sink = sink
        self._store = store
        self._batch = batch
        self._unit = unit
        self._attempt = attempt
        self._rules = rules
        self.json_needs: tuple[str, ...] | None = () if rules.json and not rules.partition_by else None
        self._notes = Manifests(store, batch.lineage).notes
        self._later: Later | None = None
        by = next((part for part in rules.partition_by if isinstance(part, TimePath)), None)
        marked = rules.looks_for_markers and by is not None
        self._late = LateRows(by, rules.closed_us, lambda folder: marked and is_marked(store, folder))
        self._partitions = Partitions(schema, rules.partition_by) if rules.partition_by else None
        self._schema = self._partitions.rest if self._partitions is not None else schema
        self._suffix = ""
        self._open: dict[str, _Segment] = {}
        self._root = hidden_root(batch.lineage) if rules.hidden else rules.root
        self._form = _form(rules, self._schema)
        self._count = 0
        self._done: list[dict[str, Any]] = []
        self._keys: list[str] = []

    def write(self, batch: pa.RecordBatch, ids: Sequence[str] | None = None) -> Sequence[Bad]:  # noqa: ARG002 (the contract's)
        """Stage the rows. Returns the rows that are too late for a closed folder, or whose folder is not valid in a key."""
        refused: list[Bad] = []
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
        if rows:
            self._segment("").write_json(lines, rows)
            self._finish_if_full("")
        faults.reached("stage.mid_write")
        return ()

    def close(self) -> Receipt:
        """Finish the objects, which are then durable; some concurrently, because most of the time is spent waiting for the store."""
        if len(self._open) > 1:
            with ThreadPoolExecutor(min(len(self._open), _FINISHED_AT_ONCE), "finish") as pool:
                self._done += (found | self._form for found in pool.map(lambda segment: segment.finish(), self._open.values()))
            self._open.clear()
        for folder in list(self._open):
            self._finish(folder)
        self._done.sort(key=lambda segment: segment["name"])
        rows, size = sum(each["rows"] for each in self._done), sum(each["bytes"] for each in self._done)
        return Receipt(self._sink, self._unit, rows, size, tuple(self._done))

    def abort(self) -> None:
        """Delete the staged objects, if the store is reachable; a later start deletes the rest."""
        for segment in self._open.values():
            segment.abort()
        with suppress(Exception):
            self._notes.sweep(self._batch.number, self._keys)

    def _refused(self, folder: str) -> tuple[str, str] | None:
        """(reason, message) if the folder accepts no rows; None if it does."""
        if said := too_long(folder, most_name=_MOST_NAME, most_path=_MOST_FOLDER):
            return "too-large", said
        why = self._late.why_closed(folder)
        return ("late", why) if why else None

    def _segment(self, folder: str) -> _Segment:
        segment = self._open.pop(folder, None)
        if segment is None:
            if len(self._open) >= MAX_OPEN:
                self._finish(next(iter(self._open)))
            nth, self._count = self._count, self._count + 1
            if not self._suffix:
                self._suffix = self._rules.encoders(io.BytesIO(), self._schema).suffix
            name = f"{self._root}{folder}part-{self._batch.number:010d}-{self._unit:05d}-{nth:05d}-{self._attempt}{self._suffix}"
            self._keys.append(name)
            self._notes.stage(self._batch.number, name)
            segment = self._begun(name)
        self._open[folder] = segment  # the last position is that of the most recently used one
        return segment

    def _begun(self, key: str) -> _Segment:
        if not self._rules.listed:
            return _Segment(self._store.writer(key), key, self._schema, self._rules)
        if self._later is None:
            self._later = later_of(self._store)
        return _LaterSegment(self._later.writer(key), key, self._schema, self._rules)

    def _finish_if_full(self, folder: str) -> None:
        most = self._rules.most_bytes
        if most is not None and self._open[folder].size >= most:
            self._finish(folder)

    def _finish(self, folder: str) -> None:
        self._done.append(self._open[folder].finish() | self._form)
        del self._open[folder]


def _form(rules: Rules, schema: Schema) -> dict[str, Any]:
    """The properties of a segment that a compactor needs."""
    if rules.csv is None:
        return {}
    *cells, header = rules.csv
    columns = [] if header else [each.name for each in schema.fields]
    return {"form": [*cells, *columns]} | ({"header": True} if header else {})


class _Segment:
    """One unfinished object."""

    def __init__(self, writer: StoreWriter, name: str, schema: Schema, rules: Rules) -> None:
        self._writer = writer
        self._name = name
        self._delay_us = rules.delay_us
        self._newest = NewestTime()
        self._rows = 0
        try:
            self._encoder: Encoder = rules.encoders(writer.file, schema)
        except BaseException:
            writer.abort()
            raise

    @property
    def size(self) -> int:
        """The number of its bytes that have left the encoder."""
        return self._writer.size

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
        self._writer.finish()
        said = {"name": self._name, "rows": self._rows, "bytes": self._writer.size, "crc": self._writer.crc}
        return said | self._newest.as_json(self._delay_us)

    def abort(self) -> None:
        with suppress(Exception):
            self._encoder.close()
        self._writer.abort()


class _LaterSegment(_Segment):
    """A segment that is not visible before its Batch is published."""

    def __init__(self, writer: LaterWriter, name: str, schema: Schema, rules: Rules) -> None:
        super().__init__(writer, name, schema, rules)
        self._later = writer

    def finish(self) -> dict[str, Any]:
        return super().finish() | {"upload": self._later.upload, "etags": self._later.etags}
