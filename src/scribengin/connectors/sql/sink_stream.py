"""Writes of one task output: a staging table of its own, which no other attempt uses."""

from __future__ import annotations

from contextlib import suppress
from hashlib import blake2b
from typing import TYPE_CHECKING, Any

from scribengin.connectors.contract import Receipt
from scribengin.connectors.sql.table_stream import TableStream
from scribengin.core.errors import ScribenginError

if TYPE_CHECKING:
    import pyarrow as pa

    from scribengin.connectors.contract import BatchId
    from scribengin.connectors.sql.commits import Commits
    from scribengin.connectors.sql.contract import Database, SqlSession, Staging, Target
    from scribengin.core.types import Schema


class SqlSinkStream(TableStream):
    """See the contract. The staging table is created at the first row, and the target table if it does not exist."""

    def __init__(
        self, sink: str, database: Database[Any], commits: Commits, target: Target, batch: BatchId, unit: int, attempt: str, schema: Schema
    ) -> None:
        super().__init__(sink, database, commits, target, schema)
        self._batch = batch
        self._unit = unit
        # sinks that commit together share the attempt; and a name may be 63 bytes long
        whose = blake2b(f"{target} {batch.lineage} {attempt}".encode(), digest_size=12).hexdigest()
        self._name = f"rows_{batch.number}_{unit}_{whose}"
        self._begun: tuple[SqlSession, Staging] | None = None

    def close(self) -> Receipt:
        """Make the rows durable: a synchronous commit makes all earlier ones durable too."""
        if self._begun is None:
            return Receipt(self._sink, self._unit, 0, 0)
        session, _ = self._begun
        with self._database.explained(f"failed to keep rows for {self._target}"):
            self._commits.confirm(session, self._name)
        session.close()
        segment = {"staged": self._name, "rows": self._rows, "columns": list(self._schema.names)}
        return Receipt(self._sink, self._unit, self._rows, self._bytes, (segment,) if self._rows else ())

    def abort(self) -> None:
        """Drop the staging table."""
        if self._begun is None:
            return
        session, _ = self._begun
        with suppress(ScribenginError), self._database.explained(f"failed to discard rows for {self._target}"):
            self._commits.drop_staged_called(session, self._name)
        session.close()

    def _begin_once(self) -> None:
        if self._begun is not None:
            return
        session = self._database.connect()
        try:
            with self._database.explained(f"has no space to stage rows for {self._target}"), session.transaction():
                self._make_table(session)
                self._commits.stage(session, self._name, self._batch.lineage, self._batch.number)
                self._begun = session, self._database.stage(session, self._name, self._target, self._schema)
        except BaseException:
            self._begun = None
            session.close()
            raise

    def _put(self, batch: pa.RecordBatch) -> int:
        assert self._begun is not None
        return self._begun[1].put(batch)
