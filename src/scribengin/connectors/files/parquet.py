"""Parquet files: their columns, their row groups as pieces, and their rows as blocks."""

from __future__ import annotations

from dataclasses import replace
from typing import IO, TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from scribengin.core.errors import SourceError
from scribengin.formats.blocks import DamageBlock
from scribengin.formats.file_columns import arrow_columns
from scribengin.formats.parquet import ColumnMismatchError, conformed, declared_by

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator
    from pathlib import Path

    from scribengin.connectors.files.pieces import FilePiece
    from scribengin.core.types import Schema
    from scribengin.formats.blocks import ArrowBlock

_ROWS = 64 * 1024
_BY_SPARK = b"org.apache.spark.version"
_NANOSECONDS_US = 2**63 // 1000
"""the range of times in 64-bit nanoseconds: so many microseconds before and after 1970"""
_ALL = -1
"""the `end` of a piece that includes all row groups"""


def schema_of_file(path: Path) -> Schema:
    """The columns in the file's footer. Raises SourceError."""
    try:
        return declared_by(pq.read_schema(path))
    except (pa.ArrowException, OSError, ValueError) as error:
        raise SourceError(f"the columns of {path} cannot be read: {error}", remedy="declare them with `schema:`") from error


def schema_of_columns(path: Path) -> pa.Schema:
    """The columns in the file's footer, as an Arrow schema. Raises SourceError."""
    try:
        return pq.read_schema(path)
    except (pa.ArrowException, OSError) as error:
        raise SourceError(f"{path} is not a complete Parquet file: {error}", remedy="write it again, or leave it out") from error


def divide_groups(path: Path, piece: FilePiece, split_bytes: int) -> list[FilePiece]:
    """Divide a file into groups of row groups.

    Args:
        path: The file.
        piece: The whole file as one piece.
        split_bytes: The size of a group, in bytes; a group is at least so large.

    Returns:
        The pieces; the whole file if it is smaller, or has no valid footer (an error that is found when the file is read).
    """
    whole = replace(piece, start=0, end=_ALL)
    if piece.size <= split_bytes:
        return [whole]
    try:
        footer = pq.read_metadata(path)
    except (pa.ArrowException, OSError):
        return [whole]
    pieces: list[FilePiece] = []
    start = total = 0
    for group in range(footer.num_row_groups):
        row_group = footer.row_group(group)
        total += sum(row_group.column(column).total_compressed_size for column in range(row_group.num_columns))
        if total >= split_bytes or group == footer.num_row_groups - 1:
            pieces.append(replace(piece, start=start, end=group + 1, bytes=total))
            start, total = group + 1, 0
    return pieces or [whole]


def read_groups(
    file: IO[bytes], path: Path, piece: FilePiece, schema: Schema, learned: Collection[str] = (), *, truncate: bool = False
) -> Iterator[ArrowBlock | DamageBlock]:
    """The rows of a piece's row groups, with the declared columns. A file whose columns can never be converted to these is one bad record.

    Args:
        file: The open file.
        path: Its path.
        piece: The piece.
        schema: The declared columns.
        learned: The columns of which values that do not fit are null.
        truncate: Truncate times that are finer than microseconds.
    """
    label = str(path)
    try:
        parquet = pq.ParquetFile(file, coerce_int96_timestamp_unit="us")
        groups = list(range(piece.start, parquet.num_row_groups if piece.end == _ALL else piece.end))
        row = sum(parquet.metadata.row_group(group).num_rows for group in range(piece.start))
        names = [field.name for field in schema.fields if field.name in parquet.schema_arrow.names]
        columns = tuple((field.name, str(field.type)) for field in arrow_columns(parquet.schema_arrow, []))
        batches = parquet.iter_batches(_ROWS, row_groups=groups, columns=names)
        if not truncate and (cut := _int96(parquet, names)):
            batches = _with_nanoseconds(file, batches, groups, cut)
        for batch in batches:
            yield conformed(label, batch, schema, first_row=row, columns=columns, learned=learned, truncate=truncate)
            row += batch.num_rows
    except ColumnMismatchError as error:
        if piece.start == 0:  # all pieces of a file have the same columns
            rows = parquet.metadata.num_rows
            yield DamageBlock(label, "wrong-type", f"the file {error}; none of its {rows} rows is read: correct `schema:`", 0)
    except (pa.ArrowInvalid, OSError) as error:
        yield DamageBlock(label, "corrupt", f"the file is not a complete Parquet file: {error}", 0)


def _int96(parquet: pq.ParquetFile, names: Collection[str]) -> list[str]:
    """The columns of times in the format of Hive and Impala: Arrow would silently drop digits finer than microseconds. Spark writes none
    that are finer."""
    if _BY_SPARK in (parquet.schema_arrow.metadata or {}) or _BY_SPARK in (parquet.metadata.metadata or {}):
        return []
    own = (parquet.schema.column(index) for index in range(len(parquet.schema)))
    return [column.path for column in own if column.physical_type == "INT96" and column.path in names]


def _with_nanoseconds(file: IO[bytes], batches: Iterator[pa.RecordBatch], groups: list[int], names: list[str]) -> Iterator[pa.RecordBatch]:
    """The batches with the columns `names` in nanoseconds, except those with a time outside the range of nanoseconds."""
    finer = pq.ParquetFile(file, coerce_int96_timestamp_unit="ns").iter_batches(_ROWS, row_groups=groups, columns=names)
    for batch, fine in zip(batches, finer, strict=True):
        for name in names:
            at = batch.schema.get_field_index(name)
            ends = pc.min_max(batch.column(at).cast(pa.int64()))
            if ends["min"].as_py() is not None and max(-ends["min"].as_py(), ends["max"].as_py()) < _NANOSECONDS_US:
                batch = batch.set_column(at, name, fine.column(name))  # noqa: PLW2901
        yield batch
