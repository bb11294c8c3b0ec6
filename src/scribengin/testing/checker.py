"""The record checker: compares an output with the expected records and finds lost, duplicated, reordered, changed and truncated ones.

It reads plain files and uses no state of Scribengin. All sinks use the same checker.
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
    """The result of a check. Each list contains the details for a report; all are empty if nothing is wrong."""

    lost: list[RecordKey] = field(default_factory=list)
    doubled: list[RecordKey] = field(default_factory=list)
    reordered: list[RecordKey] = field(default_factory=list)
    invented: list[RecordKey] = field(default_factory=list)
    torn: list[str] = field(default_factory=list)
    imbalance: list[str] = field(default_factory=list)

    def __bool__(self) -> bool:
        """True if anything is wrong."""
        return any(self.kinds())

    def kinds(self) -> dict[str, int]:
        """Kind of finding → number of findings; kinds without findings are left out."""
        counts = {name: len(getattr(self, name)) for name in self.__slots__}
        return {name: count for name, count in counts.items() if count}

    def __str__(self) -> str:
        parts = [f"{count} {name}: {getattr(self, name)[:_SHOWN]}" for name, count in self.kinds().items()]
        return "; ".join(parts) or "nothing lost, doubled, reordered, torn or invented"


@dataclass(frozen=True, slots=True)
class Found:
    """A row of an output. `group` identifies the part in which rows have an order: the folder of a file."""

    group: str
    row: Mapping[str, Any]


def check_records(
    expected: Iterable[RecordKey], found: Iterable[Found], *, ordered: bool = True, ledger_rows: int | None = None
) -> Findings:
    """Compare the rows of an output with the expected records.

    Args:
        expected: The keys of all records that the output must contain.
        found: The rows of the output, in the order in which a reader sees them.
        ordered: Whether the records of each part must be in order.
        ledger_rows: The number of rows according to the ledger; None if there is no ledger to compare.
    """
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
    """Compare two sets of rows as multisets: for aggregations and joins, whose result was computed from the same input by other means."""
    wanted, there = Counter(map(_hashable, expected)), Counter(map(_hashable, found))
    missing, surplus = wanted - there, there - wanted
    findings = Findings()
    findings.imbalance += [f"missing: {dict(row)} x {count}" for row, count in sorted(missing.items(), key=repr)]
    findings.imbalance += [f"too many: {dict(row)} x {count}" for row, count in sorted(surplus.items(), key=repr)]
    return findings


def read_output(folder: Path, format: str, *, torn: list[str] | None = None) -> Iterator[Found]:
    """Read every row of a files sink, ordered by (folder, Batch, task output, row), without the state of Scribengin.

    Args:
        folder: The folder of the sink.
        format: `parquet`, `csv`, `json` or `text`. The compression is detected from the file name.
        torn: Receives the error of each file that cannot be read completely; its readable rows are returned. None: such an error is raised.
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
    """The files that a recursive reader reads: no name in the relative path begins with `_` or `.`."""
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
    """Check the folder of a files sink; see `read_output` and `check_records` for the arguments.

    Args:
        folder: The folder of the sink.
        format: Its format; see `read_output`.
        expected: The keys of all records that the output must contain.
        ordered: Whether the records of each part must be in order.
        ledger_rows: The number of rows according to the ledger; None if there is no ledger to compare.
    """
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
    """The columns of a record; if it was written as text, they are in the column `line`."""
    return _fields(msgspec.json.decode(row["line"])) if set(row) == {"line"} else row


def _text(path: Path) -> str:
    import pyarrow as pa

    with pa.input_stream(str(path), compression="detect") as stream:
        data: pa.Buffer | bytes = stream.read()
    return bytes(data).decode()


def partition_values(group: str) -> dict[str, str | None]:
    """The partition values in a folder path such as `day=2026-01-01/country=DE`, as texts; None for the folder of null values."""
    values: dict[str, str | None] = {}
    for part in Path(group).parts:
        name, sign, value = part.partition("=")
        if sign:
            values[urllib.parse.unquote(name)] = None if value == _NULL else urllib.parse.unquote(value)
    return values


def _hashable(row: Mapping[str, Any]) -> tuple[tuple[str, Hashable], ...]:
    return tuple(sorted((name, repr(value) if isinstance(value, list | dict) else value) for name, value in row.items()))
