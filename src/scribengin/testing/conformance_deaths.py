"""Drivers that die while they publish, tasks that die while they stage, and attempts that are made at once."""

from __future__ import annotations

import os
import pickle
import signal
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

from scribengin.connectors.abilities import offers
from scribengin.core.errors import StateError
from scribengin.testing.children import await_end, fork
from scribengin.testing.conformance_sinks import batch_id, none_refused, publish, write_rows
from scribengin.testing.deaths import Site, died_at, own_code, sites_of
from scribengin.testing.sentences import must

if TYPE_CHECKING:
    from collections.abc import Sequence

    from scribengin.connectors.contract import Decided, Receipt, SinkStream, StagingSink
    from scribengin.testing.conformance_sinks import Rows, SinkTrial

_AT_ONCE_S = 30.0
_KILLED = -signal.SIGKILL


def check_deaths(trial: SinkTrial, rows: Rows, *, every_line: bool) -> list[Site]:
    """Die wherever publishing passes, each time with a Batch of its own; returns where that was. `rows`: four."""
    units = _units(trial, rows)
    sites = _sites(trial, units, every_line=every_line)
    sink = trial.prepared()
    for nth, site in enumerate(sites):
        decided = trial.next(sink, units, attempt=f"died-{nth}")
        died_at(site, lambda sink=sink, decided=decided: publish(sink, decided), own_code(sink))  # type: ignore[misc]
        sink = _comes_again(trial, decided, rows, f"a driver dies at {site}")
    if offers(offering := sink):
        decided = trial.next(sink, units, attempt="offered")
        offering.offer(decided, none_refused)
        _comes_again(trial, decided, rows, "a driver dies between `offer` and `publish`")
    return sites


def check_kills(trial: SinkTrial, rows: Rows, sites: Sequence[Site]) -> None:
    """Two processes are killed: a task that has written and not closed, a driver at the middle one of `sites`, where there are any.
    `rows`: four."""
    sink, number = trial.prepared(), len(trial.decisions)
    child = fork(_stage_and_die, pickle.dumps(sink), number, list(rows[:2]), trial.schema)
    must((status := await_end(child)) == _KILLED, f"a copy of the sink stages rows in a process of its own; it ended with {status}")
    trial.grows([], "what a task had staged that was killed is not visible")
    try:
        decided = trial.next(sink, [rows[2:]], attempt="after-a-kill")
        trial.publish(sink, decided)
    except Exception as error:
        raise AssertionError(f"the contract is broken: a task that was killed is in nobody's way; {error!r}") from error
    trial.grows(rows[2:], "what a task had staged that was killed is never visible")
    if sites:
        decided = trial.next(sink, _units(trial, rows), attempt="killed")
        child = fork(_publish_and_die, pickle.dumps(sink), decided, sites[len(sites) // 2])
        must(
            (status := await_end(child)) in (_KILLED, 0),
            f"a copy of the sink publishes in a process of its own, unless `copies_publish=False`; it ended with {status}",
        )
        _comes_again(trial, decided, rows, f"a driver is killed at {sites[len(sites) // 2]}")


def check_at_once(trial: SinkTrial, rows: Rows) -> None:
    """Two attempts at one unit write at the same time, and both close, or one of them aborts. `rows`: four."""
    sink = trial.prepared()
    for aborts in (False, True):
        number = len(trial.decisions)
        turn = threading.Barrier(2, timeout=_AT_ONCE_S)
        with ThreadPoolExecutor(2) as pool:
            good = pool.submit(_attempt, trial, sink, number, rows[:2], turn, name=f"good-{aborts}")
            other = pool.submit(_attempt, trial, sink, number, rows[2:], turn, name=f"other-{aborts}", aborts=aborts)
        failed = [error for error in (good.exception(), other.exception()) if error is not None]
        # one that fails leaves the other one waiting
        failed.sort(key=lambda error: isinstance(error, threading.BrokenBarrierError))
        try:
            if failed:
                raise failed[0]
            receipt = good.result()
            assert receipt is not None
            decided = trial.decide(number, [receipt], term=2)
            trial.decisions.append(decided)
            trial.publish(sink, decided)
        except Exception as error:
            raise AssertionError(f"the contract is broken: two attempts at one unit may write at once; {error!r}") from error
        trial.grows(rows[:2], "of two attempts that write at once, those rows become visible that were decided, and those only")


def _units(trial: SinkTrial, rows: Rows) -> list[Rows]:
    """As many as needed: of a place that takes rows one by one, some are still to be sent when the first ones are."""
    return [[row] for row in rows] if offers(trial.make_sink()) else [rows[:2], rows[2:]]


def _sites(trial: SinkTrial, units: Sequence[Rows], *, every_line: bool) -> list[Site]:
    """Crash points first. A sink that passes none has lines only."""
    sink = trial.prepared()
    decided = trial.next(sink, units, attempt="whole")
    passed = sites_of(lambda: publish(sink, decided), own_code(sink))
    trial.grows([row for rows in units for row in rows], "publish makes the decided rows visible, and those only")
    points = [site for site in passed if not site.is_line]
    # the last ones first: there most is at stake
    return points if points and not every_line else [*points, *reversed([site for site in passed if site.is_line])]


def _comes_again(trial: SinkTrial, decided: Decided, rows: Rows, what: str) -> StagingSink:
    trial.midst(rows, f"{what}: readers see decided rows whole, or not yet")
    try:
        sink = trial.recover(decided)
    except StateError as error:
        raise AssertionError(f"the contract is broken: {what} and comes again: it finds all that it needs; {error}") from error
    trial.grows(rows, f"{what} and comes again: each decided row stands there once", died=True)
    return sink


def _attempt(
    trial: SinkTrial, sink: StagingSink, number: int, rows: Rows, turn: threading.Barrier, *, name: str, aborts: bool = False
) -> Receipt | None:
    """A task that keeps step with another one: open, a row, another row, closed."""
    try:
        copy: StagingSink = pickle.loads(pickle.dumps(sink))
        turn.wait()
        stream: Any = copy.stream(batch_id(number, 2), 0, name, trial.schema)
        for index, row in enumerate(rows):
            turn.wait()
            refused = write_rows(stream, [row], f"source/{number}-{index}+", trial.schema, as_json=False)
            must(not refused, f"rows that fit the schema are taken: {refused}")
        turn.wait()
        if aborts:
            stream.abort()
            return None
        receipt: Receipt = stream.close()
    except BaseException:
        turn.abort()
        raise
    return receipt


def _stage_and_die(sink: bytes, number: int, rows: Rows, schema: Any) -> None:
    stream: SinkStream | Any = pickle.loads(sink).stream(batch_id(number, 2), 0, "killed-0", schema)
    write_rows(stream, rows, f"source/{number}-0+", schema, as_json=False)
    os.kill(os.getpid(), signal.SIGKILL)


def _publish_and_die(sink: bytes, decided: Decided, site: Site) -> None:
    copy: StagingSink = pickle.loads(sink)
    died_at(site, lambda: publish(copy, decided), own_code(copy), kill=True)
