"""Merges several segments into one file, in bounded memory: by concatenation of bytes if the format allows it, otherwise by row groups."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from scribengin.connectors.files.audit import NotAsWrittenError, blocks_as_written
from scribengin.core import faults
from scribengin.core.errors import StateError
from scribengin.core.storage import SummedFile, explained

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

_BLOCK = 1 << 20
_ROWS = 16384
_GROUP_BYTES = 64 * 2**20
_LEVELS = {"gz": "gzip", "zst": "zstd"}


class Input(Protocol):
    """A segment, wherever it is stored. Both methods that read its bytes raise StateError after the last byte if they differ from the
    committed ones, and FileNotFoundError if the segment does not exist any more."""

    @property
    def entry(self) -> Mapping[str, Any]:
        """The entry of the segment in its commit record."""

    def blocks(self) -> Iterator[bytes]:
        """The bytes of the segment."""

    def checked(self) -> Any:
        """An Arrow file, or one that Arrow can read, whose bytes are already compared with the record. The caller closes it."""


@dataclass(frozen=True, slots=True)
class FileInput:
    """A segment on a disk."""

    path: Path
    entry: Mapping[str, Any]

    def blocks(self) -> Iterator[bytes]:
        """See Input."""
        try:
            yield from blocks_as_written(self.path, self.entry)
        except NotAsWrittenError as error:
            raise not_as_written(str(error), self.entry) from None

    def checked(self) -> Any:
        """See Input."""
        import pyarrow as pa

        for _ in self.blocks():
            pass
        return pa.OSFile(str(self.path))


@dataclass(frozen=True, slots=True)
class MergedFile:
    """A finished draft, durable except for its name. `taken`: the number of segments in it, as `merge_into` returns it."""

    taken: int
    rows: int
    bytes: int
    crc: int


def merge(inputs: Sequence[Input], draft: Path) -> MergedFile:
    """Write the rows of `inputs`, in order, to the new file `draft`. Stops before the first input whose columns differ from those of the
    first one.

    Raises:
        StateError: A segment differs from the committed one.
        EnvironmentFault: There is no disk space; the draft is deleted.
        FileNotFoundError: A segment does not exist any more.
    """
    doing = f"{len(inputs)} segments cannot be merged in {draft.parent}; they stay hidden, nothing is lost, and the merge is retried"
    out: SummedFile | None = None
    try:
        with explained(doing):
            out = SummedFile(draft)
            faults.reached("roll.draft.writing")
            taken = merge_into(out, inputs)
            out.sync()
            out.close()
    except BaseException:
        if out is not None:
            with suppress(OSError):
                out.close()
        draft.unlink(missing_ok=True)
        raise
    return MergedFile(taken, sum(each.entry["rows"] for each in inputs[:taken]), out.size, out.crc)


def merge_into(out: Any, inputs: Sequence[Input]) -> int:
    """Write the rows of `inputs`, in order, to an open file. Stops before the first input whose columns differ from those of the first one.
    Returns the number of inputs that were written. Raises the errors of an Input."""
    name = str(inputs[0].entry["name"])
    if name.endswith(".parquet"):
        return _merge_parquet(inputs, out)
    if inputs[0].entry.get("header"):
        return _merge_csv(inputs, out, _LEVELS.get(name.rpartition(".")[2], "none"))
    for each in inputs:
        for block in each.blocks():
            out.write(block)
    return len(inputs)


def not_as_written(text: str, said: Mapping[str, Any]) -> StateError:
    """The error for an Input whose bytes differ from its record."""
    return StateError(f"{text}: it is not merged (to {said['name']})", remedy="restore it from a backup; `audit` reports other damage")


def _merge_csv(inputs: Sequence[Input], out: Any, compression: str) -> int:
    from scribengin.formats.encoders import compressed

    file, end, _ = compressed(out, compression)
    first: bytes | None = None
    taken = 0
    for each in inputs:
        with each.checked() as raw:
            source = _decompressed(raw, compression)
            header, rest = _split_header(source)
            if first is None:
                first = header
                file.write(header)
            elif header != first:
                break
            file.write(rest)
            while block := source.read(_BLOCK):
                file.write(bytes(block))
        taken += 1
    end()
    return taken


def _decompressed(raw: Any, compression: str) -> Any:
    if compression == "none":
        return raw
    import pyarrow as pa

    return pa.CompressedInputStream(raw, compression)


def _split_header(source: Any) -> tuple[bytes, bytes]:
    """(the first record with its line end, the bytes read after it). The names in a header may contain line ends, inside quotes."""
    head, at, quoted = b"", 0, False
    while True:
        block = bytes(source.read(_BLOCK))
        head += block
        while at < len(head):
            if head[at : at + 1] == b'"':
                quoted = not quoted
            elif head[at : at + 1] == b"\n" and not quoted:
                return head[: at + 1], head[at + 1 :]
            at += 1
        if not block:
            return head, b""


def _merge_parquet(inputs: Sequence[Input], out: Any) -> int:
    import pyarrow as pa
    import pyarrow.parquet as pq

    writer: Any = None
    schema: pa.Schema | None = None
    waiting: list[pa.RecordBatch] = []
    taken = size = 0

    def flush() -> None:
        nonlocal waiting, size
        if waiting:
            writer.write_table(pa.Table.from_batches(waiting, schema).combine_chunks())
        waiting, size = [], 0

    try:
        for each in inputs:
            with each.checked() as raw, pq.ParquetFile(raw) as file:
                if writer is None:
                    schema = file.schema_arrow.remove_metadata()
                    codec = file.metadata.row_group(0).column(0).compression if file.metadata.num_row_groups else "ZSTD"
                    codec = "none" if codec == "UNCOMPRESSED" else codec.lower()
                    writer = pq.ParquetWriter(out, schema, compression=codec, coerce_timestamps="us", version="2.6")
                elif not file.schema_arrow.remove_metadata().equals(schema):
                    break
                for batch in file.iter_batches(_ROWS):
                    waiting.append(pa.RecordBatch.from_arrays(batch.columns, schema=schema))
                    size += batch.nbytes
                    if size >= _GROUP_BYTES:
                        flush()
            taken += 1
        flush()
    except BaseException:
        if writer is not None:
            with suppress(Exception):  # otherwise the writer writes its end when it is garbage-collected, to a closed file
                writer.close()
        raise
    writer.close()
    return taken
