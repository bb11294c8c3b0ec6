"""A table as a keyed store: rows are written `USING TIMESTAMP` of their version, and for each cell the highest timestamp wins.

For two cells with the same timestamp the greater value wins (Cassandra's documentation, "Dynamo": last write wins). A version depends only
on the decision, so equal versions have equal rows.
"""

from __future__ import annotations

import re
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Literal
from uuid import uuid4

import msgspec

from scribengin.connectors.cassandra.client import CassandraCluster, NoTable, quoted
from scribengin.connectors.cassandra.columns import cells_of, type_of, unlike
from scribengin.connectors.keyed.contract import WriteAnswer, WriterRecord
from scribengin.core.errors import Unreachable
from scribengin.core.remedies import start_over

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    import pyarrow as pa

    from scribengin.connectors.cassandra.columns import Cells
    from scribengin.connectors.keyed.contract import KeyedRows
    from scribengin.core.errors import ScribenginError
    from scribengin.core.types import Schema

_BATCH_BYTES = 30 << 10
"""maximum size of the values in a batch statement, in bytes; servers reject 50 KiB of rows by default"""
_CELL_BYTES = 16
"""minimum number of bytes that a server counts for a cell in addition to its value"""
_LEAST_TOKEN, _MOST_TOKEN = -(1 << 63), (1 << 63) - 1
_NAME = re.compile(r"\w+", re.ASCII)
_PLACES = "(place text PRIMARY KEY, tag text, body text)"


