"""Runs a test: Batch after Batch through the flow's twin, with the same plan, code and commits as `run`."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from contextlib import ExitStack, suppress
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from scribengin.connectors import catalog
from scribengin.core.errors import InputError, ScribenginError
from scribengin.core.faults import VARIABLE
from scribengin.core.problems import Place, Problem
from scribengin.flow_tests.contract import Result
from scribengin.flow_tests.twin import make_twin, read_output, write_given
from scribengin.local.contract import RunSettings
from scribengin.local.drive import open_run
from scribengin.local.prepare import prepare_valid
from scribengin.local.run import check_sources
from scribengin.local.spark_analysis import deep_problems, store_channel_columns
from scribengin.spark.user_code import pack
from scribengin.spec.dump import dump_flow
from scribengin.spec.model import Aggregate, Filter, Route, Select, Sql, Step
from scribengin.state.dead_letters import read_letters
from scribengin.state.lease import take_lease

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from datetime import datetime
    from pathlib import Path

    from pyspark.sql import SparkSession

    from scribengin.core.types import Schema
    from scribengin.flow_tests.twin import Scratch
    from scribengin.local.prepare import PreparedFlow
    from scribengin.spec.flow_tests import Crash, FlowTest, GivenRows
    from scribengin.spec.model import Action, Flow, Sink
    from scribengin.state.contract import Counts, DeadLetter
    from scribengin.state.folder import QueryFolder


# A test's clock: writes the current time of the test into the SQL texts of the twin.
#
# It replaces `current_timestamp`, `now`, `localtimestamp`, `current_date`, `curdate` and `unix_timestamp()` in every SQL text of the
# flow. It does not affect Python's clock: a Python step that needs the time should read it from a column.


_CALLS = {"current_timestamp", "now", "localtimestamp", "current_date", "curdate", "unix_timestamp"}
_BARE = {"current_timestamp", "current_date", "localtimestamp"}


def at_time(flow: Flow, now: datetime) -> Flow:
    """Return the flow with that time as the current time of its SQL."""
    return replace(flow, steps={id_: _step(step, now) for id_, step in flow.steps.items()})


def rule_text(sql: str, now: datetime) -> str:
    """Return the text with the time in place of each call.

    >>> from datetime import UTC, datetime
    >>> rule_text("ts < now() - INTERVAL 1 DAY AND note <> 'now()'", datetime(2026, 1, 2, tzinfo=UTC))
    "ts < TIMESTAMP'2026-01-02 00:00:00.000000Z' - INTERVAL 1 DAY AND note <> 'now()'"
    """
    from sqlglot.dialects import Spark
    from sqlglot.tokenizer_core import TokenType

    tokens = Spark().tokenize(sql)
    cuts: list[tuple[int, int, str]] = []
    for index, token in enumerate(tokens):
        word = token.text.lower()
        if word not in _CALLS or token.token_type in (TokenType.STRING, TokenType.IDENTIFIER):
            continue
        if index and tokens[index - 1].token_type in (TokenType.DOT, TokenType.ALIAS):  # a column, or what one is to be called
            continue
        empty = [each.token_type for each in tokens[index + 1 : index + 3]] == [TokenType.L_PAREN, TokenType.R_PAREN]
        if empty:
            cuts.append((token.start, tokens[index + 2].end + 1, _literal(word, now)))
        elif word in _BARE and (index + 1 == len(tokens) or tokens[index + 1].token_type != TokenType.L_PAREN):
            cuts.append((token.start, token.end + 1, _literal(word, now)))
    for start, end, text in reversed(cuts):
        sql = sql[:start] + text + sql[end:]
    return sql


def _literal(word: str, now: datetime) -> str:
    match word:
        case "current_date" | "curdate":
            return f"DATE'{now:%Y-%m-%d}'"
        case "unix_timestamp":
            return f"BIGINT({int(now.timestamp())})"
        case "localtimestamp":
            return f"TIMESTAMP_NTZ'{now:%Y-%m-%d %H:%M:%S.%f}'"
    return f"TIMESTAMP'{now:%Y-%m-%d %H:%M:%S.%f}Z'"


def _step(step: Step, now: datetime) -> Step:
    require = tuple((name, rule_text(text, now)) for name, text in step.require)
    return replace(step, action=_action(step.action, now), require=require)


def _action(action: Action, now: datetime) -> Action:
    match action:
        case Filter(predicate):
            return Filter(rule_text(predicate, now))
        case Sql(text):
            return Sql(rule_text(text, now))
        case Select(columns):
            return Select(_pairs(columns, now))
        case Route(cases, otherwise):
            return Route(_pairs(cases, now), otherwise)
        case Aggregate():
            return replace(action, columns=_pairs(action.columns, now))
    return action


def _pairs(pairs: tuple[tuple[str, str], ...], now: datetime) -> tuple[tuple[str, str], ...]:
    return tuple((name, rule_text(text, now)) for name, text in pairs)


# `crash_after`: runs a Batch in a separate process, which is killed (SIGKILL) in the middle of the Batch, with its Java process.


POINTS = {"staged": "stage.after", "decided": "decide.after", "published": "publish.after"}
_LIMIT_S = 300.0
_SHOWN = 2000


class NoCrashError(ScribenginError):
    """The process that should crash finished, or ended for another reason."""

    code = "test-crash"


def run_to_death(twin: Flow, file: Path, scratch: Scratch, crash: Crash, now: datetime | None) -> None:
    """Process the available input in a child process that is killed at the crash point.

    Args:
        twin: The twin of the flow.
        file: The flow file.
        scratch: The scratch folder of the test.
        crash: The crash point.
        now: The current time of its SQL; None for the machine's clock.

    Raises:
        NoCrashError: The process does not crash.
    """
    text = dump_flow(twin, source_types=catalog.source_types(), sink_types=catalog.sink_types())
    described = scratch.root / "dies.yaml"
    described.write_text(text, encoding="utf-8")
    command = [sys.executable, "-m", "scribengin.flow_tests.child", str(described), str(twin.code_folder), str(scratch.state), str(file)]
    expect_death([*command, now.isoformat() if now else ""], scratch.root / "dies.log", crash)


def expect_death(command: Sequence[str], log: Path, crash: Crash, *, limit_s: float = _LIMIT_S) -> None:
    """Run a command that a fault is to kill, and wait until it and its Java process have ended. PySpark's workers have their own process
    group and end by themselves.

    Args:
        command: The command.
        log: The file for its output.
        crash: The crash point.
        limit_s: Seconds after which the process is killed.

    Raises:
        NoCrashError: The fault did not end it.
    """
    environment = os.environ | {VARIABLE: f"{POINTS[crash.point]}:kill"}
    status: int | None = None
    with log.open("wb") as out:
        child = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=out, stderr=out, env=environment, start_new_session=True)
        try:
            with suppress(subprocess.TimeoutExpired):
                status = child.wait(limit_s)
        finally:
            with suppress(ProcessLookupError):  # the whole group: Java may still run if only the child has ended
                os.killpg(child.pid, signal.SIGKILL)
            child.wait()
    if status != -signal.SIGKILL:
        said = log.read_text(encoding="utf-8", errors="replace")[-_SHOWN:].strip()
        what, remedy = f"ended with status {status}: {said}", "check its output"
        if status is None:
            what = f"neither crashed nor finished within {limit_s:g} s: {said or 'it printed nothing'}"
            remedy = "give that Batch fewer rows, or find out why it does not finish"
        elif status == 0:
            what = f"finished without a Batch that was {crash.point}"
            remedy = "give that Batch rows, or take crash_after out"
        raise NoCrashError(f"the process that should crash in Batch {crash.batch} {what}", remedy=remedy)


class Play:
    """One test on one scratch folder. `versions`: the first Batch → the flow that runs from there on; key 1 always exists."""

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
        """the folders of all queries of all versions"""
        self.prepared: PreparedFlow
        """the flow of the current Batch, or of the last one"""

    def run(self, spark: SparkSession) -> Result:
        """Run all Batches. Raises InputError or Refused for a flow that cannot run; a failed query ends the test, and is in the result."""
        if lost := [source for source in self._test.given if not any(source in flow.sources for flow in self._versions.values())]:
            message = f'test "{self._test.name}" gives rows to "{lost[0]}", which is not a source in any version of the flow'
            raise InputError(
                [Problem("test-node-unknown", self._place_of(("given", lost[0])), message, "correct the name, or take it out")]
            )
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
        """Check every step with Spark. Raises InputError. The output of this version is compared at the end, even if a later version
        does not have the sink."""
        self._sinks |= prepared.plan.flow.sinks
        for tier in prepared.tiers:
            tier.folder.path.mkdir(parents=True, exist_ok=True)
            folders = (tier.folder.query(query.name) for query in tier.plan.queries)
            self._queries |= {folder.path: folder for folder in folders}
        _, problems = deep_problems(spark, prepared, pack(prepared.plan.flow.code_folder, prepared.root), self.columns)
        if problems:
            raise InputError(problems)
        store_channel_columns(prepared, self.columns)

    def _once(self, spark: SparkSession, prepared: PreparedFlow) -> _Ran:
        """Process all available input."""
        settings = RunSettings(once=True)
        with ExitStack() as stack:
            leases = {tier.plan.tier: stack.enter_context(take_lease(tier.folder)) for tier in prepared.tiers}
            check_sources(prepared)
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
    """The result of one run."""

    def __init__(self, counts: Sequence[Mapping[str, Counts]], violations: Sequence[str], failed: Sequence[Problem]) -> None:
        self.counts = counts
        self.violations = violations
        self.failed = failed


def _letters(queries: Iterable[QueryFolder]) -> list[DeadLetter]:
    """The dead letters of all queries, without duplicates of one record from several queries."""
    found: dict[str, DeadLetter] = {}
    for folder in queries:
        for letter in read_letters(folder):
            found.setdefault(letter.id, letter)
    return list(found.values())


def prepare_at(file: Path, twin: Flow, problems: Sequence[Problem], state: Path, now: datetime | None) -> PreparedFlow:
    """Plan the twin with that current time; None: the machine's clock. Raises InputError."""
    prepared = prepare_valid(file, twin, problems, state=state)
    if now is None:
        return prepared
    return _with_fingerprints_of(prepare_valid(file, at_time(twin, now), (), state=state), prepared)


def _with_fingerprints_of(prepared: PreparedFlow, plain: PreparedFlow) -> PreparedFlow:
    """The flow with the fingerprints of `plain`: a later clock time does not change them, so that its state stays valid."""
    (tier,), (other,) = prepared.tiers, plain.tiers
    queries = tuple(
        replace(query, fingerprint=as_is.fingerprint, state_fingerprint=as_is.state_fingerprint, parts=as_is.parts)
        for query, as_is in zip(tier.plan.queries, other.plan.queries, strict=True)
    )
    plan = replace(tier.plan, queries=queries)
    return replace(prepared, plan=replace(prepared.plan, tiers=(plan,)), tiers=(replace(tier, plan=plan),))


def fault_of(error: ScribenginError, place: Place) -> tuple[Problem, ...]:
    """The problems of an error, as problems of a test."""
    if isinstance(error, InputError):
        return tuple(error.problems)
    return (Problem(error.code, error.place or place, error.message, error.remedy),)
