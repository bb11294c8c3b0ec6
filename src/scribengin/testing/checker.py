"""The record checker: is what stands in an output what went in, each record once, whole, in order?

It reads as a foreign reader does: plain files, no part of Scribengin's own state. One checker serves every sink.
"""

from __future__ import annotations

import csv
import io
import urllib.parse
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from scribengin.testing.records import RecordKey, checksum

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterable, Iterator, Mapping

    import pyarrow as pa

_NULL = "__HIVE_DEFAULT_PARTITION__"
_SHOWN = 5


@dataclass(slots=True)
class Findings:
    """What is wrong. Each list holds what to show a person; empty lists are good."""

    lost: list[RecordKey] = field(default_factory=list)
    doubled: list[RecordKey] = field(default_factory=list)
    reordered: list[RecordKey] = field(default_factory=list)
    invented: list[RecordKey] = field(default_factory=list)
    torn: list[str] = field(default_factory=list)
    imbalance: list[str] = field(default_factory=list)

    def __bool__(self) -> bool:
        """True where anything is wrong."""
        return any(self.kinds())

    def kinds(self) -> dict[str, int]:
        """Kind → how many, of those that occurred."""
        counts = {name: len(getattr(self, name)) for name in self.__slots__}
        return {name: count for name, count in counts.items() if count}

    def __str__(self) -> str:
        parts = [f"{count} {name}: {getattr(self, name)[:_SHOWN]}" for name, count in self.kinds().items()]
        return "; ".join(parts) or "nothing lost, doubled, reordered, torn or invented"


@dataclass(frozen=True, slots=True)
class Found:
    """A row of an output. `group` is the piece within which order counts: the folder of a file."""

    group: str
    row: Mapping[str, Any]


def check_records(
    expected: Iterable[RecordKey], found: Iterable[Found], *, ordered: bool = True, ledger_rows: int | None = None
) -> Findings:
    """Compare. `found` must come in the order in which the output is to be read; `ledger_rows` is what the ledger says is there."""
    findings = Findings()
    seen: Counter[RecordKey] = Counter()
    last: dict[tuple[str, str, int], int] = {}
    wanted = set(expected)
    total = 0
    for each in found:
        total += 1
        problem = _torn(each.row)
        if problem:
            findings.torn.append(problem)
            continue
        key = RecordKey(each.row["run"], int(each.row["part"]), int(each.row["seq"]))
        seen[key] += 1
        if key not in wanted:
            findings.invented.append(key)
        place = (each.group, key.run, key.part)
        if ordered and key.seq < last.get(place, -1):
            findings.reordered.append(key)
        last[place] = key.seq
    findings.lost = sorted(wanted - seen.keys())
    findings.doubled = sorted(key for key, count in seen.items() if count > 1)
    if ledger_rows is not None and ledger_rows != total:
        findings.imbalance.append(f"the ledger says {ledger_rows} rows, {total} are there")
    return findings


def compare_rows(expected: Iterable[Mapping[str, Any]], found: Iterable[Mapping[str, Any]]) -> Findings:
    """Compare as multisets: for aggregations and joins, against a computation of the same input by other means."""
    wanted, there = Counter(map(_hashable, expected)), Counter(map(_hashable, found))
    missing, surplus = wanted - there, there - wanted
    findings = Findings()
    findings.imbalance += [f"missing: {dict(row)} x {count}" for row, count in sorted(missing.items(), key=repr)]
    findings.imbalance += [f"too many: {dict(row)} x {count}" for row, count in sorted(surplus.items(), key=repr)]
    return findings


def read_output(folder: Path, format: str, *, torn: list[str] | None = None) -> Iterator[Found]:
    """Every row of a files sink, in the order (folder, batch, unit, row), as a reader that knows nothing of Scribengin finds them.

    A file that cannot be read whole gives what it has; why is added to `torn` (without it, raised). Compression goes by the suffix.
    """
    for path in sorted(visible_files(folder), key=lambda path: (path.parent, path.name)):
        group = str(path.parent.relative_to(folder))
        partition = partition_values(group)
        try:
            for row in _read_file(path, format):
                yield Found(group, {**row, **partition})
        except Exception as error:
            if torn is None:
                raise
            torn.append(f"{path.name}: {type(error).__name__}: {error}")


def visible_files(folder: Path) -> Iterator[Path]:
    """What a recursive reader takes: no name on the way begins with `_` or `.`."""
    if not folder.is_dir():
        return
    for path in sorted(folder.iterdir()):
        if path.name.startswith(("_", ".")):
            continue
        if path.is_dir():
            yield from visible_files(path)
        else:
            yield path


def check_output(
    folder: Path, format: str, expected: Iterable[RecordKey], *, ordered: bool = True, ledger_rows: int | None = None
) -> Findings:
    """`check_records` of a files sink's folder."""
    torn: list[str] = []
    findings = check_records(expected, read_output(folder, format, torn=torn), ordered=ordered, ledger_rows=ledger_rows)
    findings.torn += torn
    return findings


def _torn(row: Mapping[str, Any]) -> str:
    try:
        whole = int(row["crc"]) == checksum({**row, "part": int(row["part"]), "seq": int(row["seq"])})
    except (KeyError, TypeError, ValueError) as error:
        return f"{error!r} in {row}"
    return "" if whole else f"checksum of {row}"


def _read_file(path: Path, format: str) -> Iterator[dict[str, Any]]:
    match format:
        case "parquet":
            import pyarrow.parquet as pq

            yield from pq.read_table(path, partitioning=None).to_pylist()
        case "csv":
            yield from csv.DictReader(io.StringIO(_text(path), newline=""))
        case "json" | "text":
            text = _text(path)
            if text and not text.endswith("\n"):
                raise ValueError("the last line has no end")
            yield from (_fields(msgspec.json.decode(line)) for line in text.split("\n")[:-1])
        case _:
            raise ValueError(f"unknown format {format!r}")


def _fields(row: dict[str, Any]) -> dict[str, Any]:
    """A record that travelled as one text column is in `line`."""
    return _fields(msgspec.json.decode(row["line"])) if set(row) == {"line"} else row


def _text(path: Path) -> str:
    import pyarrow as pa

    with pa.input_stream(str(path), compression="detect") as stream:
        data: pa.Buffer | bytes = stream.read()
    return bytes(data).decode()


def partition_values(group: str) -> dict[str, str | None]:
    """What folders such as `day=2026-01-01/country=DE` say, as texts."""
    values: dict[str, str | None] = {}
    for part in Path(group).parts:
        name, sign, value = part.partition("=")
        if sign:
            values[urllib.parse.unquote(name)] = None if value == _NULL else urllib.parse.unquote(value)
    return values


def _hashable(row: Mapping[str, Any]) -> tuple[tuple[str, Hashable], ...]:
    return tuple(sorted((name, repr(value) if isinstance(value, list | dict) else value) for name, value in row.items()))
