"""Verification of a files sink: every committed file is complete and unchanged, there are no other files, and no decided Batch is
missing."""

from __future__ import annotations

import os
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING, Any

from scribengin.connectors.contract import NEXT_RUN, Published
from scribengin.connectors.files.reading_again import read_again
from scribengin.connectors.files.roll_state import is_rolled, outputs_of
from scribengin.connectors.files.sink_folders import INTERNAL, RESTORE, LineageFolder, missing_text
from scribengin.core.errors import StateError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from pathlib import Path

    from scribengin.connectors.contract import Decided
    from scribengin.connectors.files.roll_audit import Rolled


def audit_files(
    path: Path,
    place: LineageFolder,
    format: str,
    decided: Iterable[Decided],
    rolled: Rolled,
    *,
    others: Iterable[LineageFolder] = (),
    since: int | None = None,
) -> Iterator[Published]:
    """A Published per decided Batch, in order; then one with number -1 if there are files that no commit record names.

    Rows are counted in the files, if the format allows it without decoding (JSON, text, Parquet); else those of the write receipts are
    used. Records older than `since`, or else than the first of `decided`, are compared only with their files: the decisions' details were
    pruned. `rolled` reports hidden and merged segments. `others` are other lineages of the same place. Files of Batches that were released
    may be missing: all readers have acknowledged them.
    """
    named = {file["name"] for other in others for _, record in other.commits.since() for file in record["files"]}
    named |= {name for other in others for name in outputs_of(other)}
    released, _ = place.read_released()
    look = _Look(path, place, format, rolled, named, released)
    records = place.commits.since()
    record = next(records, None)
    decided = iter(decided)
    first = next(decided, None)
    since = first.batch.number if since is None and first is not None else since
    while since is not None and record is not None and record[0] < since:
        yield look.compare_files(*record)
        record = next(records, None)
    for each in chain([] if first is None else [first], decided):
        number = each.batch.number
        while record is not None and record[0] < number:
            yield _undecided(*record, named)
            record = next(records, None)
        if record is None or record[0] != number:
            yield Published(number, 0, (look.unpublished(each),))
            continue
        yield look.compare(record[1], each)
        record = next(records, None)
    while record is not None:
        yield _undecided(*record, named)
        record = next(records, None)
    found = sorted(_parts(path, ""))
    named |= rolled.names
    strange = [name for name in found if name not in named]
    if strange:
        yield Published(-1, 0, tuple(f"{path / name}: no batch wrote it" for name in strange[:20]))


def check_decided(path: Path, decided: Decided) -> None:
    """Raise StateError if the sink of that folder would find neither the final nor the staged files of a Batch that must be published."""
    place = LineageFolder(path / INTERNAL / decided.batch.lineage)
    missing = _missing(place, path, decided) if place.read_mark() < decided.batch.number else ""
    if missing:
        raise StateError(missing, remedy=RESTORE)


def _missing(place: LineageFolder, path: Path, decided: Decided) -> str:
    """The error for the first file of a Batch that is neither published nor staged; empty if there is none."""
    number = decided.batch.number
    record = {"files": [segment for receipt in decided.receipts for segment in receipt.segments]}
    for nth, (staged, final) in enumerate(place.files_of(number, record, path)):
        # in this order: a run may be renaming it
        there = staged.exists() or final.exists()
        if not there and not ("hidden" in record["files"][nth] and is_rolled(place, record, number, nth)):
            return missing_text(number, final, staged)
    return ""


def _undecided(number: int, record: Mapping[str, Any], named: set[str]) -> Published:
    named.update(file["name"] for file in record["files"])
    return Published(number, record["rows"], (f"batch {number} is published, but there is no decision for it",))


@dataclass(frozen=True, slots=True)
class _Look:
    path: Path
    place: LineageFolder
    format: str
    rolled: Rolled
    named: set[str]
    released: int

    def compare(self, record: Mapping[str, Any], decided: Decided) -> Published:
        found = self.compare_files(decided.batch.number, record)
        expected = {segment["name"]: segment for receipt in decided.receipts for segment in receipt.segments}
        if record["hash"] != decided.input_hash or expected != {file["name"]: file for file in record["files"]}:
            otherwise = f"batch {decided.batch.number} was published differently from its decision"
            return Published(found.number, found.rows, (otherwise, *found.violations))
        return found

    def unpublished(self, decided: Decided) -> str:
        """For a Batch without a commit record: whether the next run can publish it."""
        number = decided.batch.number
        missing = _missing(self.place, self.path, decided)
        return f"{missing}; {RESTORE}" if missing else f"batch {number} is decided, but not published; {NEXT_RUN} it"

    def compare_files(self, number: int, record: Mapping[str, Any]) -> Published:
        violations: list[str] = []
        rows = waiting = 0
        for (staged, final), file in zip(self.place.files_of(number, record, self.path), record["files"], strict=True):
            self.named.add(file["name"])
            if staged.exists() and not final.exists():
                waiting += 1
                continue
            if file.get("hidden"):
                found, wrong = self.rolled.verify(number, file)
            elif not final.exists() and (number <= self.released or self.rolled.may_be_gone(number, file["name"])):
                found, wrong = file["rows"], []
            else:
                found, wrong = read_again(final, file, self.format)
            rows += found
            violations += wrong
        if waiting:
            files = f"{waiting} of its {len(record['files'])} files"
            violations.append(f"batch {number} is committed, but {files} are not renamed yet; {NEXT_RUN} them")
        return Published(number, rows, tuple(violations))


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
