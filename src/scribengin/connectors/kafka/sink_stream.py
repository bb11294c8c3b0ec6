"""Staged messages of one task output: an Arrow file in the sink's own folder, from which the driver sends the decided messages."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from scribengin.connectors.contract import Receipt
from scribengin.connectors.kafka.message_stream import MessageStream
from scribengin.connectors.kafka.outgoing import Outgoing
from scribengin.core.errors import StateError
from scribengin.core.storage import SummedFile, explained, make_folder, mapped, sync_folder

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from scribengin.connectors.kafka.message_stream import OriginMaker, RowMaker

_COLUMNS = [
    pa.field("topic", pa.dictionary(pa.int32(), pa.string())),
    pa.field("partition", pa.int32()),
    pa.field("key", pa.binary()),
    pa.field("value", pa.binary()),
    pa.field("time_ms", pa.int64()),
    pa.field("id", pa.string()),
]
"""columns of a staged file; they are followed by one column for each other header"""
_SIZES = ""
"""name of the last column, if messages contain several rows: the number of rows in each; no header has an empty name"""


class StagedMessages(MessageStream):
    """A stream that stages messages in a file, which is created at the first row."""

    def __init__(self, sink: str, unit: int, attempt: str, folder: Path, maker: RowMaker | OriginMaker) -> None:
        super().__init__(maker)
        self._sink = sink
        self._unit = unit
        self.folder = folder
        self.rows = 0
        self._path = folder / f"{unit:05d}-{attempt}"
        self._file: SummedFile | None = None
        self._writer: Any = None

    def keep(self, messages: Outgoing) -> None:
        """Write the messages to the staged file."""
        with explained(f'sink "{self._sink}" cannot stage in {self.folder}; no row of the batch is visible, and the batch is run again'):
            if len(messages):
                rows = _as_arrow(messages)
                self._begun(rows.schema).write_batch(rows)
                self.rows += messages.rows_inside()

    def close(self) -> Receipt:
        """Make the staged file durable, and return its write receipt."""
        if self._file is None:
            return Receipt(self._sink, self._unit, 0, 0)
        with explained(f'sink "{self._sink}" cannot stage in {self.folder}; no row of the batch is visible, and the batch is run again'):
            self._writer.close()
            self._file.sync()
            self._file.close()
            sync_folder(self.folder)
        segment = {"staged": self._path.name, "rows": self.rows, "bytes": self._file.size, "crc": self._file.crc}
        return Receipt(self._sink, self._unit, self.rows, self._file.size, (segment,), self.digest)

    def abort(self) -> None:
        """Delete the staged file."""
        if self._file is not None:
            with suppress(OSError):
                self._file.close()
        with suppress(OSError):
            self._path.unlink(missing_ok=True)
            self.folder.rmdir()

    def _begun(self, schema: pa.Schema) -> Any:
        if self._file is None:
            make_folder(self.folder)
            self._file = SummedFile(self._path)
            self._writer = pa.ipc.new_stream(self._file, schema, options=pa.ipc.IpcWriteOptions(emit_dictionary_deltas=True))
        return self._writer


def staged_messages(folder: Path, segment: Mapping[str, Any]) -> Iterator[Outgoing]:
    """The messages of a staged segment, one Arrow batch at a time. Raises StateError if the file does not match its write receipt."""
    path = folder / segment["staged"]
    try:
        size = path.stat().st_size
    except FileNotFoundError:
        size = -1
    if size != segment["bytes"]:
        found = "is missing" if size < 0 else f"has {size:,} bytes"
        raise StateError(
            f"{path} {found}; expected {segment['bytes']:,} bytes, by its decision",
            remedy="restore the whole state folder; its parts belong together",
        )
    with mapped(path) as file, pa.ipc.open_stream(file) as reader:
        for batch in reader:
            yield _from_arrow(batch)


def _as_arrow(messages: Outgoing) -> pa.RecordBatch:
    fields = [*_COLUMNS, *(pa.field(name, pa.binary()) for name in messages.headers)]
    arrays = [
        pa.array(messages.topics, pa.string()).dictionary_encode(),
        pa.array(messages.partitions, pa.int32()),
        pa.array(messages.keys, pa.binary()),
        pa.array(messages.values, pa.binary()),
        pa.array(messages.times_ms, pa.int64()),
        pa.nulls(len(messages), pa.string()) if messages.ids is None else pa.array(messages.ids, pa.string()),
        *(pa.array(values, pa.binary()) for values in messages.headers.values()),
    ]
    if messages.sizes is not None:
        fields.append(pa.field(_SIZES, pa.int32()))
        arrays.append(pa.array(messages.sizes, pa.int32()))
    return pa.RecordBatch.from_arrays(arrays, schema=pa.schema(fields))


def _from_arrow(batch: pa.RecordBatch) -> Outgoing:
    topics, partitions, keys, values, times, ids, *headers = batch.columns
    names = batch.schema.names[len(_COLUMNS) :]
    sizes = None
    if names[-1:] == [_SIZES]:
        names, sizes = names[:-1], headers.pop().to_pylist()
    return Outgoing(
        topics.cast(pa.string()).to_pylist(),
        partitions.to_numpy(zero_copy_only=False).astype(np.int32),
        keys.to_pylist(),
        values.to_pylist(),
        times.to_pylist(),
        None if ids.null_count else ids.to_pylist(),
        {name: column.to_pylist() for name, column in zip(names, headers, strict=True)},
        sizes,
    )
