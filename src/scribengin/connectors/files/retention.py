"""Folders by event time: which of them are closed, the contents of their completion markers, and which are old enough to be deleted."""

from __future__ import annotations

import os
import threading
import time
import weakref
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from dataclasses import replace as changed
from datetime import UTC, datetime
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import msgspec

from scribengin.connectors.files.audit import count_rows
from scribengin.connectors.files.compaction_state import FileFrontier, Open, folder_of, last_batch, newest_turn
from scribengin.connectors.files.options import SINK
from scribengin.connectors.files.sink_folders import INTERNAL, READERS, lineages_in, remove_empty
from scribengin.connectors.files.time_path import TimePath
from scribengin.core.errors import ScribenginError
from scribengin.core.records import seal, unseal
from scribengin.core.storage import SummedFile, names_in, read_or_none, replace, sync_folder

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping
    from pathlib import Path

    from scribengin.connectors.files.sink_folders import LineageFolder


# The maintenance settings of a sink's folder, stored in the folder itself: the maintenance owner does not know the flow.


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
    """a folder by time is closed once rows arrive that are newer than its end by so many seconds; None: it is never closed"""
    late: str = "dead"
    """the treatment of rows for a closed folder: `dead`; or `reopen`: they are written, and the next version of the folder's completion
    marker counts them"""
    keep_s: float | None = None
    """folders by time that are older than this are deleted, in seconds"""
    header: bool = False
    """for CSV: True if files begin with the names of the columns"""
    earlier: tuple[TimePath, ...] = ()
    """earlier paths of folders by time that may still exist"""
    fenced: bool = field(default=True, compare=False)
    """True if compactors that may have read an older version are outdated; otherwise a compaction run must still be recorded"""

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
        """Store the settings durably, with earlier paths or time zones, if they changed. `always`: even if the folder needs no maintenance.
        Returns True if other settings were stored before, by this call or by a run that was killed after it: compactors may still use those
        until they are fenced."""
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
        """Record that a compaction run was recorded after the settings were stored."""
        stands = RetentionSettings.read(place)
        if stands is not None and not stands.fenced:
            changed(stands, fenced=True)._put(place)

    def write_to_earlier(self, place: LineageFolder) -> None:
        """Let the files of an earlier lineage of the folder be deleted by these settings: store their `keep` in its settings. If another
        sink wrote the files, they are never deleted earlier than by its own settings."""
        stands = RetentionSettings.read(place)
        if stands is None:
            return
        keep_s = self.keep_s
        if keep_s is not None and stands.sink != self.sink:
            keep_s = None if stands.keep_s is None else max(stands.keep_s, keep_s)
        changed(stands, keep_s=keep_s).write(place)

    @property
    def says_anything(self) -> bool:
        """True if the folder needs more maintenance than the removal of leftovers."""
        return any(value is not None for value in (self.roll_bytes, self.close_delay_s, self.keep_s))

    @property
    def refuses_late(self) -> bool:
        """True if late rows become dead letters."""
        return self.close_delay_s is not None and self.late == "dead"

    def closed_us(self, newest_us: int | None) -> int | None:
        """The time up to which folders are closed if rows of up to `newest_us` have arrived; both in microseconds since 1970. None: no
        folder is closed."""
        if self.close_delay_s is None or newest_us is None:
            return None
        return newest_us - round(self.close_delay_s * 1e6)

    def is_closed(self, folder: str, newest_us: int | None) -> bool:
        """True if a folder is closed, given the newest event time in microseconds since 1970."""
        closed_us = self.closed_us(newest_us)
        end_us = None if closed_us is None else self.end_us(folder)
        return end_us is not None and closed_us is not None and end_us <= closed_us

    def end_us(self, folder: str) -> int | None:
        """The end of a folder's time, in microseconds since 1970; the latest one, if earlier paths or time zones also match it. None: it
        has no end."""
        ends = [each.end_us(folder) for each in (self.time, *self.earlier) if each is not None]
        return max((end for end in ends if end is not None), default=None)


