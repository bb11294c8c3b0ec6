"""Every crash point of a sink over the SQL layer, on SQLite: nothing lost, doubled or invented."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest

from scribengin.connectors.sql.sink import SqlSink
from scribengin.testing import campaign
from scribengin.testing.own_sinks import check_trials
from scribengin.testing.trials import Outcome, killed, overtaken
from tests.connectors.sql.table_jobs import BROKEN, CheckedBefore, SqliteJob, own_sink, sqlite_driver

if TYPE_CHECKING:
    from pathlib import Path

BATCH = ("stage.mid_write", "stage.after", "decide.after", "publish.record.before", "publish.record.after", "commit.before")
"""tests/connectors/postgres has the others, over the same layer"""


def job_of(place: Path, **more: bool | int) -> SqliteJob:
    (place / "out").mkdir(parents=True, exist_ok=True)
    return SqliteJob(place / "state", place / "out", **more)


def assert_clean(outcome: Outcome, job: SqliteJob) -> None:
    assert outcome.clean, str(outcome)
    assert campaign.BUG not in outcome.statuses, str(outcome)
    assert campaign.audit(job, sqlite_driver) == ()


@pytest.mark.parametrize(("nth", "by_key"), [(1, True), (2, False)])
@pytest.mark.parametrize("point", BATCH)
def test_a_driver_killed_at(point: str, nth: int, by_key: bool, tmp_path: Path) -> None:
    job = job_of(tmp_path, by_key=by_key)
    outcome = killed(job, [f"{point}@{nth}:kill"], sqlite_driver)
    assert outcome.statuses == (-9,), "the point was not reached"
    assert_clean(outcome, job)
    assert job.staged() == [], "what was staged is gone"


@pytest.mark.parametrize("point", ["stage.after", "publish.record.before", "publish.record.after"])
def test_a_driver_that_sleeps_and_wakes_after_its_successor_changes_nothing(point: str, tmp_path: Path) -> None:
    job = job_of(tmp_path)
    assert_clean(overtaken(job, f"{point}@2", sqlite_driver), job)


def trials(place: Path, kind: type[SqlSink]) -> None:
    def read(at: Path, node: str) -> list[dict[str, Any]]:
        with closing(sqlite3.connect(at / "kept.db")) as database:
            database.row_factory = sqlite3.Row
            return [dict(row) for row in database.execute(f"SELECT * FROM {node}")]

    check_trials(place, partial(own_sink, kind=kind), lambda at, node: {"database": str(at / "kept.db")}, read)


@pytest.mark.long
def test_a_sink_comes_through_the_trials_that_its_author_can_run(tmp_path: Path) -> None:
    trials(tmp_path, SqlSink)


@pytest.mark.long
def test_a_sink_that_looks_for_the_record_in_another_transaction_is_told_by_a_driver_that_sleeps_in_between(tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match=r"a driver sleeps at publish\.record\.before while its successor works: .*doubled"):
        trials(tmp_path, CheckedBefore)


TRIALS = {
    "marker_outside": partial(killed, faults=["publish.record.after@2:kill"]),
    "staging_shared": partial(overtaken, point="decide.before@2", successor="decide.before@1:kill"),
}


@pytest.mark.parametrize("name", BROKEN)
def test_the_checker_catches(name: str, tmp_path: Path) -> None:
    outcome = TRIALS[name](job_of(tmp_path / "wrong", rows=60), make_driver=BROKEN[name])
    assert outcome.findings.lost, str(outcome)
    right = job_of(tmp_path / "right", rows=60)
    assert_clean(TRIALS[name](right, make_driver=sqlite_driver), right)
