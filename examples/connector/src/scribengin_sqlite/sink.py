"""The sink: tasks stage rows in small databases of their own; one transaction takes those that were decided into the table.

shop.db                                     the rows, and in tables of ours: who writes here, and what was committed
shop.db.staged/<table>/<lineage>/<batch>/   what tasks have staged, a database each
"""

from __future__ import annotations

import json
import os
import sqlite3
import zlib
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from scribengin.connectors.contract import Published, Receipt
from scribengin.core import faults
from scribengin.core.errors import FencedError, Refused, StateError
from scribengin.core.storage import make_folder, names_in, remove_tree, sync_folder
from scribengin.formats.rows import batch_to_rows

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    import pyarrow as pa

    from scribengin.connectors.contract import BatchId, ConnectorContext, Decided
    from scribengin.core.types import Schema, Type
    from scribengin.formats.contract import Bad

_TABLES = """
CREATE TABLE IF NOT EXISTS _scribengin_claims (target TEXT, owner TEXT, lineage TEXT, sink TEXT);
CREATE TABLE IF NOT EXISTS _scribengin_commits (
    target TEXT, flow TEXT, lineage TEXT, number INTEGER, hash TEXT, term INTEGER, receipts TEXT, rows INTEGER, first INTEGER, last INTEGER,
    PRIMARY KEY (target, lineage, number));
"""


