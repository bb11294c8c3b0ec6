"""The sink whose tasks write directly to the table: each task output of a Batch in its own transaction, with a record of it.

It writes rows once, while `SqlSink` writes them twice, and a reader may see part of a Batch. Each record is still written once, for two
reasons. A task output is the same whenever its Batch is run (`unit_contract`), and only one of its attempts can put its record into
`units`. A late attempt finds that record, or that the claim or the newest Batch has changed, under a lock that it shares with other task
outputs and not with a claim. If the engine cannot let task outputs commit, the whole Batch is written as by `SqlSink`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from scribengin.connectors.sql.sink import SqlSink
from scribengin.connectors.sql.unit_stream import SqlUnitStream, Unit

if TYPE_CHECKING:
    from collections.abc import Mapping

    from scribengin.connectors.contract import BatchId, ConnectorContext, Decided
    from scribengin.connectors.sql.contract import LoadingDatabase, Target
    from scribengin.core.types import Schema

_MOST = 1_000


class SqlUnitSink(SqlSink):
    """Like SqlSink, for appended rows."""

    units = _MOST

    def __init__(self, place: ConnectorContext, database: LoadingDatabase[Any], target: Target) -> None:
        super().__init__(place, database, target)
        self._loading = database
        self._after: int | None = None
        """the newest published Batch, None if there is none"""

    def prepare(self, *, owner: str, lineage: str, adopt: bool = False) -> None:
        """Like SqlSink; also reads the lineage's newest Batch."""
        super().prepare(owner=owner, lineage=lineage, adopt=adopt)
        with self._connected("cannot be read") as session:
            newest = self._commits.newest(session, lineage)
        self._after = None if newest is None else newest.number

    def behind(self, units: int) -> Mapping[str, Any]:
        """`after`: the number of the newest published Batch."""
        return {"units": units, "after": self._after}

    def unit_stream(
        self, batch: BatchId, unit: int, attempt: str, schema: Schema, *, input_hash: str, behind: Mapping[str, Any]
    ) -> SqlUnitStream:
        """A stream that commits by itself."""
        mine = Unit(self.node, self._owner, batch, unit, attempt, input_hash, behind["after"])
        return SqlUnitStream(mine, self._loading, self._commits, self._target, schema)

    def publish(self, decided: Decided) -> None:
        """Like SqlSink, but only records a Batch whose task outputs have committed."""
        super().publish(decided)
        self._after = decided.batch.number
