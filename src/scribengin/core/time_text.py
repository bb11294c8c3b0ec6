"""Times as texts: ISO 8601 in UTC, in whole seconds, for records and people; and times as users write them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from scribengin.core.units import parse_duration_s

_EXAMPLE = "2026-01-31T12:00:00Z"
_SHORTEST = len(_EXAMPLE)
WRITE_TIME = f'write it as "{_EXAMPLE}"'
"""the remedy for a text that `parse_time` rejects"""
WRITE_MOMENT = f'{WRITE_TIME}, or as a duration before now, such as "2h"'
"""the remedy for a text that `parse_moment` rejects"""
_PERIOD_MS = 146_097 * 86_400_000
"""400 years, after which the calendar repeats"""


def now_text() -> str:
    """The present time by the machine's clock."""
    return datetime.now(UTC).isoformat(timespec="seconds")


def moment_text(seconds: float) -> str:
    """The time that is so many seconds after the start of 1970."""
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="seconds")


def instant_text(us: int) -> str:
    """The time that is so many microseconds after the start of 1970, in whole milliseconds; of any year, also those that `datetime` lacks.

    >>> instant_text(1_769_860_800_123_456), instant_text(-62_167_219_200_000_001), instant_text(300_000_000_000_000_000)
    ('2026-01-31T12:00:00.123Z', '-001-12-31T23:59:59.999Z', '11476-08-15T05:20:00.000Z')
    """
    periods, ms = divmod(us // 1000, _PERIOD_MS)
    moment = datetime(1970, 1, 1) + timedelta(milliseconds=ms)
    return f"{moment.year + 400 * periods:04d}{moment:-%m-%dT%H:%M:%S}.{ms % 1000:03d}Z"


def shown_moment(text: str) -> str:
    """A time in the one form that is shown to people; a text that is not a complete time is returned unchanged.

    >>> shown_moment("2026-11-26T17:46:14.706+00:00"), shown_moment("2026-11-26T18:46:14+01:00"), shown_moment("none yet")
    ('2026-11-26T17:46:14Z', '2026-11-26T17:46:14Z', 'none yet')
    """
    if len(text) < _SHORTEST or text[10:11] != "T":
        return text
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        return text
    return text if moment.tzinfo is None else moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def parse_time(text: str) -> datetime:
    """Parse a time in ISO 8601, such as `2026-01-31`; returns it in UTC, which is also the zone of a time without one. Raises ValueError,
    which says what was found.

    >>> parse_time("2026-01-31T12:00+01:00").isoformat()
    '2026-01-31T11:00:00+00:00'
    """
    try:
        time = datetime.fromisoformat(text.strip())
        return time.replace(tzinfo=UTC) if time.tzinfo is None else time.astimezone(UTC)
    except (ValueError, OverflowError):  # with its zone, the year may be out of range
        raise ValueError(f"{not_a_time(text)}; {WRITE_TIME}") from None


def parse_moment(text: str) -> datetime:
    """Parse a time as a user writes it: a time, or a duration before now, such as `2h`. Raises ValueError, which says what was found.

    >>> parse_moment("2026-01-31").isoformat()
    '2026-01-31T00:00:00+00:00'
    """
    try:
        return parse_time(text)
    except ValueError:
        pass
    try:
        return (datetime.now(UTC) - timedelta(seconds=parse_duration_s(text))).replace(microsecond=0)
    except (ValueError, OverflowError):
        raise ValueError(f"{not_a_time(text)}; {WRITE_MOMENT}") from None


def not_a_time(text: str) -> str:
    """The error message for a text that is not a valid time."""
    return f'"{text[:40]}" is not a valid time'
