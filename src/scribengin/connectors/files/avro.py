"""Avro files: their blocks as pieces, and the records of a piece."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import IO, TYPE_CHECKING

from scribengin.core.errors import SourceError
from scribengin.core.types import Schema
from scribengin.formats.avro import AvroForm
from scribengin.formats.avro_container import ContainerError, block_lengths, read_blocks, read_header
from scribengin.formats.avro_schema import AvroSchemaError
from scribengin.formats.blocks import DamageBlock

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator
    from pathlib import Path

    from scribengin.connectors.files.pieces import FilePiece
    from scribengin.formats.avro_container import AvroBlock, Container


def divide_blocks(path: Path, piece: FilePiece, split_bytes: int) -> list[FilePiece]:
    """Divide a file into groups of blocks. The last piece ends with the file: damage is found when the file is read.

    Args:
        path: The file.
        piece: The whole file as one piece.
        split_bytes: The size of a group, in bytes; a group is at least so large.
    """
    if piece.size <= split_bytes:
        return [piece]
    starts = [0]
    try:
        with path.open("rb") as file:
            container = read_header(file)
            for _, _, behind in block_lengths(file, container, container.begin, piece.size):
                if behind - starts[-1] >= split_bytes and behind < piece.size:
                    starts.append(behind)
    except (ContainerError, AvroSchemaError, OSError):
        pass
    ends = [*starts[1:], piece.end]
    return [replace(piece, start=start, end=end, bytes=end - start) for start, end in zip(starts, ends, strict=True)]


def read_piece(
    file: IO[bytes], path: Path, piece: FilePiece, schema: Schema, learned: Collection[str] = ()
) -> Iterator[AvroBlock | DamageBlock]:
    """The records of a piece's blocks. A file whose schema does not fit the columns of the flow (see `AvroForm.never`) is one bad record.

    Args:
        file: The open file.
        path: Its path.
        piece: The piece.
        schema: The columns of the flow.
        learned: The columns whose values may not fit: the decoder reports them.

    Raises:
        SourceError: The file has a schema that cannot be used for reading.
    """
    label = str(path)
    try:
        container = read_header(file)
    except ContainerError as error:
        if not error.reason:
            raise SourceError(f"{path} {error}", remedy="write the file again, or move it away") from None
        yield DamageBlock(label, error.reason, str(error), 0)
        return
    except AvroSchemaError as error:
        raise SourceError(f"{path} cannot be read by its own schema: {error}", remedy="move the file away") from None
    declared = Schema(tuple(field for field in schema.fields if field.name not in learned))
    never = AvroForm(container.writer, declared).never
    if never is not None:
        if piece.start == 0:  # the pieces of a file have the same columns
            message = f"the file cannot be read into these columns: {never}; none of its records is read: correct `schema:`"
            yield DamageBlock(label, "wrong-type", message, 0)
        return
    start = max(piece.start, container.begin)
    rows_before = _Rows(path, container, start, piece.size)
    yield from read_blocks(file, label, container, start, piece.end, piece.size, rows_before)


class _Rows:
    """The number of records before a byte of the file, counted once, when a dead letter needs it."""

    def __init__(self, path: Path, container: Container, start: int, size: int) -> None:
        self._count = partial(_rows_before, path, container, start, size) if start > container.begin else int
        self._rows: int | None = None

    def __call__(self) -> int:
        if self._rows is None:
            self._rows = self._count()
        return self._rows


def _rows_before(path: Path, container: Container, start: int, size: int) -> int:
    rows = 0
    with path.open("rb") as file:
        for begin, count, _ in block_lengths(file, container, container.begin, size):
            if begin >= start:
                break
            rows += count
    return rows
