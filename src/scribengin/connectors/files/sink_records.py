"""Summaries of the commit records of a place, for sinks of folders and of object stores; for a folder, also the format of its files."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Protocol

from scribengin.connectors.contract import Unaccounted
from scribengin.connectors.files.sink_claim import lineages_newest_first
from scribengin.connectors.files.sink_folders import INTERNAL, LineageFolder
from scribengin.connectors.files.sink_partition import escape
from scribengin.connectors.files.time_path import NULL, TimePath
from scribengin.core.errors import Refused
from scribengin.core.remedies import write_beside

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
    from pathlib import Path

    from scribengin.core.numbered_log import NumberedLog

_LOOKED_AT = (20, 2000)
"""number of Batches to search backwards; the second number if the first ones have no rows, because a filter may drop all rows for a long
time"""
_FORMATS = {"parquet": "parquet", "jsonl": "json", "csv": "csv", "txt": "text"}
"""suffix of a file, compressed or not → its format"""
_YEAR = re.compile(rf"=.*(\d{{4}}|{NULL})")
"""matches the first folder name of a folder by time, which contains the year"""


class Orphan(Protocol):
    """A file or object at a place that no record names."""

    @property
    def foreign(self) -> bool:
        """True if Scribengin did not write it."""


def found_besides(
    known: Collection[str],
    logs: Iterable[tuple[str, NumberedLog]],
    summarize: Callable[[Any | None, Iterable[Any]], Mapping[str, int]],
    orphans: Iterable[Orphan],
) -> list[Unaccounted]:
    """The contents of a place that the flow's state does not account for.

    Args:
        known: The lineages that the state accounts for.
        logs: Each lineage that has written there, with its commit records.
        summarize: Sums the records after the folded ones: `rows` and `files`.
        orphans: Files that no record names.
    """
    found = []
    for lineage, commits in logs:
        if lineage not in known:
            counts = summarize(commits.summary()[1], (record for _, record in commits.since()))
            found.append(Unaccounted(f"lineage {lineage}", counts["rows"], counts["files"]))
    found.append(Unaccounted("that no record names", items=sum(orphan.foreign for orphan in orphans)))
    return [each for each in found if each.items]


def summarize_commits(summary: Any | None, records: Iterable[Any]) -> dict[str, int]:
    """The sum of folded commit records."""
    so_far = summary or {"batches": 0, "rows": 0, "files": 0}
    for record in records:
        so_far = {
            "batches": so_far["batches"] + 1,
            "rows": so_far["rows"] + record["rows"],
            "files": so_far["files"] + len(record["files"]),
        }
    return so_far


def check_form(folder: Path, options: Mapping[str, Any], *, sink: str, decided: Sequence[str] = ()) -> None:
    """Check that the newest rows in the folder went to files of the same format, and to folders of the same columns, as the next ones will:
    otherwise no reader accepts both as one table. Another `path` of folders by time is allowed. Only names in commit records are used: no
    file is read, and no data folder is listed.

    Args:
        folder: The sink's folder.
        options: The sink's options.
        sink: The id of the sink.
        decided: The names of the newest files, if they are known: their Batch may not be published yet.

    Raises:
        Refused: The format or the folders differ.
    """
    name = next(iter(decided), None) or _newest_name(folder)
    base = (name or "").rpartition("/")[2]
    held = _FORMATS.get(base.partition(".")[2].partition(".")[0])
    if name is None or held is None or options.get("evolve") == "any":
        return
    folders = name.split("/")[:-1]
    held_by = [folder.partition("=")[0] for folder in folders]
    parts = options.get("partition_by") or ()
    columns = [escape(part) for part in parts if isinstance(part, str)]
    times = [name for part in parts if not isinstance(part, str) for name in TimePath.of(part).names]
    wrong, again = [], []
    if held != options["format"]:
        wrong.append(f"found format {held}, expected {options['format']}")
        again.append(f"`format: {held}`")
    # the path of the time may change (see docs/segments.md): each path begins with the year
    by_time = bool(times) and _YEAR.search("".join(folders[len(columns) : len(columns) + 1])) is not None
    if held_by != columns + times and not (by_time and held_by[: len(columns)] == columns):
        found, expected = (f"folders by {'/'.join(by)}" if by else "no folders" for by in (held_by, columns + times))
        wrong.append(f"found {found}, expected {expected}")
        again.append("the old `partition_by`" if held_by else "no `partition_by`")
    if wrong:
        raise Refused(
            f'''sink "{sink}": {folder} holds files of another format, such as {name}: {"; ".join(wrong)}''',
            remedy=f"write {' and '.join(again)}; or {write_beside(sink)}; or write `evolve: any` on the sink if its readers can take both",
            code="output-form",
        )


def _newest_name(folder: Path) -> str | None:
    """The name of a file of the newest Batch with rows. The lineages are searched in the order of their claims, the newest first."""
    for id_ in lineages_newest_first(folder / INTERNAL / "owner.json"):
        commits = LineageFolder(folder / INTERNAL / id_).commits
        newest = commits.newest() or 0
        for back in _LOOKED_AT:
            names = [file["name"] for _, record in commits.since(max(0, newest - back)) for file in record["files"][:1]]
            if names:
                return str(names[-1])
    return None