class CassandraStore:
    """A Cassandra table as a KeyedStore. `key` contains the columns of the primary key; if it is empty, the record's id is the key."""

    form: Literal["json", "columns"] = "columns"
    most_id_bytes = 8 << 10

    def __init__(self, node: str, options: Mapping[str, Any], key: tuple[str, ...]) -> None:
        self._cluster = CassandraCluster(node, options)
        self._key = key
        self._keyspace: str = options["keyspace"]
        self._name: str = options["table"]
        for option in ("keyspace", "table", "records"):
            if not _NAME.fullmatch(options[option]):
                said = f'`{option}` is "{options[option]}": a name of a keyspace or table consists of the letters A to Z, digits and _'
                raise self._error(said, f"correct `{option}`", "cassandra-name")
        self._table = quoted(self._keyspace, self._name)
        self._places = quoted(self._keyspace, options["records"])
        self._id: str = options["id_column"]
        self._version: str = options["version_column"]
        self._partition: int = options["partition"]
        self._most_rows: int = options["batch"]
        self._prepared: dict[tuple[str, ...], _Insert] = {}
        self._prepared_in: Any = None

    def __str__(self) -> str:
        return f"table {self._keyspace}.{self._name} at {self._cluster}"

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_prepared": {}, "_prepared_in": None}

    def read_record(self) -> WriterRecord | None:
        """Read the record with serial consistency, so that it is never stale."""
        self._cluster.keyspace(self._keyspace)
        asked = f"SELECT tag, body FROM {self._places} WHERE place = %s"
        try:
            found = self._cluster.ask(asked, (self._name,), serial=True).one()
        except NoTable:
            return None
        return None if found is None else WriterRecord(msgspec.json.decode(found[1]), found[0])

    def write_record(self, body: Mapping[str, Any], held: WriterRecord | None) -> bool:
        """Replace the record by a lightweight transaction of one row, on the condition that it has the tag that was read. If the answer is
        lost, the record is read again and compared with the new tag."""
        tag, text = uuid4().hex, msgspec.json.encode(body).decode()
        if held is None:
            self._make_table(f"CREATE TABLE IF NOT EXISTS {self._places} {_PLACES}")
            asked, values = f"INSERT INTO {self._places} (place, tag, body) VALUES (%s, %s, %s) IF NOT EXISTS", (self._name, tag, text)
        else:
            asked = f"UPDATE {self._places} SET tag = %s, body = %s WHERE place = %s IF tag = %s"
            values = (tag, text, self._name, held.tag)  # type: ignore[assignment]
        try:
            return bool(self._cluster.ask(asked, values).one()[0])
        except Unreachable:
            found = self.read_record()
            if found is None or found.tag == (held.tag if held else None):
                raise
            return bool(found.tag == tag)

    def make(self, schema: Schema) -> None:
        """Create the table with the flow's columns; an existing table is not changed. Raises SinkError if it does not match the columns, or
        could lose acknowledged rows."""
        space = self._cluster.keyspace(self._keyspace)
        if not space.durable_writes:
            said = f"keyspace {self._keyspace} has durable_writes = false: acknowledged rows are lost if a node fails"
            raise self._error(said, "set it to true", "cassandra-durability")
        if self._held_table() is None:
            columns = [f"{quoted(field.name)} {type_of(field.type)}" for field in schema.fields]
            if self._key:
                first, rest = self._key[: self._partition], self._key[self._partition :]
                primary = ", ".join([f"({', '.join(map(quoted, first))})", *map(quoted, rest)])
            else:
                primary = quoted(self._id)
                columns = [f"{quoted(self._id)} text", *columns]
            if not self._key or not set(schema.names) - set(self._key):
                columns.append(f"{quoted(self._version)} bigint")
            self._make_table(f"CREATE TABLE IF NOT EXISTS {self._table} ({', '.join(columns)}, PRIMARY KEY ({primary}))")
        if wrong := self.unlike(schema):
            raise self._error("; ".join(wrong), "correct the table or the flow", "cassandra-table")

    def unlike(self, schema: Schema) -> list[str]:
        """Why the existing table does not accept these columns, one sentence per reason."""
        own = [name for name in (self._version, *([] if self._key else [self._id])) if name in schema]
        found = [
            f'the flow has a column "{name}", which the sink writes itself: set another name for the column of the sink by its option'
            for name in own
        ]
        table = self._held_table()
        if table is None:
            return found
        held = {name: str(column.cql_type) for name, column in table.columns.items()}
        if "counter" in held.values():
            why = "a row that is sent again would be counted twice, and counters do not support the lightweight transaction (IF)"
            return [*found, f"it is a table of counters: {why} that would prevent it; write rows, and sum them on reading"]
        keys = [column.name for column in table.primary_key]
        if self._key and set(keys) != set(self._key):
            found.append(f"its primary key is ({', '.join(keys)}); expected ({', '.join(self._key)}), by `key` of the flow")
        if not self._key and keys != [self._id]:
            found.append(
                f"its primary key is ({', '.join(keys)}); mode: append needs the text column ({self._id}) as primary key; or write "
                "mode: upsert"
            )
        if not self._key and held.get(self._version) != "bigint":
            found.append(f'the table has no column "{self._version}" (bigint), which mode: append needs to count the rows of a Batch')
        return found + unlike(schema, held)

    def is_there(self) -> bool:
        """True if the table exists, according to the current schema of the cluster."""
        return self._held_table() is not None

    def is_empty(self) -> bool:
        """True if the table has no row; reads at most one."""
        table = self._held_table()
        if table is None:
            return True
        asked = f"SELECT {quoted(table.partition_key[0].name)} FROM {self._table} LIMIT 1"
        return self._cluster.ask(asked).one() is None

    def send(self, rows: KeyedRows) -> WriteAnswer:
        """Write the rows in unlogged batches, one replica set per batch, with the rows of a partition together. The rows of a rejected
        batch are sent one by one."""
        insert = self._insert(rows.columns)
        bound, wrong = insert.bound(rows, self._id if not self._key else None)
        refused = [(index, "refused", message) for index, message in sorted(wrong.items())]
        again: list[int] = []
        why = ""
        parts = list(self._parts([index for index in range(len(rows)) if index not in wrong], bound))
        while parts:
            answers = self._cluster.all_of([insert.together([bound[index] for index in part]) for part in parts])
            alone: list[list[int]] = []
            for part, error in zip(parts, answers, strict=True):
                if error is None:
                    continue
                verdict, reason, message = self._cluster.judge(error)
                if verdict == "again":
                    again += part
                    why = message
                elif len(part) > 1:
                    alone += [[index] for index in part]
                else:
                    refused.append((part[0], reason, f"{self._keyspace}.{self._name} rejected the row: {message}"))
            parts = alone
        return WriteAnswer(sorted(refused), sorted(again), why=why)

    def versions(self) -> Iterator[Sequence[int]]:
        """The versions from the version column if there is one; else from the write time of any cell, which is 0 for a row with only its
        key. The table is read by token ranges."""
        table = self._held_table()
        if table is None:
            return
        if self._version in table.columns:
            asked = [quoted(self._version)]
        else:
            keys = {column.name for column in table.primary_key}
            single = [column for name, column in table.columns.items() if name not in keys and not _is_many(str(column.cql_type))]
            asked = [f"WRITETIME({quoted(column.name)})" for column in single] or [quoted(table.partition_key[0].name)]
            if not single:
                for some in self._ranges(table, asked[0]):
                    yield [0] * len(some)
                return
        for some in self._ranges(table, ", ".join(asked)):
            yield [max((time for time in row if time is not None), default=0) for row in some]

    def clear(self) -> int:
        """Count the rows and truncate the table, which leaves no tombstones."""
        rows = sum(map(len, self.versions()))
        if self._held_table() is not None:
            self._cluster.ask(f"TRUNCATE {self._table}")
        return rows

    def close(self) -> None:
        """Close the connections."""
        self._prepared, self._prepared_in = {}, None
        self._cluster.close()

    # --- pieces ---

    def _held_table(self) -> Any:
        """The current metadata of the table; None if it does not exist."""
        return self._cluster.table(self._keyspace, self._name)

    def _make_table(self, statement: str) -> None:
        self._cluster.keyspace(self._keyspace)
        self._cluster.ask(statement)

    def _ranges(self, table: Any, asked: str) -> Iterator[list[tuple[Any, ...]]]:
        token = f"token({', '.join(quoted(column.name) for column in table.partition_key)})"
        ring = [each.value for each in self._cluster.metadata.token_map.ring]
        bounds = sorted({_LEAST_TOKEN, _MOST_TOKEN, *ring})
        query = self._cluster.prepare(f"SELECT {asked} FROM {self._table} WHERE {token} > ? AND {token} <= ?")
        for first, last in pairwise(bounds):
            yield from self._cluster.pages(query, (first, last))

    def _insert(self, columns: pa.RecordBatch) -> _Insert:
        names = tuple(columns.schema.names)
        if self._prepared_in is not (session := self._cluster.session):  # another session does not know the prepared statements
            self._prepared, self._prepared_in = {}, session
        insert = self._prepared.get(names)
        if insert is None:
            table = self._held_table()
            if table is None:
                raise self._error(f"{self} does not exist any more", f"restore it, or {start_over()}", "cassandra-table")
            held = {name: str(column.cql_type) for name, column in table.columns.items()}
            own = [name for name in (*([] if self._key else [self._id]), self._version) if name in held]
            listed = ", ".join(map(quoted, (*own, *names)))
            marks = ", ".join("?" * (len(own) + len(names)))
            prepared = self._cluster.prepare(f"INSERT INTO {self._table} ({listed}) VALUES ({marks}) USING TIMESTAMP ?")
            self._prepared[names] = insert = _Insert(prepared, held, has_version=self._version in held)
        return insert

    def _parts(self, indexes: Iterable[int], bound: Sequence[Any]) -> Iterator[list[int]]:
        """Groups of rows to send together: for the same replicas, with the rows of a partition adjacent, and within the server's limits."""
        partitions: dict[bytes, list[int]] = {}
        for index in indexes:
            partitions.setdefault(bound[index].routing_key, []).append(index)
        metadata = self._cluster.metadata
        alone = len(metadata.all_hosts()) == 1
        replicas: dict[Any, list[int]] = {}
        for key, part in partitions.items():
            held = () if alone else metadata.get_replicas(self._keyspace, key)
            replicas.setdefault(held[0] if held else None, []).extend(part)
        for together in replicas.values():
            part, size = [], 0
            for index in together:
                more = sum(len(cell) + _CELL_BYTES for cell in bound[index].values if cell is not None)
                if part and (len(part) >= self._most_rows or size + more > _BATCH_BYTES):
                    yield part
                    part, size = [], 0
                part.append(index)
                size += more
            if part:
                yield part

    def _error(self, said: str, remedy: str, code: str) -> ScribenginError:
        return self._cluster.error(said, remedy, code)


