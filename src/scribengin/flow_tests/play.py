"""Plays a test: Batch after Batch through the flow's twin, by the same plan, code and commits as `run`."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from scribengin.core.errors import InputError, ScribenginError
from scribengin.core.problems import Place, Problem
from scribengin.flow_tests.clock import at_time
from scribengin.flow_tests.contract import Result
from scribengin.flow_tests.crash import run_to_death
from scribengin.flow_tests.given import write_given
from scribengin.flow_tests.outputs import read_output
from scribengin.flow_tests.twin import make_twin
from scribengin.local.contract import RunSettings
from scribengin.local.deep import deep_problems
from scribengin.local.drive import open_run
from scribengin.local.prepare import prepare_valid
from scribengin.local.run import look_at_sources
from scribengin.spark.user_code import pack
from scribengin.state.dead import read_letters
from scribengin.state.lease import take_lease

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from datetime import datetime
    from pathlib import Path

    from pyspark.sql import SparkSession

    from scribengin.core.types import Schema
    from scribengin.flow_tests.twin import Scratch
    from scribengin.local.prepare import PreparedFlow
    from scribengin.spec.flow_tests import FlowTest, GivenRows
    from scribengin.spec.model import Flow, Sink
    from scribengin.state.contract import Counts, DeadLetter
    from scribengin.state.folder import QueryFolder


class Play:
    """One test on one scratch folder. `versions`: the first Batch → the flow that runs from there on; 1 is always there."""

    def __init__(
        self,
        file: Path,
        versions: Mapping[int, Flow],
        test: FlowTest,
        scratch: Scratch,
        *,
        place_of: Callable[[Sequence[str | int]], Place],
    ) -> None:
        self._file = file
        self._versions = versions
        self._test = test
        self._scratch = scratch
        self._place_of = place_of
        self.columns: dict[str, Schema] = {}
        self._sinks: dict[str, Sink] = {}
        self._queries: dict[Path, QueryFolder] = {}
        """of all versions"""
        self.prepared: PreparedFlow
        """of the Batch that runs, or of the last one"""

    def run(self, spark: SparkSession) -> Result:
        """All Batches. Raises InputError or Refused for what cannot run; a Query that fails ends it, and is in the result."""
        if lost := [source for source in self._test.given if not any(source in flow.sources for flow in self._versions.values())]:
            message = f'test "{self._test.name}" gives rows to "{lost[0]}", which no version of the flow has as a source'
            raise InputError([Problem("test-node-unknown", self._place_of(("given", lost[0])), message, "mind the name, or take it out")])
        prepared = self.prepared = self._prepared(1)
        self._scratch.root.mkdir(parents=True, exist_ok=True)
        ran: _Ran = _Ran((), (), ())
        for number in range(1, self._test.batches + 1):
            if number > 1:
                prepared = self.prepared = self._prepared(number)
            self._give(number, prepared.plan.flow)
            if number == 1 or number in self._versions:
                self._check(spark, prepared)
            if self._test.crash is not None and self._test.crash.batch == number:
                run_to_death(self._twin(number), self._file, self._scratch, self._test.crash, self._now(number))
            ran = self._once(spark, prepared)
            if ran.failed:
                break
        return self._result(ran)

    def _version(self, number: int) -> Flow:
        return self._versions[max(first for first in self._versions if first <= number)]

    def _twin(self, number: int) -> Flow:
        return make_twin(self._version(number), self._test.given, self._scratch)

    def _now(self, number: int) -> datetime | None:
        return self._test.clock[min(number, len(self._test.clock)) - 1] if self._test.clock else None

    def _prepared(self, number: int) -> PreparedFlow:
        return prepare_at(self._file, self._twin(number), (), self._scratch.state, self._now(number))

    def _give(self, number: int, twin: Flow) -> None:
        base = self._versions[1].folder
        for source in twin.sources.values():
            if "path" not in source.options:
                continue
            self._scratch.given(source.id).mkdir(parents=True, exist_ok=True)
            batches = self._test.given.get(source.id, ())
            if number <= len(batches):
                rows = batches[number - 1]
                write_given(source, self._scratch.given(source.id), number, rows, base, partial(self._place_in, rows))

    def _place_in(self, rows: GivenRows, index: int) -> Place:
        return self._place_of((*rows.at, index))

    def _check(self, spark: SparkSession, prepared: PreparedFlow) -> None:
        """Let Spark check every step. Raises InputError. What this version writes is looked at in the end, also where a later one is
        without it."""
        self._sinks |= prepared.plan.flow.sinks
        for tier in prepared.tiers:
            tier.folder.path.mkdir(parents=True, exist_ok=True)
            folders = (tier.folder.query(query.name) for query in tier.plan.queries)
            self._queries |= {folder.path: folder for folder in folders}
        _, problems = deep_problems(spark, prepared, pack(prepared.plan.flow.code_folder, prepared.root), self.columns)
        if problems:
            raise InputError(problems)

    def _once(self, spark: SparkSession, prepared: PreparedFlow) -> _Ran:
        """What is there now, to the end."""
        settings = RunSettings(once=True)
        with ExitStack() as stack:
            leases = {tier.plan.tier: stack.enter_context(take_lease(tier.folder)) for tier in prepared.tiers}
            look_at_sources(prepared)
            code = pack(prepared.plan.flow.code_folder, prepared.root)
            run = open_run(stack, spark, prepared, code, leases, settings, lambda _: True)
            run.start()
            try:
                run.join()
            finally:
                settings.stop.set()
                run.join()
            counts = tuple(query.nodes for query in run.results())
            failures = tuple(problem for problem in run.problems() if problem.severity == "error")
            return _Ran(counts, run.violations(), failures)

    def _result(self, ran: _Ran) -> Result:
        outputs = {
            sink.id: read_output(sink, self._scratch.out(sink.id), self.columns[sink.id])
            for sink in self._sinks.values()
            if sink.id in self.columns
        }
        ledger: dict[str, Counts] = {}
        for nodes in ran.counts:
            for node, counts in nodes.items():
                ledger.setdefault(node, counts)
        state = "failed" if ran.failed else "finished"
        return Result(
            state, outputs, self.columns, _letters(self._queries.values()), ledger, not ran.violations, ran.violations, ran.failed
        )


class _Ran:
    """What one run has said at its end."""

    def __init__(self, counts: Sequence[Mapping[str, Counts]], violations: Sequence[str], failed: Sequence[Problem]) -> None:
        self.counts = counts
        self.violations = violations
        self.failed = failed


def _letters(queries: Iterable[QueryFolder]) -> list[DeadLetter]:
    """Those of all Queries; one that several have made of one record, once."""
    found: dict[str, DeadLetter] = {}
    for folder in queries:
        for letter in read_letters(folder):
            found.setdefault(letter.id, letter)
    return list(found.values())


def prepare_at(file: Path, twin: Flow, problems: Sequence[Problem], state: Path, now: datetime | None) -> PreparedFlow:
    """The twin, planned with that moment for now, the machine's where it is None. Raises InputError."""
    prepared = prepare_valid(file, twin, problems, state=state)
    if now is None:
        return prepared
    return _with_fingerprints_of(prepare_valid(file, at_time(twin, now), (), state=state), prepared)


def _with_fingerprints_of(prepared: PreparedFlow, plain: PreparedFlow) -> PreparedFlow:
    """A clock that goes on makes no other flow: its state stays what it is."""
    (tier,), (other,) = prepared.tiers, plain.tiers
    queries = tuple(
        replace(query, fingerprint=as_is.fingerprint, state_fingerprint=as_is.state_fingerprint, parts=as_is.parts)
        for query, as_is in zip(tier.plan.queries, other.plan.queries, strict=True)
    )
    plan = replace(tier.plan, queries=queries)
    return replace(prepared, plan=replace(prepared.plan, tiers=(plan,)), tiers=(replace(tier, plan=plan),))


def fault_of(error: ScribenginError, place: Place) -> tuple[Problem, ...]:
    """What an error says, as problems of a test."""
    if isinstance(error, InputError):
        return tuple(error.problems)
    return (Problem(error.code, error.place or place, error.message, error.remedy),)
