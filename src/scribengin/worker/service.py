"""The life of a worker: it acquires the lease, works towards the desired state, reports its state, and ends when it is no longer needed."""

from __future__ import annotations

import dataclasses
import errno
import threading
import traceback
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal, Protocol

import msgspec

from scribengin.core.errors import Exit, FencedError, Refused, ScribenginError, Unreachable
from scribengin.registry.contract import Conflict, Require
from scribengin.registry.record_io import Newer, Stored, put, read_record
from scribengin.registry.records import Report, ServedPage
from scribengin.registry.tree import NODE_HTTP, NODE_JSON, REPORT, RUN, SPARE, SPARE_REPORT

if TYPE_CHECKING:
    from collections.abc import Callable

    from scribengin.control.world import RunId
    from scribengin.registry.contract import Registry, RegistryEntry, Term, Write
    from scribengin.registry.lease import RegistryLease
    from scribengin.registry.record_io import Spot
    from scribengin.registry.records import Run, TierWish, WorkerState
    from scribengin.worker.registry_watch import DesiredState

_POLL_S = 0.5
_PASSING = frozenset({"spark-start"})
"""codes of errors that the next process may not have: a JVM was killed while it started, the machine lacked memory for a moment"""
_PASSING_ERRNO = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EAGAIN, errno.EIO, errno.ESTALE})
"""system errors of resources that may be available again later"""
_LEASE_S = 1.0
"""seconds between two tries to acquire the lease, and between two checks of the desired state"""


@dataclass(frozen=True, slots=True)
class AttemptOutcome:
    """How an attempt to run the tier ended."""

    state: Literal["stopped", "finished", "failed"]
    cause: str = ""
    remedy: str = ""
    permanent: bool = False
    """another try would end the same way"""


@dataclass(frozen=True, slots=True)
class AttemptStatus:
    """The state of an attempt while it runs; `commits` is the number of Batches that it has committed."""

    state: WorkerState
    commits: int = 0
    cause: str = ""
    remedy: str = ""
    ready: bool = False
    """each query has committed a Batch, or has found nothing to read"""


class TierRun(Protocol):
    """Runs the tier until everything is processed, or it is stopped or fails."""

    def __call__(self, *, once: bool, stop: threading.Event, tell: Callable[[AttemptStatus], None]) -> AttemptOutcome:
        """Run the tier. It should raise nothing: an exception counts as a failure with a bug.

        Args:
            once: end when all available data is processed.
            stop: when set, end after the current Batches.
            tell: to be called with each new status, from the same thread.
        """