def _filled(name: str, options: Mapping[str, Any]) -> dict[str, Any] | None:
    declared, given = SINK.option(name), options.get(name)
    assert declared is not None
    return None if given is None else declared.filled(given)


# Leases of readers: nothing deletes the files in a sink's folder that a reader still has to read.
#
#     <path>/_scribengin/readers/<id>.json      the files, and the expiry of the lease; its holder renews it
#     <path>/_scribengin/readers/<flow>.going   the files that a flow's `when_done` is removing, unless a reader holds them
#
# A process that wants to delete files first announces it where readers check (the compactor in its run, `when_done` in `going`), and then
# checks for leases; a reader first writes its lease, and then checks for announcements. So for a file that both want, one of the two sees
# the other. The lease of a reader that died or was suspended expires; files that it had yet to read may then be missing, and are
# reported.


HOLDS_S = 60.0
"""seconds after which a lease that is not renewed expires"""
_RENEW_S = 15.0
_LEASE_KIND, _GOING, _LEASE_FORMAT = "read-lease", "going", 1
_LEVELS = 12


def kept_top(place: Path) -> Path | None:
    """The sink's folder that contains `place`, or is it; None for a folder that no sink writes."""
    for folder in [place, *place.parents][:_LEVELS]:
        if (folder / INTERNAL / "owner.json").exists():
            return folder
    return None


def leased(top: Path, names: Collection[str], now_s: float, *, but: str = "") -> bool:
    """True if a reader with a valid lease still has to read one of these files. A lease that cannot be read counts as valid.

    Args:
        top: The sink's folder.
        names: The files, relative to `top`.
        now_s: The current time, in seconds since 1970.
        but: A flow whose readers are ignored.
    """
    for path in _leases(top):
        try:
            data = read_or_none(path)
            body = None if data is None else unseal(data, _LEASE_KIND, _LEASE_FORMAT, path)
        except ScribenginError:
            return True
        if body is None or (but and body["flow"] == but):
            continue
        if body["until_s"] >= now_s and not set(names).isdisjoint(body["files"]):
            return True
    return False


def over(top: Path, now_s: float) -> Iterator[Path]:
    """The leases of dead readers: those that expired more than an hour ago."""
    for path in _leases(top):
        try:
            data = read_or_none(path)
            body = None if data is None else unseal(data, _LEASE_KIND, _LEASE_FORMAT, path)
        except ScribenginError:
            continue
        if body is not None and body["until_s"] < now_s - 3600:
            yield path


@contextmanager
def going(top: Path, names: Collection[str], flow: str) -> Iterator[None]:
    """Announce, until the end of the block, that a flow removes files unless they are held. A reader that wants them in the meantime waits.

    Args:
        top: The sink's folder.
        names: The files, relative to `top`.
        flow: The name of the flow.
    """
    file = top / INTERNAL / READERS / f"{flow}.going"
    replace(file, seal(_GOING, _LEASE_FORMAT, {"until_s": time.time() + HOLDS_S, "flow": flow, "files": sorted(names)}))
    try:
        yield
    finally:
        file.unlink(missing_ok=True)


def _going(top: Path, but: str) -> set[str]:
    """The files that flows other than `but` have announced to remove."""
    folder = top / INTERNAL / READERS
    found: set[str] = set()
    for name in names_in(folder):
        data = read_or_none(folder / name) if name.endswith(".going") else None
        body = None if data is None else unseal(data, _GOING, _LEASE_FORMAT, folder / name)
        if body is not None and body["flow"] != but and body["until_s"] >= time.time():
            found.update(body["files"])
    return found


