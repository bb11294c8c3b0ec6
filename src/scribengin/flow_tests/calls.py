"""A flow called as a function: `scribengin.testing.run_flow`."""

from __future__ import annotations

import atexit
import os
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from scribengin.connectors import catalog
from scribengin.core.errors import InputError
from scribengin.core.problems import Place, Problem, did_you_mean
from scribengin.core.storage import remove_tree
from scribengin.flow_tests.play import Play
from scribengin.flow_tests.session import LazySpark, running_session
from scribengin.flow_tests.twin import Scratch
from scribengin.plan.check import check_flow
from scribengin.plan.validate import validate_file
from scribengin.spec.call_sites import CallPlaces
from scribengin.spec.flow_tests import FlowTest, GivenRows
from scribengin.spec.model import Flow
from scribengin.spec.read_tests import parse_crash

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from scribengin.flow_tests.contract import Result


def call_flow(
    flow: Flow | Path | str,
    given: Mapping[str, Iterable[Any]],
    *,
    clock: datetime | Sequence[datetime],
    crash_after: str,
    spark: SparkSession | None,
) -> Result:
    """Run a flow over given rows; see `scribengin.testing.run_flow`, which has the same arguments."""
    file, checked = _checked(flow)
    if unknown := [source for source in given if source not in checked.sources]:
        remedy = did_you_mean(unknown[0], checked.sources) or f"its sources are {', '.join(checked.sources)}"
        raise InputError([Problem("test-node-unknown", Place(str(file)), f'flow "{checked.name}" has no source "{unknown[0]}"', remedy)])
    crash = parse_crash(crash_after) if crash_after else None
    if crash_after and crash is None:
        raise ValueError(f'crash_after is "{crash_after}"; write batch 1, or batch 1 staged, decided or published')
    times = [clock] if isinstance(clock, datetime) else list(clock)
    if sorted(times) != times:
        raise ValueError("the times of the clock are not in ascending order: sort them")
    test = FlowTest(
        "run_flow",
        {source: _batches(source, rows) for source, rows in given.items()},
        clock=tuple(at.replace(tzinfo=UTC) if at.tzinfo is None else at.astimezone(UTC) for at in times),
        crash=crash,
    )
    batches = max(1, max((len(each) for each in test.given.values()), default=1))
    if crash is not None and crash.batch > batches:
        raise ValueError(
            f'crash_after is "{crash_after}", but the number of Batches is {batches}: pass a list of lists, one for each Batch'
        )
    if len(times) > batches:
        raise ValueError(
            f"the clock has {len(times)} times, but the number of Batches is {batches}: pass a list of lists, one for each Batch"
        )
    with ExitStack() as stack:
        session = _living() if spark is None else stack.enter_context(LazySpark(lent=spark))
        scratch = Scratch(session.folder / f"{checked.name}-{time.monotonic_ns()}")
        stack.callback(remove_tree, scratch.root)
        return Play(file, {1: checked}, test, scratch, place_of=lambda path: Place("/".join(map(str, path)))).run(session.spark)


def _living() -> LazySpark:
    """The Spark session of this process; a new one if it was stopped."""
    session = _session()
    if session.ended:
        atexit.unregister(session.close)
        session.close()
        _session.cache_clear()
        session = _session()
    return session


@cache
def _session() -> LazySpark:
    """The LazySpark of this process; it uses a Spark session that already runs."""
    session = LazySpark(lent=running_session())
    atexit.register(session.close)
    return session


def _checked(flow: Flow | Path | str) -> tuple[Path, Flow]:
    """The path of the flow, and the flow, if it has no errors. Raises InputError with every Problem."""
    if isinstance(flow, Flow):
        place = Place(f"{flow.name}.py")
        types: dict[str, Any] = {"source_types": catalog.source_types(), "sink_types": catalog.sink_types()}
        problems = check_flow(flow, CallPlaces.of(flow, place), **types)
        file, found = flow.folder / f"{flow.name}.py", flow
    else:
        file = Path(flow)
        loaded, problems = validate_file(file, os.environ, execute=True)
        if loaded is None:
            raise InputError(problems)
        found = loaded
    if any(problem.severity == "error" for problem in problems):
        raise InputError(problems)
    return file, found


def _batches(source: str, given: Iterable[Any]) -> tuple[GivenRows, ...]:
    if isinstance(given, (Mapping, str, bytes)):
        raise TypeError(f'the input of source "{source}" is {given!r}; pass a list of rows')
    rows = list(given)
    several = bool(rows) and all(isinstance(each, Sequence) and not isinstance(each, str) for each in rows)
    batches = rows if several else [rows]
    for batch in batches:
        for row in batch:
            if not isinstance(row, (Mapping, str)):
                raise TypeError(f'a row for source "{source}" is {row!r}; pass a mapping of columns, or the text of a raw record')
    return tuple(GivenRows(tuple(batch), at=("given", source)) for batch in batches)
