"""A worker's life: it takes the lease, does what is wanted, says how it stands, and ends when it is wanted no more."""

from __future__ import annotations

import dataclasses
import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, Protocol

import msgspec

from scribengin.core.errors import Exit, FencedError, ScribenginError, Unreachable
from scribengin.registry.contract import Conflict
from scribengin.registry.records import Newer, Stored, put, read_record
from scribengin.registry.tree import REPORT, Report

if TYPE_CHECKING:
    from collections.abc import Callable

    from scribengin.control.world import RunId
    from scribengin.registry.contract import Registry
    from scribengin.registry.lease import Lease
    from scribengin.registry.tree import TierWish, WorkerState
    from scribengin.worker.wanted import Wanted

_POLL_S = 0.5
_LEASE_S = 1.0
"""between two tries for the lease, and two looks at whether it is wanted at all"""


@dataclass(frozen=True, slots=True)
class Outcome:
    """How an attempt to run the tier has ended."""

    state: Literal["stopped", "finished", "failed"]
    cause: str = ""
    remedy: str = ""
    permanent: bool = False
    """trying again would end the same way"""


@dataclass(frozen=True, slots=True)
class Standing:
    """How an attempt stands while it goes on; `commits` are the Batches that it has committed."""

    state: WorkerState
    commits: int = 0
    cause: str = ""
    remedy: str = ""


class Attempt(Protocol):
    """Runs the tier until it is through, stopped or failed."""

    def __call__(self, *, once: bool, stop: threading.Event, tell: Callable[[Standing], None]) -> Outcome:
        """`once`: end when all is read that is there. `tell` is called from the same thread; raises nothing."""


class Service:
    """One worker. `serve` blocks until it is wanted no more."""

    def __init__(self, registry: Registry, id_: RunId, lease: Lease, wanted: Wanted, version: int, attempt: Attempt) -> None:
        """`version`: that of the flow which this process has loaded."""
        self._registry = registry
        self._lease = lease
        self._wanted = wanted
        self._version = version
        self._attempt = attempt
        self._spot = REPORT(id_.flow, id_.tier)
        self._report = Report(run=id_.number, generation=0, version=version, state="starting")
        self._told: Report | None = None
        self._before = 0
        """Batches committed in earlier attempts of this process"""
        self._asked = threading.Event()
        self._touched = threading.Event()
        """somebody, perhaps this worker, has changed the record of what it says"""
        self._watch = registry.watch(self._spot.path, self._touched.set)

    def stop(self) -> None:
        """End after the Batches under way, whatever is wanted. From any thread or signal handler."""
        self._asked.set()

    def serve(self) -> Exit:
        """Raises Unreachable where the registry never answered."""
        while True:
            wish = self._wanted.read().wish
            if self._asked.is_set() or wish is None or wish.goal == "stopped" or wish.version != self._version:
                return self._end("stopped", wish)
            if not self._lease.held() and not self._acquired(wish):
                continue
            if wish.goal == "paused":
                self._say(Standing("paused", self._before), wish.generation)
                self._wanted.wait(_LEASE_S)
                continue
            outcome = self._run(wish)
            if outcome.state == "failed" and not self._lease.held():
                continue  # fenced, or about to be: the lease decides who goes on
            if outcome.state == "failed":
                self._say(Standing("failed", self._before, outcome.cause, outcome.remedy), wish.generation, permanent=outcome.permanent)
                return Exit.FAILED
            if outcome.state == "finished" and wish.goal == "drained":
                return self._end("drained", wish)

    def _acquired(self, wish: TierWish) -> bool:
        """Whether the lease is held now; to be asked again with a new look at what is wanted."""
        self._say(Standing("starting", self._before), wish.generation)
        try:
            return self._lease.acquire(wait_s=_LEASE_S)
        except Unreachable:
            self._wanted.wait(_LEASE_S)
            return False

    def _run(self, wish: TierWish) -> Outcome:
        """Until the attempt has ended, by itself or because something else is wanted, or the lease is lost."""
        stop, outcomes = threading.Event(), list[Outcome]()
        standing = Standing("starting")
        changed = threading.Event()

        def tell(new: Standing) -> None:
            nonlocal standing
            standing = new
            changed.set()

        def work() -> None:
            outcomes.append(self._attempt(once=wish.goal == "drained", stop=stop, tell=tell))

        thread = threading.Thread(target=work, name="attempt")
        thread.start()
        while thread.is_alive():
            thread.join(_POLL_S)
            now = self._wanted.read().wish
            if self._asked.is_set() or not self._lease.held() or _is_other(now, wish, standing):
                stop.set()
            elif now is not None:
                self._say(dataclasses.replace(standing, commits=self._before + standing.commits), now.generation)
        self._before += standing.commits
        return outcomes[0] if outcomes else Outcome("failed", "the attempt has ended without an outcome")

    def _end(self, state: WorkerState, wish: TierWish | None) -> Exit:
        if wish is not None:
            self._say(Standing(state, self._before), wish.generation)
        self._lease.close()
        return Exit.DONE

    def _say(self, standing: Standing, generation: int, *, permanent: bool = False) -> None:
        """Write it where that is news. Progress alone is none, but the first Batch is: it ends a row of failures."""
        commits = standing.commits if self._told is None or self._told.commits == 0 else self._told.commits
        if self._told is None or standing.state != self._told.state:
            commits = standing.commits
        report = msgspec.structs.replace(
            self._report,
            generation=generation,
            state=standing.state,
            commits=commits,
            cause=standing.cause,
            remedy=standing.remedy,
            permanent=permanent,
        )
        if report == self._told and self._stands():
            return
        try:
            term = self._lease.term if self._lease.held() else None
            self._registry.commit(put(self._registry, self._spot, report), term=term)
        except (Unreachable, Conflict):
            return  # said again at the next look
        except FencedError:
            return  # another one speaks for the tier now
        self._told = report

    def _stands(self) -> bool:
        """Whether what it said last is still there: a damaged record is set aside, and said again. Asked only after a change."""
        if not self._touched.is_set():
            return True
        self._touched.clear()
        try:
            there = read_record(self._registry, self._spot)
        except Unreachable:
            self._touched.set()
            return True
        return isinstance(there, Newer) or (isinstance(there, Stored) and there.record == self._told)


def _is_other(now: TierWish | None, wish: TierWish, standing: Standing) -> bool:
    """True where what is wanted `now` is not what the attempt was begun for. To ask for the same again tries again what has failed."""
    if now is None or (now.goal, now.version) != (wish.goal, wish.version):
        return True
    return now.generation != wish.generation and standing.state == "degraded"


def outcome_of(error: ScribenginError) -> Outcome:
    """Of an attempt that could not begin: what passes by itself is tried again by a new worker, all else waits for a person."""
    return Outcome("failed", error.message, error.remedy, permanent=not isinstance(error, Unreachable))
