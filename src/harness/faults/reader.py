"""An independent reader: reads an output again and again during a run, and must always see complete files and complete records.

`python -m harness.faults.reader FOLDER FORMAT [records]` reads until its standard input closes, then prints one JSON object. It uses plain
files and `pyarrow.dataset`, and no code of Scribengin's sinks.
"""

from __future__ import annotations

import csv
import io
import os
import select
import subprocess
import sys
import zlib
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import msgspec

from scribengin.testing.checker import visible_files
from scribengin.testing.records import RecordKey, checksum

_POLL_S = 0.1
_FINISH_S = 120.0
_DATASET_EVERY = 10
_FIELDS = ("run", "part", "seq", "body", "crc")


@dataclass(slots=True)
class Sight:
    """What a reader saw: the number of readings, files and rows, and what was wrong (at most 20 texts)."""

    looks: int = 0
    files: int = 0
    rows: int = 0
    wrong: list[str] = field(default_factory=list)

    def complain(self, text: str) -> None:
        """Record that something is wrong."""
        if len(self.wrong) < 20:
            self.wrong.append(text)


class ForeignReader:
    """Reads one folder repeatedly. A file that was seen must never change; a key must be in one file only."""

    def __init__(self, folder: Path, format: str, *, records: bool) -> None:
        self.sight = Sight()
        self._folder = folder
        self._format = format
        self._records = records
        self._seen: dict[Path, tuple[int, int]] = {}
        self._keys: dict[RecordKey, Path] = {}
        self._rows_before = 0

    def read_visible(self) -> None:
        """Read every visible file once."""
        self.sight.looks += 1
        there = set()
        for path in visible_files(self._folder):
            there.add(path)
            if path not in self._seen or self.sight.looks % _DATASET_EVERY == 0:
                self._read(path)
        for path in self._seen.keys() - there:
            self.sight.complain(f"{path.name} was there and is gone")
            del self._seen[path]
        if self.sight.looks % _DATASET_EVERY == 0:
            self._scan()

    def _read(self, path: Path) -> None:
        try:
            data = path.read_bytes()
        except FileNotFoundError:
            return  # the next reading reports it
        mark = (len(data), zlib.crc32(data))
        known = self._seen.get(path)
        if known == mark:
            return
        if known is not None:
            self.sight.complain(f"{path.name} has changed after it was seen")
        self._seen[path] = mark
        self.sight.files += known is None
        try:
            rows = self._parse(data)
            if not rows:
                raise ValueError("it holds no record")
            for row in rows:
                self._check(row, path)
        except Exception as error:
            self.sight.complain(f"{path.name} ({len(data)} bytes): {type(error).__name__}: {error}")
            return
        self.sight.rows += len(rows)

    def _parse(self, data: bytes) -> list[dict[str, Any]]:
        if self._format == "parquet":
            import pyarrow as pa
            import pyarrow.parquet as pq

            rows: list[dict[str, Any]] = pq.read_table(pa.BufferReader(data)).to_pylist()
            return rows
        if not data.endswith(b"\n"):
            raise ValueError("the last line has no end")
        text = data.decode()
        if self._format == "csv":
            return list(csv.DictReader(io.StringIO(text, newline="")))
        lines = [msgspec.json.decode(line) for line in text.split("\n") if line]
        return [msgspec.json.decode(line["line"]) if set(line) == {"line"} else line for line in lines]

    def _check(self, row: dict[str, Any], path: Path) -> None:
        if not self._records:
            return
        key = whole_key(row)
        other = self._keys.setdefault(key, path)
        if other != path:
            self.sight.complain(f"{key} stands in {other.name} and in {path.name}")

    def _scan(self) -> None:
        """Read the folder with `pyarrow.dataset`: it must be readable, and the number of rows must not shrink."""
        import pyarrow.dataset as ds

        if not self._seen:
            return
        # lines of text are JSON here, too
        format = {"parquet": "parquet", "csv": "csv"}.get(self._format, "json")
        try:
            rows = ds.dataset(str(self._folder), format=format).count_rows()
        except Exception as error:
            self.sight.complain(f"pyarrow.dataset: {type(error).__name__}: {error}")
            return
        if rows < self._rows_before:
            self.sight.complain(f"pyarrow.dataset counts {rows} rows, it was {self._rows_before} before")
        self._rows_before = rows


def whole_key(row: dict[str, Any]) -> RecordKey:
    """The key of a record. Raises ValueError if a part of it is missing, or the checksum is wrong."""
    missing = [name for name in _FIELDS if row.get(name) is None and name != "body"]
    if missing:
        raise ValueError(f"a record without {missing}: {row}")
    key = RecordKey(row["run"], int(row["part"]), int(row["seq"]))
    # if `bucket` is in the folder's name, the checker compares it at the end
    if "bucket" in row and checksum({**row, "part": key.part, "seq": key.seq}) != int(row["crc"]):
        raise ValueError(f"a torn record: {row}")
    return key


@dataclass(slots=True)
class ReaderProcess:
    """An independent reader in a separate process."""

    process: subprocess.Popen[bytes]

    def finish(self) -> Sight:
        """End the reader, and return what it saw."""
        out, _ = self.process.communicate(timeout=_FINISH_S)
        return Sight(**msgspec.json.decode(out)) if out else Sight(wrong=[f"the reader ended with {self.process.returncode}"])


def start_reader(folder: Path, format: str, *, records: bool) -> ReaderProcess:
    """Start a reader of a folder, which need not exist yet."""
    return start_reader_program(__name__, str(folder), format, *(["records"] if records else []))


def start_reader_program(module: str, *arguments: str) -> ReaderProcess:
    """Start `python -m MODULE ARGUMENTS`, which reads until its standard input closes, and then prints a Sight."""
    command = [sys.executable, "-m", module, *arguments]
    return ReaderProcess(subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True))


def told_to_end(within_s: float) -> bool:
    """Wait up to `within_s` seconds for the end of the standard input; returns whether it has ended."""
    return bool(select.select([sys.stdin], [], [], within_s)[0])


def main() -> None:
    """See the module."""
    reader = ForeignReader(Path(sys.argv[1]), sys.argv[2], records="records" in sys.argv[3:])
    while not told_to_end(_POLL_S):
        reader.read_visible()
    reader.sight.looks += -reader.sight.looks % _DATASET_EVERY  # the last reading is a complete one
    reader.sight.looks -= 1
    reader.read_visible()
    os.write(1, msgspec.json.encode(asdict(reader.sight)))


if __name__ == "__main__":
    main()
