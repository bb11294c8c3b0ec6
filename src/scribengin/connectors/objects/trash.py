"""The trash of a place: data that a reset has removed is kept for a while, so that it can be restored.

    <url>/_scribengin_trash/<id>/<folder>/removed-NAME.removed     the object that was at <folder>/NAME
    <url>/_scribengin/moving                                       the id, while manifests are being moved and cannot be read

The data stays in the store: objects are copied and deleted, files of an HDFS are renamed. Readers skip names that begin with `_`. Each step
is idempotent and may be interrupted at any point. Claims are moved last, and restored last: in between no run can claim the place.
"""

from __future__ import annotations

import re
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import TYPE_CHECKING
from uuid import uuid4

from scribengin.connectors.contract import name_before, removed_name
from scribengin.connectors.objects.compaction_log import CompactionLog
from scribengin.connectors.objects.manifests import CLAIMS, INTERNAL, TRASH, Manifests, Owners, is_internal, lineages
from scribengin.core import faults
from scribengin.core.errors import Refused, ScribenginError, SinkError
from scribengin.core.remedies import flow_command

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from scribengin.core.store import Store

_MOVING = f"{INTERNAL}/moving"
_NOTE = re.compile(rf"{INTERNAL}/[^/]+/(?:staged|merging)/\d+/(.+)")
_AT_ONCE = 8
"""objects that are moved concurrently"""


def can_keep(store: Store) -> bool:
    """True if the objects of the place can be moved to its trash. Tries it with an object of its own, because no store reports the
    permission to copy."""
    if any(entry.size > store.copy_bytes for entry in store.list()):
        return False
    probe = f"{TRASH}/probe-{uuid4().hex}"
    moved = f"{probe}-moved"
    try:
        store.put(probe, b"1")
        store.move(probe, moved)
    except SinkError:
        return False
    finally:
        with suppress(ScribenginError):
            store.delete(probe, moved)
    return True


def is_moving(store: Store) -> bool:
    """True if a move to the trash was interrupted when all objects had been moved, and only manifests were left."""
    return store.get(_MOVING) is not None


def noted_keys(store: Store) -> set[str]:
    """The keys of uploads that are not completed, and whose Batches or compaction runs are in the trash: they are kept until the trash is
    deleted."""
    originals = (_original(entry.key) for entry in store.list(TRASH))
    return {noted[1] for key in originals if (noted := _NOTE.match(key)) is not None}


def _original(kept: str) -> str:
    folder, slash, name = kept.split("/", 2)[2].rpartition("/")
    return f"{folder}{slash}{name_before(name)}"


class StoreTrash:
    """The objects that one reset has removed from one place."""

    def __init__(self, store: Store, id_: str) -> None:
        self._store = store
        self._id = id_
        self._top = f"{TRASH}/{id_}"

    def take(self, named: Iterable[str]) -> None:
        """Move the objects with these keys to the trash, then staged objects of tasks and compactors, and all records; claims last.
        Idempotent."""
        store = self._store
        if not is_moving(store):
            wanted = {*named, *self._staged()}
            self._move((key, self._kept(key)) for key in self._there() if key in wanted and not is_internal(key))
            store.put(_MOVING, self._id.encode())
        ours = [entry.key for entry in store.list(INTERNAL) if entry.key != _MOVING]
        self._move((key, self._kept(key)) for key in ours if not key.startswith(CLAIMS))
        store.delete(_MOVING)  # before the claims: as soon as there is no claim, a run may claim the place
        for key in sorted((key for key in ours if key.startswith(CLAIMS)), reverse=True):
            self._check_same(key, self._kept(key))
            self._move([(key, self._kept(key))])

    def check_back(self) -> None:
        """Raise Refused if the original place of an object is occupied by now, or the trash is empty."""
        kept = dict(self._originals())
        if not kept and not Owners(self._store).claims():
            raise Refused(
                f"{self._store}/{self._top} is empty: the removed objects cannot be restored from there",
                remedy="check whether a rule of the bucket deletes objects there; restore them from a backup",
                code="trash-missing",
            )
        there = {entry.key: entry.size for entry in self._store.list() if not entry.key.startswith(f"{TRASH}/")}
        for key in there.keys() & kept.keys():
            # if the process was killed between a copy and its deletion, the object exists at both places
            if is_internal(key):
                self._check_same(key, kept[key][0])
            elif there[key] != kept[key][1]:
                raise self._taken(key)

    def give_back(self) -> None:
        """Move all objects back to their original places; claims last. Idempotent."""
        kept = {key: where for key, (where, _) in self._originals()}
        claims = sorted(key for key in kept if key.startswith(CLAIMS))
        ours = [key for key in kept if is_internal(key) and not key.startswith(CLAIMS)]
        self._move((kept[key], key) for key in kept if not is_internal(key))
        self._move((kept[key], key) for key in ours)
        self._store.delete(_MOVING)  # left by a reset that was interrupted
        for key in claims:
            self._move([(kept[key], key)])

    def drop(self) -> None:
        """Delete the objects permanently, with the parts of uploads that were never completed."""
        kept = dict(self._originals())
        for key in kept:
            if (noted := _NOTE.match(key)) is not None:
                self._store.abandon(noted[1])
        self._store.delete(*(where for where, _ in kept.values()))

    def _staged(self) -> Iterator[str]:
        for lineage in lineages(self._store):
            for notes in (Manifests(self._store, lineage).notes, CompactionLog(self._store, lineage).notes):
                yield from (key for _, key in notes.staged())

    def _there(self) -> list[str]:
        return [entry.key for entry in self._store.list() if not is_internal(entry.key)]

    def _kept(self, key: str) -> str:
        folder, slash, name = key.rpartition("/")
        return f"{self._top}/{folder}{slash}{removed_name(name)}"

    def _originals(self) -> Iterator[tuple[str, tuple[str, int]]]:
        """(its original key, (its current key, its size))"""
        for entry in self._store.list(self._top):
            yield _original(entry.key), (entry.key, entry.size)

    def _move(self, pairs: Iterable[tuple[str, str]]) -> None:
        def move(pair: tuple[str, str]) -> None:
            self._store.move(*pair)
            faults.reached("trash.moved")

        with ThreadPoolExecutor(_AT_ONCE) as threads:
            list(threads.map(move, pairs))

    def _check_same(self, key: str, kept: str) -> None:
        there, was = self._store.get(key), self._store.get(kept)
        if there is not None and was is not None and there != was:
            raise self._taken(key)

    def _taken(self, key: str) -> Refused:
        again = f"{flow_command('reset', '--outputs')}; then: {flow_command('reset', '--undo', self._id)}"
        return Refused(
            f"{self._store}/{key} exists again: it was written after the reset",
            remedy=f"move that to the trash too: {again}",
            code="trash-taken",
        )
