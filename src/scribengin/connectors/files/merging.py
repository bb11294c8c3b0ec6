"""Several segments as one file: bytes behind bytes where the format allows it, row groups where it does not. In bounded memory."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from scribengin.connectors.files.reading_again import NotAsWrittenError, blocks_as_written
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
    """A segment, wherever it lies. Both ways to its bytes raise StateError for others than were committed, behind the last of them, and
    FileNotFoundError where it is gone."""

    @property
    def said(self) -> Mapping[str, Any]:
        """What its commit record says of it."""

    def blocks(self) -> Iterator[bytes]:
        """The bytes."""

    def checked(self) -> Any:
        """A file of Arrow's, or one that Arrow reads, with the bytes, compared already. Its user closes it."""


@dataclass(frozen=True, slots=True)
class FileInput:
    """One on a disk."""

    path: Path
    said: Mapping[str, Any]

    def blocks(self) -> Iterator[bytes]:
        """See Input."""
        try:
            yield from blocks_as_written(self.path, self.said)
        except NotAsWrittenError as error:
            raise not_as_written(str(error), self.said) from None

    def checked(self) -> Any:
        """See Input."""
        import pyarrow as pa

        for _ in self.blocks():
            pass
        return pa.OSFile(str(self.path))


@dataclass(frozen=True, slots=True)
class MergedFile:
    """A finished draft, durable but for its name. `taken`: as `merge_into` says."""

    taken: int
    rows: int
    bytes: int
    crc: int


def merge(inputs: Sequence[Input], draft: Path) -> MergedFile:
    """Write the rows of `inputs`, in their order, to `draft`. Stops before one that has other columns than the first.

    Raises StateError for a segment that is not what was committed, EnvironmentFault where there is no room (then there is no draft), and
    FileNotFoundError for a segment that is gone.
    """
    doing = f"{len(inputs)} segments cannot be merged in {draft.parent}; they stay hidden, nothing is lost, and it is tried again"
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
    return MergedFile(taken, sum(each.said["rows"] for each in inputs[:taken]), out.size, out.crc)


def merge_into(out: Any, inputs: Sequence[Input]) -> int:
    """Write the rows of `inputs`, in their order, to a file. Returns of how many, the first ones: it stops before one that has other
    columns than the first. Raises what an Input does."""
    name = str(inputs[0].said["name"])
    if name.endswith(".parquet"):
        return _merge_parquet(inputs, out)
    if inputs[0].said.get("header"):
        return _merge_csv(inputs, out, _LEVELS.get(name.rpartition(".")[2], "none"))
    for each in inputs:
        for block in each.blocks():
            out.write(block)
    return len(inputs)


def not_as_written(text: str, said: Mapping[str, Any]) -> StateError:
    """What an Input raises."""
    return StateError(f"{text}: it is not merged (to {said['name']})", remedy="restore it from a backup; `audit` tells what else is wrong")


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
    """(the first record with its line end, what was read behind it); a name may hold line ends, in quotes."""
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
            with suppress(Exception):  # else it writes its end when it is collected, to a file that is closed
                writer.close()
        raise
    writer.close()
    return taken
