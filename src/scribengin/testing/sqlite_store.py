"""A keyed store in an SQLite file: the reference for the conformance suite, and fast enough for hundreds of killed drivers."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import msgspec

from scribengin.connectors.keyed.contract import WriteAnswer, WriterRecord

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

    from scribengin.connectors.keyed.contract import KeyedRows
    from scribengin.core.types import Schema

_RECORD = "CREATE TABLE IF NOT EXISTS held (id INTEGER PRIMARY KEY CHECK (id = 0), revision INTEGER NOT NULL, body TEXT NOT NULL)"
_DOCUMENTS = "CREATE TABLE IF NOT EXISTS documents (id TEXT PRIMARY KEY, version INTEGER NOT NULL, doc BLOB NOT NULL)"
_PUT = """
INSERT INTO documents VALUES (?, ?, ?)
ON CONFLICT (id) DO UPDATE SET version = excluded.version, doc = excluded.doc WHERE excluded.version > version
"""
_NEWEST = "SELECT max(version) FROM documents WHERE id IN (SELECT value FROM json_each(?))"
_WAIT_S = 30.0
_BUSY: dict[Path, frozenset[str]] = {}
"""file → the ids whose rows it refuses for now, in this process"""


@dataclass(slots=True)
class SqliteStore:
    """A KeyedStore in an SQLite file. Documents that contain `refuses` are refused; each request is a transaction."""

    path: Path
    refuses: bytes = b""
    form: Literal["json", "columns"] = "json"
    most_id_bytes: int = 512

    def __str__(self) -> str:
        return f"documents in {self.path}"

    def read_record(self) -> WriterRecord | None:
        """Read the only row of the record table."""
        with closing(self._open()) as connection:
            found = connection.execute("SELECT revision, body FROM held").fetchone()
        return None if found is None else WriterRecord(msgspec.json.decode(found[1]), found[0])

    def write_record(self, body: Mapping[str, Any], held: WriterRecord | None) -> bool:
        """Replace the record if it still has the revision that was read."""
        text = msgspec.json.encode(body).decode()
        with closing(self._open()) as connection, connection:
            if held is None:
                done = connection.execute("INSERT OR IGNORE INTO held VALUES (0, 1, ?)", (text,))
            else:
                done = connection.execute("UPDATE held SET revision = revision + 1, body = ? WHERE revision = ?", (text, held.tag))
            return done.rowcount == 1

    def make(self, schema: Schema) -> None:  # noqa: ARG002 (the contract's)
        """Create a table with text columns."""
        with closing(self._open()) as connection:
            connection.execute(_DOCUMENTS)

    def is_there(self) -> bool:
        """True if the table exists."""
        with closing(self._open()) as connection:
            return connection.execute("SELECT 1 FROM sqlite_master WHERE name = 'documents'").fetchone() is not None

    def unlike(self, schema: Schema) -> list[str]:  # noqa: ARG002 (the contract's)
        """Returns no reasons: the table accepts all columns."""
        return []

    def is_empty(self) -> bool:
        """True if the table has no row; reads at most one."""
        return not any(self._all("SELECT 1 FROM documents LIMIT 1"))

    def send(self, rows: KeyedRows) -> WriteAnswer:
        """Write all rows in one transaction."""
        docs: list[bytes] = rows.columns.column(0).to_pylist()
        refused = [index for index, doc in enumerate(docs) if self.refuses and self.refuses in doc]
        busy = _BUSY.get(self.path, frozenset())
        again = [index for index, id_ in enumerate(rows.ids) if id_ in busy]
        kept = set(range(len(docs))).difference(refused, again)
        ids = msgspec.json.encode(rows.ids).decode()
        with closing(self._open()) as connection, connection:
            connection.executemany(_PUT, [(rows.ids[index], rows.version + index, docs[index]) for index in sorted(kept)])
            (above,) = connection.execute(_NEWEST, (ids,)).fetchone()
        return WriteAnswer([(index, "refused", f"holds {self.refuses!r}") for index in refused], again, above=above or 0)

    def versions(self) -> Iterator[Sequence[int]]:
        """All versions, in one sequence."""
        yield [version for (version,) in self._all("SELECT version FROM documents")]

    def clear(self) -> int:
        """Delete all rows; returns their number."""
        return len(self._all("DELETE FROM documents RETURNING id"))

    def close(self) -> None:
        """Does nothing: no connection stays open."""

    def be_busy(self, ids: Iterable[str]) -> None:
        """Refuse the rows with these ids for now, and no others, until the next call."""
        _BUSY[self.path] = frozenset(ids)

    def documents(self) -> list[dict[str, Any]]:
        """The documents that a reader finds, ordered by version, which is the order of the rows."""
        return [msgspec.json.decode(doc) for (doc,) in self._all("SELECT doc FROM documents ORDER BY version")]

    def drop(self) -> None:
        """Delete the table, as another program could."""
        with closing(self._open()) as connection:
            connection.execute("DROP TABLE documents")

    def _all(self, asked: str) -> list[tuple[Any, ...]]:
        """The rows of an answer; none if the table does not exist yet."""
        if not self.is_there():
            return []
        with closing(self._open()) as connection, connection:
            return connection.execute(asked).fetchall()

    def _open(self) -> sqlite3.Connection:
        connection = sqlite3.connect(self.path, timeout=_WAIT_S)
        connection.execute(_RECORD)
        return connection
