"""Runs one tier on Spark, in this process: a service calls it again and again in the same Spark session."""

from __future__ import annotations

import os
import time
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from scribengin.core.errors import ColumnsOutdated, FencedError, InputError, ScribenginError, SourceMissing
from scribengin.core.net import LOOPBACK
from scribengin.core.remedies import for_flow
from scribengin.launch.marks import VARIABLE
from scribengin.local.contract import RunSettings
from scribengin.local.prepare import prepare
from scribengin.local.query_parts import open_stager
from scribengin.local.run import check_sources, run_flow
from scribengin.local.session import start
from scribengin.local.spark_analysis import deep_problems
from scribengin.registry.records import tier_of
from scribengin.spark.class_archive import start_training
from scribengin.spark.session import jvm_status, stop_session
from scribengin.spark.user_code import pack
from scribengin.spark.warm_up import begin_warm_up, warm_up_streams
from scribengin.state.folder import StateFolder
from scribengin.state.places import is_elsewhere, located
from scribengin.worker.log import LAST
from scribengin.worker.service import AttemptOutcome, AttemptStatus, outcome_of
from scribengin.worker.sharing import Assistant, Workshop

if TYPE_CHECKING:
    import threading
    from collections.abc import Callable, Sequence

    from pyspark.sql import SparkSession

    from scribengin.connectors.group.health import MemberOverrides
    from scribengin.control.world import RunId
    from scribengin.local.contract import QueryView, RunResult, RunView
    from scribengin.local.prepare import PreparedFlow
    from scribengin.local.rate_limit import FlowLimits
    from scribengin.packages.fetch import FetchedPackages
    from scribengin.registry.records import Spec
    from scribengin.state.columns import Word
    from scribengin.state.lease import Right
    from scribengin.worker.log import Timeline
    from scribengin.worker.status_page import Glance


# A lease check that remembers whether the lease was found lost.


class Heeded:
    """The lease, for one attempt to run a tier. `gone` is true once a check has found that it is not held: errors after that are caused by
    it alone. The lease may be held again a moment later, if a session that seemed expired turns out to live."""

    def __init__(self, right: Right) -> None:
        self.gone = False
        self.right = right

    @property
    def path(self) -> str:
        """See `Right`."""
        return self.right.path

    def check(self) -> None:
        """See `Right`."""
        try:
            self.right.check()
        except FencedError:
            self.gone = True
            raise


_ARCHIVE_AFTER_S = 60.0
_AWAIT_S = 2.0
"""seconds between two checks for what another flow is to create"""
_PASSING = frozenset({FencedError.code, ColumnsOutdated.code})
"""codes of errors that the next worker does not meet"""
_MILESTONES = {"checking with spark": "recovering", "running": "running"}