class _Insert:
    """A prepared INSERT statement, and the conversion of rows to its values."""

    def __init__(self, prepared: Any, held: Mapping[str, str], *, has_version: bool) -> None:
        self._prepared = prepared
        self._held = held
        self._has_version = has_version
        self._forms = {column.name: column.type for column in prepared.column_metadata}

    def bound(self, rows: KeyedRows, id_column: str | None) -> tuple[list[Any], dict[int, str]]:
        """Bind the statement to each row. Returns the bound statements, and index → error for rows that cannot be sent."""
        from cassandra.query import BoundStatement

        times = [version.to_bytes(8, "big") for version in range(rows.version, rows.version + len(rows))]
        columns: list[Cells] = []
        wrong: dict[int, str] = {}
        if id_column is not None:
            columns.append([id_.encode() for id_ in rows.ids])
        if self._has_version:
            columns.append(list(times))
        for name, column in zip(rows.columns.schema.names, rows.columns.columns, strict=True):
            form, protocol = self._forms[name], self._prepared.protocol_version

            def serialize(value: Any, form: Any = form, protocol: int = protocol) -> bytes:
                data: bytes = form.serialize(value, protocol)
                return data

            cells, bad = cells_of(column, self._held[name], serialize)
            columns.append(cells)
            wrong |= {index: f'column "{name}": {message}' for index, message in bad.items()}
        columns.append(list(times))
        bound = []
        for values in zip(*columns, strict=True):
            statement = BoundStatement(self._prepared)
            statement.values = list(values)
            bound.append(statement)
        return bound, wrong

    def together(self, statements: Sequence[Any]) -> Any:
        """One statement that writes all rows: a batch statement if there are several."""
        from cassandra.query import BatchStatement, BatchType

        if len(statements) == 1:
            return statements[0]
        batch = BatchStatement(BatchType.UNLOGGED)
        batch.is_idempotent = True
        batch.add_all(statements, [None] * len(statements))
        return batch


def _is_many(cql: str) -> bool:
    """True for a collection, which is stored as several cells, or none, so that its write time cannot be read."""
    return cql.startswith(("list<", "set<", "map<"))
