"""Objects below a sink's url that no manifest names: their age, size and origin."""

from __future__ import annotations

import re
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from scribengin.connectors.hdfs.store import HdfsStore
from scribengin.connectors.objects.compaction_log import CompactionLog
from scribengin.connectors.objects.manifests import INTERNAL, Manifests, Owners, is_internal, lineages
from scribengin.connectors.objects.s3 import S3Store
from scribengin.connectors.objects.trash import noted_keys

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from scribengin.core.store import Store

OLD_S = 3600.0
"""how long an unknown object is kept, in seconds: a suspended task may have written it, and a driver may still decide its Batch"""
OURS = re.compile(r"part-\d{10}-(merged-\d{10}-\d{5}-|\d{5}-\d{5}-)")
"""prefixes of the names of objects that compactors and tasks write"""
HIDDEN = re.compile(rf"{INTERNAL}/[^/]+/hidden/")


@dataclass(frozen=True, slots=True)
class OrphanObject:
    """An object, or parts of one, that is not needed, or not known to any record."""

    key: str
    kind: str
    """`attempt` (of a task that failed, was late, or whose Batch was never decided), `merge` (of a compactor that was late, or killed),
    `upload` (parts that never became an object), `foreign` (neither a manifest nor its name shows that Scribengin wrote it)"""
    bytes: int
    age_s: float
    may_be_used: bool
    """True if a process may still need it"""

    @property
    def foreign(self) -> bool:
        """True if Scribengin must not delete it, because it did not write it."""
        return self.kind == "foreign"


def find_orphans(store: Store, *, now_s: Callable[[], float] = time.time) -> Iterator[OrphanObject]:
    """The orphans, by key; none if no sink has written there. Staged objects of the current Batch are not orphans. `now_s` returns the
    current time, in seconds since 1970."""
    # the objects before the manifests: objects committed meanwhile are named then
    there = [entry for entry in store.list() if not is_internal(entry.key) or HIDDEN.match(entry.key)]
    uploads = _unfinished(store, now_s())
    claims = Owners(store).claims()
    if not claims:
        return
    known: set[str] = set()
    open_ = noted_keys(store)
    for lineage in lineages(store):
        manifests = Manifests(store, lineage)
        newest = -1
        for number, record in manifests.committed():
            newest = number
            known |= {file["name"] for file in record["files"]}
        if lineage == claims[-1]["lineage"]:
            open_ |= {key for number, key in manifests.notes.staged() if number > newest}
        turns = CompactionLog(store, lineage)
        known |= {*(output["name"] for _, output in turns.outputs()), *turns.markers()}
        through = turns.newest()[0]
        open_ |= {key for number, key in turns.notes.staged() if number > through}
    for entry in there:
        if entry.key not in known and entry.key not in open_:
            ours = OURS.match(entry.key.rpartition("/")[2])
            kind = "foreign" if ours is None else "merge" if ours[1].startswith("merged") else "attempt"
            age_s = max(0.0, now_s() - entry.modified_s)
            yield OrphanObject(entry.key, kind, entry.size, age_s, age_s < OLD_S)
    for key in sorted(uploads.keys() - known - open_):
        # its task announced the upload before it started; the announcement was deleted, and the task did not notice
        size, age_s = uploads[key]
        yield OrphanObject(key, "upload", size, max(0.0, age_s), age_s < OLD_S)


def remove(store: Store, orphan: OrphanObject) -> None:
    """Delete the orphan, including parts."""
    store.abandon(orphan.key)


def _unfinished(store: Store, now_s: float) -> dict[str, tuple[int, float]]:
    """The unfinished uploads: key → bytes and age in seconds; if the store reports neither, 0 bytes and an age beyond the limit."""
    if isinstance(store, HdfsStore):
        return {key: (entry.size, now_s - entry.modified_s) for key, entry in store.unfinished()}
    if not isinstance(store, S3Store) or store.login is None:
        return {}
    from scribengin.connectors.objects.s3 import Uploads

    return {key: (0, OLD_S) for key, _ in Uploads(store).unfinished()}
