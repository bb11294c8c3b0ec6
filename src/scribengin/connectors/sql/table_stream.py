"""Common parts of every stream of rows into a table: create a table that never existed, and find the rows that it refuses."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any

from scribengin.connectors.sql.contract import NotTaken
from scribengin.core import faults
from scribengin.core.errors import SinkError
from scribengin.core.remedies import start_over
from scribengin.formats.contract import Bad

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import pyarrow as pa

    from scribengin.connectors.sql.commits import Commits
    from scribengin.connectors.sql.contract import Database, SqlSession, Target
    from scribengin.core.types import Schema


# Columns of a flow as columns of a table, for the types of any database.


def made(database: Database[Any], target: Target, schema: Schema) -> str:
    """The column list of CREATE TABLE."""
    fields = [field for field in schema.fields if field.name != target.change]
    types = [database.type_of(field.type, in_key=field.name in target.key) for field in fields]
    lines = [
        f"{database.quoted(field.name)} {type_}{'' if field.nullable else ' NOT NULL'}" for field, type_ in zip(fields, types, strict=True)
    ]
    return ", ".join([*lines, f"PRIMARY KEY ({', '.join(map(database.quoted, target.key))})"] if target.key else lines)


def unlike(database: Database[Any], target: Target, schema: Schema, held: Mapping[str, tuple[str, bool]]) -> list[str]:
    """Why the existing table of `target` does not accept `schema`, one sentence per reason. `held`: column → (type, whether each row must
    have a value)."""
    found = []
    for field in schema.fields:
        if field.name not in held:
            found.append(f'the table has no column "{field.name}" ({database.type_of(field.type, in_key=field.name in target.key)})')
        elif not database.takes(field.type, there := held[field.name][0]):
            found.append(f'column "{field.name}" is {there} in the table, but {field.type} in the flow')
    for name, (type_, must) in held.items():
        if must and name not in schema:
            found.append(f'the table requires column "{name}" ({type_}), which the flow does not have')
    return found


class TableStream(ABC):
    """Rows of one task output, on their way into `target`."""

    wants_ids = False

    def __init__(self, sink: str, database: Database[Any], commits: Commits, target: Target, schema: Schema) -> None:
        self._sink = sink
        self._database = database
        self._commits = commits
        self._target = target
        self._schema = schema
        self._rows = 0
        self._bytes = 0

    def write(self, batch: pa.RecordBatch, ids: Sequence[str] | None = None) -> Sequence[Bad]:  # noqa: ARG002 (the contract's)
        """Put the rows. Rows that violate the table's types and constraints are refused, with the database's message."""
        if not batch.num_rows:
            return ()
        self._begin_once()
        refused: list[Bad] = []
        with self._database.explained(f"did not accept rows for {self._target}"):
            self._put_all(batch, 0, refused)
        faults.reached("stage.mid_write")
        return sorted(refused, key=lambda bad: bad.ordinal)

    @abstractmethod
    def _begin_once(self) -> None:
        """Called before rows are put: create what they need, unless it exists."""

    @abstractmethod
    def _put(self, batch: pa.RecordBatch) -> int:
        """Put all rows in one step; returns the number of bytes. Raises NotTaken if a row causes the error; then no row of `batch` is
        stored."""

    def _make_table(self, session: SqlSession) -> None:
        """Create the table, if it never existed. An existing one was compared with the columns before the run."""
        if not self._database.is_there(session, *self._target.names):
            if self._commits.wrote(session):
                raise SinkError(
                    (
                        f'sink "{self._sink}": table {self._target} at {self._database} does not exist any more, nor do the rows that were '
                        "written to it"
                    ),
                    remedy=f"restore it, or {start_over()}",
                    code="table-gone",
                    node=self._sink,
                )
            self._database.make(session, self._target, made(self._database, self._target, self._schema))

    def _put_all(self, batch: pa.RecordBatch, first: int, refused: list[Bad]) -> None:
        """Put all rows at once; if one is refused, each half separately."""
        try:
            size = self._put(batch)
        except NotTaken as why:
            if batch.num_rows == 1:
                refused.append(Bad(first, "refused", f"{self._target} rejected the row: {why}"))
                return
            half = batch.num_rows // 2
            self._put_all(batch.slice(0, half), first, refused)
            self._put_all(batch.slice(half), first + half, refused)
            return
        self._rows += batch.num_rows
        self._bytes += size
