"""One unit's writes to a files sink: staged files, one for each partition's folder, and their receipt."""

from __future__ import annotations

import hashlib
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from scribengin.connectors.contract import Receipt
from scribengin.connectors.files.sink_partition import Partitions
from scribengin.core import faults
from scribengin.core.storage import SummedFile, explained, make_folder, sync_folder
from scribengin.formats.encoders import JsonEncoder

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    import pyarrow as pa

    from scribengin.core.types import Schema
    from scribengin.formats.contract import Bad, Encoder, EncoderFactory

MAX_OPEN = 64
"""Files that a unit has open at most; with more partitions the one unused for longest is finished, and begun again in a further file."""


@dataclass(frozen=True, slots=True)
class StagedPlace:
    """Where a unit stages, and how its files will be called."""

    sink: str
    lineage: str
    batch: int
    unit: int
    attempt: str
    folder: Path

    @property
    def doing(self) -> str:
        """For messages."""
        return f'sink "{self.sink}" cannot stage in {self.folder}; nothing of the batch is visible, it is run again'

    def staged_name(self, nth: int) -> str:
        """Of the unit's nth file; no other attempt has it, and it has no suffix that a reader would look for."""
        return f"{self.unit:05d}-{self.attempt}-{nth:05d}"

    def final_name(self, folder: str, nth: int) -> str:
        """Of the nth file in a partition's folder, without the format's suffix: the same for every attempt.

        The id tells lineages and sinks apart, and folders whose names a file system takes for the same.
        """
        id_ = hashlib.sha256(f"{self.lineage}/{self.sink}/{folder}".encode()).hexdigest()[:8]
        return f"{folder}part-{self.batch:010d}-{self.unit:05d}-{nth:03d}{id_}"


class FilesSinkStream:
    """See the contract. Rows of one partition stand in their order; of several files of one unit and folder, by name."""

    wants_ids = False

    def __init__(self, place: StagedPlace, schema: Schema, encoders: EncoderFactory, partition_by: tuple[str, ...], *, json: bool) -> None:
        """`json`: the encoders write JSON, and take it too."""
        self.json_needs: tuple[str, ...] | None = () if json and not partition_by else None
        self._place = place
        self._encoders = encoders
        self._partitions = Partitions(schema, partition_by) if partition_by else None
        self._schema = self._partitions.rest if self._partitions is not None else schema
        self._open: dict[str, _Segment] = {}
        self._begun: dict[str, int] = {}
        self._count = 0
        self._done: list[dict[str, Any]] = []

    def write(self, batch: pa.RecordBatch, ids: Sequence[str] | None = None) -> Sequence[Bad]:  # noqa: ARG002 (the contract's)
        """Stage the rows."""
        with explained(self._place.doing):
            if self._partitions is None:
                if batch.num_rows:
                    self._segment("").write(batch)
            else:
                for folder, rows in self._partitions.split(batch):
                    self._segment(folder).write(rows)
            faults.reached("stage.mid_write")
        return ()

    def write_json(
        self,
        lines: bytes,
        rows: int,
        columns: Mapping[str, pa.Array],  # noqa: ARG002 (none is asked for)
        ids: Sequence[str] | None = None,  # noqa: ARG002 (the contract's)
    ) -> Sequence[Bad]:
        """Stage rows that are JSON."""
        with explained(self._place.doing):
            if rows:
                self._segment("").write_json(lines, rows)
            faults.reached("stage.mid_write")
        return ()

    def close(self) -> Receipt:
        """Finish the files and make them durable, their names too."""
        with explained(self._place.doing):
            for folder in list(self._open):
                self._finish(folder)
            if self._done:
                sync_folder(self._place.folder)
        self._done.sort(key=lambda segment: segment["name"])
        rows, size = sum(each["rows"] for each in self._done), sum(each["bytes"] for each in self._done)
        return Receipt(self._place.sink, self._place.unit, rows, size, tuple(self._done))

    def abort(self) -> None:
        """Remove what was staged."""
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
            segment = _Segment(path, name, self._schema, self._encoders)
        self._open[folder] = segment  # the last place is that of the one used last
        return segment

    def _finish(self, folder: str) -> None:
        self._done.append(self._open[folder].finish())
        del self._open[folder]


class _Segment:
    """One staged file."""

    def __init__(self, path: Path, name: str, schema: Schema, encoders: EncoderFactory) -> None:
        self._staged = path.name
        self._name = name
        self._file = SummedFile(path)
        self._rows = 0
        try:
            self._encoder: Encoder = encoders(self._file, schema)  # type: ignore[arg-type]
        except BaseException:
            self._file.close()
            raise

    def write(self, batch: pa.RecordBatch) -> None:
        self._encoder.write(batch)
        self._rows += batch.num_rows

    def write_json(self, lines: bytes, rows: int) -> None:
        assert isinstance(self._encoder, JsonEncoder)
        self._encoder.write_lines(lines)
        self._rows += rows

    def finish(self) -> dict[str, Any]:
        self._encoder.close()
        self._file.sync()
        self._file.close()
        return {
            "staged": self._staged,
            "name": self._name + self._encoder.suffix,
            "rows": self._rows,
            "bytes": self._file.size,
            "crc": self._file.crc,
        }

    def abort(self) -> None:
        with suppress(Exception):  # an encoder may want to write its end to a disk that is full
            self._encoder.close()
        with suppress(OSError):
            self._file.close()
