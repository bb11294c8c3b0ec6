"""Test records that can be checked one by one: each has a unique key (run, part, seq) and a checksum of all its columns."""

from __future__ import annotations

import random
import zlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

SCHEMA = "run STRING, part INT, seq BIGINT, bucket STRING, body STRING, crc BIGINT"
"""`bucket` is for `partition_by`: it has a few values, among them null and some that need escaping in a folder name"""
BUCKETS = ("a", "b/c", "ü=1", None)
_WORDS = ("quick", "brown", 'fo"x', "jumps,", "over", "läzy", "dög\\", "")


class RecordKey(NamedTuple):
    """The key of a record. `part` is an ordered part of the input (a file, a partition); `seq` counts its records from 0."""

    run: str
    part: int
    seq: int


@dataclass(frozen=True, slots=True)
class Records:
    """The records of `parts` parts with `rows` records each; the same `run` always has the same records."""

    run: str
    parts: int
    rows: int

    def keys(self) -> Iterator[RecordKey]:
        """The keys of all records, part by part."""
        return (RecordKey(self.run, part, seq) for part in range(self.parts) for seq in range(self.rows))

    def of(self, part: int, start: int = 0, end: int | None = None) -> list[dict[str, Any]]:
        """The rows `start` to `end` (exclusive) of one part, in order.

        Args:
            part: The part.
            start: The number of the first row.
            end: The number after the last row; None for all remaining rows.
        """
        return [make_record(RecordKey(self.run, part, seq)) for seq in range(start, self.rows if end is None else min(end, self.rows))]

    def write(self, folder: Path) -> None:
        """Write the records as JSON lines to `records-000.jsonl`, …, one file for each part."""
        folder.mkdir(parents=True, exist_ok=True)
        for part in range(self.parts):
            (folder / f"records-{part:03}.jsonl").write_bytes(msgspec.json.Encoder().encode_lines(self.of(part)))


def make_record(key: RecordKey) -> dict[str, Any]:
    """The record with that key, with the columns of `SCHEMA`."""
    rng = random.Random(f"{key}")
    bucket = BUCKETS[rng.randrange(len(BUCKETS))]
    body = " ".join(rng.choice(_WORDS) for _ in range(rng.randrange(1, 30)))
    row = {"run": key.run, "part": key.part, "seq": key.seq, "bucket": bucket, "body": body}
    return row | {"crc": checksum(row)}


def checksum(row: Mapping[str, Any]) -> int:
    """The checksum of every column except `crc`. Null and the empty text have the same checksum, because CSV and folder names cannot
    distinguish them."""
    return zlib.crc32("\x1f".join(str(row[name] or "") for name in ("run", "part", "seq", "bucket", "body")).encode())


def as_line(row: Mapping[str, Any]) -> str:
    """The record as one line, for the text format."""
    return msgspec.json.encode(row).decode()
