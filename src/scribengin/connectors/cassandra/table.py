"""A table as a source: its columns as columns of a flow, and its rows between two tokens."""

from __future__ import annotations

import re
import time
from dataclasses import dataclass
from hashlib import blake2b
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import msgspec

from scribengin.connectors.cassandra.client import passes, quoted
from scribengin.core.errors import SourceMissing
from scribengin.core.problems import did_you_mean
from scribengin.core.types import Field, Schema, Type

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from scribengin.connectors.cassandra.client import CassandraCluster

Row = tuple[bytes | None, ...]
"""the token of the partition, then the cells of the columns that are read, in the encoding of the protocol"""

LEAST_TOKEN, MOST_TOKEN = -(1 << 63), (1 << 63) - 1
"""the range of tokens; no partition has the least one"""
_DIGEST_BYTES = 16
_TRIES_FOR_S = 60.0
_FIRST_WAIT_S, _LONGEST_WAIT_S = 0.1, 5.0
_SCALARS = {
    "boolean": "BOOLEAN",
    "tinyint": "TINYINT",
    "smallint": "SMALLINT",
    "int": "INT",
    "bigint": "BIGINT",
    "float": "FLOAT",
    "double": "DOUBLE",
    "text": "STRING",
    "ascii": "STRING",
}
_TYPES = _SCALARS | {"counter": "BIGINT", "blob": "BINARY", "date": "DATE", "timestamp": "TIMESTAMP"}
"""column type → flow type of a column that the flow does not declare; all other types are STRING, with parts as JSON"""
_INTEGERS = frozenset({"tinyint", "smallint", "int", "bigint", "varint", "counter"})
_READ_AS = {
    "BOOLEAN": frozenset({"boolean"}),
    **dict.fromkeys(("TINYINT", "SMALLINT", "INT", "BIGINT"), _INTEGERS),
    "FLOAT": frozenset({"float"}),
    "DOUBLE": frozenset({"float", "double"}),
    "DECIMAL": _INTEGERS | {"decimal"},
    "DATE": frozenset({"date"}),
    "TIMESTAMP": frozenset({"timestamp"}),
    "BINARY": frozenset({"blob"}),
}
"""flow type → column types that may be read as that type; a value that does not fit becomes a dead letter. STRING accepts all types"""
_LIST = re.compile(r"(?:list|set)<(\w+)>")
_MAP = re.compile(r"map<(\w+), (\w+)>")

_encode = msgspec.msgpack.Encoder().encode


@dataclass(frozen=True, slots=True)
class CassandraTable:
    """An existing table. `id` is the cluster's id, in hex; a recreated table has another one."""

    id: str
    keyspace: str
    name: str
    columns: Mapping[str, str]
    partition: tuple[str, ...]

    def __str__(self) -> str:
        return f"{self.keyspace}.{self.name}"


def describe(cluster: CassandraCluster, keyspace: str, name: str) -> CassandraTable:
    """Describe a table. Raises SourceError if it does not exist or its tokens have no order, Unreachable if the cluster does not answer.

    Args:
        cluster: The cluster.
        keyspace: The keyspace of the table.
        name: The name of the table.
    """
    held = cluster.table(keyspace, name)
    found = cluster.ask("SELECT id FROM system_schema.tables WHERE keyspace_name = %s AND table_name = %s", (keyspace, name)).one()
    if held is None or found is None:
        remedy = did_you_mean(name, cluster.keyspace(keyspace).tables) or "correct `table`; for a view, read its base table"
        said = f"{cluster.called}: there is no table {keyspace}.{name} at {cluster}"
        raise SourceMissing(said, remedy=remedy, code="cassandra-table", node=cluster.node)
    if not str(cluster.metadata.partitioner).endswith("Murmur3Partitioner"):
        said = f"{cluster} partitions by {cluster.metadata.partitioner}, whose tokens are not 64-bit numbers"
        raise cluster.error(said, "read from a cluster with Murmur3Partitioner, the default", "cassandra-partitioner")
    columns = {column.name: str(column.cql_type) for column in held.columns.values()}
    return CassandraTable(found[0].hex(), keyspace, name, columns, tuple(column.name for column in held.partition_key))