class WorkerService:
    """One worker. `serve` blocks until the worker is no longer needed."""

    def __init__(
        self,
        registry: Registry,
        id_: RunId,
        lease: RegistryLease,
        wanted: DesiredState,
        version: int,
        attempt: TierRun,
        warm: Callable[[], AttemptOutcome | None] = lambda: None,
        *,
        task: Callable[[str], None] | None = None,
        reload: Callable[[int], bool] | None = None,
        http: str = "",
        on_say: Callable[[Report], None] = lambda _report: None,
        on_end: Callable[[str], None] = lambda _why: None,
    ) -> None:
        """Prepare the worker; `serve` runs it.

        Args:
            registry: the registry.
            id_: the run of this worker.
            lease: the tier's lease.
            wanted: the worker's desired state.
            version: the version of the flow that this process has loaded.
            attempt: runs the tier.
            warm: does what needs no lease, for a standby; returns how it failed, or None.
            task: does the tier's part of the operation with that id, under the lease; it is idempotent. None: tasks are not supported.
            reload: loads another version between two attempts; returns False if it cannot. None: never.
            http: the address of the worker's page.
            on_say: called with each report.
            on_end: called with the reason for the worker's end.
        """
        self._registry = registry
        self._flow = id_.flow
        self._node = f"{id_.flow}.{id_.tier}"
        self._lease = lease
        self._wanted = wanted
        self._version = version
        self._attempt = attempt
        self._warm: Callable[[], AttemptOutcome | None] | None = warm
        self._spots = {False: (REPORT(id_.flow, id_.tier), RUN(id_.flow, id_.tier))}
        self._spots[True] = (SPARE_REPORT(id_.flow, id_.tier), SPARE(id_.flow, id_.tier))
        """is it the standby → (where it reports, the record that assigns it)"""
        self._spare = False
        self._report = Report(run=id_.number, generation=0, version=version, state="starting", http=http)
        self._on_say = on_say
        self._on_end = on_end
        self._placed = 0
        """the Term under which the address of its page was last written"""
        self._told: Report | None = None
        self._told_at: Spot[Report] | None = None
        self._before = 0
        """number of Batches committed in earlier attempts of this process"""
        self._asked = threading.Event()
        self._asked_why = ""
        self._task = task
        self._reload = reload
        self._touched = threading.Event()
        """the record of its report was changed, perhaps by this worker"""
        self._watch = registry.watch(REPORT(id_.flow, id_.tier).path, self._touched.set)

    def stop(self, why: str = "it received SIGTERM") -> None:
        """End after the current Batches, whatever the desired state. May be called from any thread or signal handler. `why`: the reason,
        for the report of the end."""
        self._asked_why = why
        self._asked.set()

    def serve(self) -> Exit:
        """Run until the worker is no longer needed. Returns the exit status. Raises Unreachable if the registry never answered."""
        while True:
            orders = self._wanted.read()
            wish, self._spare = orders.wish, orders.spare
            if wish is not None and wish.version != self._version and self._reload is not None and self._reload(wish.version):
                self._version = wish.version
                self._report = msgspec.structs.replace(self._report, version=wish.version)
            open_task = wish is not None and wish.task not in ("", self._report.task)
            idle = wish is None or (wish.goal == "stopped" and not open_task)
            if self._asked.is_set():
                return self._end("stopped", wish, self._asked_why, told=True)
            if wish is None:
                return self._end("stopped", wish, f"it is no longer needed: {orders.why}")
            if idle or wish.version != self._version:
                what = "its tier stopped" if idle else f"version {wish.version}; this worker has version {self._version}"
                return self._end("stopped", wish, f"the desired state is {what}")
            if self._spare and not self._lease.held():
                if wish.goal not in ("running", "paused"):  # the tier will end soon, and the standby must not do anything a second time
                    return self._end("stopped", wish, f"the desired state of its tier is {wish.goal}, and another worker serves it")
                failed = self._warmed(wish)
                if failed is not None:
                    return self._fail(wish, failed, 0)
                if not self._taken_over(wish):
                    continue
            elif not self._lease.held() and not self._acquired(wish):
                continue
            if open_task:
                if (ended := self._do(wish)) is not None:
                    return ended
                continue
            if wish.goal == "paused":
                self._say(AttemptStatus("paused", self._before), wish.generation)
                self._wanted.wait(_LEASE_S)
                continue
            outcome = self._run(wish)
            if outcome.state == "failed" and not self._lease.held():
                continue  # fenced, or about to be: the lease decides which worker continues
            if outcome.state == "failed":
                return self._fail(wish, outcome, self._before)
            if outcome.state == "finished" and wish.goal == "drained":
                return self._end("drained", wish, "all available data was processed")

    def _warmed(self, wish: TierWish) -> AttemptOutcome | None:
        """Do, once, what can be done before the lease is held. Returns how it failed; None if it did not."""
        warm, self._warm = self._warm, None
        if warm is None:
            return None
        self._say(AttemptStatus("starting"), wish.generation)
        return warm()

    def _taken_over(self, wish: TierWish) -> bool:
        """Wait for the lease as the standby. Returns True if it is held now; otherwise read the desired state again and repeat the call."""
        self._say(AttemptStatus("standby"), wish.generation)
        try:
            there = read_record(self._registry, self._spots[False][0])
            # a permanent failure of the tier's worker would happen here too
            for_good = isinstance(there, Stored) and there.record.permanent and there.record.generation == wish.generation
            if not for_good and self._lease.acquire():
                return True
        except Unreachable:
            pass
        self._wanted.wait()
        return False

    def _acquired(self, wish: TierWish) -> bool:
        """Try to acquire the lease. Returns True if it is held now; otherwise read the desired state again and repeat the call."""
        self._say(AttemptStatus("starting", self._before), wish.generation)
        try:
            return self._lease.acquire(wait_s=_LEASE_S)
        except Unreachable:
            self._wanted.wait(_LEASE_S)
            return False

    def _do(self, wish: TierWish) -> Exit | None:
        """Do the tier's part of an operation, and report it. After a passing error the next worker tries again: then this worker ends, and
        its exit status is returned; otherwise None."""
        error = ""
        try:
            if self._task is None:
                raise Refused("this worker does not support tasks", remedy="run the same version as the masters")
            self._task(wish.task)
        except (Unreachable, FencedError) as failed:
            if self._lease.held():
                return self._fail(wish, AttemptOutcome("failed", failed.message, failed.remedy), self._before)
            return None
        except ScribenginError as failed:
            error = f"{failed.message}; {failed.remedy}" if failed.remedy else failed.message
        except Exception as bug:  # otherwise each next worker would end by it, and the operation would never end
            traceback.print_exc()
            error = f"this is a bug in Scribengin: {type(bug).__name__}: {bug}; report it, with the worker's log"
        self._report = msgspec.structs.replace(self._report, task=wish.task, task_error=error)
        self._say(AttemptStatus("starting", self._before), wish.generation)
        return None

    def _run(self, wish: TierWish) -> AttemptOutcome:
        """Run the tier until the attempt ends by itself, the desired state changes, or the lease is lost."""
        stop, outcomes = threading.Event(), list[AttemptOutcome]()
        standing = AttemptStatus("starting")
        changed = threading.Event()

        def tell(new: AttemptStatus) -> None:
            nonlocal standing
            standing = new
            changed.set()

        def work() -> None:
            try:
                outcomes.append(self._attempt(once=wish.goal == "drained", stop=stop, tell=tell))
            except Exception as error:
                traceback.print_exc()
                outcomes.append(outcome_of(error, self._flow))

        thread = threading.Thread(target=work, name="attempt")
        thread.start()
        while thread.is_alive():
            thread.join(_POLL_S)
            now = self._wanted.read().wish
            if self._asked.is_set() or not self._lease.held() or _is_other(now, wish, standing) or _folder_is_gone():
                stop.set()
            elif now is not None:
                self._say(dataclasses.replace(standing, commits=self._before + standing.commits), now.generation)
        self._before += standing.commits
        if _folder_is_gone():  # what has failed since has this cause, and another worker has a folder
            return AttemptOutcome("failed", "the folder of its process was deleted", "if it happens again: find out what deletes it")
        return outcomes[0] if outcomes else AttemptOutcome("failed", "the attempt has ended without an outcome")

    def _end(self, state: WorkerState, wish: TierWish | None, why: str, *, told: bool = False) -> Exit:
        """Report the end of this worker and release the lease. `told`: the report must name the reason, because the registry has no desired
        state that explains the end."""
        self._on_end(f"{state}: {why}")
        if wish is not None:
            self._say(AttemptStatus(state, self._before, why if told else ""), wish.generation)
        self._lease.close()
        return Exit.DONE

    def _fail(self, wish: TierWish, outcome: AttemptOutcome, commits: int) -> Exit:
        """Report the failure, also in the worker's own log: the registry may not answer, and its record of this run is replaced by that of
        the next run."""
        remedy = f"; {outcome.remedy}" if outcome.remedy else ""
        self._on_end(f"failed{' permanently' if outcome.permanent else ''}: {outcome.cause or 'no cause is known'}{remedy}")
        self._say(AttemptStatus("failed", commits, outcome.cause, outcome.remedy), wish.generation, permanent=outcome.permanent)
        return Exit.FAILED

    def _say(self, standing: AttemptStatus, generation: int, *, permanent: bool = False) -> None:
        """Write the report if it has changed. Progress alone is not a change, except the first Batch, which ends a series of failures."""
        commits = standing.commits if self._told is None or self._told.commits == 0 else self._told.commits
        if self._told is None or standing.state != self._told.state:
            commits = standing.commits
        report = msgspec.structs.replace(
            self._report,
            generation=generation,
            state=standing.state,
            commits=commits,
            ready=standing.ready,
            cause=standing.cause,
            remedy=standing.remedy,
            permanent=permanent,
        )
        self._on_say(report)
        held = self._lease.held()
        spot, run_spot = self._spots[self._spare and not held]
        if (report, spot) == (self._told, self._told_at) and self._report_exists():
            return
        try:
            if held:
                term = self._lease.term
                self._registry.commit(put(self._registry, spot, report), *self._links(term), term=term)
                self._placed = term.number
            elif (run := self._served(run_spot)) is not None:  # without a valid Term: only while the registry still assigns this worker
                self._registry.commit(put(self._registry, spot, report), Require(run.path, run.version))
            else:
                return  # another worker reports for the tier now
        except (Unreachable, Conflict):
            return  # it is reported again at the next check
        except FencedError:
            return
        self._told, self._told_at = report, spot

    def _links(self, term: Term) -> list[Write]:
        """The writes of the address of the worker's page, once under each Term."""
        if self._placed == term.number or not self._report.http:
            return []
        spots = {NODE_HTTP(self._node): "", NODE_JSON(self._node): "/json"}
        return [put(self._registry, spot, ServedPage(url=self._report.http + path)) for spot, path in spots.items()]

    def _served(self, spot: Spot[Run]) -> RegistryEntry | None:
        """The record that assigns this worker; None if it is no longer assigned."""
        there = read_record(self._registry, spot)
        mine = isinstance(there, Stored) and there.record.number == self._report.run and there.record.ended_at is None
        return there.entry if isinstance(there, Stored) and mine else None

    def _report_exists(self) -> bool:
        """True if the worker's last report still exists: a damaged one is set aside, and must be written again. Read only after a
        change."""
        if not self._touched.is_set() or self._told_at is None:
            return True
        self._touched.clear()
        try:
            there = read_record(self._registry, self._told_at)
        except Unreachable:
            self._touched.set()
            return True
        return isinstance(there, Newer) or (isinstance(there, Stored) and there.record == self._told)