class TierAttempt:
    """Runs a tier of a version. `right` is the path of its lease; `show` is called with each view; `close` stops Spark."""

    def __init__(
        self,
        spec: Spec,
        id_: RunId,
        packages: FetchedPackages,
        right: Right,
        timeline: Timeline,
        glance: Glance,
        show: Callable[[RunView], None] = lambda _view: None,
        limits: Callable[[], FlowLimits] | None = None,
        turns: Callable[[str], MemberOverrides] | None = None,
        feeders: Callable[[], Sequence[str]] = tuple,
        word: Callable[[Spec], Word | None] = lambda _spec: None,
        host: str = LOOPBACK,
        here: Path | None = None,
    ) -> None:
        """`feeders`: the upstream flows. `word`: the agreement to the columns of its sinks, in that version. `host`: the address at which
        other workers of the tier reach this one. `here`: the folder of logs, if the state is elsewhere."""
        self._host = host
        self._here = here or Path.cwd()
        self._word = word
        self._spec = spec
        self._id, self._tier = id_, tier_of(id_.tier)
        self._packages = packages
        self._right = Heeded(right)
        self._show = show
        self._timeline = timeline
        self._glance = glance
        self._limits = limits
        self._turns = turns
        self._feeders = feeders
        self._spark: SparkSession | None = None
        self._archive_at_s = 0.0

    def __call__(self, *, once: bool, stop: threading.Event, tell: Callable[[AttemptStatus], None]) -> AttemptOutcome:
        """See `service.Attempt`."""
        self._right = Heeded(self._right.right)
        try:
            result = self._run(once=once, stop=stop, tell=tell)
            outcome = AttemptOutcome("stopped") if result is None else _outcome(result)
        except ScribenginError as error:
            outcome = outcome_of(error)
        except Exception:
            if self._jvm_status() is None:
                raise
            outcome = AttemptOutcome("failed")
        self._glance.view = None
        outcome = self._named(outcome)
        if self._right.gone and outcome.state == "failed":
            outcome = AttemptOutcome("stopped")  # for a right that is gone, or was for a moment; the service sees to having it
        if (status := self._jvm_status()) is not None and outcome.state != "finished":
            # whatever failed for it: the next process has a JVM of its own
            return AttemptOutcome("failed", f"Spark's JVM has ended with status {status}", f"see {self._log()}")
        return outcome

    def _named(self, outcome: AttemptOutcome) -> AttemptOutcome:
        """The error with commands that find the flow and its state on this machine."""
        if not outcome.remedy:
            return outcome
        try:
            path = self._path()
        except ScribenginError:  # the package is not here
            return outcome
        return replace(outcome, remedy=for_flow(outcome.remedy, str(path), "--state", self._spec.state))

    def warm(self) -> AttemptOutcome | None:
        """Prepare all that needs no lease, so that little is left to do with it: plan, start Spark, let it analyse every step, start its
        Python. No Query is opened, nothing is read. Returns how it failed, if it did."""
        try:
            prepared = self._prepared()
            spark = self._session(prepared)
            warm_up_streams(spark)
            deep_problems(spark, prepared, pack(prepared.plan.flow.code_folder, prepared.here))
        except ScribenginError as error:
            return outcome_of(error)
        return None

    def take(self, spec: Spec) -> None:
        """Run that version from the next attempt on, in the same Spark session."""
        self._spec = spec

    def session(self) -> SparkSession:
        """The Spark session, started at the first call."""
        return self._spark or self._session(self._prepared())

    def close(self) -> None:
        """Stop Spark, if it was started."""
        spark, self._spark = self._spark, None
        if spark is not None:
            stop_session(spark)

    def _run(self, *, once: bool, stop: threading.Event, tell: Callable[[AttemptStatus], None]) -> RunResult | None:
        """None if it was stopped before it began."""
        self._timeline.mark("leased")
        settings = replace(self._settings(), once=once, right=self._right, stop=stop, limits=self._limits, turns=self._turns)
        settings.word = self._word(self._spec)
        with ExitStack() as stack:
            shop = Workshop(StateFolder(located(self._spec.state), self._id.flow, self._tier).path, self._host)
            stack.callback(shop.close)
            self._glance.helping = lambda: {"helpers": len(shop)}
            settings.helpers = shop
            return self._run_with(settings, stop, tell)

    def _run_with(self, settings: RunSettings, stop: threading.Event, tell: Callable[[AttemptStatus], None]) -> RunResult | None:
        def watch(view: RunView) -> None:
            self._glance.view = view
            self._show(view)
            if self._jvm_status() is not None:
                stop.set()  # nothing comes of it any more
            if view.phase in _MILESTONES:
                self._timeline.mark(_MILESTONES[view.phase])
            if any(query.batches for query in view.queries):
                self._timeline.mark(LAST)
                self._archive()
            if self._right.gone:
                stop.set()  # a Query may have failed for it: no other one is to go on without it
            elif (standing := standing_of(view)) is not None:
                tell(standing)

        # a run plans by itself: here it is looked at only what is to be told before Spark starts, or has been missing
        prepared = self._prepared() if self._spark is None else None
        while not stop.is_set():
            try:
                if prepared is not None:
                    check_sources(prepared)
                    self._warmed(prepared)
                return run_flow(self._path(), settings, watch, spark=self._spark)
            except SourceMissing as error:
                prepared = prepared or self._prepared()
                self._await(error, prepared, stop, tell)
        return None

    def _await(self, error: SourceMissing, prepared: PreparedFlow, stop: threading.Event, tell: Callable[[AttemptStatus], None]) -> None:
        """Wait a while: what an upstream flow is to create exists once that flow has begun. Spark starts meanwhile. Raises the error if
        there is no upstream flow."""
        if not (feeders := self._feeding()):
            raise error
        feed = f"{' and '.join(feeders)}, which {'feed' if len(feeders) > 1 else 'feeds'} this flow, may still create it"
        tell(AttemptStatus("recovering", cause=f"{error.message}; {feed}"))
        self._warmed(prepared)
        stop.wait(_AWAIT_S)

    def _feeding(self) -> Sequence[str]:
        """The upstream flows; none if the registry does not answer."""
        try:
            return self._feeders()
        except ScribenginError:
            return ()

    def _jvm_status(self) -> int | None:
        """The exit status of Spark's JVM; None if it runs, or was never started."""
        return None if self._spark is None else jvm_status(self._spark)

    def _log(self) -> Path:
        root = self._here if is_elsewhere(self._spec.state) else Path(self._spec.state)
        return root / self._id.flow / self._tier / "tmp" / "spark.log"

    def _path(self) -> Path:
        return self._packages.get(self._spec.package) / self._spec.path

    def _settings(self) -> RunSettings:
        # a launcher says it so to all programs that it starts, and gives each a folder of its own, which goes with it
        scratch = {"spark.local.dir": str(Path.cwd() / "spark")} if VARIABLE in os.environ else {}
        master = os.environ.get("SCRIBENGIN_SPARK_MASTER", "")
        spec = self._spec
        tier = spec.tiers.get(self._tier)
        kept = frozenset(tier.folders) if tier is not None else frozenset[str]()
        return RunSettings(
            state=located(spec.state),
            here=self._here,
            base=Path(spec.base),
            tier=self._tier,
            master=master,
            spark_conf=scratch,
            kept_elsewhere=kept,
        )

    def _prepared(self) -> PreparedFlow:
        settings = self._settings()
        prepared = prepare(self._path(), state=settings.state, tier=settings.tier, base=settings.base, here=settings.here)
        self._timeline.mark("planned")
        self._glance.flow = prepared
        return prepared

    def _warmed(self, prepared: PreparedFlow) -> SparkSession:
        """Start Spark, if it does not run, and its Python."""
        if self._spark is None:
            begin_warm_up(self._session(prepared))
        assert self._spark is not None
        return self._spark

    def _session(self, prepared: PreparedFlow) -> SparkSession:
        self._spark = start([prepared], self._settings(), lambda _line: None, lasting=True)
        self._timeline.mark("spark")
        return self._spark

    def _archive(self) -> None:
        """Make the archive once, when the tier has run for a while and its start is over. A process of its own makes it, with the lowest
        priority."""
        now_s = time.monotonic()
        self._archive_at_s = self._archive_at_s or now_s + _ARCHIVE_AFTER_S
        if now_s >= self._archive_at_s and self._spark is not None:
            self._archive_at_s = float("inf")
            start_training()