class SqliteSink:
    """One table. Executors get a pickled copy, from which they take streams."""

    exactly_once = True

    def __init__(self, place: ConnectorContext) -> None:
        self.node = place.node
        self._path = place.folder / Path(place.options["database"])
        self._table: str = place.options["table"]
        self._owner = ""

    def prepare(self, *, owner: str, lineage: str, adopt: bool = False) -> None:
        """Claim the table, or find it claimed by this lineage. Raises Refused where another's rows stand there, unless `adopt`."""
        make_folder(self._path.parent)
        mine = (owner, lineage, self.node)
        with self._transaction() as database:
            claims = self._claims(database)
            if not claims or claims[-1] != mine:
                if mine in claims:
                    raise self._foreign("a newer lineage has taken it over")
                if not adopt and (claims or self._rows(database)):
                    raise self._foreign("it holds rows that this lineage has not written")
                database.execute("INSERT INTO _scribengin_claims VALUES (?, ?, ?, ?)", (self._table, *mine))
        self._owner = owner

    def unlike(self, schema: Schema) -> list[str]:
        """What the table that is there does not take of the columns, a sentence each."""
        if not self._path.is_file():
            return []
        with closing(self._open()) as database:
            held = [name for (name,) in database.execute("SELECT name FROM pragma_table_info(?)", (self._table,))]
        return [f'the table has no column "{name}"' for name in schema.names if held and name not in held]

    def stream(self, batch: BatchId, unit: int, attempt: str, schema: Schema) -> SqliteSinkStream:
        """A stream for one unit."""
        return SqliteSinkStream(self.node, unit, self._staged(batch.lineage) / f"{batch.number:010d}" / f"{unit:05d}-{attempt}", schema)

    def publish(self, decided: Decided) -> None:
        """Rows and commit record in one transaction, or, where the record stands there already, nothing."""
        batch = decided.batch
        receipts = json.dumps([receipt.as_json() for receipt in decided.receipts], sort_keys=True)
        staged = self._staged(batch.lineage) / f"{batch.number:010d}"
        with self._transaction() as database:
            if not self._is_done(database, decided, receipts):
                last = self._last_row(database)
                for receipt in decided.receipts:
                    for segment in receipt.segments:
                        self._take(database, staged, segment)
                faults.reached("publish.record.before")
                database.execute(
                    "INSERT INTO _scribengin_commits VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
                    (
                        *(self._table, batch.flow, batch.lineage, batch.number, decided.input_hash, batch.term, receipts),
                        *(sum(receipt.rows for receipt in decided.receipts), last + 1, self._last_row(database)),
                    ),
                )
        faults.reached("publish.record.after")
        remove_tree(staged)

    def recover(self, decided: Decided | None, *, lineage: str, before: int) -> None:
        """Publish the newest decision, then delete what tasks of decided Batches left behind."""
        if decided is not None:
            self.publish(decided)
        for name in names_in(self._staged(lineage)):
            if name.isdigit() and int(name) < before:
                remove_tree(self._staged(lineage) / name)

    def audit(self, *, lineage: str, decided: Iterable[Decided]) -> Iterator[Published]:
        """Count the rows of every Batch again, then those that no Batch has written."""
        with closing(self._open()) as database:
            for each in decided:
                number = each.batch.number
                record = self._record(database, lineage, number)
                if record is None:
                    yield Published(number, 0, (f"batch {number} is decided, but not published; the next run publishes it",))
                    continue
                wrong = [] if record["hash"] == each.input_hash else [f"batch {number} was published otherwise than it was decided"]
                rows = self._rows(database, f"WHERE rowid BETWEEN {record['first']} AND {record['last']}")
                if rows != record["rows"]:
                    wrong.append(f"batch {number}: {record['rows']} rows were written to {self._table}, {rows} are there")
                yield Published(number, rows, tuple(wrong))
            (committed,) = database.execute(
                "SELECT coalesce(sum(last - first + 1), 0) FROM _scribengin_commits WHERE target = ?", (self._table,)
            ).fetchone()
            strange = self._rows(database) - committed
            if strange > 0:
                yield Published(-1, 0, (f"{strange} rows in {self._table} were written by no batch",))

    def clear(self, *, owner: str, flow: str, dry_run: bool = False) -> int:
        """Delete the rows that commit records name, the records and the claims; returns how many rows."""
        with self._transaction() as database:
            commits = database.execute("SELECT flow, first, last FROM _scribengin_commits WHERE target = ?", (self._table,)).fetchall()
            if any(claim[0] != owner for claim in self._claims(database)) or any(commit["flow"] != flow for commit in commits):
                raise self._foreign("others have written there too")
            ranges = [f"WHERE rowid BETWEEN {commit['first']} AND {commit['last']}" for commit in commits]
            written = sum(self._rows(database, rows) for rows in ranges)
            if dry_run:
                return written
            for rows in ranges if written else ():
                database.execute(f"DELETE FROM {_quoted(self._table)} {rows}")
            for table in ("_scribengin_commits", "_scribengin_claims"):
                database.execute(f"DELETE FROM {table} WHERE target = ?", (self._table,))
        remove_tree(self._staged(""))
        return written

    # --- inside a transaction ---

    def _is_done(self, database: sqlite3.Connection, decided: Decided, receipts: str) -> bool:
        """True where this very Batch is committed. Raises FencedError where another is, or another writes here now."""
        batch = decided.batch
        claims = self._claims(database)
        if not claims or claims[-1][:2] != (self._owner, batch.lineage):
            raise self._fenced(batch, "another lineage has claimed the table")
        record = self._record(database, batch.lineage, batch.number)
        if record is not None:
            if (record["hash"], record["receipts"]) != (decided.input_hash, receipts):
                raise self._fenced(batch, "it stands there already, decided otherwise")
            return True
        newest = database.execute(
            "SELECT number, term FROM _scribengin_commits WHERE target = ? AND lineage = ? ORDER BY number DESC LIMIT 1",
            (self._table, batch.lineage),
        ).fetchone()
        if newest is not None and (newest["number"] > batch.number or newest["term"] > batch.term):
            raise self._fenced(batch, f"batch {newest['number']} stands there already, under term {newest['term']}")
        return False

    def _take(self, database: sqlite3.Connection, staged: Path, segment: Any) -> None:
        """Insert the rows of one staged database, in their order."""
        path = staged / segment["staged"]
        if not path.is_file() or zlib.crc32(path.read_bytes()) != segment["crc"]:
            raise StateError(f"{path} is missing or torn, and a decision names it", remedy="restore it from a backup, or reset the flow")
        columns = [f"{_quoted(name)} {kind}" for name, kind in segment["columns"]]
        names = ", ".join(_quoted(name) for name, _ in segment["columns"])
        marks = ", ".join("?" for _ in columns)
        database.execute(f"CREATE TABLE IF NOT EXISTS {_quoted(self._table)} ({', '.join(columns)})")
        with closing(sqlite3.connect(f"{path.resolve().as_uri()}?mode=ro", uri=True)) as source:
            rows = source.execute("SELECT * FROM staged ORDER BY rowid")
            database.executemany(f"INSERT INTO {_quoted(self._table)} ({names}) VALUES ({marks})", rows)

    def _claims(self, database: sqlite3.Connection) -> list[tuple[str, str, str]]:
        found = database.execute("SELECT owner, lineage, sink FROM _scribengin_claims WHERE target = ? ORDER BY rowid", (self._table,))
        return [tuple(row) for row in found]

    def _record(self, database: sqlite3.Connection, lineage: str, number: int) -> sqlite3.Row | None:
        found: sqlite3.Row | None = database.execute(
            "SELECT * FROM _scribengin_commits WHERE target = ? AND lineage = ? AND number = ?", (self._table, lineage, number)
        ).fetchone()
        return found

    def _rows(self, database: sqlite3.Connection, where: str = "") -> int:
        return self._scalar(database, f"SELECT count(*) FROM {_quoted(self._table)} {where}")

    def _last_row(self, database: sqlite3.Connection) -> int:
        return self._scalar(database, f"SELECT coalesce(max(rowid), 0) FROM {_quoted(self._table)}")

    def _scalar(self, database: sqlite3.Connection, query: str) -> int:
        """0 where the table is not there yet."""
        there = database.execute("SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = ?", (self._table,)).fetchone()
        return int(database.execute(query).fetchone()[0]) if there else 0

    # --- the file ---

    def _open(self) -> sqlite3.Connection:
        database = sqlite3.connect(self._path, timeout=30, isolation_level=None)
        database.row_factory = sqlite3.Row
        database.execute("PRAGMA synchronous = FULL")
        database.executescript(_TABLES)
        return database

    @contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        """One that no other writer can be inside of; committed at the end, or rolled back by what is raised."""
        with closing(self._open()) as database:
            database.execute("BEGIN IMMEDIATE")
            try:
                yield database
            except BaseException:
                database.execute("ROLLBACK")
                raise
            database.execute("COMMIT")

    def _staged(self, lineage: str) -> Path:
        return self._path.with_name(f"{self._path.name}.staged") / self._table / lineage

    def _foreign(self, why: str) -> Refused:
        return Refused(
            f'sink "{self.node}": table {self._table} of {self._path}: {why}',
            remedy="begin anew: scribengin reset FLOW --outputs --yes; or add to what is there: run --append-new-lineage",
            code="output-foreign",
        )

    def _fenced(self, batch: BatchId, why: str) -> FencedError:
        return FencedError(
            f'sink "{self.node}" refuses batch {batch.number} of lineage {batch.lineage}: {why} ({self._path}, table {self._table})',
            remedy="another driver writes here, or the state folder was copied or restored; stop this one",
        )


