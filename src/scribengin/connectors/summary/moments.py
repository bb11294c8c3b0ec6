"""Timestamps and dates that Arrow supports and Python does not: before the year 1, after 9999."""

from __future__ import annotations

from typing import TYPE_CHECKING

from scribengin.formats.contract import Bad

if TYPE_CHECKING:
    from collections.abc import Collection

    import pyarrow as pa

_DAYS = -719_162, 2_932_896
_DAY_US = 86_400_000_000


def without_far(batch: pa.RecordBatch, columns: Collection[str]) -> tuple[pa.RecordBatch, list[int], list[Bad]]:
    """The rows whose times in `columns` Python supports, the index of each of them, and the others."""
    import pyarrow as pa
    import pyarrow.compute as pc

    far: dict[int, str] = {}
    for name in sorted(columns):
        column = batch.column(name)
        if pa.types.is_timestamp(column.type):
            numbers, first, last = (
                column.cast(pa.timestamp("us", column.type.tz)).cast(pa.int64()),
                _DAYS[0] * _DAY_US,
                (_DAYS[1] + 1) * _DAY_US - 1,
            )
        elif pa.types.is_date32(column.type):
            numbers, (first, last) = column.cast(pa.int32()).cast(pa.int64()), _DAYS
        else:
            continue
        ends = pc.min_max(numbers).as_py()
        if ends["min"] is None or (ends["min"] >= first and ends["max"] <= last):
            continue
        beyond = pc.or_(pc.less(numbers, first), pc.greater(numbers, last)).fill_null(False)
        far |= dict.fromkeys(pc.indices_nonzero(beyond).to_pylist(), name)
    if not far:
        return batch, list(range(batch.num_rows)), []
    kept = [index for index in range(batch.num_rows) if index not in far]
    bad = [Bad(index, "out-of-range", f'column "{name}" is before the year 1 or after 9999') for index, name in sorted(far.items())]
    return batch.take(pa.array(kept, pa.int64())), kept, bad