def type_read(there: str) -> Type:
    """The flow type of a column that the flow does not declare.

    >>> str(type_read("frozen<list<int>>")), str(type_read("map<text, duration>"))
    ('ARRAY<INT>', 'STRING')
    """
    plain = there.removeprefix("frozen<").removesuffix(">") if there.startswith("frozen<") else there
    match = _LIST.fullmatch(plain) or _MAP.fullmatch(plain)
    if match and all(part in _SCALARS for part in match.groups()):
        return Type("ARRAY" if match.re is _LIST else "MAP", parts=tuple(Type(_SCALARS[part]) for part in match.groups()))
    return Type(_TYPES.get(plain, "STRING"))


def columns_of(cluster: CassandraCluster, table: CassandraTable, declared: Schema | None) -> Schema:
    """The flow's columns: the declared ones, or else those of the table. Raises SourceError if the table does not match the declared
    ones.

    Args:
        cluster: The cluster, for messages.
        table: The table.
        declared: The declared columns; None if the flow declares none.
    """
    if declared is None:
        keys = table.partition
        return Schema(tuple(Field(name, type_read(there), nullable=name not in keys) for name, there in table.columns.items()))
    wrong = []
    for field in declared.fields:
        there, asked = table.columns.get(field.name), field.type
        if there is None:
            near = did_you_mean(field.name, table.columns)
            wrong.append(f'the table has no column "{field.name}"{f" ({near})" if near else ""}')
        elif asked.name != "STRING" and there not in _READ_AS.get(asked.name, ()) and asked != type_read(there):
            wrong.append(f'column "{field.name}" is {there} in the table, but {asked} in the flow')
    if wrong:
        raise cluster.error(
            f"{table} at {cluster}: {'; '.join(wrong)}",
            "correct `schema`: STRING reads any column, and a `parse` step parses JSON in it; or remove `schema`",
            "table-columns",
        )
    return declared


class CassandraScan:
    """Reads columns of a table in token order, and in key order inside a partition, so that the order is always the same."""

    def __init__(self, cluster: CassandraCluster, table: CassandraTable, columns: Sequence[str], page: int) -> None:
        self._cluster = cluster
        self._page = page
        token = f"token({', '.join(map(quoted, table.partition))})"
        asked = ", ".join([token, *map(quoted, columns)])
        self._query = f"SELECT {asked} FROM {quoted(table.keyspace, table.name)} WHERE {token} > ? AND {token} <= ?"

    def pages(self, after: int, upto: int) -> Iterator[list[Row]]:
        """The rows of partitions with tokens from `after` (exclusive) to `upto` (inclusive), in pages, each from one set of replicas. A
        failed request is retried for a minute. Raises SourceError, and Unreachable after that minute."""
        prepared = self._cluster.prepare(self._query)
        inner = {each.value for each in self._cluster.metadata.token_map.ring if after < each.value < upto}
        for first, last in pairwise([after, *sorted(inner), upto]):
            bound = prepared.bind((first, last))
            bound.fetch_size = self._page
            state = None
            while True:
                result = self._answer(bound, state)
                if result.current_rows:
                    yield result.current_rows
                if not (state := result.paging_state):
                    break

    def types(self) -> list[Any]:
        """The client's types: first that of the token, then those of the columns."""
        return [column[3] for column in self._cluster.prepare(self._query).result_metadata]

    def _answer(self, bound: Any, state: Any) -> Any:
        wait_s, ends_s = _FIRST_WAIT_S, time.monotonic() + _TRIES_FOR_S
        while True:
            try:
                return self._cluster.session.execute(bound, execution_profile="read", paging_state=state)
            except Exception as error:
                if not passes(error) or time.monotonic() + wait_s > ends_s:
                    raise self._cluster.fault(error, "cannot be read") from error
            bound.fetch_size = max(1, bound.fetch_size // 2)  # perhaps this many rows take too long
            time.sleep(wait_s)
            wait_s = min(2 * wait_s, _LONGEST_WAIT_S)


class CassandraDigest:
    """A digest of rows in their order; it does not depend on how the rows are divided into pages."""

    def __init__(self) -> None:
        self._hash = blake2b(digest_size=_DIGEST_BYTES)

    def add(self, rows: Sequence[Row]) -> None:
        """Add the next rows."""
        self._hash.update(b"".join(map(_encode, rows)))

    @property
    def text(self) -> str:
        """The digest in hex."""
        return self._hash.hexdigest()
