"""Time zones, by their names in the tz database."""

from __future__ import annotations

from zoneinfo import ZoneInfo, available_timezones

UTC_NAME = "UTC"

_NO_ZONES = ("posix/", "right/", "Factory", "localtime", "posixrules", "SystemV/")
"""names in the databases of some machines that are not regions, and that Java does not support"""


def is_zone(name: str) -> bool:
    """True for `UTC` and the names of regions, which Spark accepts too.

    >>> is_zone("Europe/Berlin"), is_zone("Europe/Atlantis"), is_zone("../etc/passwd")
    (True, False, False)
    """
    if name.startswith(_NO_ZONES):
        return False
    try:
        ZoneInfo(name)
    except (KeyError, ValueError, OSError):  # an unknown name, an invalid path, or a folder of the database
        return False
    return True


def zone_names() -> list[str]:
    """The names of all zones, in order. Reads the whole database."""
    return sorted(name for name in available_timezones() if not name.startswith(_NO_ZONES))
