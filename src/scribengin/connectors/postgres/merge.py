"""How the rows of staging tables come into the table, in one statement each."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from scribengin.connectors.postgres.client import quoted

if TYPE_CHECKING:
    from collections.abc import Sequence

    from psycopg import Connection

    from scribengin.connectors.postgres.sink_stream import Target

_PLACE = "_scribengin_place"
"""(unit, row) of a staged row: the order in which they came"""
_CHANGES = "_scribengin_changes"
"""a table of the transaction: what becomes of each key"""


def add(connection: Connection[Any], target: Target, staged: str, columns: tuple[str, ...]) -> int:
    """Add the rows of a staging table; how many."""
    names = ", ".join(map(quoted, columns))
    return connection.execute(f"INSERT INTO {target.quoted} ({names}) SELECT {names} FROM {staged}").rowcount


def merge(connection: Connection[Any], target: Target, staged: Sequence[str], columns: tuple[str, ...], version: str | None) -> None:
    """Take the rows of `staged`, tables in the order of their units, with `columns`. The newest row of each key replaces what stands there,
    or deletes it."""
    newest = _newest(target, staged, columns, version)
    if target.change is not None:
        connection.execute(f"CREATE TEMPORARY TABLE {_CHANGES} ON COMMIT DROP AS {newest}")
        _delete(connection, target, version)
        newest = f"SELECT * FROM {_CHANGES} WHERE lower({quoted(target.change)}) <> 'delete'"
    kept = [name for name in columns if name != target.change]
    names = ", ".join(map(quoted, kept))
    rest = [name for name in kept if name not in target.key]
    sets = ", ".join(f"{quoted(name)} = excluded.{quoted(name)}" for name in rest)
    older = f" WHERE held.{quoted(version)} IS NULL OR held.{quoted(version)} <= excluded.{quoted(version)}" if version else ""
    connection.execute(
        f"INSERT INTO {target.quoted} AS held ({names}) SELECT {names} FROM ({newest}) newest "
        f"ON CONFLICT ({', '.join(map(quoted, target.key))}) DO {f'UPDATE SET {sets}{older}' if sets else 'NOTHING'}"
    )


def _newest(target: Target, staged: Sequence[str], columns: tuple[str, ...], version: str | None) -> str:
    """The row of each key that stands: with the greatest version, and of those the last to come."""
    names, key = ", ".join(map(quoted, columns)), ", ".join(map(quoted, target.key))
    every = " UNION ALL ".join(
        f"SELECT {names}, {unit} AS {_PLACE}, ctid AS {_PLACE}_row FROM {table}" for unit, table in enumerate(staged)
    )
    order = f"{quoted(version)} DESC NULLS LAST, " if version else ""
    return f"SELECT DISTINCT ON ({key}) {names} FROM ({every}) every ORDER BY {key}, {order}{_PLACE} DESC, {_PLACE}_row DESC"


def _delete(connection: Connection[Any], target: Target, version: str | None) -> None:
    assert target.change is not None
    same = " AND ".join(f"held.{quoted(name)} = gone.{quoted(name)}" for name in target.key)
    older = f" AND (held.{quoted(version)} IS NULL OR held.{quoted(version)} <= gone.{quoted(version)})" if version else ""
    connection.execute(
        f"DELETE FROM {target.quoted} held USING {_CHANGES} gone WHERE lower(gone.{quoted(target.change)}) = 'delete' AND {same}{older}"
    )
