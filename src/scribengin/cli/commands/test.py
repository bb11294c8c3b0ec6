"""`scribengin test FLOW…`: run the tests of flows in one Spark session."""

from __future__ import annotations

import shlex
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import click

from scribengin.cli.answer import CommandAnswer
from scribengin.cli.complete_values import flow_files
from scribengin.cli.flow_argument import flow_path
from scribengin.cli.settings import setting_flags
from scribengin.cli.warm import WarmCommand
from scribengin.core.errors import Exit, InputError, Refused
from scribengin.core.problems import Place, Problem

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from scribengin.flow_tests.contract import FlowTestOutcome
    from scribengin.flow_tests.suite import Suite


@click.command(cls=WarmCommand)
@click.argument("flows", metavar="FLOW...", nargs=-1, required=True, type=click.Path(), shell_complete=flow_files)
@click.option("-k", "named", metavar="TEXT", default="", help="Run only tests whose name contains TEXT.")
@click.option(
    "--update", is_flag=True, help="Show differences between actual and expected rows, then write the actual rows as the expected ones."
)
@click.option("--junit", type=click.Path(path_type=Path, dir_okay=False), help="Also write the results to this file as JUnit XML.")
@click.option(
    "--from-run",
    "state",
    type=click.Path(path_type=Path, file_okay=False, exists=True),
    help="Create a test from real input rows of a run with this state folder, and from their output.",
)
@click.option("--rows", type=click.IntRange(1, 1000), default=10, show_default=True, help="With --from-run: number of rows of each source.")
@setting_flags("warm")
def command(*, flows: tuple[str, ...], named: str, update: bool, junit: Path | None, state: Path | None, rows: int) -> CommandAnswer:
    """Run the tests of flow files: those under `tests:`, in the files that it names, and in FLOW.test.yaml.

    Each test runs the flow over the data of the test, in a scratch folder. The places that the flow names are not written, and only the
    columns of sources without a schema are read. The exit status is 1 if a test fails.

    \b
    Example:
      scribengin test flow.yaml -k refunds
    """
    from scribengin.flow_tests.session import LazySpark, running_session
    from scribengin.flow_tests.suite import chosen, read_suite, run_suites

    paths = [flow_path(flow) for flow in flows]
    if state is not None:
        return _from_run(paths, state, rows)
    suites, problems = _read(paths, partial(read_suite, named=named))
    if not any(chosen(suite, named) for suite in suites):
        what = f'no test name contains "{named}" in it' if named else "there are no tests"
        remedy = (
            "write one under `tests:`; see docs/flow-file.md"
            if not named
            else f"see the names: scribengin config resolved {shlex.quote(str(paths[0]))} --as-written"
        )
        raise InputError([*problems, Problem("test-none", Place(str(paths[0])), what, remedy)])
    from scribengin.cli.test_report import show_outcome, show_sum, tell

    with LazySpark(lent=running_session(), tell=tell) as session:
        outcomes = run_suites(suites, session, named=named, watch=show_outcome)
    if junit is not None:
        _write_junit(junit, outcomes)
    updated = _update(suites, outcomes) if update else []
    failed = sum(not outcome.passed for outcome in outcomes)
    result = {
        "passed": len(outcomes) - failed,
        "failed": failed,
        "tests": [outcome.as_json() for outcome in outcomes],
        "updated": [str(file) for file in updated],
    }
    return CommandAnswer(result, problems, Exit.FAILED if failed else Exit.DONE, lambda: show_sum(outcomes, updated))


def _read(paths: Sequence[Path], read_suite: Callable[[Path], Suite]) -> tuple[list[Suite], list[Problem]]:
    """Returns the test suites of all files, and warnings. Raises InputError with the errors of all files."""
    suites: list[Suite] = []
    problems: list[Problem] = []
    wrong = False
    for path in paths:
        try:
            suites.append(read_suite(path))
            problems += suites[-1].warnings
        except InputError as error:
            problems += error.problems
            wrong = True
    if wrong:
        raise InputError(problems)
    return suites, problems


def _write_junit(file: Path, outcomes: Sequence[FlowTestOutcome]) -> None:
    from scribengin.flow_tests.report import write_junit

    try:
        write_junit(file, outcomes)
    except OSError as error:
        raise Refused(f"{file} cannot be written: {error.strerror}", remedy="name another file") from error


def _update(suites: Sequence[Suite], outcomes: Sequence[FlowTestOutcome]) -> list[Path]:
    from scribengin.flow_tests.update import rewrites

    places = {(suite.file, placed.test.name): placed for suite in suites for placed in suite.tests}
    failed = [(places[Path(outcome.file), outcome.name], outcome) for outcome in outcomes if not outcome.passed]
    files = []
    for rewrite in list(rewrites(failed)):
        click.echo(rewrite.difference())
        rewrite.write()
        files.append(rewrite.file)
    return files


def _from_run(paths: Sequence[Path], state: Path, rows: int) -> CommandAnswer:
    from scribengin.cli.test_report import tell
    from scribengin.flow_tests.from_run import add_test
    from scribengin.flow_tests.session import LazySpark, running_session

    if len(paths) != 1:
        raise Refused("--from-run takes one flow", remedy="name the flow that made that state folder")
    with LazySpark(lent=running_session(), tell=tell) as session:
        made = add_test(paths[0], state, session, rows=rows)

    def show() -> None:
        click.echo(made.text)
        for note in made.notes:
            click.echo(note)
        click.echo(f"added to {made.file}; run it: scribengin test {shlex.quote(str(paths[0]))}")

    return CommandAnswer({"file": str(made.file), "test": made.name, "text": made.text, "notes": list(made.notes)}, show=show)
