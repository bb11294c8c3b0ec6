"""Shows rows on the terminal. The first rows of a Batch are part of its write receipts, and are shown when the Batch is published."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import msgspec

from scribengin.connectors.contract import Published, Receipt

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Sequence

    import pyarrow as pa

    from scribengin.connectors.contract import BatchId, ConnectorContext, Decided, Unaccounted
    from scribengin.core.types import Schema
    from scribengin.formats.contract import Bad

_LINE_BYTES = 2000
"""Maximum size of a row; a longer one is truncated, because write receipts are stored with the decision."""


class ConsoleSink:
    """A `type: console` sink."""

    exactly_once = False

    def __init__(self, place: ConnectorContext) -> None:
        self.node = place.node
        self._rows: int = place.options["rows"]
        self._shown = -1

    def prepare(self, *, owner: str, lineage: str, adopt: bool = False) -> None:
        """Does nothing: there is no place to claim."""

    def stream(self, batch: BatchId, unit: int, attempt: str, schema: Schema) -> ConsoleSinkStream:  # noqa: ARG002 (the contract's)
        """A stream that keeps the first rows of a task output."""
        return ConsoleSinkStream(self.node, unit, self._rows)

    def publish(self, decided: Decided) -> None:
        """Show the first rows of the Batch on stderr, once in this process."""
        if decided.batch.number <= self._shown:
            return
        self._shown = decided.batch.number
        lines = [line for receipt in decided.receipts for segment in receipt.segments for line in segment["lines"]]
        rows = sum(receipt.rows for receipt in decided.receipts)
        if not rows:
            return
        shown = lines[: self._rows]
        more = f"\n  … and {rows - len(shown)} more" if rows > len(shown) else ""
        listed = "\n".join(f"  {line}" for line in shown)
        print(f'{decided.batch.query} · sink "{self.node}" · batch {decided.batch.number}\n{listed}{more}', file=sys.stderr)

    def recover(self, decided: Decided | None, *, lineage: str, before: int) -> None:  # noqa: ARG002 (the contract's)
        """Does nothing: rows that were shown before a crash are not shown again."""
        if decided is not None:
            self._shown = decided.batch.number

    def audit(self, *, lineage: str, decided: Iterable[Decided]) -> Iterator[Published]:  # noqa: ARG002 (the contract's)
        """Report the decided rows: a terminal cannot be read again."""
        for each in decided:
            yield Published(each.batch.number, sum(receipt.rows for receipt in each.receipts), counted=False)

    def unaccounted(self, known: Collection[str]) -> list[Unaccounted]:  # noqa: ARG002 (the contract's)
        """See `CountingSink`. Always empty: a terminal stores no rows."""
        return []

    def clear(self, *, owner: str, flow: str, dry_run: bool = False) -> int:  # noqa: ARG002 (the contract's)
        """Does nothing: a terminal stores no rows."""
        return 0


class ConsoleSinkStream:
    """Keeps the first rows of a task output, as JSON lines."""

    wants_ids = False

    def __init__(self, sink: str, unit: int, rows: int) -> None:
        self._sink = sink
        self._unit = unit
        self._most = rows
        self._lines: list[str] = []
        self._rows = 0

    def write(self, batch: pa.RecordBatch, ids: Sequence[str] | None = None) -> Sequence[Bad]:  # noqa: ARG002 (the contract's)
        """Keep rows while there is room."""
        from scribengin.formats.json_out import json_lines

        self._rows += batch.num_rows
        room = self._most - len(self._lines)
        if room > 0 and batch.num_rows:
            lines = json_lines(batch.slice(0, room)).splitlines()
            self._lines += [_cut(line.decode()) for line in lines]
        return ()

    def close(self) -> Receipt:
        """Return the kept rows in the write receipt."""
        segments: tuple[dict[str, Any], ...] = ({"lines": self._lines},) if self._lines else ()
        return Receipt(self._sink, self._unit, self._rows, len(msgspec.json.encode(self._lines)) if self._lines else 0, segments)

    def abort(self) -> None:
        """Does nothing: no row was stored."""


def _cut(line: str) -> str:
    return line if len(line) <= _LINE_BYTES else f"{line[:_LINE_BYTES]}…"
