"""PostgreSQL for the SQL layer: its statements, and queries of its catalog."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from scribengin.connectors.postgres import client
from scribengin.connectors.postgres.client import driver, escaped, quoted
from scribengin.connectors.postgres.columns import type_of
from scribengin.connectors.postgres.staging import Copying, PostgresStaging
from scribengin.connectors.postgres.types import takes
from scribengin.connectors.sql.contract import HeldByOthers

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from contextlib import AbstractContextManager

    from psycopg import Connection

    from scribengin.connectors.postgres.client import PostgresServer
    from scribengin.connectors.sql.contract import Target
    from scribengin.core.types import Schema, Type

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
    """See `LoadingDatabase`; a connection of psycopg is a `Session`. `staging` is the schema of our own tables."""

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

    def type_of(self, type_: Type) -> str:
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
