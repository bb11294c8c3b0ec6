"""The maintenance settings of a sink's folder, stored in the folder itself: the maintenance owner does not know the flow."""

from __future__ import annotations

from dataclasses import dataclass, field
from dataclasses import replace as changed
from typing import TYPE_CHECKING, Any

from scribengin.connectors.files.options import SINK
from scribengin.connectors.files.time_path import TimePath
from scribengin.core.records import seal, unseal
from scribengin.core.storage import read_or_none, replace

if TYPE_CHECKING:
    from collections.abc import Mapping

    from scribengin.connectors.files.sink_folders import LineageFolder

COMPLETE = "_COMPLETE.json"
"""marks a folder by time as closed; readers of data skip this name"""
_KIND, _FORMAT = "keeping", 1


@dataclass(frozen=True, slots=True)
class RetentionSettings:
    """The settings of one lineage of a sink, as given to the newest run that wrote there."""

    sink: str = ""
    roll_bytes: int | None = None
    """smaller segments are hidden, and merged; None: none is hidden (any more)"""
    roll_every_s: float = 0.0
    time: TimePath | None = None
    close_delay_s: float | None = None
    """a folder by time is closed once rows arrive that are newer than its end by this time; None: never"""
    late: str = "dead"
    """for rows of a closed folder: `dead`, or `reopen`: they are written, and the next version of the folder's completion marker counts
    them"""
    keep_s: float | None = None
    """folders by time older than this are deleted"""
    header: bool = False
    """for CSV: files begin with the names of the columns"""
    earlier: tuple[TimePath, ...] = ()
    """earlier paths of folders by time that may still exist"""
    fenced: bool = field(default=True, compare=False)
    """whether compactors that may have read an older version are outdated; otherwise a compaction run must still be recorded"""

    @staticmethod
    def of(sink: str, options: Mapping[str, Any]) -> RetentionSettings:
        """The settings from the sink's options."""
        roll, close = (_filled(name, options) for name in ("roll", "close"))
        by = [part for part in options.get("partition_by") or () if not isinstance(part, str)]
        time = TimePath.of(by[0]) if by else None
        return RetentionSettings(
            sink,
            None if roll is None else roll["size"],
            0.0 if roll is None else roll["every"],
            time,
            None if close is None or time is None else close["delay"],
            "dead" if close is None else close["late"],
            None if time is None else options.get("keep"),
            options.get("format") == "csv" and options.get("header", True),
        )

    @staticmethod
    def read(place: LineageFolder) -> RetentionSettings | None:
        """The stored settings; None if none were ever stored. Raises StateError."""
        data = read_or_none(place.keeping)
        if data is None:
            return None
        body = unseal(data, _KIND, _FORMAT, place.keeping)
        time = None if body["time"] is None else TimePath.of(body["time"])
        return RetentionSettings(**{**body, "time": time, "earlier": tuple(TimePath.of(each) for each in body.get("earlier", ()))})

    def write(self, place: LineageFolder, *, always: bool = False) -> bool:
        """Store the settings durably, if they changed, with earlier paths or time zones. `always`: even if the folder needs no maintenance.
        Returns whether other settings were stored before, now or when a run was killed after this: compactors may still use those until
        they are fenced."""
        stands = RetentionSettings.read(place)
        if stands is None and not (self.says_anything or always):
            return False
        before = () if stands is None else (*stands.earlier, stands.time)
        earlier = tuple(dict.fromkeys(each for each in before if each is not None and each != self.time))
        if stands != (said := changed(self, earlier=earlier, fenced=stands is None)):
            said._put(place)
            return stands is not None
        return not stands.fenced

    def _put(self, place: LineageFolder) -> None:
        body = {name: getattr(self, name) for name in self.__slots__}
        body["time"] = None if self.time is None else self.time.as_json()
        replace(place.keeping, seal(_KIND, _FORMAT, body | {"earlier": [each.as_json() for each in self.earlier]}))

    @staticmethod
    def note_fenced(place: LineageFolder) -> None:
        """A compaction run was recorded after the stored settings."""
        stands = RetentionSettings.read(place)
        if stands is not None and not stands.fenced:
            changed(stands, fenced=True)._put(place)

    def write_to_earlier(self, place: LineageFolder) -> None:
        """Allow an earlier lineage of the folder to delete by the newest settings; never earlier than those for data that another sink
        wrote."""
        stands = RetentionSettings.read(place)
        if stands is None:
            return
        keep_s = self.keep_s
        if keep_s is not None and stands.sink != self.sink:
            keep_s = None if stands.keep_s is None else max(stands.keep_s, keep_s)
        changed(stands, keep_s=keep_s).write(place)

    @property
    def says_anything(self) -> bool:
        """Whether the folder needs more maintenance than cleaning up."""
        return any(value is not None for value in (self.roll_bytes, self.close_delay_s, self.keep_s))

    @property
    def refuses_late(self) -> bool:
        """Whether late rows become dead letters."""
        return self.close_delay_s is not None and self.late == "dead"

    def closed_us(self, newest_us: int | None) -> int | None:
        """Folders whose time ended by then are closed, if rows of up to `newest_us` have arrived; microseconds since 1970."""
        if self.close_delay_s is None or newest_us is None:
            return None
        return newest_us - round(self.close_delay_s * 1e6)

    def is_closed(self, folder: str, newest_us: int | None) -> bool:
        """Whether a folder is closed."""
        closed_us = self.closed_us(newest_us)
        end_us = None if closed_us is None else self.end_us(folder)
        return end_us is not None and closed_us is not None and end_us <= closed_us

    def end_us(self, folder: str) -> int | None:
        """The end of a folder's time; the latest one, if earlier paths or time zones also match it. None: it has no end."""
        ends = [each.end_us(folder) for each in (self.time, *self.earlier) if each is not None]
        return max((end for end in ends if end is not None), default=None)


def _filled(name: str, options: Mapping[str, Any]) -> dict[str, Any] | None:
    declared, given = SINK.option(name), options.get(name)
    assert declared is not None
    return None if given is None else declared.filled(given)
