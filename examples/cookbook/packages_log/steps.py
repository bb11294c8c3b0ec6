"""The lines of dpkg.log that change something: `2026-03-02 06:25:11 upgrade curl:amd64 7.88.1-10 7.88.1-11`."""

from datetime import UTC, datetime

from scribengin import record

ACTIONS = {"install", "upgrade", "remove", "purge"}
NONE = "<none>"


@record
def change(row: dict) -> dict | None:
    """One change, or None for the many lines that tell its stages. A line that is cut short raises, and becomes a dead letter."""
    date, time, action, *rest = row["value"].split(" ")
    if action not in ACTIONS:
        return None
    package, was, now = rest
    name, _, arch = package.partition(":")
    at = datetime.fromisoformat(f"{date}T{time}").replace(tzinfo=UTC)  # the log has the machine's clock: here UTC
    return {"at": at, "action": action, "package": name, "arch": arch, "was": version(was), "now": version(now)}


def version(text: str) -> str | None:
    """None where there was none before, or is none after."""
    return None if text == NONE else text
