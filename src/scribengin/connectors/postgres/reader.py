"""The driver's side of the source: which ranges of the table are read next.

A range is given by the row after which it begins and the row with which it ends, in the columns that order the table. Ranges are made
within one transaction, which keeps its snapshot and exports it to the tasks; it ends with the reader. Whoever reads a range later checks
that it is unchanged: the same number of rows, none of them written by a transaction that was not finished then.

`mode: incremental` reads rows up to the greatest one seen in some poll, once every transaction that was open at that poll is finished, and
`settle` has passed: otherwise a late commit could add a row before those already read.
"""

from __future__ import annotations

import time
from collections import deque
from contextlib import suppress
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from scribengin.connectors.contract import Backlog, SourceStream
from scribengin.connectors.postgres.client import driver, escaped
from scribengin.core.remedies import start_over
from scribengin.core.types import Type

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from psycopg import Connection

    from scribengin.connectors.contract import BatchLimits
    from scribengin.connectors.postgres.client import PostgresServer
    from scribengin.connectors.postgres.table import PostgresTable

Row = tuple[str, ...]
"""a row's values in the ordering columns, as texts"""
_COUNTED = 1_000_000
"""maximum backlog that is counted: counting more would take longer"""
_ENDS_WITHIN_S = 30.0
"""how long `--once` waits for transactions that are open when it begins"""
_POLL_S = 0.02
_LOOKS = 8
"""maximum number of remembered polls"""
_SLOW_S = 60.0
"""how long rows wait for an open transaction before it is reported"""
OURS = 7_310_579_003
"""an advisory lock that all our reading transactions hold in shared mode, so that none of them waits for another"""
_OPEN = f"""
SELECT l.virtualxid FROM pg_locks l JOIN pg_stat_activity a ON a.pid = l.pid
WHERE l.locktype = 'virtualxid' AND l.granted AND a.usesysid IS NOT NULL AND a.datname = current_database() AND NOT EXISTS (
    SELECT FROM pg_locks o WHERE o.pid = l.pid AND o.locktype = 'advisory' AND o.classid = {OURS >> 32} AND o.objid = {OURS & 0xFFFFFFFF})
"""
"""transactions of people and programs, of any user, that are open in the database"""


@dataclass(frozen=True, slots=True)
class _Seen:
    """A poll of the table: its time, the greatest row, and the transactions that must finish before it is read: all before a number, and
    open ones that may have no number yet."""

    at_s: float
    next_transaction: int
    last: Row
    open: frozenset[str]


def oldest_running(snapshot: str) -> int:
    """For a snapshot in PostgreSQL's text form: every transaction before this one was finished."""
    return int(snapshot.partition(":")[0])


