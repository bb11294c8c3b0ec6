"""Moves the rows of staging tables into the table, in one statement each."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence

    from scribengin.connectors.sql.contract import Database, SqlSession, Target

_PLACE = ("_scribengin_place", "_scribengin_place_row")
"""(task output, row) of a staged row: the original order"""
_CHANGES = "_scribengin_changes"
"""a table of the transaction: the result for each key"""


def add(session: SqlSession, database: Database[Any], target: Target, staged: str, columns: Sequence[str]) -> int:
    """Append the rows of a staging table; returns their number."""
    names = ", ".join(map(database.quoted, columns))
    return session.execute(f"INSERT INTO {database.quoted(*target.names)} ({names}) SELECT {names} FROM {staged}").rowcount


def merge(
    session: SqlSession, database: Database[Any], target: Target, staged: Sequence[str], columns: Sequence[str], version: str | None
) -> None:
    """Merge the rows of `staged`, tables in the order of their task outputs, with `columns`. The newest row of each key replaces the
    existing one, or deletes it."""
    rows = _newest(database, target, staged, columns, version)
    if target.change is not None:
        change = f"lower({database.quoted(target.change)})"
        session.execute(database.set_aside(_CHANGES, rows))
        session.execute(database.delete(target, f"SELECT * FROM {_CHANGES} WHERE {change} = 'delete'", version))
        rows = f"SELECT * FROM {_CHANGES} WHERE {change} <> 'delete'"
    session.execute(database.replace(target, rows, [name for name in columns if name != target.change], version))


def _newest(database: Database[Any], target: Target, staged: Sequence[str], columns: Sequence[str], version: str | None) -> str:
    """The row of each key that is kept: the one with the greatest version, and of equal ones the last."""
    names, (unit_place, row_place) = ", ".join(map(database.quoted, columns)), _PLACE
    every = " UNION ALL ".join(
        f"SELECT {names}, {unit} AS {unit_place}, {database.row_place} AS {row_place} FROM {table}" for unit, table in enumerate(staged)
    )
    return database.newest(every, columns, target.key, version, _PLACE)
