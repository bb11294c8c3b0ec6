"""The sink whose tasks write to the table itself: each unit of a Batch in a transaction of its own, with a record of what it was.

It writes rows once where `SqlSink` writes them twice, and a reader sees a Batch in parts. What keeps each record once: a unit is the same
whenever its Batch is run (`unit_contract`), and of its attempts one can put its record into `units`. An attempt that comes late finds that
record, or that the claim or the newest Batch is another one, under a lock that it shares with other units and not with a claim.
Where the engine cannot let units commit, the whole Batch goes the way of `SqlSink`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from scribengin.connectors.sql.sink import SqlSink
from scribengin.connectors.sql.unit_stream import SqlUnitStream, Unit

if TYPE_CHECKING:
    from collections.abc import Mapping

    from scribengin.connectors.contract import BatchId, Decided, Place
    from scribengin.connectors.sql.contract import LoadingDatabase, Target
    from scribengin.core.types import Schema

_MOST = 1_000


class SqlUnitSink(SqlSink):
    """As SqlSink, for rows that are added."""

    units = _MOST

    def __init__(self, place: Place, database: LoadingDatabase[Any], target: Target) -> None:
        super().__init__(place, database, target)
        self._loading = database
        self._after: int | None = None
        """the newest Batch that is published, None where there is none"""

    def prepare(self, *, owner: str, lineage: str, adopt: bool = False) -> None:
        """As SqlSink; and see how far the lineage is."""
        super().prepare(owner=owner, lineage=lineage, adopt=adopt)
        with self._connected("cannot be read") as session:
            newest = self._commits.newest(session, lineage)
        self._after = None if newest is None else newest.number

    def behind(self, units: int) -> Mapping[str, Any]:
        """`after`: the number of the newest Batch that is published."""
        return {"units": units, "after": self._after}

    def unit_stream(
        self, batch: BatchId, unit: int, attempt: str, schema: Schema, *, input_hash: str, behind: Mapping[str, Any]
    ) -> SqlUnitStream:
        """A stream that commits by itself."""
        mine = Unit(self.node, self._owner, batch, unit, attempt, input_hash, behind["after"])
        return SqlUnitStream(mine, self._loading, self._commits, self._target, schema)

    def publish(self, decided: Decided) -> None:
        """As SqlSink, which only records a Batch whose units have committed."""
        super().publish(decided)
        self._after = decided.batch.number