class HelperAttempt(TierAttempt):
    """Helps the worker that holds the tier's lease, as one of `workers`: it stages its portions, and decides nothing."""

    def __call__(self, *, once: bool, stop: threading.Event, tell: Callable[[AttemptStatus], None]) -> AttemptOutcome:
        """See `service.Attempt`. If the tier is to be drained, its own worker does that."""
        if once:
            return AttemptOutcome("finished")
        try:
            return self._help(stop, tell)
        except ScribenginError as error:
            return self._named(outcome_of(error))

    def _help(self, stop: threading.Event, tell: Callable[[AttemptStatus], None]) -> AttemptOutcome:
        prepared = self._prepared()
        spark = self._warmed(prepared)
        code = pack(prepared.plan.flow.code_folder, prepared.here)
        prepared, problems = deep_problems(spark, prepared, code)
        if problems:
            raise InputError(problems)
        (tier,) = prepared.tiers
        assistant = Assistant(tier.folder.path, open_stager(spark, tier, code, self._settings()))
        self._glance.helping = lambda: {"staged": assistant.staged, "stages": int(assistant.at_work)}
        self._timeline.mark(LAST)

        def say() -> None:
            if self._jvm_status() is not None:
                stop.set()
            tell(AttemptStatus("running", assistant.staged, ready=True))

        assistant.help(stop, say)
        if (status := self._jvm_status()) is not None:
            return AttemptOutcome("failed", f"Spark's JVM has ended with status {status}", f"see {self._log()}")
        return AttemptOutcome("stopped")


def standing_of(view: RunView) -> AttemptStatus | None:
    """The tier's standing; None while nothing of it runs yet."""
    if view.phase not in ("running", "degraded"):
        return None
    commits = sum(query.batches for query in view.queries)
    ready = all(query.ready for query in view.queries)
    for state in ("failed", "recovering"):
        ill = next((query for query in view.queries if query.state == state), None)
        if ill is not None:
            return AttemptStatus("degraded" if state == "failed" else "recovering", commits, _cause(ill), ready=ready)
    # of several the one that degrades the flow
    many = max((query for query in view.queries if query.dead_cause), key=lambda query: query.degraded, default=None)
    if many is not None:
        return AttemptStatus("degraded" if many.degraded else "running", commits, f"query {many.name}: {many.dead_cause}", ready=ready)
    return AttemptStatus("running", commits, ready=ready)


def _cause(query: QueryView) -> str:
    return f"query {query.name}: {query.message}"


def _outcome(result: RunResult) -> AttemptOutcome:
    """The outcome. A Query recovers from passing errors by itself: one that has failed needs intervention. But the next process continues
    if the lease was in doubt for a moment while the registry was unavailable, and if a channel has other columns, with which it plans."""
    if result.state != "failed":
        return AttemptOutcome(result.state)
    permanent = all(problem.code not in _PASSING for problem in result.problems if problem.severity == "error")
    failed = next((query for query in result.queries if query.state == "failed"), None)
    if failed is not None:
        return AttemptOutcome("failed", f"query {failed.name}: {failed.error}", failed.remedy, permanent=permanent)
    problem = next((problem for problem in result.problems if problem.severity == "error"), None)
    return AttemptOutcome(
        "failed", "" if problem is None else problem.message, "" if problem is None else problem.remedy, permanent=permanent
    )
