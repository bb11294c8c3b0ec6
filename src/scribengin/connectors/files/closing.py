"""Folders by event time: which are closed, the contents of their completion marker, and which are old enough to be deleted."""

from __future__ import annotations

import os
from contextlib import suppress
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import msgspec

from scribengin.connectors.files.keeping import COMPLETE
from scribengin.connectors.files.read_lease import leased
from scribengin.connectors.files.reading_again import count_rows
from scribengin.connectors.files.roll_state import Open, last_batch
from scribengin.connectors.files.sink_folders import remove_empty
from scribengin.core.storage import SummedFile, names_in, read_or_none, sync_folder

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping
    from pathlib import Path

    from scribengin.connectors.files.keeping import RetentionSettings
    from scribengin.connectors.files.sink_folders import LineageFolder


def counts(keeping: RetentionSettings) -> bool:
    """Whether rows are counted for completion markers."""
    return keeping.time is not None and keeping.close_delay_s is not None


def is_marked(top: Path, folder: str) -> bool:
    """Whether a folder has a completion marker."""
    return (top / folder / COMPLETE).exists()


def has_files(top: Path, folder: str) -> bool:
    """Whether a folder has files with rows, but no completion marker."""
    return not is_marked(top, folder) and next(_parts(top, folder), None) is not None


def closed_now(
    top: Path, open_: Mapping[str, Open], busy: Collection[str], newest_us: int | None, keeping: RetentionSettings
) -> list[dict[str, Any]]:
    """The contents of the completion markers of folders that are closed now: their time is over, and all their rows are visible. Without
    `busy` folders."""
    closed = []
    for folder in sorted(folder for folder in open_ if counts(keeping) and folder not in busy and keeping.is_closed(folder, newest_us)):
        before, known = read_marker(top, folder), open_[folder]
        version = max(known.version, before.version)
        known = Open(known.rows + before.rows, known.files + before.files, version, known.bytes + before.bytes)
        sizes = {name: size for name in _parts(top, folder) if (size := _size(top / folder / name)) is not None}
        rows, unread = known.rows, 0
        if (len(sizes), sum(sizes.values())) != (known.files, known.bytes):  # others have added files there, or removed some
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
    """The content of a folder's completion marker, wherever the folder is; `counted.version` is the marker's own."""
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
    """The content of a completion marker."""
    return msgspec.json.format(msgspec.json.encode(said)) + b"\n"


def write_draft(draft: Path, said: Mapping[str, Any]) -> None:
    """A draft of a completion marker, durable except for its name."""
    with SummedFile(draft) as file:
        file.write(marker_bytes(said))
        file.sync()


def put_marker(top: Path, folder: str, draft: Path) -> None:
    """Rename the draft to its final name, unless that was done before; does nothing if the folder does not exist any more."""
    with suppress(FileNotFoundError):
        draft.rename(top / folder / COMPLETE)
        sync_folder(top / folder)


def take_marker(top: Path, folder: str, version: int) -> None:
    """Delete the completion marker, durably, before rows arrive that it does not count. A newer marker is kept."""
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
    """(folder → the last Batch with rows in its files) for the files to delete: of expired folders, and of expired folders with only the
    marker left. Without folders whose segments wait for a merge."""
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
    """Whether a folder's time ended long enough before the newest row's time, or before now if that is earlier."""
    if keeping.time is None or keeping.keep_s is None or newest_us is None:
        return False
    end_us = keeping.end_us(folder)
    return end_us is not None and end_us <= min(newest_us, round(now_s * 1e6)) - round(keeping.keep_s * 1e6)


def remove_expired(top: Path, lineage: LineageFolder, sink: str, folder: str, through: int, check: Callable[[], None], now_s: float) -> int:
    """Delete this lineage's files of a folder, of Batches up to `through`, except those that a reader holds; returns their number. Files of
    others, and then the folder, are kept."""
    own = [name for name, last in _own(top, lineage, sink, folder) if last <= through]
    if not own or leased(top, {folder + name for name in own}, now_s):
        return 0
    place = top / folder
    check()
    if is_marked(top, folder):  # it is deleted first, because it counts the files
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
    """Delete an expired folder that is empty of data: its marker, and the folder itself if it contains nothing of others."""
    (top / folder / COMPLETE).unlink(missing_ok=True)
    with suppress(FileNotFoundError):
        sync_folder(top / folder)
    remove_empty(top / folder, top)


def _rows(path: Path, keeping: RetentionSettings) -> int | None:
    """The number of rows in the file, 0 if it does not exist any more; None if it cannot be read."""
    try:
        return count_rows(path, header=keeping.header)
    except FileNotFoundError:
        return 0
    except (OSError, ValueError):
        return None


def _parts(top: Path, folder: str) -> Iterator[str]:
    """Files with rows in a folder, of any lineage."""
    return (name for name in sorted(names_in(top / folder)) if name.startswith("part-"))


def _size(path: Path) -> int | None:
    """None for a file that a reader removed meanwhile."""
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
    """Partitions with files or a completion marker, as names relative to `top`, each with its `/`."""
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