def _is_other(now: TierWish | None, wish: TierWish, standing: AttemptStatus) -> bool:
    """True if the desired state `now` differs from the one of the attempt. Setting the same state again retries what has failed."""
    if now is None or (now.goal, now.version) != (wish.goal, wish.version):
        return True
    return now.generation != wish.generation and standing.state == "degraded"


def _folder_is_gone() -> bool:
    """True if the current folder of this process was deleted, with Spark's files: as by YARN's NodeManager, which deletes the folders of
    containers when it is started again, also of those that still run."""
    try:
        Path.cwd()
    except FileNotFoundError:
        return True
    return False


def outcome_of(error: Exception, flow: str = "NAME") -> AttemptOutcome:
    """The outcome of an attempt that could not begin: after a passing error a new worker tries again, any other error needs
    intervention."""
    shortage = next((each.errno for each in (error, error.__cause__) if isinstance(each, OSError)), None)
    if not isinstance(error, ScribenginError):
        # a system error such as missing permissions is permanent; any other exception is a bug, which may or may not happen again
        permanent = shortage is not None and shortage not in _PASSING_ERRNO
        return AttemptOutcome("failed", f"{type(error).__name__}: {error}", f"its traceback: scribengin logs {flow}", permanent=permanent)
    if shortage in _PASSING_ERRNO:
        return AttemptOutcome("failed", error.message, error.remedy)
    return AttemptOutcome("failed", error.message, error.remedy, permanent=not (isinstance(error, Unreachable) or error.code in _PASSING))
