"""The summary as a sink: each unit's part of the table travels in its receipt, and so stands in the Batch's decision.

Nothing is published: the table is what the decided Batches come to, each of them once. A Batch that is run again, or whose driver dies at
any point, is decided once all the same.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from scribengin.connectors.contract import Published, Receipt
from scribengin.connectors.summary.forms import asked_of

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Sequence

    import pyarrow as pa

    from scribengin.connectors.contract import BatchId, Decided, Place, Unaccounted
    from scribengin.connectors.summary.forms import Part
    from scribengin.core.types import Schema
    from scribengin.formats.contract import Bad

PART_BYTES = 256 * 1024
"""what a class's part may take: it is stored with its Batch. All of them together may take more."""


class SummarySink:
    """One `type: summary` sink."""

    exactly_once = True

    def __init__(self, place: Place) -> None:
        self.node = place.node
        self.load: Callable[[str], Any] | None = None
        """see `CodeSink`"""
        self._options = dict(place.options)

    def prepare(self, *, owner: str, lineage: str, adopt: bool = False) -> None:
        """Nothing to claim: it lies in the flow's own state."""

    def stream(self, batch: BatchId, unit: int, attempt: str, schema: Schema) -> SummaryStream:  # noqa: ARG002 (the contract's)
        """A stream that adds up the unit's rows."""
        assert self.load is not None
        return SummaryStream(self.node, unit, asked_of(self._options, self.load).empty())

    def publish(self, decided: Decided) -> None:
        """The decision is all there is."""

    def recover(self, decided: Decided | None, *, lineage: str, before: int) -> None:
        """As `publish`."""

    def audit(self, *, lineage: str, decided: Iterable[Decided]) -> Iterator[Published]:  # noqa: ARG002 (the contract's)
        """Whether the parts hold as many rows as were written."""
        for each in decided:
            rows = sum(_held(receipt) for receipt in each.receipts)
            written = sum(receipt.rows for receipt in each.receipts)
            wrong = (
                ()
                if rows == written
                else (f"the partial results of batch {each.batch.number} hold {rows} rows; expected {written}, the written ones",)
            )
            yield Published(each.batch.number, rows, wrong)

    def unaccounted(self, known: Collection[str]) -> list[Unaccounted]:  # noqa: ARG002 (the contract's)
        """See `CountingSink`. It lies in the flow's own state."""
        return []

    def clear(self, *, owner: str, flow: str, dry_run: bool = False) -> int:  # noqa: ARG002 (the contract's)
        """It goes with the flow's state."""
        return 0


def _held(receipt: Receipt) -> int:
    """The rows of its parts; where the sink was of another type then, nothing is left to look at."""
    parts = [segment["part"]["rows"] for segment in receipt.segments if "part" in segment]
    return sum(parts) if parts else receipt.rows


class SummaryStream:
    """A unit's part of the table."""

    wants_ids = False

    def __init__(self, sink: str, unit: int, table: Part) -> None:
        self._sink = sink
        self._unit = unit
        self._table = table

    def write(self, batch: pa.RecordBatch, ids: Sequence[str] | None = None) -> Sequence[Bad]:  # noqa: ARG002 (the contract's)
        """Add the rows up."""
        return self._table.add(batch)

    def close(self) -> Receipt:
        """The part, in the receipt."""
        segments: tuple[dict[str, Any], ...] = ({"part": self._table.as_json(PART_BYTES)},) if self._table.rows else ()
        return Receipt(self._sink, self._unit, self._table.rows, len(msgspec.json.encode(segments)) if segments else 0, segments)

    def abort(self) -> None:
        """Nothing was kept anywhere."""
