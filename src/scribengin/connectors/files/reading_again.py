"""Reading a committed file again: is it whole, unchanged, with as many rows as were written?"""

from __future__ import annotations

import zlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

_BLOCK = 1 << 20
_LINES = {".jsonl", ".txt"}


class NotAsWrittenError(Exception):
    """A file is not what its record says."""


def blocks_as_written(file: Path, said: Mapping[str, Any]) -> Iterator[bytes]:
    """The bytes of a file of which a record says `said`. Raises NotAsWrittenError behind the last block where they are others; OSError."""
    crc = size = 0
    with file.open("rb") as opened:
        while block := opened.read(_BLOCK):
            crc = zlib.crc32(block, crc)
            size += len(block)
            yield block
    if size != said["bytes"]:
        raise NotAsWrittenError(f"{file} has {size} bytes; {said['bytes']} were written ({said['rows']} rows)")
    if crc != said["crc"]:
        raise NotAsWrittenError(f"{file} was changed after it was written ({said['rows']} rows)")


def read_again(file: Path, said: Mapping[str, Any], format: str) -> tuple[int, list[str]]:
    """(rows found, what is wrong) of a file of which a record says `said`. Rows are counted in it where its name
    names a format that tells them without decoding: the sink's may be another by now. An empty `format`: not at all."""
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
        return 0, [f"{file} cannot be read as what it is called: {error} ({said['rows']} rows)"]
    if rows is not None and rows != said["rows"]:
        return rows, [f"{file} holds {rows} rows; {said['rows']} were counted when it was written"]
    return said["rows"], []


def count_rows(file: Path, *, header: bool | None = None) -> int | None:
    """What the file itself says, where that needs no decoding; of CSV where it is known whether it has a `header`."""
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
    """Lines that end outside of quotes."""
    import pyarrow as pa

    rows, quoted, last = 0, False, b"\n"
    with pa.input_stream(str(file), compression="detect") as lines:
        while block := bytes(lines.read(_BLOCK)):
            for nth, part in enumerate(block.split(b'"')):
                quoted ^= nth > 0
                rows += 0 if quoted else part.count(b"\n")
            last = block[-1:]
    return max(0, rows + (last != b"\n") - header)
