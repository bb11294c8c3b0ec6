"""Statistics of a file in a Delta log: the number of rows, and bounds and null counts of its first columns. All come from the file's
footer."""

from __future__ import annotations

import datetime as dt
import json
from contextlib import suppress
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pyarrow.parquet as pq

_COLUMNS = 32
"""number of columns of a table for which readers expect statistics"""
_MOST_TEXT = 32
"""maximum characters of a text's bound; longer ones would only enlarge the log"""
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
        # a group without bounds holds nulls alone, or values that have none
        bounded = [each for each in groups if each.has_min_max]
        if not bounded or any(not each.has_min_max and each.num_values for each in groups):
            continue
        with suppress(ValueError, OverflowError):  # a time that Python does not support
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
