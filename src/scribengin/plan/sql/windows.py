"""The windows over time that a query groups by, read off its text: how long they are, how far apart, where the first one starts."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

from scribengin.plan.sql.parse import parse_query

if TYPE_CHECKING:
    from sqlglot import exp

_SPAN = re.compile(r"(\d+)\s*(microsecond|millisecond|second|minute|hour|day|week)s?\b", re.IGNORECASE)
_US = {
    "microsecond": 1,
    "millisecond": 1_000,
    "second": 10**6,
    "minute": 60 * 10**6,
    "hour": 3_600 * 10**6,
    "day": 86_400 * 10**6,
    "week": 7 * 86_400 * 10**6,
}


@dataclass(frozen=True, slots=True)
class SqlWindow:
    """`window(time, size, slide, start)`, or `session_window(time, gap)`, whose `size_us` is the gap. In microseconds."""

    size_us: int
    slide_us: int
    start_us: int = 0
    session: bool = False


@lru_cache(maxsize=256)
def windows_of(sql: str) -> frozenset[SqlWindow] | None:
    """All that the query names; None where one of them cannot be read: a gap that is computed, months, a text that is no SQL."""
    from sqlglot import exp

    tree = parse_query(sql).tree
    if tree is None:
        return None
    found: set[SqlWindow] = set()
    for call in tree.find_all(exp.Anonymous):
        if call.name.lower() in ("window", "session_window") and call.expressions:
            spans = [_span_us(argument) for argument in call.expressions[1:]]
            if None in spans or not spans or not spans[0]:
                return None
            size, *more = [each or 0 for each in spans]
            session = call.name.lower() == "session_window"
            found.add(SqlWindow(size, size if session or not more else more[0] or size, more[1] if len(more) > 1 else 0, session))
    return frozenset(found)


def _span_us(argument: exp.Expr) -> int | None:
    """Of `'1 hour 30 minutes'`, `'interval 1 hour'` or `INTERVAL 1 HOUR`; None for anything else."""
    from sqlglot import exp

    if isinstance(argument, exp.Interval):
        text = (
            f"{argument.this.name if argument.this is not None else ''} {argument.args['unit'].name if argument.args.get('unit') else ''}"
        )
    elif isinstance(argument, exp.Literal) and argument.is_string:
        text = argument.name
    else:
        return None
    rest = re.sub(r"^\s*interval\b", "", text, flags=re.IGNORECASE)
    if _SPAN.sub("", rest).strip():
        return None
    return sum(int(amount) * _US[unit.lower()] for amount, unit in _SPAN.findall(rest))