class ReadLease:
    """The lease of one reader in one folder. Renewed by its own thread while the reader holds any file; the thread ends with the object."""

    def __init__(self, top: Path, flow: str, *, clock: Callable[[], float] = time.time) -> None:
        self.top = top
        self._flow = flow
        self._path = top / INTERNAL / READERS / f"{flow or 'reader'}-{uuid4().hex[:12]}.json"
        self._clock = clock
        self._files: set[str] = set()
        self.put_off: set[str] = set()
        """those of the last requested files that are not held, because another flow's `when_done` may be removing them; they must be
        requested again"""
        self._lock = threading.Lock()
        self._renewing: threading.Thread | None = None
        # not an Event: a garbage collection during that thread's check would wait for the thread's own lock
        self._over = SimpleQueue[None]()
        weakref.finalize(self, self._over.put, None)

    def hold(self, names: Collection[str]) -> set[str]:
        """Hold these files too, durably. Returns those that are being deleted and must not be read. See also `put_off`."""
        self.put_off = set()
        with self._lock:
            fresh = set(names) - self._files
            if not fresh:
                return set()
            self._files |= fresh
            self._write()
        self.put_off = fresh & _going(self.top, self._flow)
        doomed = {name for name in fresh - self.put_off if _is_doomed(self.top, name)}
        if doomed or self.put_off:
            self.let_go(doomed | self.put_off)
        if self._renewing is None:
            self._renewing = threading.Thread(target=_renew, args=(weakref.ref(self), self._over), name="read lease", daemon=True)
            self._renewing.start()
        return doomed

    def let_go(self, names: Collection[str]) -> None:
        """Hold these files no longer: they are read and committed."""
        with self._lock:
            before = len(self._files)
            self._files -= set(names)
            if not self._files:
                self._path.unlink(missing_ok=True)
            elif len(self._files) != before:
                self._write()

    def renew(self) -> None:
        """Renew the lease."""
        with self._lock:
            if self._files:
                self._write()

    def _write(self) -> None:
        body = {"until_s": self._clock() + HOLDS_S, "flow": self._flow, "pid": os.getpid(), "files": sorted(self._files)}
        replace(self._path, seal(_LEASE_KIND, _LEASE_FORMAT, body))


def _renew(lease: weakref.ref[ReadLease], over: SimpleQueue[None]) -> None:
    while True:
        with suppress(Empty):
            over.get(timeout=_RENEW_S)
            return
        held = lease()
        if held is None:
            return
        try:
            held.renew()
        except (OSError, ScribenginError):  # the disk is full or unavailable: retried before the lease expires
            continue
        finally:
            del held


def _leases(top: Path) -> list[Path]:
    folder = top / INTERNAL / READERS
    return [folder / name for name in sorted(names_in(folder)) if name.endswith(".json")]


def _is_doomed(top: Path, name: str) -> bool:
    if not (top / name).exists():
        return True
    for lineage in lineages_in(top):
        through = FileFrontier.of(newest_turn(lineage)[1]).removing.get(folder_of(name))
        keeping = RetentionSettings.read(lineage)
        last = None if keeping is None or through is None else last_batch(lineage, keeping.sink, name)
        if last is not None and through is not None and last <= through:
            return True
    return False


def counts(keeping: RetentionSettings) -> bool:
    """True if rows are counted for completion markers: the sink closes folders by time."""
    return keeping.time is not None and keeping.close_delay_s is not None


def is_marked(top: Path, folder: str) -> bool:
    """True if a folder has a completion marker."""
    return (top / folder / COMPLETE).exists()


def has_files(top: Path, folder: str) -> bool:
    """True if a folder has files with rows, but no completion marker."""
    return not is_marked(top, folder) and next(_parts(top, folder), None) is not None


def closed_now(
    top: Path, open_: Mapping[str, Open], busy: Collection[str], newest_us: int | None, keeping: RetentionSettings
) -> list[dict[str, Any]]:
    """The contents of the completion markers of the folders to close now: their time is over, and all their rows are visible.

    Args:
        top: The sink's folder.
        open_: The contents of the open folders.
        busy: Folders that must not be closed.
        newest_us: The newest event time, in microseconds since 1970; None if no row has one.
        keeping: The maintenance settings.
    """
    closed = []
    for folder in sorted(folder for folder in open_ if counts(keeping) and folder not in busy and keeping.is_closed(folder, newest_us)):
        before, known = read_marker(top, folder), open_[folder]
        version = max(known.version, before.version)
        known = Open(known.rows + before.rows, known.files + before.files, version, known.bytes + before.bytes)
        sizes = {name: size for name in _parts(top, folder) if (size := _size(top / folder / name)) is not None}
        rows, unread = known.rows, 0
        if (len(sizes), sum(sizes.values())) != (known.files, known.bytes):  # others have added files to the folder, or removed some
            counted = [_rows(top / folder / name, keeping) for name in sizes]
            rows, unread = sum(each or 0 for each in counted), counted.count(None)
        marker = marker_of(
            folder,
            Open(rows, len(sizes), known.version + 1, sum(sizes.values())),
            keeping.end_us(folder),
            keeping.closed_us(newest_us),
        )
        closed.append(marker | ({"unread": unread} if unread else {}))
    return closed


