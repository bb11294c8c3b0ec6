"""How a sink's folder is to be kept, said at the place itself: whoever keeps it knows no flow."""

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
"""says in a folder by time that it is closed; readers of data pass over the name"""
_KIND, _FORMAT = "keeping", 1


@dataclass(frozen=True, slots=True)
class RetentionSettings:
    """Of one lineage of a sink, as the newest run that wrote there was told."""

    sink: str = ""
    roll_bytes: int | None = None
    """smaller segments are hidden, and merged; None: none is hidden (any more)"""
    roll_every_s: float = 0.0
    time: TimePath | None = None
    close_delay_s: float | None = None
    """a folder by time is closed once rows so much newer than its end have come; None: never"""
    late: str = "dead"
    """of rows for a closed folder: `dead`, or `reopen`: they are written, and the folder's marker counts them in its next version"""
    keep_s: float | None = None
    """folders by time older than that are deleted"""
    header: bool = False
    """of CSV: files begin with the names of the columns"""
    earlier: tuple[TimePath, ...] = ()
    """by which folders went that may still be there"""
    fenced: bool = field(default=True, compare=False)
    """whether rollers that may have read another one are late; else a turn has still to be put"""

    @staticmethod
    def of(sink: str, options: Mapping[str, Any]) -> RetentionSettings:
        """What the sink's options say."""
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
        """What stands there; None where nothing ever had to be said. Raises StateError."""
        data = read_or_none(place.keeping)
        if data is None:
            return None
        body = unseal(data, _KIND, _FORMAT, place.keeping)
        time = None if body["time"] is None else TimePath.of(body["time"])
        return RetentionSettings(**{**body, "time": time, "earlier": tuple(TimePath.of(each) for each in body.get("earlier", ()))})

    def write(self, place: LineageFolder, *, always: bool = False) -> bool:
        """Durably, where it says anything new; with what went before by another path or zone. `always`: though the folder wants
        nothing. Whether something else stood there, now or when a run was killed behind this: rollers may still go by that, until they are
        fenced."""
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
        """A turn stands behind what stands there."""
        stands = RetentionSettings.read(place)
        if stands is not None and not stands.fenced:
            changed(stands, fenced=True)._put(place)

    def write_to_earlier(self, place: LineageFolder) -> None:
        """Let an earlier lineage of the folder delete as the newest says; what another sink has written, never sooner than that."""
        stands = RetentionSettings.read(place)
        if stands is None:
            return
        keep_s = self.keep_s
        if keep_s is not None and stands.sink != self.sink:
            keep_s = None if stands.keep_s is None else max(stands.keep_s, keep_s)
        changed(stands, keep_s=keep_s).write(place)

    @property
    def says_anything(self) -> bool:
        """Whether the folder wants more than to be cleared up."""
        return any(value is not None for value in (self.roll_bytes, self.close_delay_s, self.keep_s))

    @property
    def refuses_late(self) -> bool:
        """Whether rows that come too late are dead."""
        return self.close_delay_s is not None and self.late == "dead"

    def closed_us(self, newest_us: int | None) -> int | None:
        """Folders whose time was over by then are closed, where rows of up to `newest_us` have come; microseconds since 1970."""
        if self.close_delay_s is None or newest_us is None:
            return None
        return newest_us - round(self.close_delay_s * 1e6)

    def is_closed(self, folder: str, newest_us: int | None) -> bool:
        """Whether a folder is."""
        closed_us = self.closed_us(newest_us)
        end_us = None if closed_us is None else self.end_us(folder)
        return end_us is not None and closed_us is not None and end_us <= closed_us

    def end_us(self, folder: str) -> int | None:
        """When a folder's time is over; the last such moment, where paths or zones that went before know it too. None: it has no end."""
        ends = [each.end_us(folder) for each in (self.time, *self.earlier) if each is not None]
        return max((end for end in ends if end is not None), default=None)


def _filled(name: str, options: Mapping[str, Any]) -> dict[str, Any] | None:
    declared, given = SINK.option(name), options.get(name)
    assert declared is not None
    return None if given is None else declared.filled(given)
