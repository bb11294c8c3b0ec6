"""Rights that one process has at a time: to run a tier (`RegistryLease`), to lead the masters (`Election`).

A right is two records. The ephemeral one, at the right's own path, says who has it, and goes with his session or when he releases it. The
other, `fence_of(path)`, stays, and is replaced in the same commit that makes the first: its version tells each holder from all others, and
that is what a commit under a Term checks (ZooKeeper can check a record's version, not when it was made, and a record that was made again
begins at version 0 again). The number of the Term is the revision that made the ephemeral record, ZooKeeper's czxid: it only rises.
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
"""a watch is a hint: how long to wait for one before looking anyhow"""


class RegistryLease:
    """One contender for the right at `path`. `about` is what others read there of who has it (host, pid, address …).

    Two contenders exclude each other even with one client. As a context manager it is released at the end.
    """

    def __init__(self, registry: Registry, path: str, about: Mapping[str, Any]) -> None:
        self.path = path
        self._registry = registry
        self._about = dict(about)
        self._claim = uuid4().hex
        """tells this contender's records from those of others, also where the answer to its commit was lost"""
        self._term: Term | None = None
        self._session = 0
        self._gone = False
        self._unsettled = False
        self._changed = threading.Event()
        self._watch = registry.watch(path, self._changed.set)

    @property
    def term(self) -> Term:
        """The Term under which it is, or was last, held. Raises FencedError where it never was."""
        if self._term is None:
            raise FencedError(f"{shown(self.path)}: the right was never held here", remedy="acquire it first")
        return self._term

    @property
    def claim(self) -> str:
        """What tells its records from those of others: who names it has written them, or may read them."""
        return self._claim

    def acquire(self, *, wait_s: float = 0.0) -> bool:
        """Take the right, waiting up to `wait_s` seconds for who has it. True where it is held then.

        Raises Unreachable where the registry does not answer to the last. A right that was lost can be acquired again, under a new Term.
        """
        deadline = time.monotonic() + wait_s
        while True:
            try:
                if self._look():
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
        """Whether the right is certainly held now, by what is known here: no request is made.

        True also while the session is SUSPENDED, to the end of its time by this machine's clock; false when that has passed, or the
        session is lost. It may be true again when a server says that the session has lived on. What must not be done by two is not
        guarded by this but by `commit(…, term=lease.term)`.
        """
        session = self._registry.session()
        return self._term is not None and not self._gone and session.id == self._session and session.lives

    def check(self) -> None:
        """Raise FencedError where the right is not held any more. Asks the registry only after a change at its path, and never while the
        session is SUSPENDED: then it costs nothing, and `held` is what it says."""
        if not self._look():
            raise FencedError(
                f"{shown(self.path)}: the right (term {self.term.number}) is not held any more", remedy="this process stops acting on it"
            )

    def release(self) -> None:
        """Let the next one take it. Where the registry does not answer it goes with this client's session. Releasing twice is no error."""
        self._gone = True
        with suppress(FencedError, Unreachable, Conflict):
            if self._unsettled:  # it may have been taken, without an answer
                self._settle()
            if self._term is not None:
                self._registry.commit(Delete(self.path), term=self._term)

    def close(self) -> None:
        """Release it, and end."""
        self.release()
        self._watch.close()

    def __enter__(self) -> RegistryLease:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def _take(self) -> bool:
        there, fence = self._registry.read(self.path), self._registry.read(fence_of(self.path))
        if there is not None and not there.session:  # somebody's by hand: no process has the right by it
            with suppress(Conflict):
                self._registry.commit(Delete(self.path, there.version))
            there = None
        if there is None:
            record = {"format": 1, **self._about, "claim": self._claim}
            kept = fence.value if isinstance(fence, RegistryEntry) else {}
            last = Create(fence_of(self.path), record) if fence is None else Replace(fence, {**kept, **record})
            with suppress(Conflict, Unsettled):  # somebody else was faster; or so was this one, which is seen now
                self._registry.commit(Create(self.path, record, ephemeral=True), last)
        if not self._settle():
            return False
        self._gone = False
        return True

    def _look(self) -> bool:
        """Whether it is held, after a look at its path where something has changed there."""
        if self.held() and self._changed.is_set() and self._registry.session().link is SessionState.CONNECTED:
            self._changed.clear()
            try:
                self._gone = self._read_mine() is None
            except Unreachable:
                self._changed.set()
        return self.held()

    def _settle(self) -> bool:
        """Read whether this contender has the right, in the session that it has now; if so, the Term."""
        session = self._registry.session().id
        mine = self._read_mine()
        self._unsettled = False
        if mine is None or mine[0].session != session:
            return False
        self._term, self._session = Term(self.path, mine[0].made, mine[1].version), session
        return True

    def _read_mine(self) -> tuple[RegistryEntry, RegistryEntry] | None:
        """Both records, where this contender wrote them."""
        there, fence = self._registry.read(self.path), self._registry.read(fence_of(self.path))
        if not isinstance(there, RegistryEntry) or not isinstance(fence, RegistryEntry):
            return None
        mine = there.value.get("claim") == fence.value.get("claim") == self._claim
        return (there, fence) if mine else None


class Election(RegistryLease):
    """One master's part in the contest for the lead."""

    def __init__(self, registry: Registry, about: Mapping[str, Any]) -> None:
        super().__init__(registry, LEADER, about)

    def read_leader(self) -> Mapping[str, Any] | None:
        """What the leader, be it this one, says of itself; None where there is none."""
        there = self._registry.read(self.path)
        return None if there is None or isinstance(there, Damaged) else there.value
