"""The single commit of a Batch to the table's log, with the number that identifies it and makes older writers fail.

The log stores the newest Batch as the version of the application `scribengin`: (generation, number + 1), the generation in the upper half.
Each lineage that claims the table has a generation above all earlier ones, which is committed with the claim. A later commit of an older
lineage then collides, because two writers of one application's version never both win. The client's own retries are off: after each
collision the table is read again, and it is checked again whether this Batch is in it, and whether it may still be added.
"""

from __future__ import annotations

import json
import random
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from scribengin.connectors.delta.by_time import CLOSED, closed_of
from scribengin.connectors.delta.client import client
from scribengin.connectors.delta.columns import missing, table_schema, unlike
from scribengin.connectors.delta.table_files import files_of, rows_of
from scribengin.connectors.files.retention import moment_text
from scribengin.connectors.files.sink_folders import INTERNAL
from scribengin.core.errors import FencedError, SinkError, StateError, Unreachable
from scribengin.core.records import seal, unseal
from scribengin.core.remedies import start_over
from scribengin.core.time_text import now_text
from scribengin.core.types import arrow_schema, parse_schema

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    import deltalake
    import pyarrow as pa

    from scribengin.core.types import Schema

    Opened = Callable[[Mapping[str, Any]], tuple[str, Any]]
    """a file of a record → its name for messages, and the source from which Arrow reads it"""
    from scribengin.connectors.delta.places import TablePlace, TableWriter


# Upsert: the newest row of each key in a Batch replaces the table's row with that key.


_PLACE, _VALID = "_scribengin_place", "_scribengin_valid"
_HELD, _COMING = "held", "coming"


def merge_rows(
    table: deltalake.DeltaTable,
    files: Sequence[Mapping[str, Any]],
    opened: Opened,
    schema: Schema,
    key: Sequence[str],
    version: str | None,
    properties: Any,
) -> None:
    """Merge the staged files into the table, in one commit; without a commit if nothing changes. All rows of the Batch are in memory at
    once; files of the table that contain one of the keys are rewritten as a stream.

    Args:
        table: The table.
        files: The entries of the files in the commit record.
        opened: Opens a file: returns its path and a source for Arrow.
        schema: The columns of the rows.
        key: The key columns.
        version: The column by which a row replaces only rows that are not newer; None: a row always replaces.
        properties: The properties of the commit.
    """
    rows = newest_rows(staged_rows(files, opened, schema), key, version)
    same = " AND ".join(f"{_HELD}.{quoted(name)} = {_COMING}.{quoted(name)}" for name in key)
    older = None
    if version is not None:
        held, coming = f"{_HELD}.{quoted(version)}", f"{_COMING}.{quoted(version)}"
        older = f"{held} IS NULL OR {held} <= {coming}"
    merger = table.merge(rows, same, source_alias=_COMING, target_alias=_HELD, commit_properties=properties)
    sets = {quoted(name): f"{_COMING}.{quoted(name)}" for name in schema.names}
    rest = {name: value for name, value in sets.items() if name not in {quoted(each) for each in key}}
    if rest:
        merger = merger.when_matched_update(rest, predicate=older)
    merger.when_not_matched_insert(sets).execute()


