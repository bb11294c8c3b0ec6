"""The windows that are read off a query, by which late rows are known from those that are in time."""

from __future__ import annotations

import pytest

from scribengin.plan.sql.shape import SqlWindow, windows_of

_MIN = 60 * 10**6
_HOUR = 60 * _MIN


@pytest.mark.parametrize(
    ("group", "found"),
    [
        ("window(ts, '1 hour')", {SqlWindow(_HOUR, _HOUR)}),
        ("who, Window(`ts`, '1 hour', '10 minutes')", {SqlWindow(_HOUR, 10 * _MIN)}),
        ("window(ts, '1 day', '1 day', '6 hours')", {SqlWindow(24 * _HOUR, 24 * _HOUR, 6 * _HOUR)}),
        ("window(ts, INTERVAL 90 MINUTES)", {SqlWindow(90 * _MIN, 90 * _MIN)}),
        ("window(ts, 'interval 1 hour 30 minutes')", {SqlWindow(90 * _MIN, 90 * _MIN)}),
        ("session_window(ts, '5 minutes')", {SqlWindow(5 * _MIN, 5 * _MIN, session=True)}),
        ("session_window(ts, CASE WHEN a THEN '5 minutes' ELSE '1 minute' END)", None),
        ("window(ts, '1 month')", None),
        ("window(ts, size)", None),
        ("date_trunc('hour', ts)", set()),
    ],
)
def test_windows_are_read_off_a_query_or_it_is_known_that_they_are_not(group: str, found: set[SqlWindow] | None) -> None:
    assert windows_of(f"SELECT count(*) AS n FROM rows GROUP BY {group}") == found
