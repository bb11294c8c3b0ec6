"""The writes of one task output: staged Parquet files, one for each partition, and their entries for the table's log."""

from __future__ import annotations

import datetime as dt
import json
from contextlib import suppress
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

from scribengin.connectors.contract import Receipt
from scribengin.connectors.delta.by_time import with_time
from scribengin.connectors.files.time_path import NULL
from scribengin.core.storage import explained
from scribengin.formats.contract import Bad

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from typing import Any

    import pyarrow as pa
    import pyarrow.parquet as pq

    from scribengin.connectors.files.sink_stream import FilesSinkStream
    from scribengin.connectors.files.time_path import TimePath
    from scribengin.connectors.objects.sink_stream import ObjectsSinkStream
    from scribengin.core.types import Schema


# Statistics of a file in a Delta log: the number of rows, and bounds and null counts of its first columns. All come from the file's
# footer.


_COLUMNS = 32
"""number of columns of a table for which readers expect statistics"""
_MOST_TEXT = 32
"""maximum number of characters of a text's bound; longer bounds would only enlarge the log"""
_BOUNDED = (int, str, dt.date)
"""types whose values are written to JSON unchanged. Other types get no bounds: readers sort NaN differently, and a decimal may lose
digits"""


def statistics_of(footer: pq.FileMetaData) -> str:
    """The JSON of a file's `stats` in the log."""
    low: dict[str, Any] = {}
    high: dict[str, Any] = {}
    nulls: dict[str, int] = {}
    for index, name in _columns(footer):
        groups = [footer.row_group(group).column(index).statistics for group in range(footer.num_row_groups)]
        if not groups or any(each is None for each in groups):
            continue
        if all(each.has_null_count for each in groups):
            nulls[name] = sum(each.null_count for each in groups)
        # a row group without bounds contains only nulls, or values without an order
        bounded = [each for each in groups if each.has_min_max]
        if not bounded or any(not each.has_min_max and each.num_values for each in groups):
            continue
        with suppress(ValueError, OverflowError):  # a time that Python cannot represent
            least, most = min(each.min for each in bounded), max(each.max for each in bounded)
            if isinstance(least, _BOUNDED) and not isinstance(least, bool):
                low[name] = _word(least)
                if not isinstance(most, str) or len(most) <= _MOST_TEXT:
                    high[name] = _word(most)
    return json.dumps(
        {"numRecords": footer.num_rows, "minValues": low, "maxValues": high, "nullCount": nulls}, ensure_ascii=False, separators=(",", ":")
    )


def _columns(footer: pq.FileMetaData) -> Iterator[tuple[int, str]]:
    """(position, name) of the first columns that have no nested parts."""
    for index in range(min(len(footer.schema), _COLUMNS)):
        column = footer.schema.column(index)
        if column.path == column.name:
            yield index, column.name


def _word(value: Any) -> Any:
    if isinstance(value, dt.datetime):
        return value.astimezone(dt.UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ").rjust(27, "0")
    if isinstance(value, dt.date):
        return value.isoformat()
    return value[:_MOST_TEXT] if isinstance(value, str) else value


class DeltaSinkStream:
    """A stream, see the contract. `staging` writes the files; this class refuses rows that no table accepts, and describes the files."""

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
        """Stage the rows. Returns the rows that have no key, or no valid partition."""
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
        """Index of a row in the batch → why the table can never accept the row."""
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