def staged_rows(files: Sequence[Mapping[str, Any]], opened: Opened, schema: Schema) -> pa.Table:
    """The rows of staged files in their original order.

    Args:
        files: The entries of the files in the commit record.
        opened: Opens a file: returns its path and a source for Arrow.
        schema: The columns of the rows.

    Raises:
        StateError: A file differs from its decision.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    form = arrow_schema(schema)
    parts = []
    for file in files:
        path, source = opened(file)
        try:
            found = pq.read_table(source, partitioning=None)
        except (OSError, pa.ArrowException) as error:
            raise StateError(
                f"{path} does not match its decision ({file['rows']} rows): {error}",
                remedy=f"restore it from a backup, or {start_over()}",
            ) from error
        if found.num_rows != file["rows"]:
            raise StateError(
                f"{path} has {found.num_rows} rows; expected {file['rows']}, by its decision",
                remedy=f"restore it from a backup, or {start_over()}",
            )
        parts.append(found.select(form.names).cast(form))
    return pa.concat_tables(parts)


def newest_rows(rows: pa.Table, key: Sequence[str], version: str | None) -> pa.Table:
    """The rows that are kept, one for each key: the one with the greatest version, and of equal ones the last.

    Args:
        rows: The rows.
        key: The key columns.
        version: The version column; None: the last row of each key is kept.
    """
    import numpy as np
    import pyarrow as pa
    import pyarrow.compute as pc

    place = pa.array(np.arange(rows.num_rows))
    order = place
    if version is not None:
        held = rows.column(version)  # a null version is older than any other
        names = (_VALID, version, _PLACE)
        order = pc.sort_indices(pa.table([held.is_valid(), held, place], names), [(name, "ascending") for name in names])
    ranked = rows.take(order).append_column(_PLACE, place)
    newest = ranked.select([*key, _PLACE]).group_by(list(key)).aggregate([(_PLACE, "max")]).column(f"{_PLACE}_max")
    return ranked.drop_columns([_PLACE]).take(newest)


def quoted(name: str) -> str:
    """A name quoted for the client's parser.

    >>> quoted('odd"one')
    '"odd""one"'
    """
    return '"' + name.replace('"', '""') + '"'


APPLICATION = "scribengin"
_HALF = 32
_TRIES = 50
"""maximum number of consecutive collisions with other commits; more of them mean more than a few concurrent writers"""
_MOST_WAIT_S = 2.0
_KIND, _FORMAT = "generation", 1


class TableCommits:
    """Commits to one table. Picklable while no table is open; used by one thread at a time."""

    def __init__(
        self, place: TablePlace, mode: str, key: Sequence[str], version: str | None, partition_by: Sequence[str], evolve: str
    ) -> None:
        self.place = place
        self._mode = mode
        self._key = tuple(key)
        self._version = version
        self._partition_by = tuple(partition_by)
        self._evolve = evolve
        self._table: deltalake.DeltaTable | None = None

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_table": None}

    # --- claims ---

    def claim(self, lineage: TableWriter, others: Sequence[TableWriter]) -> None:
        """Give the lineage a generation above all others, unless it has one, and commit it to the table."""
        name = _generation_file(lineage)
        held = self.place.read(name)
        table = self.place.open()
        if held is None:
            stored = 0 if table is None else self._stored(table) >> _HALF
            generation = max([stored, *(self.generation(other) for other in others)]) + 1
            rows_before = 0 if table is None else rows_of(table)
            self.place.put(name, seal(_KIND, _FORMAT, {"generation": generation, "rows_before": rows_before}))
        generation = self.generation(lineage)
        for tried in range(_TRIES):
            if table is None or self._stored(table) >> _HALF >= generation:
                return
            try:
                told = {"lineage": lineage.path.name, "claimed": now_text()}
                self._write(table, [], self._properties(generation << _HALF, told))
            except client().exceptions.CommitFailedError:
                _wait(tried)
            except (client().exceptions.DeltaError, OSError) as error:
                raise self.place.fault(error, "cannot be claimed") from error
            table = self.place.open()
        raise self._busy("the claim")

    def generation(self, lineage: TableWriter) -> int:
        """The generation of a lineage; 0 if it has not claimed the table."""
        return int(self._claimed(lineage).get("generation", 0))

    def rows_before(self, lineage: TableWriter) -> int:
        """The number of rows in the table when the lineage claimed it."""
        return int(self._claimed(lineage).get("rows_before", 0))

    def holds(self, table: deltalake.DeltaTable, lineage: TableWriter, number: int) -> bool:
        """True if the Batch is in the log of `table`."""
        return self._stored(table) >= self._number(lineage, number)

    # --- a Batch ---

    def commit(
        self, lineage: TableWriter, number: int, record: Mapping[str, Any], opened: Opened, check: Callable[[], None] = lambda: None
    ) -> None:
        """Commit the files of a record to the table, unless they are in it.

        Args:
            lineage: The lineage of the Batch.
            number: The number of the Batch.
            record: The commit record of the Batch.
            opened: Opens a staged file to be merged.
            check: Raises if a file to be committed does not exist.

        Raises:
            FencedError: A newer lineage has claimed the table.
            SinkError: The table does not accept the files.
            Unreachable: Other writers committed first, each time.
        """
        version = self._number(lineage, number)
        schema = parse_schema(next(file["schema"] for file in record["files"] if "schema" in file))
        told = {name: record[name] for name in ("flow", "query", "sink", "lineage", "number", "hash", "term", "rows")}
        closed_us: int = record.get("closed_us", 0)
        for tried in range(_TRIES):
            table = self._fresh(schema, lineage, number)
            stored = self._stored(table)
            if stored >> _HALF > version >> _HALF:
                raise FencedError(
                    f'sink "{self.place.node}" refuses batch {number} of lineage {lineage.path.name}: a newer one has claimed {self.place}',
                    remedy="another driver writes here, or the state folder was copied or restored; stop this driver",
                    node=self.place.node,
                )
            if stored >= version:
                return
            check()
            try:
                self._evolve_to(table, schema)
                if self._mode == "upsert":
                    merge_rows(table, record["files"], opened, schema, self._key, self._version, self._properties(version, told))
                else:
                    self._add(table, record["files"], self._properties(version, told, max(closed_us, closed_of(table) or 0)))
                self.place.committed(files=self._mode == "upsert")
            except client().exceptions.CommitFailedError:
                _wait(tried)
                continue
            except (client().exceptions.DeltaError, OSError) as error:
                again = self.place.open()  # the commit may have succeeded before the error
                if again is None or not self.holds(again, lineage, number):
                    raise self.place.fault(error, f"did not accept batch {number}") from error
            return
        raise self._busy(f"batch {number}")

    def empty(self) -> int:
        """Remove all rows from the table, and return their number. Older versions of the table keep the rows until `maintain` cleans them
        up."""
        table = self.place.open()
        if table is None:
            return 0
        rows = rows_of(table)
        try:
            table.delete()
            self.place.committed(files=False)
        except (client().exceptions.DeltaError, OSError) as error:
            raise self.place.fault(error, "cannot be emptied") from error
        return rows

    def closed_us(self) -> int | None:
        """The time up to which all folders of the table are closed, see `by_time.closed_of`. Raises SinkError if it cannot be read."""
        try:
            return closed_of(self.place.open())
        except (client().exceptions.DeltaError, OSError) as error:
            raise self.place.fault(error, "cannot be read") from error

    def reopen(self) -> None:
        """Mark all folders by time as open: after a reset their rows are written again."""
        table = self.place.open()
        if table is None or self.closed_us() is None:
            return
        library = client()
        properties = library.CommitProperties(max_commit_retries=0, app_transactions=[library.Transaction(CLOSED, 0)])
        try:
            self._write(table, [], properties)
            self.place.committed(files=False)
        except (library.exceptions.DeltaError, OSError) as error:
            raise self.place.fault(error, "cannot be emptied") from error

    def _fresh(self, schema: Schema, lineage: TableWriter, number: int) -> deltalake.DeltaTable:
        """The current table. If it does not exist, it is created for the first rows of a lineage. The table is kept open, so that parts of
        its log that were read already are not read again."""
        table = self._table
        if table is not None:
            try:
                table.update_incremental()
            except (client().exceptions.DeltaError, OSError):
                table = None  # it may have been created again: open it below
        table = table or self.place.open()
        if table is None:
            if _has_written(lineage, number):
                raise self._gone()
            table = self._make(schema)
        self._table = table
        return table

    def _make(self, schema: Schema) -> deltalake.DeltaTable:
        library = client()
        try:
            table: deltalake.DeltaTable = library.DeltaTable.create(
                self.place.uri,
                table_schema(schema, self._key if self._mode == "upsert" else ()),
                mode="ignore",
                partition_by=list(self._partition_by),
                storage_options=self.place.options,
            )
        except (library.exceptions.DeltaError, OSError) as error:
            raise self.place.fault(error, "cannot be made") from error
        self.place.made()
        return table

    def _evolve_to(self, table: deltalake.DeltaTable, schema: Schema) -> None:
        """Add the missing columns in a separate, empty commit, which does not affect other writers. Raises SinkError if the table was
        altered."""
        differing = unlike(schema, table, key=self._key, partition_by=self._partition_by, evolve=self._evolve, mode=self._mode)
        if differing:
            raise SinkError(
                f'sink "{self.place.node}": the table {self.place} was altered while the flow was running: {differing[0]}',
                remedy="revert the change, or reset the flow",
                code="delta-altered",
                node=self.place.node,
            )
        fields = missing(schema, table)
        if fields:
            table.alter.add_columns(fields, commit_properties=client().CommitProperties(max_commit_retries=0))
            table.update_incremental()

    def _add(self, table: deltalake.DeltaTable, files: Sequence[Mapping[str, Any]], properties: Any) -> None:
        transaction = client().transaction
        now_ms = time.time_ns() // 1_000_000
        actions: list[Any] = [
            transaction.AddAction(file["name"], file["bytes"], file["partition"], now_ms, data_change=True, stats=file["stats"])
            for file in files
        ]
        if self._mode == "overwrite":
            # these removals are valid only for the version that this commit follows: if another writer is faster, the commit fails, and the
            # files are read again
            replaced = [file["partition"] for file in files]
            actions += [
                transaction.RemoveAction(each.path, True, now_ms, each.bytes, each.partition)
                for each in files_of(table)
                if each.partition in replaced
            ]
        self._write(table, actions, properties)

    @staticmethod
    def _write(table: deltalake.DeltaTable, actions: list[Any], properties: Any) -> None:
        parted = list(table.metadata().partition_columns)
        table.create_write_transaction(actions, "append", table.schema(), parted, commit_properties=properties)

    @staticmethod
    def _properties(version: int, told: Mapping[str, Any], closed_us: int = 0) -> Any:
        """The properties of a commit. `closed_us`: the time up to which folders by time are closed from this commit on; 0: the commit does
        not change it."""
        library = client()
        # the only text of a commit that Spark's DESCRIBE HISTORY shows
        said = {"userMetadata": json.dumps({"closed_until": moment_text(closed_us)})} if closed_us > 0 else {}
        closed = [library.Transaction(CLOSED, closed_us)] if closed_us > 0 else []
        return library.CommitProperties(
            custom_metadata={APPLICATION: dict(told), **said},
            max_commit_retries=0,
            app_transactions=[library.Transaction(APPLICATION, version), *closed],
        )

    def _stored(self, table: deltalake.DeltaTable) -> int:
        """The version of the application that the table's log stores; may read the place."""
        try:
            return table.transaction_version(APPLICATION) or 0
        except (client().exceptions.DeltaError, OSError) as error:
            if self.place.open() is None:
                raise self._gone() from error
            raise self.place.fault(error, "cannot be read") from error

    def _number(self, lineage: TableWriter, number: int) -> int:
        generation = self.generation(lineage)
        if not generation:
            raise StateError(
                f"{self.place}/{_generation_file(lineage)} is missing: without it the commits of this lineage in the table are not known",
                remedy=f"restore the file, or {start_over(outputs=False)}",
            )
        return (generation << _HALF) + number + 1

    def _claimed(self, lineage: TableWriter) -> dict[str, Any]:
        name = _generation_file(lineage)
        data = self.place.read(name)
        return {} if data is None else unseal(data, _KIND, _FORMAT, Path(str(self.place), name))

    def _gone(self) -> SinkError:
        return SinkError(
            (
                f'sink "{self.place.node}": the table {self.place} is missing, although batches of this lineage were written to it: it has '
                "no log"
            ),
            remedy=f"restore it, with its log and its files; or {start_over()}",
            code="delta-gone",
            node=self.place.node,
        )

    def _busy(self, what: str) -> Unreachable:
        return Unreachable(
            f'sink "{self.place.node}": {what} was not committed to the table {self.place}: other writers committed first {_TRIES} times',
            remedy="reduce the number of writers to the table; a running flow retries automatically",
            code="delta-busy",
            node=self.place.node,
        )


def _generation_file(lineage: TableWriter) -> str:
    return f"{INTERNAL}/{lineage.path.name}/generation.json"


def _has_written(lineage: TableWriter, before: int) -> bool:
    """True if a Batch before this one had rows."""
    _, summary = lineage.commits.summary()
    return bool(summary and summary["rows"]) or any(number < before and record.get("files") for number, record in lineage.commits.since())


def _wait(tried: int) -> None:
    """Wait before a retry: random, and longer after each collision, so that writers do not collide again."""
    time.sleep(random.uniform(0.0, min(_MOST_WAIT_S, 0.01 * 2.0 ** min(tried, 10))))
