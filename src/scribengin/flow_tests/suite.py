"""Finds, checks and runs the tests of flow files, one after the other in one session."""

from __future__ import annotations

import os
import re
import time
import traceback
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

from scribengin.connectors import catalog
from scribengin.core.errors import InputError, ScribenginError
from scribengin.core.problems import Place, Problem
from scribengin.core.storage import remove_tree
from scribengin.flow_tests.contract import FlowTestOutcome
from scribengin.flow_tests.differing_step import where_parted
from scribengin.flow_tests.judge import Judge, expected_file
from scribengin.flow_tests.play import Play, fault_of
from scribengin.flow_tests.twin import Scratch, check_file
from scribengin.plan.test_files import PlacedTest, read_test_files
from scribengin.plan.validate import validate_file
from scribengin.spec.call_sites import CallPlaces
from scribengin.spec.dump import flow_data
from scribengin.spec.parse import parse_flow
from scribengin.spec.yaml_text import write_yaml

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from scribengin.flow_tests.session import LazySpark
    from scribengin.spec.flow_tests import VersionChange
    from scribengin.spec.model import Flow


@dataclass(frozen=True, slots=True)
class Suite:
    """A flow and its tests."""

    file: Path
    flow: Flow
    tests: tuple[PlacedTest, ...]
    warnings: tuple[Problem, ...] = ()


def read_suite(file: Path, *, named: str = "") -> Suite:
    """The tests of a flow file and of the files beside it. A flow in Python is executed. Raises InputError with every Problem; missing
    files are a Problem only for tests whose name contains `named`, because only these read them."""
    flow, problems = validate_file(file, os.environ, execute=True, tests=True)
    tests: list[PlacedTest] = []
    if flow is not None:
        others, wrong = read_test_files(flow, file)
        problems += wrong
        text = file.read_text(encoding="utf-8")
        places = _places(file, text, flow)
        tests = [PlacedTest(test, file, places, ("tests", test.index), text) for test in flow.tests] + others
        problems += [*_twice(tests), *(problem for placed in _named(tests, named) for problem in _without_files(flow, placed))]
    if flow is None or any(problem.severity == "error" for problem in problems):
        raise InputError(problems)
    return Suite(file, flow, tuple(tests), tuple(problems))


def run_suites(
    suites: Sequence[Suite], session: LazySpark, *, named: str = "", watch: Callable[[FlowTestOutcome], None]
) -> list[FlowTestOutcome]:
    """Run the tests whose name contains `named` (ignoring case); `watch` is called after each test."""
    outcomes = []
    for suite in suites:
        for placed in chosen(suite, named):
            outcomes.append(run_placed(suite, placed, session))
            watch(outcomes[-1])
    return outcomes


def chosen(suite: Suite, named: str) -> list[PlacedTest]:
    """The tests whose name contains `named`."""
    return _named(suite.tests, named)


def _named(tests: Sequence[PlacedTest], named: str) -> list[PlacedTest]:
    return [placed for placed in tests if named.lower() in placed.test.name.lower()]


def run_placed(suite: Suite, placed: PlacedTest, session: LazySpark) -> FlowTestOutcome:
    """Run one test, in a scratch folder that is removed afterwards."""
    spark = session.spark
    begun = time.monotonic()
    name = re.sub(r"\W+", "-", placed.test.name)[:40]
    scratch = Scratch(session.folder / f"{suite.flow.name}-{name}-{time.monotonic_ns()}")
    scratch.root.mkdir(parents=True)
    test, place = placed.test, placed.place(("name",))
    result = None
    differences: tuple[Any, ...] = ()
    problems: tuple[Problem, ...] = ()
    try:
        versions = {1: suite.flow} | {change.before: changed_flow(suite.flow, change, placed) for change in test.changes}
        result = Play(suite.file, versions, test, scratch, place_of=placed.place).run(spark)
        problems = tuple(result.problems)
        if not problems:
            differences = tuple(Judge(test, suite.flow.folder, placed.place).differences(result))
        if differences:
            differences = where_parted(suite.file, suite.flow, test, differences, scratch, spark, placed.place)
    except ScribenginError as error:
        problems = fault_of(error, place)
    except Exception as error:  # an error of this test only: the others are still to run
        traceback.print_exc()
        message = f"this is a mistake in Scribengin: {type(error).__name__}: {error}"
        problems = (Problem("bug", place, message, "please report it, with the lines above"),)
    finally:
        remove_tree(scratch.root)
    told = tuple(_without(scratch, problem) for problem in problems)
    return FlowTestOutcome(suite.flow.name, str(suite.file), test.name, place, time.monotonic() - begun, differences, told, result)


