"""Reading a files sink again: every committed file whole and unchanged, nothing beside them, nothing decided left out."""

from __future__ import annotations

import os
import zlib
from itertools import chain
from typing import TYPE_CHECKING, Any

from scribengin.connectors.contract import Published

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from pathlib import Path

    from scribengin.connectors.contract import Decided
    from scribengin.core.numbered_log import NumberedLog

_BLOCK = 1 << 20


def audit_files(
    path: Path,
    commits: NumberedLog,
    format: str,
    decided: Iterable[Decided],
    *,
    staged: Path,
    others: Iterable[NumberedLog] = (),
    released: int = -1,
    since: int | None = None,
) -> Iterator[Published]:
    """A Published per decided Batch, in order; then one with number -1 where files stand there that no commit record names.

    Rows are counted in the files, where the format tells them without decoding (JSON, text, Parquet); else they are the receipts'.
    Records older than `since`, or else than the first of `decided`, are compared with their files alone: the decisions' details were
    pruned.
    `staged` is where files lie that a kill has left between a commit record and their renames; `others` are the commit records of
    other lineages of the same place. Files of Batches up to `released` may be gone: all who read them have acknowledged them.
    """
    named = {file["name"] for log in others for _, record in log.since() for file in record["files"]}
    records = commits.since()
    record = next(records, None)
    decided = iter(decided)
    first = next(decided, None)
    since = first.batch.number if since is None and first is not None else since
    while since is not None and record is not None and record[0] < since:
        yield _compare_files(path, staged, *record, format, named, released)
        record = next(records, None)
    for each in chain([] if first is None else [first], decided):
        number = each.batch.number
        while record is not None and record[0] < number:
            yield _undecided(*record, named)
            record = next(records, None)
        if record is None or record[0] != number:
            yield Published(number, 0, (f"batch {number} is decided, but not published; the next run of the flow publishes it",))
            continue
        yield _compare(path, staged, record[1], each, format, named, released)
        record = next(records, None)
    while record is not None:
        yield _undecided(*record, named)
        record = next(records, None)
    strange = sorted(name for name in _parts(path, "") if name not in named)
    if strange:
        yield Published(-1, 0, tuple(f"{path / name}: no batch has written it" for name in strange[:20]))


def _undecided(number: int, record: Mapping[str, Any], named: set[str]) -> Published:
    named.update(file["name"] for file in record["files"])
    return Published(number, record["rows"], (f"batch {number} is published, but no decision says so",))


def _compare(
    path: Path, staged: Path, record: Mapping[str, Any], decided: Decided, format: str, named: set[str], released: int
) -> Published:
    found = _compare_files(path, staged, decided.batch.number, record, format, named, released)
    expected = {segment["name"]: segment for receipt in decided.receipts for segment in receipt.segments}
    if record["hash"] != decided.input_hash or expected != {file["name"]: file for file in record["files"]}:
        otherwise = f"batch {decided.batch.number} was published otherwise than it was decided"
        return Published(found.number, found.rows, (otherwise, *found.violations))
    return found


def _compare_files(
    path: Path, staged: Path, number: int, record: Mapping[str, Any], format: str, named: set[str], released: int
) -> Published:
    violations = []
    rows = waiting = 0
    for file in record["files"]:
        named.add(file["name"])
        if not (path / file["name"]).exists() and (staged / f"{number:010d}" / file["staged"]).exists():
            waiting += 1
            continue
        if number <= released and not (path / file["name"]).exists():
            rows += file["rows"]
            continue
        found, wrong = _read(path / file["name"], file, format)
        rows += found
        violations += wrong
    if waiting:
        files = f"{waiting} of its {len(record['files'])} files"
        violations.append(f"batch {number} is committed, but {files} still wait for their names; the next run of the flow publishes them")
    return Published(number, rows, tuple(violations))


def _read(file: Path, said: Mapping[str, Any], format: str) -> tuple[int, list[str]]:
    """(rows found, what is wrong)"""
    crc = size = 0
    try:
        with file.open("rb") as opened:
            while block := opened.read(_BLOCK):
                crc = zlib.crc32(block, crc)
                size += len(block)
    except FileNotFoundError:
        return 0, [f"{file} is missing: {said['rows']} rows"]
    except OSError as error:
        return 0, [f"{file} cannot be read: {error.strerror}"]
    if size != said["bytes"]:
        return 0, [f"{file} has {size} bytes; {said['bytes']} were written ({said['rows']} rows)"]
    if crc != said["crc"]:
        return 0, [f"{file} was changed after it was written ({said['rows']} rows)"]
    rows = _count_rows(file, format)
    if rows is not None and rows != said["rows"]:
        return rows, [f"{file} holds {rows} rows; {said['rows']} were counted when it was written"]
    return said["rows"], []


def _count_rows(file: Path, format: str) -> int | None:
    """What the file itself says, where that needs no decoding."""
    if format == "parquet":
        import pyarrow.parquet as pq

        return int(pq.read_metadata(file).num_rows)
    if format in ("json", "text"):
        import pyarrow as pa

        with pa.input_stream(str(file), compression="detect") as lines:
            return sum(bytes(block).count(b"\n") for block in iter(lambda: lines.read(_BLOCK), b""))
    return None


def _parts(folder: Path, under: str) -> Iterator[str]:
    """Names, relative to the sink's folder, of the files that look like its own."""
    try:
        entries = list(os.scandir(folder))
    except FileNotFoundError:
        return
    for entry in entries:
        if entry.name.startswith("part-"):
            yield under + entry.name
        elif "=" in entry.name and entry.is_dir():
            yield from _parts(folder / entry.name, f"{under}{entry.name}/")
