"""Writes of one task output: staged Parquet files, one for each partition, and their entries for the table's log."""

from __future__ import annotations

from typing import TYPE_CHECKING
from urllib.parse import unquote

from scribengin.connectors.contract import Receipt
from scribengin.connectors.delta.by_time import with_time
from scribengin.connectors.delta.statistics import statistics_of
from scribengin.connectors.files.time_path import NULL
from scribengin.core.storage import explained
from scribengin.formats.contract import Bad

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from typing import Any

    import pyarrow as pa
    import pyarrow.parquet as pq

    from scribengin.connectors.files.sink_stream import FilesSinkStream
    from scribengin.connectors.files.time_path import TimePath
    from scribengin.connectors.objects.sink_stream import ObjectsSinkStream
    from scribengin.core.types import Schema


class DeltaSinkStream:
    """See the contract. `staging` writes the files; this class refuses rows that no table accepts, and describes the files."""

    wants_ids = False

    def __init__(
        self,
        staging: FilesSinkStream | ObjectsSinkStream,
        footer: Callable[[Mapping[str, Any]], pq.FileMetaData],
        doing: str,
        schema: Schema,
        key: Sequence[str],
        parts: Sequence[str | TimePath],
    ) -> None:
        """`footer` reads the footer of a segment; `doing` is for messages."""
        self._staging = staging
        self._footer = footer
        self._doing = doing
        self._schema = with_time(schema, parts)
        self._key = tuple(key)
        self._texts = tuple(name for name in parts if isinstance(name, str) and schema[name].type.name == "STRING")
        """partition columns that may contain an empty text, which Delta stores as null"""

    def write(self, batch: pa.RecordBatch, ids: Sequence[str] | None = None) -> Sequence[Bad]:  # noqa: ARG002 (the contract's)
        """Stage the rows. Rows without a key or a partition are refused."""
        import pyarrow as pa

        refused = self._refused(batch)
        if not refused:
            return self._staging.write(batch)
        kept = [place for place in range(batch.num_rows) if place not in refused]
        further = self._staging.write(batch.take(pa.array(kept, pa.int64())))
        told = [Bad(place, "refused", why) for place, why in refused.items()]
        told += [Bad(kept[bad.ordinal], bad.reason, bad.message) for bad in further]
        return sorted(told, key=lambda bad: bad.ordinal)

    def close(self) -> Receipt:
        """Finish the files and make them durable."""
        receipt = self._staging.close()
        with explained(self._doing):
            segments = [self._described(segment) for segment in receipt.segments]
        if segments:
            segments[0]["schema"] = str(self._schema)
        return Receipt(receipt.sink, receipt.unit, receipt.rows, receipt.bytes, tuple(segments))

    def abort(self) -> None:
        """Delete the staged files."""
        self._staging.abort()

    def _described(self, segment: Mapping[str, Any]) -> dict[str, Any]:
        stats = statistics_of(self._footer(segment))
        return {**segment, "partition": partition_of(segment["name"]), "stats": stats}

    def _refused(self, batch: pa.RecordBatch) -> dict[int, str]:
        """Index of a row in the batch → why the table can never accept it."""
        import pyarrow.compute as pc

        found: dict[int, str] = {}
        for name in self._key:
            column = batch.column(name)
            if column.null_count:
                why = f'column "{name}" is null, but it is part of the key'
                found |= dict.fromkeys(pc.indices_nonzero(column.is_null()).to_pylist(), why)
        for name in self._texts:
            empty = pc.indices_nonzero(pc.fill_null(pc.equal(batch.column(name), ""), fill_value=False)).to_pylist()
            why = f'column "{name}" is an empty text, which a Delta table stores as null in a partition column'
            found |= dict.fromkeys(empty, why)
        return found


def partition_of(name: str) -> dict[str, str | None]:
    """The partition values of a file, in the form of a Delta log.

    >>> partition_of("country=DE/note=a%2Fb/part-0000000001-00000-000-x.parquet")
    {'country': 'DE', 'note': 'a/b'}
    """
    parts = (part.partition("=") for part in name.split("/")[:-1])
    return {unquote(column): None if value == NULL else unquote(value) for column, _, value in parts}
