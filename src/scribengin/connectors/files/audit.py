"""Verification of a files sink: every committed file is complete and unchanged, there are no other files, and no decided Batch is
missing."""

from __future__ import annotations

import os
import zlib
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING, Any

from scribengin.connectors.contract import NEXT_RUN, Published
from scribengin.connectors.files.compaction_state import folder_of, is_rolled, outputs_of
from scribengin.connectors.files.sink_folders import INTERNAL, RESTORE, LineageFolder, missing_text
from scribengin.core.errors import StateError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from pathlib import Path

    from scribengin.connectors.contract import Decided


# Verification of a committed file: it is complete, unchanged, and has as many rows as were written.


_BLOCK = 1 << 20
_LINES = {".jsonl", ".txt"}


class NotAsWrittenError(Exception):
    """A file differs from its record."""


def blocks_as_written(file: Path, said: Mapping[str, Any]) -> Iterator[bytes]:
    """The bytes of a file. Raises NotAsWrittenError after the last block if they differ from the record `said`; OSError."""
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
    """Read a file again and compare it with its record.

    Args:
        file: The file.
        said: Its record.
        format: Empty if rows must not be counted. Otherwise they are counted if the format, by the file's name, allows it without decoding:
            the sink's current format may differ.

    Returns:
        (rows found, errors)
    """
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
    """The number of rows in the file; None if counting them requires decoding. For CSV also None unless it is known whether the file has a
    `header`."""
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
    """The number of records: of line ends outside quotes."""
    import pyarrow as pa

    rows, quoted, last = 0, False, b"\n"
    with pa.input_stream(str(file), compression="detect") as lines:
        while block := bytes(lines.read(_BLOCK)):
            for nth, part in enumerate(block.split(b'"')):
                quoted ^= nth > 0
                rows += 0 if quoted else part.count(b"\n")
            last = block[-1:]
    return max(0, rows + (last != b"\n") - header)


# Verification of the compactor's output: merged files are complete and have all rows of their segments.


class Rolled:
    """Verification of the merged files of one lineage. Each file is read once, when the first of its segments is checked."""

    def __init__(self, top: Path, lineage: LineageFolder, format: str) -> None:
        self._top = top
        self._lineage = lineage
        self._format = format
        self._seen = -1
        self._outputs: dict[str, tuple[Mapping[str, Any], list[str] | None]] = {}
        """name → the file's record, and its errors, None if it was not read yet"""
        self._inputs: dict[tuple[int, str], str] = {}
        self._removed: dict[str, int] = {}
        self._learn()

    @property
    def names(self) -> set[str]:
        """The names of all merged files, including those that were merged in the meantime."""
        self._learn()
        return set(self._outputs)

    def may_be_gone(self, number: int, name: str) -> bool:
        """True if the file of a Batch was deleted with its expired folder."""
        return number <= self._removed.get(folder_of(name), -1)

    def verify(self, number: int, file: Mapping[str, Any]) -> tuple[int, list[str]]:
        """(rows found, errors) for a hidden segment, or for the file that it was merged into."""
        if (number, file["staged"]) not in self._inputs:
            said = read_again(self._lineage.hidden_file(number, file), file, "")
            if said[0] or not said[1]:
                return said
            self._learn()  # it may have been merged while it was read
            if (number, file["staged"]) not in self._inputs:
                return said
        name = self._inputs[number, file["staged"]]
        output, wrong = self._outputs[name]
        if wrong is not None:  # already reported with the first of its segments
            return (0 if wrong else file["rows"]), []
        draft = self._lineage.path / output["draft"]
        if not (self._top / name).exists() and draft.exists():
            wrong = [f"{name} is merged, but not renamed yet; the next run of the folder's maintenance owner renames it"]
        elif not (self._top / name).exists() and self.may_be_gone(output["inputs"][-1][0], name):
            wrong = []
        else:
            _, wrong = read_again(self._top / name, output, self._format)
            rows = sum(rows for _, _, _, rows in output["inputs"])
            if rows != output["rows"]:
                wrong = [*wrong, f"{name} holds {output['rows']} rows; expected {rows}, the merged ones"]
        self._outputs[name] = (output, wrong)
        return (0 if wrong else file["rows"]), wrong

    def _learn(self) -> None:
        for number, turn in self._lineage.merges.since(self._seen + 1):
            self._seen = number
            for output in turn["outputs"]:
                self._outputs[output["name"]] = (output, None)
                self._inputs.update(((batch, staged), output["name"]) for batch, _, staged, _ in output["inputs"])
            for each in turn["removed"]:
                self._removed[each["folder"]] = max(each["through"], self._removed.get(each["folder"], -1))


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
    """Verify the Batches of a lineage, and search the folder for files that no commit record names.

    Rows are counted in the files, if the format allows it without decoding (JSON, text, Parquet); else those of the write receipts are
    used. Files of Batches that were released may be missing: all readers have acknowledged them.

    Args:
        path: The sink's folder.
        place: The folders of the lineage.
        format: The format of the files; empty if rows are not counted.
        decided: The decisions, in order.
        rolled: Verifies hidden and merged segments.
        others: The other lineages of the same place.
        since: Records of Batches below this number are compared only with their files, because the details of their decisions were pruned;
            None: the number of the first of `decided`.

    Returns:
        A Published per Batch, in order; then one with number -1 if there are files that no commit record names.
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
    """Raise StateError if a Batch must still be published to the folder, and one of its files is neither staged nor published."""
    place = LineageFolder(path / INTERNAL / decided.batch.lineage)
    missing = _missing(place, path, decided) if place.read_mark() < decided.batch.number else ""
    if missing:
        raise StateError(missing, remedy=RESTORE)


def _missing(place: LineageFolder, path: Path, decided: Decided) -> str:
    """The error for the first file of a Batch that is neither published nor staged; empty if there is none."""
    number = decided.batch.number
    record = {"files": [segment for receipt in decided.receipts for segment in receipt.segments]}
    for nth, (staged, final) in enumerate(place.files_of(number, record, path)):
        # in this order: a run may rename the file at the same time
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
        """The violation for a Batch without a commit record: the next run publishes it, or cannot."""
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
    """The names, relative to the sink's folder, of the files that look like a sink's."""
    try:
        entries = list(os.scandir(folder))
    except FileNotFoundError:
        return
    for entry in entries:
        if entry.name.startswith("part-"):
            yield under + entry.name
        elif "=" in entry.name and entry.is_dir():
            yield from _parts(folder / entry.name, f"{under}{entry.name}/")