def marker_of(folder: str, counted: Open, until_us: int | None, watermark_us: int | None) -> dict[str, Any]:
    """The content of the completion marker of a folder, for any kind of place.

    Args:
        folder: The folder, with its `/`.
        counted: The contents of the folder; `version` is that of the new marker.
        until_us: The end of the folder's time, in microseconds since 1970.
        watermark_us: The time up to which folders are closed, in microseconds since 1970.
    """
    return {
        "folder": folder,
        "version": counted.version,
        "rows": counted.rows,
        "files": counted.files,
        "bytes": counted.bytes,
        "until": moment_text(until_us),
        "watermark": moment_text(watermark_us),
    }


def marker_bytes(said: Mapping[str, Any]) -> bytes:
    """The bytes of a completion marker with this content."""
    return msgspec.json.format(msgspec.json.encode(said)) + b"\n"


def write_draft(draft: Path, said: Mapping[str, Any]) -> None:
    """Write a draft of a completion marker, durable except for its name."""
    with SummedFile(draft) as file:
        file.write(marker_bytes(said))
        file.sync()


def put_marker(top: Path, folder: str, draft: Path) -> None:
    """Rename the draft of a completion marker to its final name, unless that is done already. Does nothing if the folder does not exist any
    more.

    Args:
        top: The sink's folder.
        folder: The folder of the marker, with its `/`.
        draft: The draft.
    """
    with suppress(FileNotFoundError):
        draft.rename(top / folder / COMPLETE)
        sync_folder(top / folder)


def take_marker(top: Path, folder: str, version: int) -> None:
    """Delete a completion marker, durably, before rows arrive that it does not count.

    Args:
        top: The sink's folder.
        folder: The folder of the marker, with its `/`.
        version: The version to delete; a newer marker is kept.
    """
    if is_marked(top, folder) and read_marker(top, folder).version <= version:
        (top / folder / COMPLETE).unlink(missing_ok=True)
        sync_folder(top / folder)


def expired_now(
    top: Path,
    lineage: LineageFolder,
    waiting: Mapping[str, Any],
    newest_us: int | None,
    keeping: RetentionSettings,
    now_s: float,
) -> tuple[dict[str, int], list[str]]:
    """The folders by time to delete now, except those with segments that wait for a merge.

    Args:
        top: The sink's folder.
        lineage: The lineage whose files are deleted.
        waiting: Folder → groups of hidden segments.
        newest_us: The newest event time, in microseconds since 1970; None if no row has one.
        keeping: The maintenance settings.
        now_s: The current time, in seconds since 1970.

    Returns:
        Folder → the last Batch with rows in its files, for expired folders with files; and the expired folders that contain no files with
            rows.
    """
    if keeping.time is None or keeping.keep_s is None or newest_us is None:
        return {}, []
    busy = {folder for folder, runs in waiting.items() if any(runs)}
    found, emptied = {}, []
    for folder in _folders(top):
        if folder not in busy and is_expired(folder, newest_us, keeping, now_s):
            last = max((last for _, last in _own(top, lineage, keeping.sink, folder)), default=-1)
            if last >= 0:
                found[folder] = last
            elif next(_parts(top, folder), None) is None:
                emptied.append(folder)
    return found, emptied


def is_expired(folder: str, newest_us: int | None, keeping: RetentionSettings, now_s: float) -> bool:
    """True if a folder's time ended at least `keep_s` before the newest event time, or before now if that is earlier.

    Args:
        folder: The folder, with its `/`.
        newest_us: The newest event time, in microseconds since 1970; None if no row has one.
        keeping: The maintenance settings.
        now_s: The current time, in seconds since 1970.
    """
    if keeping.time is None or keeping.keep_s is None or newest_us is None:
        return False
    end_us = keeping.end_us(folder)
    return end_us is not None and end_us <= min(newest_us, round(now_s * 1e6)) - round(keeping.keep_s * 1e6)


