"""One tier on Spark, in this process: what a service runs, again and again in the same Spark session."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from scribengin.core.errors import ScribenginError
from scribengin.local.contract import RunSettings
from scribengin.local.prepare import prepare
from scribengin.local.run import run_flow
from scribengin.local.session import start
from scribengin.worker.service import Outcome, Standing, outcome_of

if TYPE_CHECKING:
    import threading
    from collections.abc import Callable

    from pyspark.sql import SparkSession

    from scribengin.local.contract import QueryView, RunResult, RunView
    from scribengin.packages.fetch import FetchedPackages
    from scribengin.registry.tree import Spec
    from scribengin.state.lease import Right


class TierAttempt:
    """Runs a tier of a version. `right` is what its lease is taken by; `show` is called with each view; `close` stops Spark."""

    def __init__(
        self, spec: Spec, tier: str, packages: FetchedPackages, right: Right, show: Callable[[RunView], None] = lambda _view: None
    ) -> None:
        self._spec = spec
        self._tier = tier
        self._packages = packages
        self._right = right
        self._show = show
        self._spark: SparkSession | None = None

    def __call__(self, *, once: bool, stop: threading.Event, tell: Callable[[Standing], None]) -> Outcome:
        """See `service.Attempt`."""
        try:
            result = self._run(once=once, stop=stop, tell=tell)
        except ScribenginError as error:
            return outcome_of(error)
        return _outcome(result)

    def close(self) -> None:
        """Stop Spark, where it was started."""
        if self._spark is not None:
            self._spark.stop()
            self._spark = None

    def _run(self, *, once: bool, stop: threading.Event, tell: Callable[[Standing], None]) -> RunResult:
        spec = self._spec
        path = self._packages.get(spec.package) / spec.path
        settings = RunSettings(
            once=once,
            state=Path(spec.state),
            base=Path(spec.base),
            tier=self._tier,
            right=self._right,
            # a launcher says it so to all programs that it starts
            master=os.environ.get("SCRIBENGIN_SPARK_MASTER", ""),
            stop=stop,
        )
        if self._spark is None:
            prepared = prepare(path, state=settings.state, tier=settings.tier, base=settings.base)
            self._spark = start([prepared], settings, lambda _line: None)

        def watch(view: RunView) -> None:
            self._show(view)
            if (standing := standing_of(view)) is not None:
                tell(standing)

        return run_flow(path, settings, watch, spark=self._spark)


def standing_of(view: RunView) -> Standing | None:
    """How the tier stands; None while nothing of it runs yet."""
    if view.phase not in ("running", "degraded"):
        return None
    commits = sum(query.batches for query in view.queries)
    for state in ("failed", "recovering"):
        ill = next((query for query in view.queries if query.state == state), None)
        if ill is not None:
            return Standing("degraded" if state == "failed" else "recovering", commits, _cause(ill))
    return Standing("running", commits)


def _cause(query: QueryView) -> str:
    return f"query {query.name}: {query.message}"


def _outcome(result: RunResult) -> Outcome:
    """A Query goes on by itself after what passes: one that has failed waits for a person."""
    if result.state != "failed":
        return Outcome(result.state)
    failed = next((query for query in result.queries if query.state == "failed"), None)
    if failed is not None:
        return Outcome("failed", f"query {failed.name}: {failed.error}", failed.remedy, permanent=True)
    problem = next((problem for problem in result.problems if problem.severity == "error"), None)
    return Outcome("failed", "" if problem is None else problem.message, "" if problem is None else problem.remedy, permanent=True)