class PostgresReader:
    """One per source and Query; used by one thread."""

    def __init__(self, server: PostgresServer, table: PostgresTable, options: Mapping[str, Any]) -> None:
        self._server = server
        self._table = table
        self._name: str = options["table"]
        self._incremental = options["mode"] == "incremental"
        self._compares = options["on_change"] == "stop"
        self._waits_for_all = options["waits_for"] == "all"
        self._settle_s: float = options["settle"]
        self._every_s: float = options["every"]
        self._max_rows: int = options["max_rows"]
        self._split: int = options["split"]
        self._connection: Connection[Any] | None = None
        self._shared = ""
        self._view = ""
        """the snapshot of the open transaction, in the server's form; empty if none is open"""
        self._read_oid: int | None = None
        """the table that `_after` refers to"""
        self._after: Row | None = None
        self._snapshot = ""
        """for mode: snapshot, the snapshot of the whole read"""
        self._end: Row | None = None
        self._left: int | None = None
        self._seen: deque[_Seen] = deque()
        self._safe: Row | None = None
        self._final = False
        self._looked_s: float | None = None
        """the time when nothing was left to read; None if there may be more"""
        self._held_up_told = False
        self._backlog = Backlog(rows=None)
        self._notices: list[str] = []
        if not table.is_indexed:
            columns = ", ".join(column.name for column in table.order)
            self._notices.append(
                f"{server.called}: no index of {self._name} begins with ({columns}): each look reads the whole table; CREATE INDEX ON "
                f"{self._name} ({columns})"
            )

    def __del__(self) -> None:
        self._let_go()

    def restore(self, entries: Iterable[Sequence[SourceStream]]) -> None:
        """Continue after the restored entries."""
        for streams in entries:
            for stream in streams:
                place = stream.place
                self._after, self._read_oid = tuple(place["upto"]), place["table"]
                if not self._incremental:
                    self._snapshot, self._end, self._left = place["as_of"], tuple(place["end"]), place["left"]
                    self._backlog = Backlog(rows=self._left)

    def split(self, limits: BatchLimits, *, final: bool = False) -> list[SourceStream]:
        """The next ranges. Raises SourceError if the rest of a snapshot has changed, Unreachable if the server is unavailable.

        With `final`, only rows that exist at the first such call are read; a table that is written to continuously has no other end.
        """
        now_s = time.monotonic()
        if self._left == 0 or (not final and self._looked_s is not None and now_s - self._looked_s < self._every_s):
            return []
        if self._compares and self._read_oid not in (None, self._table.oid):
            raise self._changed("it is another table by that name")
        most = min(self._max_rows, limits.max_rows or self._max_rows)
        try:
            streams = self._next_growing(most, final=final) if self._incremental else self._next_of_snapshot(most)
            self._looked_s = None if sum(stream.rows or 0 for stream in streams) >= most else now_s
            return streams
        except driver().Error as error:
            self._let_go()
            raise self._server.fault(error, f"cannot be read ({self._name})") from error

    def backlog(self) -> Backlog:
        """The backlog at the last poll; a million if it is greater."""
        return self._backlog

    def measure(self) -> Backlog:
        """See `MeasuringReader`; for mode: snapshot the rest at the flow's last read."""
        if self._incremental:
            try:
                self._measure(self._in_transaction())
            except driver().Error as error:
                raise self._server.fault(error, f"cannot be read ({self._name})") from error
            finally:
                self._let_go()
        return self._backlog

    def notices(self) -> list[str]:
        """Notices: a missing index; transactions that delay rows."""
        told, self._notices = self._notices, []
        return told

    # --- a snapshot ---

    def _next_of_snapshot(self, most: int) -> list[SourceStream]:
        connection = self._in_transaction()
        if not self._snapshot:
            self._snapshot, self._end = self._view, self._last(connection)
            self._left = 0 if self._end is None else self._count(connection, self._after, self._end)
        elif self._view != self._snapshot and self._compares:
            found = self._count(connection, self._after, self._end)
            if found != self._left:
                raise self._changed(f"it has {found} rows left; expected {self._left}")
        ranges = self._ranges(connection, self._end, most)
        assert self._left is not None
        streams = []
        for after, upto, rows in ranges:
            # a count says nothing about rows that may change: its end is the last row
            self._left = self._left - rows if self._compares else max(self._left - rows, 1) * (upto != self._end)
            more = {"end": self._end, "left": self._left}
            streams.append(self._stream(after, upto, rows, self._snapshot, more))
        if not ranges:
            self._left = 0
        self._backlog = Backlog(rows=self._left)
        return streams

    # --- new rows ---

    def _next_growing(self, most: int, *, final: bool) -> list[SourceStream]:
        if final and not self._final:
            self._settle()
            self._final = True
        elif not self._final:
            self._end_transaction()
            self._poll_once()
        connection = self._in_transaction()
        ranges = self._ranges(connection, self._safe, most) if self._safe is not None else []
        streams = [self._stream(after, upto, rows, self._view, {}) for after, upto, rows in ranges]
        self._measure(connection)
        if not streams and not self._final:
            self._end_transaction()
        return streams

    def _poll_once(self) -> None:
        """Poll once; rows seen by earlier polls may be read once they are settled."""
        now_s = time.monotonic()
        connection = self._in_transaction()
        oldest, coming = (int(part) for part in self._view.split(":")[:2])
        last = self._last(connection)
        # after the snapshot was taken: a transaction that was open then and is not listed here is finished, and is in the next snapshot
        still = frozenset(row[0] for row in connection.execute(_OPEN).fetchall()) if self._waits_for_all else frozenset[str]()
        while self._seen and now_s - self._seen[0].at_s >= self._settle_s:
            if self._seen[0].next_transaction > oldest or self._seen[0].open & still:
                self._tell_of_slow_ones(now_s)
                break
            self._safe = self._seen.popleft().last
            self._held_up_told = False
        if last is not None and (not self._seen or now_s - self._seen[-1].at_s >= self._settle_s / 4):
            if len(self._seen) == _LOOKS:
                self._seen.pop()
            self._seen.append(_Seen(now_s, coming, last, still))

    def _settle(self) -> None:
        """Wait until the current rows are settled."""
        self._seen.clear()
        self._end_transaction()
        self._poll_once()
        aim = self._seen[-1] if self._seen else None
        ends_s = time.monotonic() + self._settle_s + _ENDS_WITHIN_S
        while aim is not None and aim in self._seen:
            if time.monotonic() > ends_s:
                self._notices.append(f"{self._held_up(_ENDS_WITHIN_S)}: they are left for the next run")
                return
            time.sleep(_POLL_S)
            self._end_transaction()
            self._poll_once()

    def _tell_of_slow_ones(self, now_s: float) -> None:
        if not self._held_up_told and now_s - self._seen[0].at_s > self._settle_s + _SLOW_S:
            self._held_up_told = True
            self._notices.append(f"{self._held_up(_SLOW_S)}; they are read when it ends")

    def _held_up(self, for_s: float) -> str:
        return (
            f"{self._server.called}: a transaction open for more than {for_s:g} s may add rows of {self._name} before the waiting ones "
            f"(see pg_stat_activity at {self._server})"
        )

    def _measure(self, connection: Connection[Any]) -> None:
        """The backlog after the last range; with `--once` only rows that belong to the run."""
        waits = self._count(connection, self._after, self._safe, _COUNTED) if not self._final or self._safe is not None else 0
        oldest_s = None
        if not self._final:
            waits = self._count(connection, self._after, None, _COUNTED)
            if waits and self._table.is_by_time:
                where, bounds = self._table.between(self._after, None)
                first = self._table.order[0]
                moment = first.expression(Type("TIMESTAMP"))
                query = f"SELECT extract(epoch FROM clock_timestamp() - min({moment})) FROM {self._table.quoted} WHERE {where}"
                found = connection.execute(query, bounds).fetchone()
                oldest_s = max(0.0, float(found[0])) if found and found[0] is not None else None
        self._backlog = Backlog(rows=waits, oldest_s=oldest_s)

    # --- both ---

    def _ranges(self, connection: Connection[Any], upto: Row | None, most: int) -> list[tuple[Row | None, Row, int]]:
        """(row after which it begins, row with which it ends, rows) of the next ranges; continues after them."""
        table = self._table
        where, bounds = table.between(self._after, upto)
        found = connection.execute(
            f"SELECT number, {table.key_texts} FROM (SELECT {table.key}, row_number() OVER ordered AS number, "
            f"lead(1) OVER ordered IS NULL AS is_last FROM (SELECT {table.key} FROM {table.quoted} WHERE {where} ORDER BY {table.key} "
            f"LIMIT %s) page WINDOW ordered AS (ORDER BY {table.key})) numbered WHERE number %% %s = 0 OR is_last ORDER BY number",
            (*bounds, most, self._split),
        ).fetchall()
        ends = [(0, self._after), *((row[0], tuple(row[1:])) for row in found)]
        ranges = [(after, upto, number - before) for (before, after), (number, upto) in pairwise(ends) if upto is not None]
        if ranges:
            self._after = ranges[-1][1]
        return ranges

    def _stream(self, after: Row | None, upto: Row, rows: int, as_of: str, more: Mapping[str, Any]) -> SourceStream:
        begin = "" if after is None else f"{','.join(after)} "
        place = {
            "table": self._table.oid,
            "after": None if after is None else list(after),
            "upto": list(upto),
            "as_of": as_of,
            "shared": self._shared if self._view == as_of else None,
        }
        more = {name: list(value) if isinstance(value, tuple) else value for name, value in more.items()}
        return SourceStream(f"{self._name}[{begin}to {','.join(upto)}]", place | more, rows=rows)

    def _last(self, connection: Connection[Any]) -> Row | None:
        table = self._table
        descending = ", ".join(f"{escaped(column.name)} DESC" for column in table.order)
        found = connection.execute(f"SELECT {table.key_texts} FROM {table.quoted} ORDER BY {descending} LIMIT %s", (1,)).fetchone()
        return None if found is None else tuple(found)

    def _count(self, connection: Connection[Any], after: Row | None, upto: Row | None, most: int | None = None) -> int:
        where, bounds = self._table.between(after, upto)
        found = connection.execute(
            f"SELECT count(*) FROM (SELECT FROM {self._table.quoted} WHERE {where} LIMIT %s) counted", (*bounds, most)
        )
        return int((found.fetchone() or (0,))[0])

    def _changed(self, what: str) -> Exception:
        return self._server.error(
            f"{self._server.called}: {self._name} changed since it was read: {what}",
            f"restore it; or, to continue with the current data at least once, set on_change: ignore; or {start_over()}",
            "postgres-changed",
        )

    # --- the transaction ---

    def _in_transaction(self) -> Connection[Any]:
        """The transaction whose snapshot is `_view`, exported to tasks as `_shared`; the open one, or a new one."""
        if self._connection is None or self._connection.closed:
            self._let_go()
            self._connection = self._server.connect()
            # it keeps the snapshot for reading tasks, however long they take
            self._connection.execute("SET idle_in_transaction_session_timeout = 0")
        if not self._view:
            self._connection.execute("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
            found = self._connection.execute("SELECT pg_current_snapshot()::text, pg_export_snapshot()").fetchone()
            assert found is not None
            self._view, self._shared = found
            self._connection.execute(f"SELECT pg_advisory_xact_lock_shared({OURS})")
        return self._connection

    def _end_transaction(self) -> None:
        if self._view and self._connection is not None:
            self._view = ""
            self._connection.execute("ROLLBACK")

    def _let_go(self) -> None:
        connection, self._connection, self._view = self._connection, None, ""
        if connection is not None:
            with suppress(driver().Error):
                connection.close()
