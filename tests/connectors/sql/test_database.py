"""A database that joins the SQL layer from outside the package: SQLite, of examples/sql-database."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from functools import partial
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from scribengin.connectors.contract import BatchId, ConnectorContext, Decided, Published
from scribengin.core.errors import ScribenginError
from scribengin.core.types import parse_schema
from scribengin.testing import conformance_sql
from scribengin.testing.conformance import check_sink
from scribengin.testing.conformance_sql import check_database

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from scribengin.connectors.sql.sink import SqlSink

ROWS = [{"id": n, "name": None if n == 2 else f"name {n}"} for n in range(4)]


def make(folder: Path, table: str, **options: Any) -> SqlSink:
    from scribengin_sqlite_table import SINK, make_sink

    given = SINK.filled({"database": "kept.db", "table": table} | options)
    sink: Any = make_sink(ConnectorContext("kept", folder, given, flow="flow"))
    return sink  # type: ignore[no-any-return]


def read(folder: Path, table: str) -> Sequence[dict[str, Any]]:
    with closing(sqlite3.connect(folder / "kept.db")) as database:
        database.row_factory = sqlite3.Row
        if not database.execute("SELECT 1 FROM sqlite_master WHERE name = ?", (table,)).fetchone():
            return []
        quoted = table.replace('"', '""')
        return [dict(row) for row in database.execute(f'SELECT * FROM "{quoted}"')]


def test_it_keeps_what_the_layer_asks_of_a_database(tmp_path: Path) -> None:
    check_database(partial(make, tmp_path), partial(read, tmp_path))


WRONG: dict[str, tuple[Any, dict[str, Any], str]] = {
    "text_of_any_case": (
        conformance_sql._check_text_keys,
        {"type_of": lambda self, type_, *, in_key: "TEXT COLLATE NOCASE" if type_.name == "STRING" else "INTEGER"},
        "texts of a key compare by their bytes",
    ),
    "any_unique_index": (
        conformance_sql._check_other_indexes,
        {
            "replace": lambda self, target, rows, columns, version: (
                f"INSERT OR REPLACE INTO {self.quoted(*target.names)} ({', '.join(map(self.quoted, columns))}) "
                f"SELECT {', '.join(map(self.quoted, columns))} FROM ({rows})"
            )
        },
        "a row replaces that of its key, and none that is equal in another unique index",
    ),
    "rounded": (
        conformance_sql._check_types,
        {"type_of": lambda self, type_, *, in_key: "REAL" if type_.name in ("DECIMAL", "DOUBLE", "FLOAT") else "BLOB"},
        "a value that the database would change is refused: DECIMAL",
    ),
}
"""what is wrong → the check that finds it, the wrong methods, and what is said"""


@pytest.mark.parametrize("name", WRONG)
def test_a_database_that_is_wrong_is_told_how(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from scribengin_sqlite_table.database import SqliteDatabase

    check, methods, sentence = WRONG[name]
    check(partial(make, tmp_path), partial(read, tmp_path))
    (tmp_path / "kept.db").unlink()
    for method, wrong in methods.items():
        monkeypatch.setattr(SqliteDatabase, method, wrong)
    with pytest.raises(AssertionError, match=sentence):
        check(partial(make, tmp_path), partial(read, tmp_path))


@pytest.mark.parametrize("mode", ["upsert", "changes"])
def test_a_sink_that_replaces_rows_writes_each_of_them_once(mode: str, tmp_path: Path) -> None:
    """The suite counts rows: a journal has each one that was written, whatever stood there before."""
    with closing(sqlite3.connect(tmp_path / "kept.db")) as database:
        database.executescript("""
            CREATE TABLE kept (id INTEGER NOT NULL PRIMARY KEY, name TEXT);
            CREATE TABLE journal (id INTEGER, name TEXT);
            CREATE TRIGGER added AFTER INSERT ON kept BEGIN INSERT INTO journal VALUES (new.id, new.name); END;
            CREATE TRIGGER changed AFTER UPDATE ON kept BEGIN INSERT INTO journal VALUES (new.id, new.name); END;
        """)
    options: dict[str, Any] = {"mode": mode, "key": ("id",)} | ({"change": "op"} if mode == "changes" else {})
    said = {"op": "insert"} if mode == "changes" else {}
    schema = parse_schema("id BIGINT NOT NULL, name STRING" + (", op STRING" if said else ""))
    check_sink(
        lambda: make(tmp_path, "kept", **options),
        lambda: [row | said for row in read(tmp_path, "journal")],
        schema=schema,
        rows=[row | said for row in ROWS],
    )


def test_an_audit_does_not_say_that_it_has_counted_rows_that_it_did_not(tmp_path: Path) -> None:
    """Rows of SQLite do not tell their transaction: of these one is gone, and another writer's is there."""
    schema = parse_schema("id BIGINT NOT NULL, name STRING")
    sink = make(tmp_path, "kept")
    sink.prepare(owner="me", lineage="one")
    stream = sink.stream(BatchId("flow", "query", "one", 0, 1), 0, "attempt", schema)
    stream.write(pa.RecordBatch.from_pylist([{"id": 1, "name": "a"}, {"id": 2, "name": "b"}]))
    decided = Decided(BatchId("flow", "query", "one", 0, 1), "hash", (stream.close(),))
    sink.publish(decided)
    with closing(sqlite3.connect(tmp_path / "kept.db")) as database, database:
        database.execute("DELETE FROM kept")
    assert [*sink.audit(lineage="one", decided=[decided])] == [Published(0, 2, counted=False)]


