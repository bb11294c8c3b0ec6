"""The rows of one task output in a file of the state folder: an Arrow stream with a checksum. A decision names the file, and publishing
reads it."""

from __future__ import annotations

import zlib
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from scribengin.connectors.contract import Receipt
from scribengin.core.errors import StateError
from scribengin.core.storage import SummedFile, make_folder, mapped, sync_folder

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path


class StagedFile:
    """The file of one attempt at a task output. It is created with its first batch."""

    def __init__(self, folder: Path, unit: int, attempt: str, schema: pa.Schema) -> None:
        self._folder = folder
        self._unit = unit
        self._name = f"{unit:05d}-{attempt}"
        self._schema = schema
        self._file: SummedFile | None = None
        self._writer: pa.ipc.RecordBatchStreamWriter | None = None
        self._rows = 0

    def write(self, batch: pa.RecordBatch) -> None:
        """Append the batch."""
        if self._writer is None:
            make_folder(self._folder)
            self._file = SummedFile(self._folder / self._name)
            self._writer = pa.ipc.new_stream(self._file, self._schema)
        self._writer.write_batch(batch)
        self._rows += batch.num_rows

    def close(self, sink: str) -> Receipt:
        """Make the file durable, and return the write receipt for `sink`; it has no segment if no file was created."""
        if self._file is None or self._writer is None:
            return Receipt(sink, self._unit, 0, 0)
        self._writer.close()
        self._file.sync()
        self._file.close()
        sync_folder(self._folder)
        segment = {"staged": self._name, "rows": self._rows, "bytes": self._file.size, "crc": self._file.crc}
        return Receipt(sink, self._unit, self._rows, self._file.size, (segment,))

    def abort(self) -> None:
        """Delete the file."""
        if self._file is None:
            return
        with suppress(OSError):
            self._file.close()
        with suppress(OSError):
            (self._folder / self._name).unlink(missing_ok=True)
            self._folder.rmdir()


@contextmanager
def open_staged(folder: Path, segment: Mapping[str, Any], sink: str) -> Iterator[pa.ipc.RecordBatchStreamReader]:
    """Open the file that a segment of a write receipt names.

    Args:
        folder: The folder of staged files.
        segment: The segment.
        sink: The id of the sink, for messages.

    Raises:
        StateError: The file is missing, truncated or changed.
    """
    path = folder / segment["staged"]
    try:
        source = mapped(path)
    except FileNotFoundError as error:
        raise _damaged(sink, path, "is missing") from error
    with source:
        data = source.read_buffer()
        if data.size != segment["bytes"] or zlib.crc32(data) != segment["crc"]:
            raise _damaged(sink, path, f"was changed: it has {data.size} bytes; expected {segment['bytes']}, by its decision")
        with pa.ipc.open_stream(data) as reader:
            yield reader


def _damaged(sink: str, path: Path, what: str) -> StateError:
    return StateError(
        f'sink "{sink}": {path}, which holds staged rows of a decided batch, {what}', remedy="restore it from a backup, or reset the flow"
    )
