"""One unit's writes: a staging table of its own, which no other attempt knows."""

from __future__ import annotations

from contextlib import suppress
from hashlib import blake2b
from typing import TYPE_CHECKING, Any

from scribengin.connectors.contract import Receipt
from scribengin.connectors.sql.columns import made
from scribengin.connectors.sql.contract import NotTaken
from scribengin.core import faults
from scribengin.core.errors import ScribenginError, SinkError
from scribengin.formats.contract import Bad

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pyarrow as pa

    from scribengin.connectors.contract import BatchId
    from scribengin.connectors.sql.commits import Commits
    from scribengin.connectors.sql.contract import Database, Session, Staging, Target
    from scribengin.core.types import Schema


class SqlSinkStream:
    """See the contract. The staging table is made at the first row, and the table itself where it is not there."""

    wants_ids = False

    def __init__(
        self, sink: str, database: Database[Any], commits: Commits, target: Target, batch: BatchId, unit: int, attempt: str, schema: Schema
    ) -> None:
        self._sink = sink
        self._database = database
        self._commits = commits
        self._target = target
        self._batch = batch
        self._unit = unit
        # sinks that commit together have the attempt in common; and a name may be 63 bytes long
        whose = blake2b(f"{target} {batch.lineage} {attempt}".encode(), digest_size=12).hexdigest()
        self._name = f"rows_{batch.number}_{unit}_{whose}"
        self._schema = schema
        self._rows = 0
        self._bytes = 0
        self._begun: tuple[Session, Staging] | None = None

    def write(self, batch: pa.RecordBatch, ids: Sequence[str] | None = None) -> Sequence[Bad]:  # noqa: ARG002 (the contract's)
        """Stage the rows. Those are refused that the table's types and rules do not take, as the database words it."""
        if not batch.num_rows:
            return ()
        if self._begun is None:
            self._begun = self._begin()
        refused: list[Bad] = []
        with self._database.explained(f"did not take rows for {self._target}"):
            self._stage(self._begun[1], batch, 0, refused)
        faults.reached("stage.mid_write")
        return sorted(refused, key=lambda bad: bad.ordinal)

    def close(self) -> Receipt:
        """Make the rows durable: a commit that the database is waited for brings all that were before it to its disk."""
        if self._begun is None:
            return Receipt(self._sink, self._unit, 0, 0)
        session, _ = self._begun
        with self._database.explained(f"did not keep rows for {self._target}"):
            self._commits.confirm(session, self._name)
        session.close()
        segment = {"staged": self._name, "rows": self._rows, "columns": list(self._schema.names)}
        return Receipt(self._sink, self._unit, self._rows, self._bytes, (segment,) if self._rows else ())

    def abort(self) -> None:
        """Remove what was staged."""
        if self._begun is None:
            return
        session, _ = self._begun
        with suppress(ScribenginError), self._database.explained(f"did not give up rows for {self._target}"):
            self._commits.drop_staged_called(session, self._name)
        session.close()

    def _begin(self) -> tuple[Session, Staging]:
        session = self._database.connect()
        try:
            with self._database.explained(f"has no room to stage rows for {self._target}"), session.transaction():
                self._make(session)
                self._commits.stage(session, self._name, self._batch.lineage, self._batch.number)
                return session, self._database.stage(session, self._name, self._target, self._schema)
        except BaseException:
            session.close()
            raise

    def _make(self, session: Session) -> None:
        """The table itself, where it was never there. One that is there was compared with the columns before the run."""
        if not self._database.is_there(session, *self._target.names):
            if self._commits.wrote(session):
                raise SinkError(
                    f'sink "{self._sink}": table {self._target} at {self._database} is gone, with rows that were written to it',
                    remedy="restore it, or begin anew: scribengin reset FLOW --outputs --yes",
                    code="table-gone",
                    node=self._sink,
                )
            self._database.make(session, self._target, made(self._database, self._target, self._schema))

    def _stage(self, staging: Staging, batch: pa.RecordBatch, first: int, refused: list[Bad]) -> None:
        """All rows at once; where one is refused, each half by itself."""
        try:
            size = staging.put(batch)
        except NotTaken as why:
            if batch.num_rows == 1:
                refused.append(Bad(first, "refused", f"{self._target} does not take it: {why}"))
                return
            half = batch.num_rows // 2
            self._stage(staging, batch.slice(0, half), first, refused)
            self._stage(staging, batch.slice(half), first + half, refused)
            return
        self._rows += batch.num_rows
        self._bytes += size
