"""Maintenance of a table, beside its writers: merges small files into large ones, and deletes files that are no longer used.

Each step may be interrupted at any point and repeated. A compaction changes no rows, so a commit that only appends never collides with it
permanently; one that replaces rows is retried by its driver. Files that a Batch is about to commit are never deleted: its record exists
before its files are renamed.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from typing import TYPE_CHECKING

from scribengin.connectors.delta.client import client
from scribengin.connectors.delta.commits import APPLICATION, TableCommits
from scribengin.connectors.delta.table_files import files_of
from scribengin.connectors.files.maintenance import MaintenanceRun

if TYPE_CHECKING:
    from collections.abc import Iterator

    import deltalake

    from scribengin.connectors.delta.places import TablePlace


_MANY = 16
"""minimum number of small files in one partition for a compaction, so that each row is rewritten only a few times"""


def keep_table(place: TablePlace, file_bytes: int, retain_s: float, *, flush: bool = False) -> MaintenanceRun:
    """Maintain a table once: compact small files, and delete unneeded ones. A place without a table needs no maintenance.

    Args:
        place: The place of the table.
        file_bytes: The size of compacted files; files smaller than half of it are small.
        retain_s: For how many seconds files are kept after they left the table; rounded up to hours.
        flush: Compact even two small files.

    Raises:
        ScribenginError: The table cannot be read or written.
    """
    table = place.open()
    if table is None:
        return MaintenanceRun()
    library = client()
    try:
        merged, files, size = _compact(table, file_bytes, 2 if flush else _MANY)
        deleted = deleted_bytes = 0
        for name in [*_given_up(place, table, retain_s), *place.strays()]:
            there_bytes = place.delete(name)
            if there_bytes is not None:  # the log lists files for a while after they were deleted
                deleted, deleted_bytes = deleted + 1, deleted_bytes + there_bytes
    except (library.exceptions.DeltaError, OSError) as error:
        raise place.fault(error, "is not kept") from error
    return MaintenanceRun(files=deleted, bytes=deleted_bytes, merged=merged, merged_files=files, merged_bytes=size)


def _compact(table: deltalake.DeltaTable, file_bytes: int, many: int) -> tuple[int, int, int]:
    """Compact small files. Returns (number of these files, number of files that contain their rows now, bytes of these)."""
    library = client()
    small = Counter(tuple(each.partition.values()) for each in files_of(table) if each.bytes < file_bytes // 2)
    if max(small.values(), default=0) < many:
        return 0, 0, 0
    try:
        told = table.optimize.compact(
            target_size=file_bytes,
            writer_properties=library.WriterProperties(compression="ZSTD"),
            commit_properties=library.CommitProperties(custom_metadata={APPLICATION: {"upkeep": "compaction"}}),
        )
    except library.exceptions.CommitFailedError:
        return 0, 0, 0  # a Batch has replaced rows of these files: the next run selects others
    added = told["filesAdded"]
    size = (json.loads(added) if isinstance(added, str) else added)["totalSize"]
    return told["numFilesRemoved"], told["numFilesAdded"], size


def _given_up(place: TablePlace, table: deltalake.DeltaTable, retain_s: float) -> list[str]:
    """Files in the table's folder that have not been part of the table for `retain_s` seconds, and are not about to be committed."""
    table.update_incremental()
    hours = math.ceil(retain_s / 3600)
    found = table.vacuum(retention_hours=hours, dry_run=True, enforce_retention_duration=False, full=True)
    if not found:
        return []
    # the order matters: since it was found, a staged file may have been recorded, and a recorded one may have been committed to the table
    coming = set(place.waiting())
    coming |= set(_coming(place, place.open() or table))
    held = {each.path for each in files_of(place.open() or table)}
    return [name for name in found if name not in coming and name not in held]


def _coming(place: TablePlace, table: deltalake.DeltaTable) -> Iterator[str]:
    """Files of Batches that are recorded, but not in the table's log."""
    commits = TableCommits(place, "append", (), None, (), "strict")
    for lineage in place.lineages():
        newest = lineage.commits.newest()
        # each Batch is in the log before the next one is recorded
        for number in () if newest is None else (newest - 1, newest):
            if commits.generation(lineage) and not commits.holds(table, lineage, number):
                record = lineage.commits.read(number)
                yield from (file["name"] for file in (record or {}).get("files", ()))