class SqliteSinkStream:
    """One unit's rows, in a database of their own that no reader looks for. It is made at the first row."""

    wants_ids = False

    def __init__(self, sink: str, unit: int, path: Path, schema: Schema) -> None:
        self._sink = sink
        self._unit = unit
        self._path = path
        self._columns = [(field.name, _kind(field.type)) for field in schema.fields]
        self._rows = 0
        self._database: sqlite3.Connection | None = None

    def write(self, batch: pa.RecordBatch, ids: Sequence[str] | None = None) -> Sequence[Bad]:  # noqa: ARG002 (the contract's)
        """Stage the rows; a table takes them all."""
        if not batch.num_rows:
            return ()
        database = self._begun()
        marks = ", ".join("?" for _ in self._columns)
        values = ([_value(value) for value in row.values()] for row in batch_to_rows(batch))
        database.executemany(f"INSERT INTO staged VALUES ({marks})", values)
        self._rows += batch.num_rows
        faults.reached("stage.mid_write")
        return ()

    def close(self) -> Receipt:
        """Make the rows durable."""
        if self._database is None:
            return Receipt(self._sink, self._unit, 0, 0)
        self._database.execute("COMMIT")
        self._database.close()
        with self._path.open("rb") as file:
            os.fsync(file.fileno())
        sync_folder(self._path.parent)
        data = self._path.read_bytes()
        segment = {"staged": self._path.name, "rows": self._rows, "crc": zlib.crc32(data), "columns": [list(c) for c in self._columns]}
        return Receipt(self._sink, self._unit, self._rows, len(data), (segment,))

    def abort(self) -> None:
        """Remove what was staged."""
        with suppress(OSError, sqlite3.Error):
            if self._database is not None:
                self._database.close()
            self._path.unlink(missing_ok=True)
            self._path.parent.rmdir()

    def _begun(self) -> sqlite3.Connection:
        if self._database is None:
            make_folder(self._path.parent)
            self._database = sqlite3.connect(self._path, isolation_level=None)
            self._database.execute("PRAGMA journal_mode = OFF")
            self._database.execute(f"CREATE TABLE staged ({', '.join(f'{_quoted(name)} {kind}' for name, kind in self._columns)})")
            self._database.execute("BEGIN")
        return self._database


def _kind(type_: Type) -> str:
    match type_.name:
        case "BOOLEAN" | "TINYINT" | "SMALLINT" | "INT" | "BIGINT":
            return "INTEGER"
        case "FLOAT" | "DOUBLE":
            return "REAL"
        case "BINARY":
            return "BLOB"
    return "TEXT"


def _value(value: Any) -> Any:
    """What SQLite can hold: times as ISO 8601, decimals as texts, nested values as JSON."""
    match value:
        case None | int() | float() | str() | bytes():
            return value
        case list() | dict():
            return json.dumps(value, default=str)
    return value.isoformat() if hasattr(value, "isoformat") else str(value)


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'
