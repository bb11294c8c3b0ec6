"""Parquet files: their columns, their row groups as pieces, and their rows as blocks."""

from __future__ import annotations

from dataclasses import replace
from typing import IO, TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq

from scribengin.core.errors import SourceError
from scribengin.formats.blocks import ArrowBlock, DamageBlock
from scribengin.formats.own_columns import arrow_columns
from scribengin.formats.parquet import ColumnMismatchError, conform, declared_by

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator
    from pathlib import Path

    from scribengin.connectors.files.pieces import Piece
    from scribengin.core.types import Schema

_ROWS = 64 * 1024
_ALL = -1
"""the `end` of a piece that takes all row groups"""


def schema_of_file(path: Path) -> Schema:
    """What the file's footer says. Raises SourceError."""
    try:
        return declared_by(pq.read_schema(path))
    except (pa.ArrowException, OSError, ValueError) as error:
        raise SourceError(f"{path} does not say its columns: {error}", remedy="declare them with `schema:`") from error


def schema_of_columns(path: Path) -> pa.Schema:
    """What the file's footer says, in Arrow's words. Raises SourceError."""
    try:
        return pq.read_schema(path)
    except (pa.ArrowException, OSError) as error:
        raise SourceError(f"{path} is no whole Parquet file: {error}", remedy="write it anew, or leave it out") from error


def divide_groups(path: Path, piece: Piece, split_bytes: int) -> list[Piece]:
    """Row groups of about `split_bytes` together; the whole file where that is smaller, or has no footer (reading it will tell)."""
    whole = replace(piece, start=0, end=_ALL)
    if piece.size <= split_bytes:
        return [whole]
    try:
        footer = pq.read_metadata(path)
    except (pa.ArrowException, OSError):
        return [whole]
    pieces: list[Piece] = []
    start = total = 0
    for group in range(footer.num_row_groups):
        row_group = footer.row_group(group)
        total += sum(row_group.column(column).total_compressed_size for column in range(row_group.num_columns))
        if total >= split_bytes or group == footer.num_row_groups - 1:
            pieces.append(replace(piece, start=start, end=group + 1, bytes=total))
            start, total = group + 1, 0
    return pieces or [whole]


def read_groups(
    file: IO[bytes], path: Path, piece: Piece, schema: Schema, learned: Collection[str] = ()
) -> Iterator[ArrowBlock | DamageBlock]:
    """The rows of the piece's row groups, by the declared columns. Raises SourceError where the file has others; `learned` ones are null
    then."""
    label = str(path)
    try:
        parquet = pq.ParquetFile(file, coerce_int96_timestamp_unit="us")
        groups = range(piece.start, parquet.num_row_groups if piece.end == _ALL else piece.end)
        row = sum(parquet.metadata.row_group(group).num_rows for group in range(piece.start))
        names = [field.name for field in schema.fields if field.name in parquet.schema_arrow.names]
        columns = tuple((field.name, str(field.type)) for field in arrow_columns(parquet.schema_arrow, []))
        for batch in parquet.iter_batches(_ROWS, row_groups=list(groups), columns=names):
            unfit: dict[str, int] = {}
            yield ArrowBlock(label, conform(batch, schema, learned, unfit), row, columns, unfit)
            row += batch.num_rows
    except ColumnMismatchError as error:
        raise SourceError(f"{path} {error}", remedy="correct `schema:`, or move the file away") from None
    except (pa.ArrowInvalid, OSError) as error:
        yield DamageBlock(label, "corrupt", f"the file is no whole Parquet file: {error}", 0)
