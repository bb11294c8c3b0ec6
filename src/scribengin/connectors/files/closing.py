"""Folders by event time: which are closed, what their marker says, and which are old enough to be deleted."""

from __future__ import annotations

import os
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import msgspec

from scribengin.connectors.files.keeping import COMPLETE
from scribengin.connectors.files.read_lease import leased
from scribengin.connectors.files.roll_state import last_batch
from scribengin.connectors.files.sink_folders import remove_empty
from scribengin.core.storage import names_in, read_or_none, replace, sync_folder

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from pathlib import Path

    from scribengin.connectors.files.keeping import Keeping
    from scribengin.connectors.files.sink_folders import LineageFolder


def counts(keeping: Keeping) -> bool:
    """Whether rows are counted for markers."""
    return keeping.time is not None and keeping.close_delay_s is not None


def closed_now(
    top: Path, lineage: LineageFolder, open_: Mapping[str, int], newest_us: int | None, keeping: Keeping
) -> list[dict[str, Any]]:
    """The folders whose marker is to be written: their time is over, and all their files have their names."""
    closed = []
    for folder in sorted(folder for folder in open_ if counts(keeping) and keeping.is_closed(folder, newest_us)):
        sizes = [size for name, _ in _own(top, lineage, keeping.sink, folder) if (size := _size(top / folder / name)) is not None]
        before = _read_marker(top / folder)
        end_us, closed_us = keeping.end_us(folder), keeping.closed_us(newest_us)
        closed.append(
            {
                "folder": folder,
                "version": before.get("version", 0) + 1,
                "rows": before.get("rows", 0) + open_[folder],
                "files": len(sizes),
                "bytes": sum(sizes),
                "until": _moment(end_us),
                "watermark": _moment(closed_us),
            }
        )
    return closed


def write_marker(top: Path, said: Mapping[str, Any]) -> None:
    """Put the marker of a closed folder, or its next version, by one rename. One that is as new stays; a folder that is gone gets none."""
    folder = top / said["folder"]
    if folder.is_dir() and _read_marker(folder).get("version", 0) < said["version"]:
        replace(folder / COMPLETE, msgspec.json.format(msgspec.json.encode(said)) + b"\n")


def expired_now(
    top: Path,
    lineage: LineageFolder,
    waiting: Mapping[str, Any],
    newest_us: int | None,
    keeping: Keeping,
    now_s: float,
) -> dict[str, int]:
    """Folder → the last Batch with rows in its files, which are to be deleted: folders that are expired. None in which segments wait for a
    merge."""
    if keeping.time is None or keeping.keep_s is None or newest_us is None:
        return {}
    busy = {folder for folder, runs in waiting.items() if any(runs)}
    found = {}
    for folder in _folders(top):
        if folder not in busy and is_expired(folder, newest_us, keeping, now_s):
            last = max((last for _, last in _own(top, lineage, keeping.sink, folder)), default=-1)
            if last >= 0:
                found[folder] = last
    return found


def is_expired(folder: str, newest_us: int | None, keeping: Keeping, now_s: float) -> bool:
    """Whether a folder's time ended long enough before the newest row's, or before now where that is earlier."""
    if keeping.time is None or keeping.keep_s is None or newest_us is None:
        return False
    end_us = keeping.end_us(folder)
    return end_us is not None and end_us <= min(newest_us, round(now_s * 1e6)) - round(keeping.keep_s * 1e6)


def remove_expired(top: Path, lineage: LineageFolder, sink: str, folder: str, through: int, check: Callable[[], None], now_s: float) -> int:
    """Delete this lineage's files of a folder, of Batches up to `through`, not while a reader has one of them to read; returns how many.
    Files of others stay, and so does the folder then."""
    own = [name for name, last in _own(top, lineage, sink, folder) if last <= through]
    if not own or leased(top, {folder + name for name in own}, now_s):
        return 0
    for name in own:
        check()
        (top / folder / name).unlink(missing_ok=True)
    place = top / folder
    if not any(name.startswith("part-") for name in names_in(place)):
        check()
        (place / COMPLETE).unlink(missing_ok=True)
    if place.is_dir():
        sync_folder(place)
    remove_empty(place, top)
    return len(own)


def _size(path: Path) -> int | None:
    """None for a file that a reader took away meanwhile."""
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return None


def _own(top: Path, lineage: LineageFolder, sink: str, folder: str) -> Iterator[tuple[str, int]]:
    """(name, last Batch in it) of the files in a folder that this lineage of the sink has written."""
    for name in sorted(names_in(top / folder)):
        last = last_batch(lineage, sink, folder + name)
        if last is not None:
            yield name, last


def _folders(top: Path) -> Iterator[str]:
    """Partitions that hold files, as names below `top`, each with its `/`."""
    waiting = [""]
    while waiting:
        folder = waiting.pop()
        try:
            entries = sorted(os.scandir(top / folder), key=lambda entry: entry.name)
        except FileNotFoundError:
            continue
        waiting += [f"{folder}{entry.name}/" for entry in entries if "=" in entry.name and entry.is_dir()]
        if folder and any(entry.name.startswith("part-") for entry in entries):
            yield folder


def _read_marker(folder: Path) -> dict[str, Any]:
    data = read_or_none(folder / COMPLETE)
    if data is None:
        return {}
    try:
        found: dict[str, Any] = msgspec.json.decode(data)
    except msgspec.DecodeError:
        return {}
    return found


def _moment(moment_us: int | None) -> str | None:
    return None if moment_us is None else datetime.fromtimestamp(moment_us / 1e6, UTC).isoformat()
