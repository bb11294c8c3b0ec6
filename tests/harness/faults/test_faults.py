"""A slice of `make faults`: real runs, struck where it hurts, restarted, every record checked, a foreign reader beside them.

Seeds are fixed: each test is the same each time. `make faults` takes the other lives.
"""

import pytest

from harness.faults.lives import run_life
from harness.faults.outcomes import Aim, Life

pytestmark = [pytest.mark.faults, pytest.mark.timeout(1800)]

DEADLIEST = ("decide.before", "decide.after", "publish.record.after", "publish.renamed", "recovery.mid")
"""Where a wrong driver loses or doubles records most easily."""


def live(aims, kind, format, folder, *, partitioned=False, seed=1):
    life = Life(kind, format, partitioned, tuple(Aim(*aim.split("@")) for aim in aims))
    outcome = run_life(life, seed, folder / "life", limit_s=400)
    if outcome.skipped:
        pytest.skip(outcome.skipped)
    assert outcome.verdict == "passed", outcome
    assert all(outcome.reached), outcome
    assert outcome.looks > 0
    return outcome


def test_kills_and_a_driver_that_wakes_after_its_successor_lose_and_double_nothing_though_a_step_is_random(tmp_path):
    live(["kill@decide.after", "kill@publish.record.after", "two@publish.renamed"], "coins", "parquet", tmp_path, partitioned=True)


@pytest.mark.long
def test_kills_at_the_deadliest_points_of_one_life_lose_and_double_nothing(tmp_path):
    live([f"kill@{point}" for point in DEADLIEST], "coins", "parquet", tmp_path, partitioned=True)


def test_workers_that_die_or_find_no_space_while_they_write_cost_a_task_each_and_not_the_run(tmp_path):
    outcome = live(["die@stage.mid_write", "enospc@stage.closed"], "tail", "csv", tmp_path)
    assert outcome.schedule[0].endswith("exit 0")


@pytest.mark.long
def test_drivers_that_wake_after_their_successors_change_nothing_and_a_copy_is_refused(tmp_path):
    outcome = live(["copy@decide.after", "two@decide.before", "two@publish.renamed"], "tail", "json", tmp_path)
    woken = [step for step in outcome.schedule if step.startswith("the older one wakes")]
    assert len(woken) == 2
    assert not any("exit 0" in step for step in woken)


@pytest.mark.long
def test_a_windowed_aggregation_killed_after_its_decision_and_while_it_recovers_counts_each_row_once(tmp_path):
    live(["kill@decide.after", "recovery@recovery.mid"], "aggregate", "json", tmp_path)


@pytest.mark.long
def test_a_full_disk_is_told_and_costs_no_record_once_there_is_room(tmp_path):
    live(["full@out"], "filter", "text", tmp_path)


@pytest.mark.long
def test_kills_of_the_roller_lose_and_double_nothing_and_a_foreign_reader_sees_no_row_twice(tmp_path):
    aims = ["kill@roll.drafts.written", "kill@roll.record.after", "kill@publish.renamed", "kill@roll.renamed", "enospc@roll.draft.writing"]
    live(aims, "rolled", "json", tmp_path, partitioned=True)


@pytest.mark.long
def test_a_full_disk_stops_a_flow_that_rolls_and_costs_nothing_once_there_is_room(tmp_path):
    live(["full@out"], "rolled", "json", tmp_path)


@pytest.mark.long
def test_a_roller_whose_driver_was_overtaken_and_wakes_changes_nothing(tmp_path):
    live(["two@publish.renamed", "kill@roll.deleted", "two@roll.record.after"], "rolled", "json", tmp_path)
