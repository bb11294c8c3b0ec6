"""Time zones, by their names in the tz database."""

from __future__ import annotations

from zoneinfo import ZoneInfo, available_timezones

UTC_NAME = "UTC"

_NO_ZONES = ("posix/", "right/", "Factory", "localtime", "posixrules", "SystemV/")
"""names in some machines' databases that are no region's, which Java does not know"""


def is_zone(name: str) -> bool:
    """True for `UTC` and the names of regions, as Spark takes them too.

    >>> is_zone("Europe/Berlin"), is_zone("Europe/Atlantis"), is_zone("../etc/passwd")
    (True, False, False)
    """
    if name.startswith(_NO_ZONES):
        return False
    try:
        ZoneInfo(name)
    except (KeyError, ValueError, OSError):  # unknown; no relative path; a folder of the database
        return False
    return True


def zone_names() -> list[str]:
    """All of them, in order; reads the whole database."""
    return sorted(name for name in available_timezones() if not name.startswith(_NO_ZONES))
