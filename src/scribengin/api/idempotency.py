"""Idempotency keys: a write that is repeated under its key is not executed again; any master returns its first answer.

An answer is stored in the registry (`requests/<id>`), at most MOST of them, each for a day. If it is too large, the fact that the write was
executed is stored instead, and a repeated write gets that. The record is created before the write begins. If its master died before it
could answer, a repeated write is executed again after a while: each write is idempotent (a desired state that is already set is left
unchanged).
"""

from __future__ import annotations

import hashlib
import itertools
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from scribengin.client.problems import encode, to_problem
from scribengin.core.errors import Refused
from scribengin.registry.contract import Conflict, Damaged, Delete, RegistryEntry
from scribengin.registry.record_io import Stored as StoredRecord
from scribengin.registry.record_io import names, stored_as
from scribengin.registry.records import IdempotentRequest
from scribengin.registry.tree import REQUEST

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from scribengin.registry.contract import CommittedWrite, Registry, RegistrySession, RegistryWatch, Term, Write


# `If-Match` on a flow's desired state: a registry for one write, which succeeds only if the desired state was written by a given revision.


class ExpectingRegistry:
    """The registry for a write that reads `path` and then replaces it. If the record was not written by `revision` (0: does not exist), the
    read raises Refused `revision-stale`. A change between the read and the write makes the write a Conflict, after which the caller reads
    again."""

    def __init__(self, registry: Registry, path: str, revision: int) -> None:
        self._registry = registry
        self._path = path
        self._revision = revision

    def read(self, path: str) -> RegistryEntry | Damaged | None:
        """Read one record, and check it if it is at `path`; see `Registry.read`."""
        return self._checked(path, self._registry.read(path))

    def _checked(self, path: str, found: RegistryEntry | Damaged | None) -> RegistryEntry | Damaged | None:
        if path == self._path:
            there = 0 if found is None or (isinstance(found, RegistryEntry) and not found.value) else found.changed
            if there != self._revision:
                now = f"at revision {there}" if there else "not set"
                expected = f"revision {self._revision}" if self._revision else "none"
                raise Refused(
                    f"the desired state is {now}, expected {expected}; nothing was changed",
                    remedy="read the flow again and repeat the request with its present ETag",
                    code="revision-stale",
                )
        return found

    def read_many(self, paths: Sequence[str]) -> list[RegistryEntry | Damaged | None]:
        """Read records, and check the one at `path`; see `Registry.read_many`."""
        return [self._checked(path, found) for path, found in zip(paths, self._registry.read_many(paths), strict=True)]

    def children(self, path: str) -> tuple[str, ...]:
        """The names one level below; see `Registry.children`."""
        return self._registry.children(path)

    def children_many(self, paths: Sequence[str]) -> list[tuple[str, ...]]:
        """The names below each path; see `Registry.children_many`."""
        return self._registry.children_many(paths)

    def commit(self, *writes: Write, term: Term | None = None) -> CommittedWrite:
        """Do all writes or none; see `Registry.commit`."""
        return self._registry.commit(*writes, term=term)

    def sync(self, *, at_least: int | None = None) -> int:
        """Wait until earlier commits are visible; see `Registry.sync`."""
        return self._registry.sync(at_least=at_least)

    def watch(self, path: str, wake: Callable[[], None]) -> RegistryWatch:
        """Watch a path; see `Registry.watch`."""
        return self._registry.watch(path, wake)

    def watch_below(self, path: str, wake: Callable[[str | None], None]) -> RegistryWatch:
        """Watch a path and all below it; see `Registry.watch_below`."""
        return self._registry.watch_below(path, wake)

    def session(self) -> RegistrySession:
        """The session at this moment; see `Registry.session`."""
        return self._registry.session()

    def close(self) -> None:
        """Does nothing: the registry belongs to the caller."""


MOST = 1_000
KEPT_S = 86_400.0
ABANDONED_S, SLOW_ABANDONED_S = 15.0, 180.0
"""seconds after which a write without an answer is executed again: longer than a write to the registry takes, and longer than a write takes
that plans a flow"""
LONGEST_BYTES = 32_768
"""limit of a stored answer, in bytes; a larger one is not stored"""
LONGEST_KEY = 200
_PRUNE_EVERY = 64


@dataclass(frozen=True, slots=True)
class StoredAnswer:
    """The stored answer to a request with an idempotency key."""

    status: int
    body: bytes


class WriteClaim:
    """A write that must be executed now, under a key."""

    def __init__(self, registry: Registry, path: str, record: IdempotentRequest) -> None:
        self._registry = registry
        self._path = path
        self._record = record

    def settle(self, answer: StoredAnswer) -> None:
        """Store the answer of the write. No other process can have changed the record.

        If the answer is too large, the problem `answer-large` is stored in its place, so that the write is not executed again. A refusal
        that is too large (for example with hundreds of faults in a flow) is forgotten: a repeated write is checked again.
        """
        there = self._registry.read(self._path)
        if not isinstance(there, RegistryEntry):
            return
        if len(answer.body) > LONGEST_BYTES:
            if answer.status >= 400:
                self.drop()
                return
            answer = _too_large(answer)
        found = stored_as(there, REQUEST(self._path.rpartition("/")[2]))
        if isinstance(found, StoredRecord):
            settled = IdempotentRequest(asked=self._record.asked, at=self._record.at, status=answer.status, body=answer.body.decode())
            self._registry.commit(found.replace(settled))
        else:
            self.drop()

    def drop(self) -> None:
        """Remove the record of the key: nothing was done."""
        self._registry.commit(Delete(self._path))


def _too_large(answer: StoredAnswer) -> StoredAnswer:
    """What is stored in place of the answer of a write."""
    error = Refused(
        f"this request was executed before; its answer has {len(answer.body):,} bytes and was not stored (limit {LONGEST_BYTES:,})",
        remedy="do not send it again; read the present state, for example with GET /v1/flows",
        code="answer-large",
    )
    problem = to_problem(error)
    return StoredAnswer(problem.status, encode(problem))


class Once:
    """The idempotency keys, for one master. `clock` returns seconds since the epoch."""

    def __init__(self, registry: Registry, clock: Callable[[], float] = time.time) -> None:
        self._registry = registry
        self._clock = clock
        self._count = itertools.count(1)

    def begin(self, who: str, key: str, asked: str, *, abandoned_s: float = ABANDONED_S) -> WriteClaim | StoredAnswer:
        """Claim a key.

        Args:
            who: the caller.
            key: the key.
            asked: identifies the request: method, path and body.
            abandoned_s: seconds after which a write without an answer is executed again.

        Returns:
            A claim if the write must be executed, otherwise the stored answer.

        Raises:
            Refused: `key-used` for another request under the same key, `key-busy` while the first one is under way.
        """
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
            if there is None:  # it was removed between the two reads
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
            raise Refused("this idempotency key was used for another request", remedy="use a new key for each request", code="key-used")
        if before.status:
            return StoredAnswer(before.status, before.body.encode())
        if record.at - before.at < abandoned_s:
            raise Refused("this request is under way", remedy="repeat it in a second, with the same key", code="key-busy")
        self._registry.commit(found.replace(record))
        return WriteClaim(self._registry, found.entry.path, record)

    def prune(self) -> None:
        """Remove answers that are older than a day, and the oldest ones above the limit."""
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
                except Conflict:  # another master has changed or removed it
                    continue
