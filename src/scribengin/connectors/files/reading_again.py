"""Verification of a committed file: whether it is complete, unchanged, and has as many rows as were written."""

from __future__ import annotations

import zlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

_BLOCK = 1 << 20
_LINES = {".jsonl", ".txt"}


class NotAsWrittenError(Exception):
    """A file differs from its record."""


def blocks_as_written(file: Path, said: Mapping[str, Any]) -> Iterator[bytes]:
    """The bytes of a file with the record `said`. Raises NotAsWrittenError after the last block if they differ; OSError."""
    crc = size = 0
    with file.open("rb") as opened:
        while block := opened.read(_BLOCK):
            crc = zlib.crc32(block, crc)
            size += len(block)
            yield block
    if size != said["bytes"]:
        raise NotAsWrittenError(f"{file} has {size} bytes; expected {said['bytes']} ({said['rows']} rows)")
    if crc != said["crc"]:
        raise NotAsWrittenError(f"{file} was changed after it was written ({said['rows']} rows)")


def read_again(file: Path, said: Mapping[str, Any], format: str) -> tuple[int, list[str]]:
    """(rows found, errors) for a file with the record `said`. Rows are counted in the file if its name has a format that allows it without
    decoding: the sink's current format may differ. With an empty `format` they are not counted."""
    try:
        for _ in blocks_as_written(file, said):
            pass
    except FileNotFoundError:
        return 0, [f"{file} is missing: {said['rows']} rows"]
    except OSError as error:
        return 0, [f"{file} cannot be read: {error.strerror}"]
    except NotAsWrittenError as error:
        return 0, [str(error)]
    try:
        rows = count_rows(file) if format else None
    except (OSError, ValueError) as error:  # Arrow's errors are ValueErrors, and OSErrors
        return 0, [f"{file} cannot be read in the format of its name: {error} ({said['rows']} rows)"]
    if rows is not None and rows != said["rows"]:
        return rows, [f"{file} holds {rows} rows; expected {said['rows']}, as counted when it was written"]
    return said["rows"], []


def count_rows(file: Path, *, header: bool | None = None) -> int | None:
    """The number of rows found in the file, if that needs no decoding; for CSV only if it is known whether it has a `header`."""
    suffixes = file.suffixes
    if suffixes[-1:] == [".parquet"]:
        import pyarrow.parquet as pq

        return int(pq.read_metadata(file).num_rows)
    if not _LINES.isdisjoint(suffixes[-2:]):
        import pyarrow as pa

        with pa.input_stream(str(file), compression="detect") as lines:
            return sum(bytes(block).count(b"\n") for block in iter(lambda: lines.read(_BLOCK), b""))
    if header is not None and ".csv" in suffixes[-2:]:
        return _count_records(file, header=header)
    return None


def _count_records(file: Path, *, header: bool) -> int:
    """The number of lines that end outside quotes."""
    import pyarrow as pa

    rows, quoted, last = 0, False, b"\n"
    with pa.input_stream(str(file), compression="detect") as lines:
        while block := bytes(lines.read(_BLOCK)):
            for nth, part in enumerate(block.split(b'"')):
                quoted ^= nth > 0
                rows += 0 if quoted else part.count(b"\n")
            last = block[-1:]
    return max(0, rows + (last != b"\n") - header)
