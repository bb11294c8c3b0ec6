"""The summary as a sink: the partial result of each task output is sent in its write receipt, and so is stored in the Batch's decision.

Nothing is published: the table combines the decided Batches, each once. A Batch that is run again, or whose driver is killed at any point,
is still decided once.
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
"""maximum size of a class's partial result, which is stored with its Batch. All of them together may be larger."""


class SummarySink:
    """One `type: summary` sink."""

    exactly_once = True

    def __init__(self, place: ConnectorContext) -> None:
        self.node = place.node
        self.load: Callable[[str], Any] | None = None
        """see `CodeSink`"""
        self._options = dict(place.options)

    def prepare(self, *, owner: str, lineage: str, adopt: bool = False) -> None:
        """Does nothing: the table is in the flow's own state."""

    def stream(self, batch: BatchId, unit: int, attempt: str, schema: Schema) -> SummaryStream:  # noqa: ARG002 (the contract's)
        """A stream that adds up the rows of a task output."""
        assert self.load is not None
        return SummaryStream(self.node, unit, asked_of(self._options, self.load).empty())

    def publish(self, decided: Decided) -> None:
        """Does nothing: the decision contains everything."""

    def recover(self, decided: Decided | None, *, lineage: str, before: int) -> None:
        """Like `publish`."""

    def audit(self, *, lineage: str, decided: Iterable[Decided]) -> Iterator[Published]:  # noqa: ARG002 (the contract's)
        """Whether the partial results contain as many rows as were written."""
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
        """See `CountingSink`. Always empty: the table is in the flow's own state."""
        return []

    def clear(self, *, owner: str, flow: str, dry_run: bool = False) -> int:  # noqa: ARG002 (the contract's)
        """Does nothing: the table is deleted with the flow's state."""
        return 0


def _rows_stored(receipt: Receipt) -> int:
    """The number of rows in its partial results; if the sink had another type then, there is nothing to check."""
    parts = [segment["part"]["rows"] for segment in receipt.segments if "part" in segment]
    return sum(parts) if parts else receipt.rows


class SummaryStream:
    """The partial result of a task output."""

    wants_ids = False

    def __init__(self, sink: str, unit: int, table: SummaryPart) -> None:
        self._sink = sink
        self._unit = unit
        self._table = table

    def write(self, batch: pa.RecordBatch, ids: Sequence[str] | None = None) -> Sequence[Bad]:  # noqa: ARG002 (the contract's)
        """Add up the rows."""
        return self._table.add(batch)

    def close(self) -> Receipt:
        """The partial result, in the write receipt."""
        segments: tuple[dict[str, Any], ...] = ({"part": self._table.as_json(PART_BYTES)},) if self._table.rows else ()
        return Receipt(self._sink, self._unit, self._table.rows, len(msgspec.json.encode(segments)) if segments else 0, segments)

    def abort(self) -> None:
        """Does nothing: no row was stored."""