def test_a_staging_table_that_cannot_be_made_is_said_without_a_guess_at_the_cause(tmp_path: Path) -> None:
    schema = parse_schema("id BIGINT, ID BIGINT")
    sink = make(tmp_path, "kept")
    sink.prepare(owner="me", lineage="one")
    stream = sink.stream(BatchId("flow", "query", "one", 0, 1), 0, "attempt", schema)
    with pytest.raises(ScribenginError, match=r"kept\.db cannot stage rows for kept: duplicate column name"):
        stream.write(pa.RecordBatch.from_pylist([{"id": 1, "ID": 2}]))


def test_the_name_of_a_staging_table_leaves_room_for_a_prefix_in_64(tmp_path: Path) -> None:
    """A Batch each millisecond for a thousand years, of ten million task outputs."""
    sink = make(tmp_path, "kept" * 50)
    stream = sink.stream(BatchId("flow", "query", "one", 10**14 - 1, 1), 10**7 - 1, "attempt", parse_schema("id BIGINT"))
    assert len(stream._name) == 52


def test_a_database_may_see_more_in_a_table_that_a_sink_must_not_write_to(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from scribengin_sqlite_table.database import SqliteDatabase

    monkeypatch.setattr(SqliteDatabase, "unlike", lambda self, session, target: [f"{target} is full"], raising=False)
    sink = make(tmp_path, "kept", mode="upsert", key=("id",))
    assert sink.unlike(parse_schema("id BIGINT")) == [], "there is no table yet"
    with closing(sqlite3.connect(tmp_path / "kept.db")) as database:
        database.execute("CREATE TABLE kept (id INTEGER PRIMARY KEY)")
    assert sink.unlike(parse_schema("id BIGINT")) == ["kept is full"]


def test_a_key_is_asked_for_where_the_table_does_not(tmp_path: Path) -> None:
    """A primary key of SQLite may be null, and such rows would stand beside each other."""
    with closing(sqlite3.connect(tmp_path / "kept.db")) as database:
        database.execute("CREATE TABLE kept (id TEXT PRIMARY KEY, name TEXT)")
    schema = parse_schema("id STRING, name STRING")
    sink = make(tmp_path, "kept", mode="upsert", key=("id",))
    sink.prepare(owner="me", lineage="one")
    assert sink.unlike(schema) == []
    stream = sink.stream(BatchId("flow", "query", "one", 0, 1), 0, "attempt", schema)
    (refused,) = stream.write(pa.RecordBatch.from_pylist([{"id": "a", "name": "x"}, {"id": None, "name": "y"}]))
    assert (refused.ordinal, "NOT NULL" in refused.message) == (1, True)
    assert stream.close().rows == 1
