"""PostgreSQL for the SQL layer: its statements, queries of its catalog, and COPY into staging tables."""

from __future__ import annotations

import datetime as dt
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from scribengin.connectors.postgres import client
from scribengin.connectors.postgres.client import driver, escaped, quoted
from scribengin.connectors.postgres.table import columns_there
from scribengin.connectors.postgres.types import changed, takes
from scribengin.connectors.sql.contract import HeldByOthers, NotTaken
from scribengin.core.types import type_of_arrow

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from contextlib import AbstractContextManager

    from numpy.typing import NDArray
    from psycopg import Connection

    from scribengin.connectors.postgres.client import PostgresServer
    from scribengin.connectors.sql.contract import Target
    from scribengin.core.types import Schema, Type


# Rows in the bytes that COPY reads with FORMAT binary: the server has no texts to parse.


_HEAD = b"PGCOPY\n\xff\r\n\0" + bytes(8)
_TAIL = b"\xff\xff"
_NUMBERS = {"int2": ">i2", "int4": ">i4", "int8": ">i8", "float4": ">f4", "float8": ">f8"}
"""type of the server → the layout of its bytes"""
_TEXTS = ("text", "varchar")
_UNIX, _DAY = dt.datetime(1970, 1, 1), dt.timedelta(days=1)
_AHEAD = dt.datetime(2000, 1, 1) - _UNIX
"""the server's epoch"""
_FIRST, _LAST = dt.datetime.min - _UNIX, dt.datetime.max - _UNIX
"""values outside this range are sent as text, which the server checks"""


def as_binary(batch: pa.RecordBatch, types: Mapping[str, str]) -> bytes | None:
    """The rows, for columns of these types (`typname`); None if they must be sent as text."""
    fields: list[pa.Array] = []
    for name, column in zip(batch.schema.names, batch.columns, strict=True):
        parts = _field(column, types.get(name, ""))
        if parts is None:
            return None
        fields += parts
    joined = pc.binary_join_element_wise(pa.scalar(batch.num_columns.to_bytes(2, "big"), pa.binary()), *fields, b"")
    _, offsets, data = joined.buffers()
    whole = data[: int(np.frombuffer(offsets, np.int32)[batch.num_rows])]
    return b"".join((_HEAD, whole, _TAIL))


def _field(column: pa.Array, type_: str) -> list[pa.Array] | None:
    """The field of each row (BINARY): its length, and its bytes."""
    form = column.type
    if type_ in _TEXTS and pa.types.is_string(form):
        return _of_any_length(column.cast(pa.binary()))
    if type_ == "bytea" and pa.types.is_binary(form):
        return _of_any_length(column)
    if type_ == "bool" and pa.types.is_boolean(form):
        return _of_one_length(column.cast(pa.uint8()), "u1")
    if type_ in ("timestamptz", "timestamp") and pa.types.is_timestamp(form):
        return _since(column.cast(pa.timestamp("us", tz="UTC"), safe=False).cast(pa.int64()), dt.timedelta(microseconds=1), ">i8")
    if type_ == "date" and pa.types.is_date32(form):
        return _since(column.cast(pa.int32()), _DAY, ">i4")
    if type_ in ("float4", "float8") and pa.types.is_floating(form):
        # for a narrower number the text is meant, 0.1, and not the bits
        return _of_one_length(column, _NUMBERS[type_]) if form.bit_width == 8 * np.dtype(_NUMBERS[type_]).itemsize else None
    if type_ in ("int2", "int4", "int8") and pa.types.is_signed_integer(form):
        return _of_one_length(column, _NUMBERS[type_]) if form.bit_width <= 8 * np.dtype(_NUMBERS[type_]).itemsize else None
    return None


