"""The summary as a sink: the partial result of each task output is part of its write receipt, and so is stored in the decision of the
Batch.

Nothing is published: the table combines the partial results of the decided Batches, each once. A Batch that is run again, or whose driver
is killed at any point, is still decided once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from scribengin.connectors.contract import Published, Receipt
from scribengin.connectors.summary.forms import asked_of

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Sequence

    import pyarrow as pa

    from scribengin.connectors.contract import BatchId, ConnectorContext, Decided, Unaccounted
    from scribengin.connectors.summary.forms import SummaryPart
    from scribengin.core.types import Schema
    from scribengin.formats.contract import Bad

PART_BYTES = 256 * 1024
"""maximum size of the partial result of one task output in the Python form, in bytes; it is stored with its Batch"""


class SummarySink:
    """A `type: summary` sink."""

    exactly_once = True

    def __init__(self, place: ConnectorContext) -> None:
        self.node = place.node
        self.load: Callable[[str], Any] | None = None
        """see `CodeSink`"""
        self._options = dict(place.options)

    def prepare(self, *, owner: str, lineage: str, adopt: bool = False) -> None:
        """Does nothing: the table is part of the flow's own state."""

    def stream(self, batch: BatchId, unit: int, attempt: str, schema: Schema) -> SummaryStream:  # noqa: ARG002 (the contract's)
        """A stream that adds up the rows of a task output."""
        assert self.load is not None
        return SummaryStream(self.node, unit, asked_of(self._options, self.load).empty())

    def publish(self, decided: Decided) -> None:
        """Does nothing: the decision contains the partial results."""

    def recover(self, decided: Decided | None, *, lineage: str, before: int) -> None:
        """Does nothing; see `publish`."""

    def audit(self, *, lineage: str, decided: Iterable[Decided]) -> Iterator[Published]:  # noqa: ARG002 (the contract's)
        """Check that the partial results contain as many rows as the write receipts report."""
        for each in decided:
            rows = sum(_rows_stored(receipt) for receipt in each.receipts)
            written = sum(receipt.rows for receipt in each.receipts)
            wrong = (
                ()
                if rows == written
                else (f"the partial results of batch {each.batch.number} hold {rows} rows; expected {written}, the written ones",)
            )
            yield Published(each.batch.number, rows, wrong)

    def unaccounted(self, known: Collection[str]) -> list[Unaccounted]:  # noqa: ARG002 (the contract's)
        """See `CountingSink`. Always empty: the table is part of the flow's own state."""
        return []

    def clear(self, *, owner: str, flow: str, dry_run: bool = False) -> int:  # noqa: ARG002 (the contract's)
        """Does nothing: the table is deleted with the flow's state."""
        return 0


def _rows_stored(receipt: Receipt) -> int:
    """The number of rows in the partial results of a write receipt; if the sink had another type then, the number that it reports."""
    parts = [segment["part"]["rows"] for segment in receipt.segments if "part" in segment]
    return sum(parts) if parts else receipt.rows


class SummaryStream:
    """Computes the partial result of a task output."""

    wants_ids = False

    def __init__(self, sink: str, unit: int, table: SummaryPart) -> None:
        self._sink = sink
        self._unit = unit
        self._table = table

    def write(self, batch: pa.RecordBatch, ids: Sequence[str] | None = None) -> Sequence[Bad]:  # noqa: ARG002 (the contract's)
        """Add up the rows."""
        return self._table.add(batch)

    def close(self) -> Receipt:
        """Return the partial result in the write receipt."""
        segments: tuple[dict[str, Any], ...] = ({"part": self._table.as_json(PART_BYTES)},) if self._table.rows else ()
        return Receipt(self._sink, self._unit, self._table.rows, len(msgspec.json.encode(segments)) if segments else 0, segments)

    def abort(self) -> None:
        """Does nothing: no row was stored."""
