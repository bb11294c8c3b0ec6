"""Leases, which one process holds at a time: to run a tier (`RegistryLease`), to lead the masters (`Election`).

A lease is two records. The ephemeral one, at the lease's own path, names the holder, and is removed with its session or when the holder
releases it. The other, `fence_of(path)`, is permanent, and is replaced in the same commit that creates the first: its version distinguishes
each holder from all others, and a commit under a Term checks it (ZooKeeper can check a record's version, not its creation, and a record
that was created again starts at version 0 again). The number of the Term is the revision that created the ephemeral record, ZooKeeper's
czxid: it only increases.
"""

from __future__ import annotations

import threading
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from scribengin.core.errors import FencedError, Unreachable
from scribengin.registry.contract import (
    Conflict,
    Create,
    Damaged,
    Delete,
    RegistryEntry,
    Replace,
    SessionState,
    Term,
    Unsettled,
    fence_of,
    shown,
)

if TYPE_CHECKING:
    from collections.abc import Mapping
    from types import TracebackType

    from scribengin.registry.contract import Registry

LEADER = "leader"
_LOOK_S = 1.0
"""seconds to wait for a watch before checking anyway: a watch is a hint"""


class RegistryLease:
    """One contender for the lease at `path`. `about` identifies the holder to others (host, pid, address …). Two contenders exclude each
    other even if they share a client. As a context manager it is released at the end."""

    def __init__(self, registry: Registry, path: str, about: Mapping[str, Any]) -> None:
        self.path = path
        self._registry = registry
        self._about = dict(about)
        self._claim = uuid4().hex
        """distinguishes this contender's records from those of others, even if the answer to its commit was lost"""
        self._term: Term | None = None
        self._session = 0
        self._gone = False
        self._unsettled = False
        self._changed = threading.Event()
        self._watch = registry.watch(path, self._changed.set)

    @property
    def term(self) -> Term:
        """The Term under which the lease is held, or was last held. Raises FencedError if it was never held."""
        if self._term is None:
            raise FencedError(f"{shown(self.path)}: this process never held the lease", remedy="acquire it first")
        return self._term

    @property
    def claim(self) -> str:
        """The value that distinguishes this contender's records from those of others. A process that has it proves that it is the holder,
        or may read the lease."""
        return self._claim

    def acquire(self, *, wait_s: float = 0.0) -> bool:
        """Acquire the lease, waiting up to `wait_s` seconds for the present holder. A lost lease can be acquired again, under a new Term.

        Returns:
            True if the lease is held now.

        Raises:
            Unreachable: the registry did not answer until the end of that time.
        """
        deadline = time.monotonic() + wait_s
        while True:
            try:
                if self._check_held():
                    return True
                self._changed.clear()
                if self._take():
                    return True
            except Unreachable:
                self._unsettled = True
                if time.monotonic() >= deadline:
                    raise
            if (left_s := deadline - time.monotonic()) <= 0:
                return False
            self._changed.wait(min(left_s, _LOOK_S))

    def held(self) -> bool:
        """True if the lease is certainly held now, by local knowledge: no request is made.

        It is also true while the session is SUSPENDED, to the end of its time by this machine's clock; false when that has passed, or the
        session is lost. It may become true again when a server reports that the session still lives. It does not protect writes that two
        processes must not both do: `commit(…, term=lease.term)` does.
        """
        session = self._registry.session()
        return self._term is not None and not self._gone and session.id == self._session and session.lives

    def check(self) -> None:
        """Raise FencedError if the lease is no longer held. It asks the registry only after a change at its path, and never while the
        session is SUSPENDED: then `held` decides, without a request."""
        if not self._check_held():
            raise FencedError(
                f"{shown(self.path)}: this process no longer holds the lease (term {self.term.number})",
                remedy="this process stops acting on it",
            )

    def release(self) -> None:
        """Release the lease. If the registry does not answer, the lease ends with this client's session. Releasing twice is allowed."""
        self._gone = True
        with suppress(FencedError, Unreachable, Conflict):
            if self._unsettled:  # it may have been acquired although no answer arrived
                self._settle()
            if self._term is not None:
                self._registry.commit(Delete(self.path), term=self._term)

    def close(self) -> None:
        """Release the lease, and stop renewing it."""
        self.release()
        self._watch.close()

    def __enter__(self) -> RegistryLease:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def _take(self) -> bool:
        there, fence = self._registry.read(self.path), self._registry.read(fence_of(self.path))
        if there is not None and not there.session:  # a record that an operator wrote: it gives no process the right
            with suppress(Conflict):
                self._registry.commit(Delete(self.path, there.version))
            there = None
        if there is None:
            record = {"format": 1, **self._about, "claim": self._claim}
            kept = fence.value if isinstance(fence, RegistryEntry) else {}
            last = Create(fence_of(self.path), record) if fence is None else Replace(fence, {**kept, **record})
            # another process was faster, or this one succeeded without an answer: the next read shows which
            with suppress(Conflict, Unsettled):
                self._registry.commit(Create(self.path, record, ephemeral=True), last)
        if not self._settle():
            return False
        self._gone = False
        return True

    def _check_held(self) -> bool:
        """True if the lease is held; its records are read again if they may have changed."""
        if self.held() and self._changed.is_set() and self._registry.session().link is SessionState.CONNECTED:
            self._changed.clear()
            try:
                self._gone = self._read_mine() is None
            except Unreachable:
                self._changed.set()
        return self.held()

    def _settle(self) -> bool:
        """Read whether this contender holds the lease, in its present session; if so, store the Term and return True."""
        session = self._registry.session().id
        mine = self._read_mine()
        self._unsettled = False
        if mine is None or mine[0].session != session:
            return False
        self._term, self._session = Term(self.path, mine[0].made, mine[1].version), session
        return True

    def _read_mine(self) -> tuple[RegistryEntry, RegistryEntry] | None:
        """Both records of the lease; None unless this contender wrote them."""
        there, fence = self._registry.read(self.path), self._registry.read(fence_of(self.path))
        if not isinstance(there, RegistryEntry) or not isinstance(fence, RegistryEntry):
            return None
        mine = there.value.get("claim") == fence.value.get("claim") == self._claim
        return (there, fence) if mine else None


class Election(RegistryLease):
    """A master's lease to lead."""

    def __init__(self, registry: Registry, about: Mapping[str, Any]) -> None:
        super().__init__(registry, LEADER, about)

    def read_leader(self) -> Mapping[str, Any] | None:
        """The leader's record, even if it is this process; None if no master leads."""
        there = self._registry.read(self.path)
        return None if there is None or isinstance(there, Damaged) else there.value
