"""Moments as texts, for records and people: ISO 8601, in UTC, whole seconds."""

from __future__ import annotations

from datetime import UTC, datetime


def now_text() -> str:
    """This moment, by the machine's clock."""
    return datetime.now(UTC).isoformat(timespec="seconds")


def moment_text(seconds: float) -> str:
    """The moment so many seconds after 1970 began."""
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="seconds")