def _without(scratch: Scratch, problem: Problem) -> Problem:
    """Remove paths in the scratch folder, which is deleted, from the texts of a problem."""
    message = problem.message.replace(f"{scratch.root.resolve()}{os.sep}", "").replace(f"{scratch.root}{os.sep}", "")
    return replace(problem, message=message, remedy=problem.remedy.partition("; the full output is in ")[0])


def changed_flow(flow: Flow, change: VersionChange, placed: PlacedTest) -> Flow:
    """Load the changed flow. Raises InputError if it has errors, or another name."""
    place = placed.place(change.at)
    if change.flow:
        file = flow.folder / change.flow
        found, problems = validate_file(file, os.environ, execute=True)
        if found is None or any(problem.severity == "error" for problem in problems):
            raise InputError(problems)
    else:
        found = _patched(flow, change, place)
    if found.name != flow.name:
        message = f'the changed flow has the name "{found.name}", but this flow has the name "{flow.name}"'
        raise InputError([Problem("test-change", place, message, "write the same name in both flows; the name identifies the state")])
    return found


def _patched(flow: Flow, change: VersionChange, place: Place) -> Flow:
    from scribengin.plan.check import check_flow

    types: dict[str, Any] = {"source_types": catalog.source_types(), "sink_types": catalog.sink_types()}
    data = flow_data(replace(flow, tests=(), test_files=()), **types)
    text = write_yaml(_merged(data, change.patch))
    parsed = parse_flow(text, "patch", folder=flow.folder, code=flow.code, environment=os.environ, **types)
    problems = list(parsed.problems)
    if parsed.flow is not None:
        problems += check_flow(parsed.flow, parsed.places, broken=parsed.broken, unread=parsed.unread, **types)
    errors = [replace(problem, place=place) for problem in problems if problem.severity == "error"]
    if parsed.flow is None or errors:
        raise InputError(errors)
    return parsed.flow


def _merged(data: Any, patch: Any) -> Any:
    """`patch` over `data`: mappings key by key, null removes a key, other values replace the existing ones."""
    if not isinstance(data, dict) or not isinstance(patch, dict):
        return patch
    merged = dict(data)
    for name, value in patch.items():
        if value is None:
            merged.pop(name, None)
        else:
            merged[name] = _merged(merged.get(name), value)
    return merged


def _places(file: Path, text: str, flow: Flow) -> Any:
    if file.suffix == ".py":
        return CallPlaces.of(flow, Place(str(file)))
    types: dict[str, Any] = {"source_types": catalog.source_types(), "sink_types": catalog.sink_types()}
    return parse_flow(text, str(file), folder=flow.folder, environment=os.environ, **types).places


def _without_files(flow: Flow, placed: PlacedTest) -> Iterator[Problem]:
    """Report missing files of tests before Spark starts."""
    test = placed.test
    looks: list[Callable[[], object]] = []
    for source, batches in test.given.items():
        for rows in batches:
            for index, name in enumerate(rows.files):
                looks.append(partial(check_file, source, flow.folder, name, placed.place((*rows.at, index))))
    for expected in test.expect.values():
        looks += [partial(expected_file, flow.folder, name, placed.place(expected.at)) for name in expected.files]
    for look in looks:
        try:
            look()
        except InputError as error:
            yield from error.problems


def _twice(tests: Sequence[PlacedTest]) -> list[Problem]:
    """Report names of tests that occur in two files."""
    seen: dict[str, PlacedTest] = {}
    problems = []
    for placed in tests:
        first = seen.setdefault(placed.test.name, placed)
        if first.file != placed.file:
            message = f'test "{placed.test.name}" has the same name as a test in {first.file}'
            problems.append(Problem("test-twice", placed.place(("name",)), message, "give each test a name of its own"))
    return problems
