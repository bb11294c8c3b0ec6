"""Moments as texts, for records and people: ISO 8601, in UTC, whole seconds."""

from __future__ import annotations

from datetime import UTC, datetime

_SHORTEST = len("2026-01-31T12:00:00Z")


def now_text() -> str:
    """This moment, by the machine's clock."""
    return datetime.now(UTC).isoformat(timespec="seconds")


def moment_text(seconds: float) -> str:
    """The moment so many seconds after 1970 began."""
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="seconds")


def shown_moment(text: str) -> str:
    """A moment in the one form in which people see all of them; what is no whole moment stays as it is.

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
