"""Folders by event time, `dt=2026-01-01/hour=07/`: the folder of a time, and the end of a folder's time."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any
from zoneinfo import ZoneInfo

if TYPE_CHECKING:
    from collections.abc import Mapping

    import pyarrow as pa

NULL = "__HIVE_DEFAULT_PARTITION__"
_UNITS = {"%Y": r"\d{4}", "%m": r"\d{2}", "%d": r"\d{2}", "%H": r"\d{2}", "%M": r"\d{2}"}
_DIRECTIVE = re.compile("%.?", re.DOTALL)
_SEGMENT = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)=((?:%[YmdHM]|[A-Za-z0-9_.-])+)\Z")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MINUTE_US = 60_000_000


@dataclass(frozen=True, slots=True)
class TimePath:
    """The folders by time of a sink. `path` is a path that `path_fault` accepts; `column` is the column of the times; `zone` is the time
    zone of the folder names."""

    column: str
    path: str
    zone: str = "UTC"

    @staticmethod
    def of(section: Mapping[str, Any]) -> TimePath:
        """Make it from the form of `partition_by`."""
        return TimePath(section["time"], section["path"], section.get("time_zone") or "UTC")

    def as_json(self) -> dict[str, str]:
        """The form in a record, which `of` reads."""
        return {"time": self.column, "path": self.path, "time_zone": self.zone}

    @property
    def names(self) -> tuple[str, ...]:
        """The columns that readers see in the folder names."""
        return tuple(segment.partition("=")[0] for segment in self.path.split("/"))

    def folders(self, values: pa.Array) -> pa.Array:
        """The folder of each timestamp, with its `/`; also that of null."""
        import pyarrow as pa

        moments = values.cast(pa.timestamp("us", tz="UTC")).cast(pa.int64())
        minutes = pa.array(moments.fill_null(0).to_numpy() // _MINUTE_US, mask=moments.is_null().to_numpy(zero_copy_only=False))
        encoded = minutes.dictionary_encode(null_encoding="encode")
        names = [self.folder(None if minute is None else minute * _MINUTE_US) for minute in encoded.dictionary.to_pylist()]
        return pa.array(names, pa.string()).take(encoded.indices)

    def folder(self, moment_us: int | None) -> str:
        """The folder of a time, in microseconds since 1970; that of null for a time outside the years 1 to 9999 of the zone.

        >>> TimePath("ts", "dt=%Y-%m-%d/hour=%H", "Europe/Berlin").folder(0)
        'dt=1970-01-01/hour=01/'
        """
        try:
            local = None if moment_us is None else (_EPOCH + timedelta(microseconds=moment_us)).astimezone(ZoneInfo(self.zone))
        except (ValueError, OverflowError):
            local = None
        if local is None:
            return "".join(f"{name}={NULL}/" for name in self.names)
        texts = {"%Y": f"{local.year:04}", "%m": f"{local.month:02}", "%d": f"{local.day:02}", "%H": f"{local.hour:02}"}
        texts["%M"] = f"{local.minute:02}"
        return _DIRECTIVE.sub(lambda found: texts[found[0]], self.path) + "/"

    def end_us(self, folder: str) -> int | None:
        """The end of the folder's time, in microseconds since 1970; None if it has no such end (the folder of null, or another folder).
        `folder` may be below others. An hour that the clock repeats ends with its second occurrence.

        >>> TimePath("ts", "hour=%Y-%m-%dT%H").end_us("country=DE/hour=1970-01-01T00/")
        3600000000
        """
        own = "/".join(folder.rstrip("/").split("/")[-len(self.names) :])
        found = re.fullmatch(self._pattern(), own)
        if found is None:
            return None
        year, *rest = (int(text) for text in (found[unit] for unit in "YmdHM" if f"%{unit}" in self.path))
        month, day, hour, minute = [*rest, *(1, 1, 0, 0)[len(rest) :]]
        try:
            local = datetime(year, month, day, hour, minute)
            match len(rest):
                case 0:
                    local = local.replace(year=year + 1)
                case 1:
                    local = local.replace(year=year + month // 12, month=month % 12 + 1)
                case _:
                    local += (timedelta(days=1), timedelta(hours=1), timedelta(minutes=1))[len(rest) - 2]
            ends = [local.replace(tzinfo=ZoneInfo(self.zone), fold=fold) - _EPOCH for fold in (0, 1)]
        except (ValueError, OverflowError):  # a name that has the form of a folder, but not a valid date
            return None
        return max(end // timedelta(microseconds=1) for end in ends)

    def _pattern(self) -> str:
        seen: set[str] = set()

        def unit(found: re.Match[str]) -> str:
            name = found[0][1]
            again = name in seen
            seen.add(name)
            return f"(?P={name})" if again else f"(?P<{name}>{_UNITS[found[0]]})"

        return "".join(_DIRECTIVE.sub(unit, part) if part.startswith("%") else re.escape(part) for part in re.split("(%.)", self.path))


def path_fault(path: str) -> tuple[str, str] | None:
    """What is wrong with a path, and the remedy; None if it is valid.

    >>> path_fault("dt=%Y-%m-%d/hour=%H"), path_fault("hour=%H")
    (None, ('has %H and no %Y: different times would share one folder', 'begin with the year, as in dt=%Y-%m-%d/hour=%H'))
    """
    example = "as in dt=%Y-%m-%d/hour=%H"
    for found in _DIRECTIVE.findall(path):
        if found not in _UNITS:
            return f"has {found!r}", f"write {', '.join(_UNITS)}, {example}"
    segments = path.strip("/").split("/")
    for segment in segments:
        if not _SEGMENT.match(segment):
            return f'has the folder "{segment}"', f"write NAME=VALUE, with letters, digits, _, . and -, {example}"
    names = [segment.partition("=")[0] for segment in segments]
    if len(set(names)) < len(names):
        return "has two folders with the same name", f"give each its own, {example}"
    if path != path.strip("/"):
        return "begins or ends with /", f"remove it, {example}"
    units = list(_UNITS)
    there = [unit in path for unit in units]
    if not any(there):
        return "has no time in it", f"write {', '.join(_UNITS)}, {example}"
    missing = there.index(False) if False in there else len(units)
    if any(there[missing:]):
        finer = next(unit for unit, is_there in zip(units[missing:], there[missing:], strict=True) if is_there)
        coarse = {"%Y": "the year", "%m": "the month", "%d": "the day", "%H": "the hour"}[units[missing]]
        where = "begin with" if missing == 0 else "add"
        return f"has {finer} and no {units[missing]}: different times would share one folder", f"{where} {coarse}, {example}"
    return None
