"""The options of `type: sequence`."""

import datetime as dt
from collections.abc import Mapping
from typing import Any

from scribengin.core.options import NodeType, Option
from scribengin.core.time_text import WRITE_TIME, parse_time
from scribengin.core.types import Field, Schema, Type

_EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
_LAST_US = (dt.datetime(9999, 12, 31, 23, 59, 59, 999999, tzinfo=dt.UTC) - _EPOCH) // dt.timedelta(microseconds=1)


def start_us(text: str) -> int:
    """The time in `text`, in microseconds since 1970. Raises ValueError."""
    return (parse_time(text) - _EPOCH) // dt.timedelta(microseconds=1)


def start_fault(text: str) -> tuple[str, str] | None:
    """What is wrong with `start`, and what to write instead; None if it is valid."""
    try:
        start_us(text)
    except ValueError:
        return f'is "{text}", which is not a valid time', WRITE_TIME
    return None


def rows_fault(options: Mapping[str, Any]) -> tuple[str, str, str] | None:
    """(option, what is wrong, remedy) if `ts` of the last row is after the greatest TIMESTAMP; None otherwise."""
    rows: int | None = options["rows"]
    if not rows or start_us(options["start"]) + (rows - 1) * round(options["step"] * 1e6) <= _LAST_US:
        return None
    return "rows", f"has {rows:,} rows, and the time of the last one is after the year 9999", "make `step` or `rows` smaller"


SOURCE = NodeType(
    type="sequence",
    role="source",
    doc="Generates rows: `id BIGINT` from 0, and `ts TIMESTAMP`, `start` plus the id times `step`.",
    options=(
        Option("rows", "int", "total number of rows; unlimited by default (`--once` requires it)", None, example="1000000", low=0),
        Option("rate", "int", "maximum rows per second; by default unlimited", None, example="50000", low=1, pace=True),
        Option("start", "text", "`ts` of row 0, ISO 8601", "2026-01-01T00:00:00Z", example='"2026-01-01T00:00:00Z"', check=start_fault),
        Option("step", "duration", "interval between the `ts` of two rows", 1.0, example="10ms"),
        Option("max_rows", "int", "maximum rows of one Batch", 1_000_000, example="100000", low=1, pace=True),
        Option("splits", "int", "tasks that a Batch is split into", 2, example="4", low=1, pace=True),
    ),
    abilities=frozenset({"replayable", "bounded", "no_place", "checks_local_place"}),
    fixed_columns=Schema((Field("id", Type("BIGINT"), nullable=False), Field("ts", Type("TIMESTAMP"), nullable=False))),
    ends_by="rows",
    check=rows_fault,
)