def _since(counted: pa.Array, unit: dt.timedelta, wire: str) -> list[pa.Array] | None:
    """Times, in `unit`s since 1970."""
    ends = pc.min_max(counted)
    if ends["min"].as_py() is not None and not _FIRST // unit <= ends["min"].as_py() <= ends["max"].as_py() <= _LAST // unit:
        return None
    return _of_one_length(pc.subtract(counted, pa.scalar(_AHEAD // unit, counted.type)), wire)


def _of_one_length(column: pa.Array, wire: str) -> list[pa.Array]:
    """Numbers; a null has the length -1, and no bytes."""
    rows, size = len(column), np.dtype(wire).itemsize
    valid = column.is_valid().to_numpy(zero_copy_only=False)
    values = column.filter(column.is_valid()) if column.null_count else column
    wired: NDArray[np.uint8] = values.to_numpy(zero_copy_only=False).astype(wire).view(np.uint8).reshape(len(values), size)
    if not column.null_count:
        length = np.frombuffer(size.to_bytes(4, "big"), np.uint8)
        both = np.concatenate((np.broadcast_to(length, (rows, 4)), wired), axis=1)
        return [_binary(np.arange(rows + 1) * (4 + size), both)]
    lengths = np.where(valid, size, -1).astype(">i4")
    offsets = np.concatenate(([0], np.cumsum(valid) * size))
    return [_binary(np.arange(rows + 1) * 4, lengths), _binary(offsets, wired)]


def _of_any_length(column: pa.Array) -> list[pa.Array]:
    lengths = pc.binary_length(column).fill_null(-1).to_numpy(zero_copy_only=False).astype(">i4")
    return [_binary(np.arange(len(column) + 1) * 4, lengths), column.fill_null(b"") if column.null_count else column]


def _binary(offsets: NDArray[np.int64], data: NDArray[np.generic]) -> pa.Array:
    buffers = [None, pa.py_buffer(offsets.astype(np.int32)), pa.py_buffer(np.ascontiguousarray(data))]
    return pa.Array.from_buffers(pa.binary(), len(offsets) - 1, buffers)


# Columns of a flow as columns of a table, and rows as the CSV that COPY reads.


_TYPES = {
    "BOOLEAN": "boolean",
    "TINYINT": "smallint",
    "SMALLINT": "smallint",
    "INT": "integer",
    "BIGINT": "bigint",
    "FLOAT": "real",
    "DOUBLE": "double precision",
    "STRING": "text",
    "BINARY": "bytea",
    "DATE": "date",
    "TIMESTAMP": "timestamp with time zone",
    "ARRAY": "jsonb",
    "MAP": "jsonb",
    "STRUCT": "jsonb",
}


def type_of(type_: Type) -> str:
    """The type of a column in a table that we create."""
    return f"numeric({type_.precision},{type_.scale})" if type_.name == "DECIMAL" else _TYPES[type_.name]


def as_csv(batch: pa.RecordBatch) -> bytes:
    """The rows in the form that COPY reads with FORMAT csv: values quoted, nulls unquoted."""
    import pyarrow as pa
    from pyarrow import csv

    plain = pa.table([_plain(column) for column in batch.columns], names=list(map(str, range(batch.num_columns))))
    out = pa.BufferOutputStream()
    csv.write_csv(plain, out, csv.WriteOptions(include_header=False, quoting_style="all_valid"))
    data: bytes = out.getvalue().to_pybytes()
    return data


def _plain(column: pa.Array) -> pa.Array:
    """A column that Arrow can write as CSV: binary as PostgreSQL's hex, nested values as JSON, instants with their zone."""
    import pyarrow as pa

    from scribengin.formats.json_out import JSON, changed_for_text, iso_texts
    from scribengin.formats.rows import column_to_values

    kinds = pa.types
    if kinds.is_timestamp(column.type):
        return iso_texts(column)
    if kinds.is_binary(column.type):
        return pa.array([None if value is None else f"\\x{value.hex()}" for value in column.to_pylist()], pa.string())
    if kinds.is_nested(column.type):
        change = changed_for_text(type_of_arrow(column.type)) or _same
        return pa.array([None if value is None else JSON.encode(change(value)).decode() for value in column_to_values(column)], pa.string())
    return column


def _same(value: Any) -> Any:
    return value


# A staging table with the columns of the target; and COPY, which fills it, or the target itself.


_DATA = ("22", "23", "54")
"""SQLSTATE classes of errors caused by a row: a value that does not fit, a constraint that it violates, a row that is too large"""

_COLUMNS = """
SELECT attname, attnotnull, attgenerated <> '', pg_get_expr(adbin, adrelid) IS NULL OR pg_get_expr(adbin, adrelid) LIKE 'nextval(%%'
FROM pg_attribute LEFT JOIN pg_attrdef ON adrelid = attrelid AND adnum = attnum
WHERE attrelid = to_regclass(%s) AND attnum > 0 AND NOT attisdropped
"""
_RULES_OF = """
SELECT DISTINCT conname FROM pg_constraint JOIN pg_attribute ON attrelid = conrelid AND attnum = ANY (conkey)
WHERE conrelid = to_regclass(%s) AND contype = 'c' AND attname = ANY (%s)
"""
_PARTITIONS = """
SELECT pg_get_partition_constraintdef(relid), pg_get_expr(relpartbound, relid) = 'DEFAULT' AND parentrelid = to_regclass(%s)
FROM pg_partition_tree(to_regclass(%s)) JOIN pg_class ON pg_class.oid = relid WHERE isleaf
"""
_PARTED_BY = """
SELECT attname FROM pg_partitioned_table JOIN pg_attribute ON attrelid = partrelid AND attnum = ANY (partattrs)
WHERE partrelid IN (SELECT relid FROM pg_partition_tree(to_regclass(%s)) UNION SELECT pg_partition_ancestors(to_regclass(%s)))
"""
_MOST_PARTITIONS = 200
"""the constraint that each change is checked against"""
_CHANGE = "text NOT NULL CONSTRAINT \"a change is insert, update or delete\" CHECK (lower({}) IN ('insert', 'update', 'delete'))"


class PostgresStaging:
    """See `Staging`. Created in the current transaction."""

    def __init__(self, connection: Connection[Any], place: str, target: Target, schema: Schema) -> None:
        like = quoted(*target.names)
        connection.execute(f"CREATE TABLE {place} (LIKE {like} INCLUDING CONSTRAINTS INCLUDING DEFAULTS INCLUDING GENERATED)")
        found = connection.execute(_COLUMNS, (like,)).fetchall()
        # columns that the flow does not have are filled in by the server when the rows are moved: by a default, an identity, a trigger
        left = [name for name, asked, generated, _ in found if name not in schema.names and (asked or not generated)]
        blank = [name for name, _, generated, empty in found if name in left and empty and not generated]
        may_lack = [name for name, asked, generated, _ in found if asked and name in left and (not generated or target.change is not None)]
        _leave_out(connection, place, may_lack, blank)
        if target.change is not None:
            asked = [name for name, asked, *_ in found if asked and name in schema.names]
            _take_changes(connection, place, target, quoted(target.change), asked)
        _take_partitions(connection, place, like, schema)
        self._connection = connection
        self._copying = Copying(connection, place, target, schema)

    def put(self, batch: pa.RecordBatch) -> int:
        """By one COPY, in a transaction of its own."""
        self._copying.check(batch)
        with self._connection.transaction():
            # nothing waits for this commit alone; only for this transaction, because a pool may give the session to others
            self._connection.execute("SET LOCAL synchronous_commit = off")
            return self._copying.copy(batch)


class Copying:
    """See `Staging`. COPY into the table `place`, in the current transaction."""

    def __init__(self, connection: Connection[Any], place: str, target: Target, schema: Schema) -> None:
        self._connection = connection
        self._table = target.names[-1]
        found = connection.execute("SELECT to_regclass(%s)::oid", (place,)).fetchone()
        self._columns = columns_there(connection, found[0] if found else 0)
        self._types = {name: column.base for name, column in self._columns.items() if column.is_plain}
        columns = ", ".join(quoted(name) for name in schema.names)
        self._copy = f"COPY {place} ({columns}) FROM STDIN"

    def put(self, batch: pa.RecordBatch) -> int:
        """By one COPY."""
        self.check(batch)
        return self.copy(batch)

    def check(self, batch: pa.RecordBatch) -> None:
        """Raises NotTaken if the server would silently change a value of a row."""
        import pyarrow.compute as pc

        for name, values in zip(batch.schema.names, batch.columns, strict=True):
            column = self._columns.get(name)
            unlike = None if column is None else changed(values, column.base, column.modifier)
            if column is not None and unlike is not None and pc.any(unlike).as_py():
                value = values.filter(unlike)[0].as_py()
                raise NotTaken(f'"{value}" does not fit into {column.type} unchanged (column "{name}")')

    def copy(self, batch: pa.RecordBatch) -> int:
        """Without a check of the values."""
        data, form = as_binary(batch, self._types), "binary"
        if data is None:
            data, form = as_csv(batch), "csv"
        try:
            with self._connection.cursor() as cursor, cursor.copy(f"{self._copy} (FORMAT {form})") as copy:
                copy.write(data)
        except driver().Error as error:
            if (error.sqlstate or "").startswith(_DATA):
                raise NotTaken(self._words(error)) from error
            raise
        return len(data)

    def _words(self, error: Any) -> str:
        said = " ".join(str(error.diag.message_primary or error).split()).replace(error.diag.table_name or "\0", self._table)
        return said + (f' (column "{error.diag.column_name}")' if error.diag.column_name else "")


def _take_changes(connection: Connection[Any], place: str, target: Target, change: str, asked: Sequence[str]) -> None:
    """Add the column of the change; a row to be deleted needs only the key."""
    connection.execute(f"ALTER TABLE {place} ADD COLUMN {change} {_CHANGE.format(change)}")
    for name in asked:
        if name not in target.key:
            column, rule = quoted(name), quoted(f"{name} is given unless the row is deleted"[:63])
            connection.execute(f"ALTER TABLE {place} ALTER COLUMN {column} DROP NOT NULL")
            connection.execute(f"ALTER TABLE {place} ADD CONSTRAINT {rule} CHECK (lower({change}) = 'delete' OR {column} IS NOT NULL)")


def _leave_out(connection: Connection[Any], place: str, left: Sequence[str], blank: Sequence[str]) -> None:
    """`left` columns may be null, because the server fills them in later. So `blank` ones are null, and constraints on them cannot be
    checked."""
    for name in left:
        connection.execute(f"ALTER TABLE {place} ALTER COLUMN {quoted(name)} DROP NOT NULL")
    for name in blank:
        connection.execute(f"ALTER TABLE {place} ALTER COLUMN {quoted(name)} DROP DEFAULT")
    for (rule,) in connection.execute(_RULES_OF, (place, list(blank))).fetchall():
        connection.execute(f"ALTER TABLE {place} DROP CONSTRAINT {quoted(rule)}")


def _take_partitions(connection: Connection[Any], place: str, like: str, schema: Schema) -> None:
    """For a partitioned table: a row that no partition accepts must be refused here, not after the Batch is decided."""
    parted_by = [name for (name,) in connection.execute(_PARTED_BY, (like, like)).fetchall()]
    found = connection.execute(_PARTITIONS, (like, like)).fetchall()
    if not parted_by or not set(parted_by) <= set(schema.names) or len(found) > _MOST_PARTITIONS or any(whole for _, whole in found):
        return
    rules = " OR ".join(f"({rule})" for rule, _ in found if rule) or "false"
    connection.execute(f'ALTER TABLE {place} ADD CONSTRAINT "a partition takes the row" CHECK (({rules}) IS TRUE)')


_XIDS = 2**32
"""`xmin` of a row is the 32-bit number of a transaction, and wraps around"""
_HELD_MS = 200
_ASKED_FOR = "is_nullable = 'NO' AND column_default IS NULL AND is_identity = 'NO' AND is_generated = 'NEVER'"
_CALLED = (
    "CASE WHEN is_identity = 'YES' AND identity_generation = 'ALWAYS' THEN data_type || ' GENERATED ALWAYS AS IDENTITY' "
    "WHEN is_generated = 'ALWAYS' THEN data_type || ' GENERATED ALWAYS' ELSE data_type END"
)
_FILLS = "SELECT 1 FROM pg_trigger WHERE tgrelid = to_regclass(%s) AND NOT tgisinternal AND tgtype & 7 = 7 AND tgenabled <> 'D' LIMIT 1"
"""a BEFORE INSERT FOR EACH ROW trigger, which may set columns that the flow does not have"""
_OWN = (
    "claims (target text PRIMARY KEY, owner text NOT NULL, lineage text NOT NULL, sink text NOT NULL, flow text NOT NULL, "
    "earlier text[] NOT NULL DEFAULT '{}', folded_rows bigint NOT NULL DEFAULT 0, had_rows boolean NOT NULL)",
    "commits (target text, lineage text, number bigint, hash text NOT NULL, term bigint NOT NULL, receipts text NOT NULL, "
    "rows bigint NOT NULL, xid bigint NOT NULL, PRIMARY KEY (target, lineage, number))",
    "staged (name text PRIMARY KEY, target text NOT NULL, lineage text NOT NULL, number bigint NOT NULL)",
    "units (target text, lineage text, number bigint, unit bigint, hash text NOT NULL, term bigint NOT NULL, rows bigint NOT NULL, "
    "report text NOT NULL, PRIMARY KEY (target, lineage, number, unit))",
    "parts (target text, lineage text, number bigint, unit bigint, attempt text, part bigint, rows bigint NOT NULL, "
    "PRIMARY KEY (target, lineage, number, unit, attempt, part))",
)


class PostgresDatabase:
    """See `LoadingDatabase`; a connection of psycopg is a `SqlSession`. `staging` is the schema of our own tables."""

    mark = "%s"
    for_update = "FOR UPDATE"
    for_share = "FOR SHARE"
    row_place = "ctid"
    row_transaction = "xmin::text::bigint"
    this_transaction = f"mod(pg_current_xact_id()::text::numeric, {_XIDS})::bigint"

    def __init__(self, server: PostgresServer, staging: str) -> None:
        self._server = server
        self._staging = staging

    def __str__(self) -> str:
        return str(self._server)

    def connect(self) -> Connection[Any]:
        """Delegates to the client module."""
        return self._server.connect()

    def explained(self, what: str) -> AbstractContextManager[None]:
        """Delegates to the client module."""
        return self._server.explained(what)

    # --- names and types ---

    def quoted(self, *names: str) -> str:
        """In double quotes."""
        return quoted(*names)

    def escaped(self, *names: str) -> str:
        """Delegates to the client module."""
        return escaped(*names)

    def own(self, name: str) -> tuple[str, ...]:
        """In the schema of `staging`."""
        return self._staging, name

    def packed(self, texts: Sequence[str]) -> list[str]:
        """An array."""
        return list(texts)

    def unpacked(self, value: list[str]) -> Sequence[str]:
        """Unchanged."""
        return value

    def type_of(self, type_: Type, *, in_key: bool) -> str:  # noqa: ARG002 (texts of any length can be in a key)
        """See `columns`."""
        return type_of(type_)

    def takes(self, type_: Type, there: str) -> bool:
        """See `types`."""
        return takes(type_, there)

    # --- tables ---

    def alone(self, session: Connection[Any], what: str) -> None:
        """By an advisory lock."""
        session.execute("SELECT pg_advisory_xact_lock(hashtext(%s))", (what,))

    def is_there(self, session: Connection[Any], *names: str) -> bool:
        """True also if this user is not allowed to read it."""
        there = session.execute("SELECT to_regclass(%s) IS NOT NULL", (quoted(*names),)).fetchone()
        return bool(there and there[0])

    def make_own(self, session: Connection[Any]) -> None:
        """With a lock: two sessions that create a schema at once would conflict in the catalog."""
        self.alone(session, f"scribengin {self._staging}")
        place = quoted(self._staging)
        session.execute(f"CREATE SCHEMA IF NOT EXISTS {place}")
        for table in _OWN:
            session.execute(f"CREATE TABLE IF NOT EXISTS {place}.{table}")

    def make(self, session: Connection[Any], target: Target, columns: str) -> None:
        """With a lock if it does not exist: two sessions would conflict in the catalog too."""
        self.alone(session, f"scribengin {target}")
        session.execute(f"CREATE TABLE IF NOT EXISTS {quoted(*target.names)} ({columns})")

    def columns(self, session: Connection[Any], *names: str) -> Mapping[str, tuple[str, bool]]:
        """Those that this user is allowed to use."""
        found = session.execute(
            f"SELECT column_name, {_CALLED}, {_ASKED_FOR} FROM information_schema.columns "
            "WHERE table_schema = %s AND table_name = %s ORDER BY ordinal_position",
            names,
        )
        fills = session.execute(_FILLS, (quoted(*names),)).fetchone()
        return {name: (type_, must and fills is None) for name, type_, must in found.fetchall()}

    def has_key(self, session: Connection[Any], target: Target) -> bool:
        """A unique index over all rows."""
        found = session.execute(
            "SELECT array_agg(a.attname::text) FROM pg_index i JOIN pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = ANY(i.indkey) "
            "WHERE i.indrelid = to_regclass(%s) AND i.indisunique AND i.indpred IS NULL GROUP BY i.indexrelid",
            (quoted(*target.names),),
        )
        return any(set(names) == set(target.key) for (names,) in found.fetchall())

    def stage(self, session: Connection[Any], name: str, target: Target, schema: Schema) -> PostgresStaging:
        """A logged table, so that it survives a crash of the server."""
        return PostgresStaging(session, quoted(*self.own(name)), target, schema)

    def drop(self, session: Connection[Any], name: str) -> None:
        """Waits for other sessions only a moment."""
        session.execute(f"SET LOCAL lock_timeout = {_HELD_MS}")
        try:
            session.execute(f"DROP TABLE IF EXISTS {quoted(*self.own(name))}")
        except driver().errors.LockNotAvailable as error:
            raise HeldByOthers from error

    # --- units that commit by themselves ---

    @property
    def silence_s(self) -> float:
        """See `client`."""
        return client.ABANDONED_MS / 1000

    def step(self, session: Connection[Any]) -> AbstractContextManager[Any]:
        """A savepoint; rows written after it have their own transaction number."""
        return session.transaction()

    def load(self, session: Connection[Any], target: Target, schema: Schema) -> Copying:
        """By COPY, as into staging tables."""
        return Copying(session, quoted(*target.names), target, schema)

    # --- rows of one key ---

    def newest(self, every: str, columns: Sequence[str], key: Sequence[str], version: str | None, place: Sequence[str]) -> str:
        """By DISTINCT ON, which sorts them once."""
        keys = _listed(key)
        order = f"{quoted(version)} DESC NULLS LAST, " if version else ""
        places = ", ".join(f"{name} DESC" for name in place)
        return f"SELECT DISTINCT ON ({keys}) {_listed(columns)} FROM ({every}) every ORDER BY {keys}, {order}{places}"

    def set_aside(self, name: str, query: str) -> str:
        """Dropped with the transaction, because a pool may give the session to others."""
        return f"CREATE TEMPORARY TABLE {name} ON COMMIT DROP AS {query}"

    def delete(self, target: Target, gone: str, version: str | None) -> str:
        """By a join."""
        same = " AND ".join(f"held.{quoted(name)} = gone.{quoted(name)}" for name in target.key)
        older = f" AND (held.{quoted(version)} IS NULL OR held.{quoted(version)} <= gone.{quoted(version)})" if version else ""
        return f"DELETE FROM {quoted(*target.names)} held USING ({gone}) gone WHERE {same}{older}"

    def replace(self, target: Target, rows: str, columns: Sequence[str], version: str | None) -> str:
        """By ON CONFLICT."""
        rest = [name for name in columns if name not in target.key]
        sets = ", ".join(f"{quoted(name)} = excluded.{quoted(name)}" for name in rest)
        older = f" WHERE held.{quoted(version)} IS NULL OR held.{quoted(version)} <= excluded.{quoted(version)}" if version else ""
        return (
            f"INSERT INTO {quoted(*target.names)} AS held ({_listed(columns)}) SELECT {_listed(columns)} FROM ({rows}) newest "
            f"ON CONFLICT ({_listed(target.key)}) DO {f'UPDATE SET {sets}{older}' if sets else 'NOTHING'}"
        )

    # --- for audit ---

    def rows_by_transaction(self, session: Connection[Any], target: Target) -> Mapping[int, int]:
        """Rows show theirs as `xmin`, even after they are frozen."""
        return dict(session.execute(f"SELECT {self.row_transaction}, count(*) FROM {quoted(*target.names)} GROUP BY 1").fetchall())


def _listed(names: Sequence[str]) -> str:
    return ", ".join(map(quoted, names))