def remove_expired(top: Path, lineage: LineageFolder, sink: str, folder: str, through: int, check: Callable[[], None], now_s: float) -> int:
    """Delete the files of one lineage in an expired folder. Nothing is deleted while a reader holds one of them. Files of others, and then
    the folder, are kept.

    Args:
        top: The sink's folder.
        lineage: The lineage.
        sink: The id of the sink.
        folder: The expired folder, with its `/`.
        through: The last Batch whose files are deleted.
        check: Raises if this process may not write (any more).
        now_s: The current time, in seconds since 1970.

    Returns:
        The number of deleted files.
    """
    own = [name for name, last in _own(top, lineage, sink, folder) if last <= through]
    if not own or leased(top, {folder + name for name in own}, now_s):
        return 0
    place = top / folder
    check()
    if is_marked(top, folder):  # the marker first, because it counts the files
        (place / COMPLETE).unlink(missing_ok=True)
        sync_folder(place)
    for name in own:
        check()
        (place / name).unlink(missing_ok=True)
    if place.is_dir():
        sync_folder(place)
    remove_empty(place, top)
    return len(own)


def remove_emptied(top: Path, folder: str) -> None:
    """Delete the completion marker of an expired folder that contains no files with rows, and the folder itself if it contains nothing
    else."""
    (top / folder / COMPLETE).unlink(missing_ok=True)
    with suppress(FileNotFoundError):
        sync_folder(top / folder)
    remove_empty(top / folder, top)


def _rows(path: Path, keeping: RetentionSettings) -> int | None:
    """The number of rows in the file; 0 if it does not exist any more, None if it cannot be read."""
    try:
        return count_rows(path, header=keeping.header)
    except FileNotFoundError:
        return 0
    except (OSError, ValueError):
        return None


def _parts(top: Path, folder: str) -> Iterator[str]:
    """The names of the files with rows in a folder, of any lineage."""
    return (name for name in sorted(names_in(top / folder)) if name.startswith("part-"))


def _size(path: Path) -> int | None:
    """The size of the file in bytes; None if a reader has removed it in the meantime."""
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return None


def _own(top: Path, lineage: LineageFolder, sink: str, folder: str) -> Iterator[tuple[str, int]]:
    """(name, last Batch in it) of the files in a folder that this lineage of the sink wrote."""
    for name in sorted(names_in(top / folder)):
        last = last_batch(lineage, sink, folder + name)
        if last is not None:
            yield name, last


def _folders(top: Path) -> Iterator[str]:
    """The partition folders with files or a completion marker, relative to `top`, each with its `/`."""
    waiting = [""]
    while waiting:
        folder = waiting.pop()
        try:
            entries = sorted(os.scandir(top / folder), key=lambda entry: entry.name)
        except FileNotFoundError:
            continue
        waiting += [f"{folder}{entry.name}/" for entry in entries if "=" in entry.name and entry.is_dir()]
        if folder and any(entry.name.startswith("part-") or entry.name == COMPLETE for entry in entries):
            yield folder


def read_marker(top: Path, folder: str) -> Open:
    """The contents of the folder's completion marker; empty if there is none, or it is not valid."""
    data = read_or_none(top / folder / COMPLETE)
    try:
        return Open() if data is None else msgspec.json.decode(data, type=_Said).open
    except msgspec.MsgspecError:
        return Open()


class _Said(msgspec.Struct):
    rows: int
    files: int
    version: int
    bytes: int = 0

    @property
    def open(self) -> Open:
        return Open(self.rows, self.files, self.version, self.bytes)


def moment_text(moment_us: int | None) -> str | None:
    """A time in microseconds since 1970, in the form of completion markers."""
    return None if moment_us is None else datetime.fromtimestamp(moment_us / 1e6, UTC).isoformat()
