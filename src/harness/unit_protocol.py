"""The driver of `testing.protocol` for sinks whose task outputs commit one by one, instead of Batches that commit as a whole."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING
from uuid import uuid4

from scribengin.connectors.abilities import commits_units
from scribengin.connectors.contract import AlreadyCommitted, Receipt
from scribengin.state.contract import Counts, Decision
from scribengin.testing.protocol import PLAN, SINKS, SOURCE, STEP, Driver, as_batch, ids_of, output_schema, rows_of

if TYPE_CHECKING:
    from scribengin.connectors.contract import BatchId, SourceStream
    from scribengin.state.contract import SourceRange


@dataclass(slots=True)
class UnitsDriver(Driver):
    """A driver whose task outputs commit one by one, as on executors. All records go to the first sink, without random choices."""

    def _stage(self, batch: BatchId, hash_: str, planned: SourceRange, streams: tuple[SourceStream, ...]) -> Decision:
        (node, other), schema = SINKS, output_schema(self.job)
        sink = self.sinks[node]
        assert commits_units(sink)
        behind = sink.behind(len(streams))
        receipts = []
        for unit, stream in enumerate(streams):
            out = sink.unit_stream(batch, unit, uuid4().hex, schema, input_hash=hash_, behind=behind)
            try:
                rows = rows_of(stream)
                out.write(as_batch(self.job, rows), ids_of(rows))
                receipt = out.close()
                out.commit(receipt.as_json())
            except AlreadyCommitted as found:
                receipt = Receipt.from_json(found.report)
            finally:
                out.abort()
            receipts.append(receipt)
        total = sum(receipt.rows for receipt in receipts)
        counts = {name: Counts(total, total) for name in (SOURCE, STEP, node)} | {other: Counts()}
        empty = self.sinks[other]
        assert commits_units(empty)
        chain = {node: behind, other: empty.behind(0)}
        return Decision(batch, hash_, PLAN, (planned,), tuple(receipts), (), counts, datetime.now(UTC).isoformat(), chain)
