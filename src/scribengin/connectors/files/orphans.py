"""Files in a sink's folder that no record names, with their age, size and origin."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from scribengin.connectors.contract import BESIDE_OUTPUTS
from scribengin.connectors.files.compaction import leftovers
from scribengin.connectors.files.compaction_state import outputs_of
from scribengin.connectors.files.maintenance import OLD_S, orphans_of
from scribengin.connectors.files.retention import COMPLETE, over
from scribengin.connectors.files.sink_claim import last_lineage
from scribengin.connectors.files.sink_folders import INTERNAL, lineages_in
from scribengin.core.storage import drafts_in

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

_OWN = ("owner.json",)


@dataclass(frozen=True, slots=True)
class OrphanFile:
    """A file that is not needed, or not known to any record."""

    path: Path
    kind: str
    """`attempt` (staged by a task that failed, was late, or whose Batch was never decided), `merge` (left by a killed compactor), `draft`
    (an incomplete record), `lease` (of a dead reader), `foreign` (no record of Scribengin names it)"""
    bytes: int
    age_s: float
    may_be_used: bool = False
    """True if a process may still be writing it"""

    @property
    def foreign(self) -> bool:
        """True if Scribengin must not delete it, because it did not write it."""
        return self.kind == "foreign"


def find_orphans(top: Path, *, now_s: Callable[[], float] = time.time) -> Iterator[OrphanFile]:
    """The orphans in a sink's folder, by name; none if no sink has written there. Staged files of the current Batch are not orphans. Raises
    StateError."""
    # the files before the records: a file that has its name by then is in a record that exists already
    outside = [*_outside(top)]
    found: dict[Path, str] = {}
    settled: set[Path] = set()
    named = {top / INTERNAL / name for name in _OWN}
    newest = last_lineage(top / INTERNAL / "owner.json")
    for lineage in lineages_in(top):
        kinds = dict.fromkeys(leftovers(lineage), "merge")
        settled |= {*orphans_of(lineage, current=lineage.path.name == newest, before_s=now_s() - OLD_S)}
        for path in orphans_of(lineage, current=lineage.path.name == newest, before_s=float("inf")):
            found[path] = kinds.get(path) or ("attempt" if path.is_relative_to(lineage.staged) else "draft")
        for _, record in lineage.commits.since():
            named |= {top / file["name"] for file in record["files"]}
        named |= {top / name for name in outputs_of(lineage)}
    if not newest:
        return
    found |= dict.fromkeys(over(top, now_s()), "lease")
    drafts = set(drafts_in(top / INTERNAL))
    found |= {path: _kind(path) for path in outside if path not in named and path not in drafts and path not in found}
    beside = set(outside)
    for path in sorted(found):
        try:
            status = path.lstat()
        except FileNotFoundError:  # it was deleted in the meantime
            continue
        age_s = max(0.0, now_s() - status.st_mtime)
        used = age_s < OLD_S if path in beside else found[path] in ("attempt", "merge", "draft") and path not in settled
        yield OrphanFile(path, found[path], status.st_size, age_s, used)


def _kind(path: Path) -> str:
    return "draft" if path.name.startswith(f".{COMPLETE}.") else "foreign"


def _outside(folder: Path, *, below: bool = False) -> Iterator[Path]:
    """Every file below the folder, except the contents of `_scribengin` and the trash, completion markers of folders by time, and files of
    other sinks below."""
    try:
        entries = list(folder.iterdir())
    except FileNotFoundError:
        return
    if below and any(path.name == INTERNAL for path in entries):
        return
    for path in entries:
        if path.is_dir() and not path.is_symlink():
            if path.name not in (INTERNAL, BESIDE_OUTPUTS):
                yield from _outside(path, below=True)
        elif not (below and path.name == COMPLETE):
            yield path
