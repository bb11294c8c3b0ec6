"""Windows by a local clock: the one rule, for Spark's frames and for the gate that counts late rows before them.

A window begins where the clock shows a multiple of its size since the beginning of 1970, and ends where the next one begins. Where the
clocks are set back it is longer, where they are set forward shorter. Spark's own `window` knows fixed offsets only, and a shifted copy
of the time column would carry no watermark: the bounds are computed here, and the end is marked as the column that closes a group.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any
from zoneinfo import ZoneInfo

import numpy as np

from scribengin.core.errors import StepError

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import DataFrame

_WATERMARK = "spark.watermarkDelayMs"
"""Spark's mark of a column that the watermark is compared with (EventTimeWatermark.delayKey); of its value nothing depends"""
_EPOCH = datetime(1970, 1, 1)
_US = timedelta(microseconds=1)
_QUARTER_US = 15 * 60 * 10**6
"""Between two quarters of an hour no zone has changed its offset since 1972."""
_WALL_US = ((datetime.min - _EPOCH) // _US, (datetime.max - _EPOCH) // _US)
_FIRST_US, _LAST_US = _WALL_US[0] + 86_400 * 10**6, _WALL_US[1] - 86_400 * 10**6
"""the instants whose local time has a datetime in every zone"""


def with_local_window(df: DataFrame, *, time: str, size_s: float, zone: str, start: str, end: str) -> DataFrame:
    """`df` with the window of each row in the columns `start` and `end`; `time` is quoted, for Spark's parser.

    Raises StepError if Java's tz database, which may be older than Python's, does not know the zone.
    """
    from pyspark.errors import PySparkException
    from pyspark.sql import functions as sql

    jvm: Any = df.sparkSession._jvm
    try:
        jvm.java.time.ZoneId.of(zone, jvm.java.time.ZoneId.SHORT_IDS)
    except PySparkException as error:
        remedy = "use another time zone with the same rules, or install a newer Java"
        raise StepError(
            f"the tz database of this Java does not contain the time zone {zone}", remedy=remedy, code="time-zone-unknown"
        ) from error
    local = f"unix_micros(from_utc_timestamp({time}, '{zone}'))"
    size_us = round(size_s * 1e6)
    floor = f"({local} - pmod({local}, {size_us}))"
    bounds = {start: floor, end: f"({floor} + {size_us})"}
    instants = {name: sql.expr(f"to_utc_timestamp(timestamp_micros({bound}), '{zone}')") for name, bound in bounds.items()}
    return df.select("*", instants[start].alias(start), instants[end].alias(end, metadata={_WATERMARK: 0}))


def window_ends_us(times_us: np.ndarray[Any, np.dtype[np.int64]], size_us: int, zone: str) -> np.ndarray[Any, np.dtype[np.int64]]:
    """The ends of the windows that the instants lie in; all in microseconds since 1970, UTC. Costs Python per quarter of an hour met."""
    region = ZoneInfo(zone)
    known = np.clip(times_us, _FIRST_US, _LAST_US)
    local = known + _each(known // _QUARTER_US, lambda quarter: _offset_us(quarter * _QUARTER_US, region))
    return _each(local - local % size_us + size_us, lambda wall: _instant_us(wall, region))


def _each(values: np.ndarray[Any, np.dtype[np.int64]], function: Callable[[int], int]) -> np.ndarray[Any, np.dtype[np.int64]]:
    distinct, index = np.unique(values, return_inverse=True)
    return np.array([function(int(value)) for value in distinct], dtype=np.int64)[index]


def _offset_us(instant_us: int, region: ZoneInfo) -> int:
    offset = (_EPOCH + max(instant_us, _FIRST_US) * _US).replace(tzinfo=UTC).astimezone(region).utcoffset()
    assert offset is not None
    return offset // _US


def _instant_us(wall_us: int, region: ZoneInfo) -> int:
    """The first instant at which the region's clock shows it; of a time that is skipped the one that the old offset gives, as in Java."""
    wall = _EPOCH + min(max(wall_us, _WALL_US[0]), _WALL_US[1]) * _US
    offset = wall.replace(tzinfo=region, fold=0).utcoffset()
    assert offset is not None
    return wall_us - offset // _US
