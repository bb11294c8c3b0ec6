"""Verification of a table: compares the decisions with the records, the log, and every file that is still in the table."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from itertools import chain
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

from scribengin.connectors.contract import NEXT_RUN, Published, Unaccounted
from scribengin.connectors.delta.commits import APPLICATION
from scribengin.connectors.delta.table_files import files_of

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

    import deltalake

    from scribengin.connectors.contract import Decided
    from scribengin.connectors.delta.commits import TableCommits
    from scribengin.connectors.delta.places import TablePlace, TableWriter
    from scribengin.connectors.delta.table_files import HeldFile


def audit_table(
    commits: TableCommits,
    lineage: TableWriter,
    lineages: Sequence[TableWriter],
    mode: str,
    decided: Iterable[Decided],
    since: int | None = None,
) -> Iterator[Published]:
    """Verify the Batches of a lineage, and the sum of the table's rows.

    The rows of a file in the table are counted in the file, and its checksum is compared. A file that a compaction replaced counts as
    written: the sum over the table shows whether its rows exist. Rows that are replaced by key are not assigned to Batches.

    Args:
        commits: The commits to the table.
        lineage: The lineage to verify.
        lineages: All lineages whose rows are counted.
        mode: The sink's `mode`.
        decided: The decisions, in order.
        since: Records of Batches below this number are compared only with their files; None: the number of the first of `decided`.

    Returns:
        A Published per Batch, in order; then, with `mode: append`, one with number -1 if the table contains more or fewer rows than all
            Batches wrote.
    """
    look = _Look(commits, commits.place.open(), lineage, mode)
    records = records_of(lineage)
    record = next(records, None)
    decided = iter(decided)
    first = next(decided, None)
    since = first.batch.number if since is None and first is not None else since
    while since is not None and record is not None and record[0] < since:
        yield look.compare(*record)
        record = next(records, None)
    for each in chain([] if first is None else [first], decided):
        number = each.batch.number
        while record is not None and record[0] < number:
            yield _undecided(*record)
            record = next(records, None)
        if record is None or record[0] != number:
            yield Published(number, 0, (f"batch {number} is decided, but not published; {NEXT_RUN} it",))
            continue
        yield look.compare(*record, each)
        record = next(records, None)
    while record is not None:
        yield _undecided(*record)
        record = next(records, None)
    if mode == "append" and (wrong := look.sum_up(lineages)):
        yield Published(-1, 0, (wrong,))


def rows_written(lineage: TableWriter) -> int:
    """The number of rows of all Batches of a lineage, by its records."""
    high, summary = lineage.commits.summary()
    rows: int = (summary["rows"] if summary else 0) + sum(record["rows"] for _, record in records_of(lineage, high + 1))
    return rows


def written_by_others(lineages: Iterable[TableWriter], known: Collection[str]) -> list[Unaccounted]:
    """The rows of lineages that are not `known`, by their records."""
    others = [(each, rows_written(each)) for each in lineages if each.path.name not in known]
    return [Unaccounted(f"lineage {each.path.name}", rows) for each, rows in others if rows]


def records_of(lineage: TableWriter, number: int = 0) -> Iterator[tuple[int, Mapping[str, Any]]]:
    """(number, record) of a lineage's Batches, from `number` on."""
    return ((each, record) for each, record in lineage.commits.since(number) if "files" in record)


def first_of(commits: TableCommits, lineages: Sequence[TableWriter]) -> TableWriter | None:
    """The lineage, among these, that claimed the table first."""
    return min((each for each in lineages if commits.generation(each)), key=commits.generation, default=None)


def _undecided(number: int, record: Mapping[str, Any]) -> Published:
    return Published(number, record["rows"], (f"batch {number} is published, but there is no decision for it",))


@dataclass(slots=True)
class _Look:
    commits: TableCommits
    table: deltalake.DeltaTable | None
    lineage: TableWriter
    mode: str
    held: dict[str, HeldFile] = field(init=False)
    waiting: int = 0
    """rows that are recorded, but not yet in the log"""
    told: bool = False
    """True if a missing or damaged row is already reported for a Batch"""
    taken: dict[str, str] | None = None
    """file → the operation that removed its rows from the table; read when it is first needed"""

    def __post_init__(self) -> None:
        self.held = {} if self.table is None else {each.path: each for each in files_of(self.table)}

    def compare(self, number: int, record: Mapping[str, Any], decided: Decided | None = None) -> Published:
        wrong = []
        if decided is not None:
            expected = {segment["name"]: segment for receipt in decided.receipts for segment in receipt.segments}
            if record["hash"] != decided.input_hash or expected != {file["name"]: file for file in record["files"]}:
                wrong.append(f"batch {number} was published differently from its decision")
        if record["files"] and not self._is_in(number):
            self.waiting += record["rows"]
            wrong.append(f"batch {number} is decided, but missing in the table's log; {NEXT_RUN} it")
            return Published(number, 0, tuple(wrong))
        rows = record["rows"]
        for file in record["files"] if self.mode != "upsert" else ():
            lost, why = self._check_file(file)
            rows -= lost
            wrong += [f"batch {number}: {each}" for each in why]
        return Published(number, rows, tuple(wrong), counted=self.mode != "upsert")

    def sum_up(self, lineages: Sequence[TableWriter]) -> str:
        """The error in the sum of all rows; empty if there is none, or if it is already reported for a Batch."""
        first = first_of(self.commits, lineages)
        ours = sum(rows_written(each) for each in lineages) - self.waiting + (self.commits.rows_before(first) if first else 0)
        rows = sum(each.rows or 0 for each in self.held.values())
        if rows > ours:
            return f"{rows - ours} rows in {self.commits.place} belong to no batch"
        if rows < ours and not self.told and len(lineages) == 1:
            return f"{ours - rows} rows are missing in {self.commits.place}: expected {ours}, found {rows}"
        return ""

    def _is_in(self, number: int) -> bool:
        if self.table is not None and self.commits.holds(self.table, self.lineage, number):
            return True
        # with `upsert` a Batch that changes nothing leaves no commit
        return self.mode == "upsert" and self.lineage.read_mark() >= number

    def _check_file(self, file: Mapping[str, Any]) -> tuple[int, list[str]]:
        """(number of lost rows, error texts) for a file of a record."""
        name, rows = file["name"], file["rows"]
        if name in self.held:
            found, wrong = self.commits.place.read_again(file)
            self.told = self.told or bool(wrong)
            return rows - found, wrong
        by = self._taken_by(name)
        if by is None:
            return 0, []
        self.told = True
        return rows, [f"{name} ({rows} rows) was removed from the table by {by}"]

    def _taken_by(self, name: str) -> str | None:
        if self.taken is None:
            self.taken = _taken(self.commits.place, own=self.mode == "overwrite")
        return self.taken.get(name)


def _taken(place: TablePlace, *, own: bool) -> dict[str, str]:
    """File → the operation that removed its rows from the table, as far back as the log goes. With `own`, commits of Scribengin itself are
    ignored."""
    found: dict[str, str] = {}
    for version, lines in place.log():
        actions = [json.loads(line) for line in lines.splitlines()]
        said: dict[str, Any] = next((action["commitInfo"] for action in actions if "commitInfo" in action), {})
        if own and APPLICATION in said:
            continue
        for action in actions:
            if "remove" in action and action["remove"].get("dataChange", True):
                found[unquote(action["remove"]["path"])] = f"{said.get('operation', 'another writer')} (version {version})"
            elif "add" in action:
                found.pop(unquote(action["add"]["path"]), None)
    return found
