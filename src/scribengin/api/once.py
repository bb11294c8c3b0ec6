"""Idempotency keys: a write that is asked for again under its key is not done again; its first answer is given again, by any master.

An answer lies in the registry (`requests/<id>`), at most MOST of them for a day. The record is made before the write begins; where its
master died before it could answer, the write is done again after a while: each converges (what is wanted already is left alone).
"""

from __future__ import annotations

import hashlib
import itertools
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from scribengin.core.errors import Refused
from scribengin.registry.contract import Conflict, Damaged, Delete, RegistryEntry
from scribengin.registry.kinds import IdempotentRequest
from scribengin.registry.records import Stored as StoredRecord
from scribengin.registry.records import names, stored_as
from scribengin.registry.tree import REQUEST

if TYPE_CHECKING:
    from collections.abc import Callable

    from scribengin.registry.contract import Registry

MOST = 1_000
KEPT_S = 86_400.0
ABANDONED_S, SLOW_ABANDONED_S = 15.0, 180.0
"""after which a write that has no answer is done again: longer than a write to the registry takes; than one that plans a flow takes"""
LONGEST_BYTES = 32_768
"""of an answer that is kept; a larger one (hundreds of mistakes in a flow) is made again"""
LONGEST_KEY = 200
_PRUNE_EVERY = 64


@dataclass(frozen=True, slots=True)
class StoredAnswer:
    """An answer that was given."""

    status: int
    body: bytes


class WriteClaim:
    """A write that is to be done now, under a key."""

    def __init__(self, registry: Registry, path: str, record: IdempotentRequest) -> None:
        self._registry = registry
        self._path = path
        self._record = record

    def settle(self, answer: StoredAnswer) -> None:
        """Keep its answer; nobody else can have changed the record."""
        there = self._registry.read(self._path)
        if not isinstance(there, RegistryEntry):
            return
        found = stored_as(there, REQUEST(self._path.rpartition("/")[2]))
        if isinstance(found, StoredRecord) and len(answer.body) <= LONGEST_BYTES:
            settled = IdempotentRequest(asked=self._record.asked, at=self._record.at, status=answer.status, body=answer.body.decode())
            self._registry.commit(found.replace(settled))
        else:
            self.drop()

    def drop(self) -> None:
        """Nothing was done: the key is free again."""
        self._registry.commit(Delete(self._path))


class Once:
    """The keys, as one master sees them. `clock` gives seconds since 1970."""

    def __init__(self, registry: Registry, clock: Callable[[], float] = time.time) -> None:
        self._registry = registry
        self._clock = clock
        self._count = itertools.count(1)

    def begin(self, who: str, key: str, asked: str, *, abandoned_s: float = ABANDONED_S) -> WriteClaim | StoredAnswer:
        """`asked` tells one request from another: method, path and body. Raises Refused: `key-used` for another request under the same key,
        `key-busy` while the first one is under way."""
        if not 0 < len(key) <= LONGEST_KEY:
            raise Refused(f"an idempotency key has 1 to {LONGEST_KEY} characters, not {len(key)}", remedy="send a UUID", code="key-used")
        if next(self._count) % _PRUNE_EVERY == 0:
            self.prune()
        spot = REQUEST(hashlib.sha256(f"{who}\0{key}".encode()).hexdigest()[:32])
        record = IdempotentRequest(asked=hashlib.sha256(asked.encode()).hexdigest(), at=self._clock())
        try:
            self._registry.commit(spot.create(record))
        except Conflict:
            there = self._registry.read(spot.path)
            if there is None:  # dropped between the two looks
                return self.begin(who, key, asked, abandoned_s=abandoned_s)
            found = stored_as(there, spot)
            if isinstance(found, StoredRecord):
                return self._again(found, record, abandoned_s)
            if isinstance(found, Damaged):
                self._registry.commit(Delete(spot.path, found.version))
                return self.begin(who, key, asked, abandoned_s=abandoned_s)
            raise
        return WriteClaim(self._registry, spot.path, record)

    def _again(self, found: StoredRecord[IdempotentRequest], record: IdempotentRequest, abandoned_s: float) -> WriteClaim | StoredAnswer:
        before = found.record
        if before.asked != record.asked:
            raise Refused("this idempotency key was used for another request", remedy="take a new key for each request", code="key-used")
        if before.status:
            return StoredAnswer(before.status, before.body.encode())
        if record.at - before.at < abandoned_s:
            raise Refused("this request is under way", remedy="ask again in a second, with the same key", code="key-busy")
        self._registry.commit(found.replace(record))
        return WriteClaim(self._registry, found.entry.path, record)

    def prune(self) -> None:
        """Forget what is older than a day, and the oldest of those that are too many."""
        ages = []
        for name in names(self._registry, "requests"):
            there = self._registry.read(REQUEST(name).path)
            if there is not None:
                found = stored_as(there, REQUEST(name))
                ages.append((found.record.at if isinstance(found, StoredRecord) else 0.0, there.path, there.version))
        ages.sort(reverse=True)
        oldest = self._clock() - KEPT_S
        for number, (at, path, version) in enumerate(ages):
            if number >= MOST or at < oldest:
                try:
                    self._registry.commit(Delete(path, version))
                except Conflict:  # another master was faster
                    continue
