"""A slice of `make faults`: real runs, killed where it hurts, restarted, every record checked, a foreign reader beside them.

Seeds are fixed: each test is the same each time. `make faults` takes the other cells.
"""

import pytest

from scribengin.testing.faults.cases import Cell, run_case

pytestmark = [pytest.mark.faults, pytest.mark.timeout(1800)]


def strike(way, point, kind, format, folder, *, partitioned=False, seed=1):
    outcome = run_case(Cell(way, point, kind, format, partitioned), seed, folder / "case", limit_s=400)
    if outcome.skipped:
        pytest.skip(outcome.skipped)
    assert outcome.verdict == "passed", outcome
    assert outcome.looks > 0
    return outcome


def test_seven_kills_in_one_life_lose_and_double_nothing_though_a_step_is_random(tmp_path):
    strike("chain", "all", "coins", "parquet", tmp_path, partitioned=True)


def test_a_worker_killed_while_it_writes_costs_one_task(tmp_path):
    outcome = strike("die", "stage.mid_write", "tail", "csv", tmp_path)
    assert "exit 0" in outcome.schedule[0]


def test_a_driver_that_wakes_after_its_successor_changes_nothing(tmp_path):
    outcome = strike("two", "decide.before", "tail", "json", tmp_path)
    assert "exit 0" not in outcome.schedule[2]


def test_a_windowed_aggregation_killed_after_its_decision_counts_each_row_once(tmp_path):
    strike("kill", "decide.after", "aggregate", "json", tmp_path)


def test_a_full_disk_is_told_and_costs_no_record_once_there_is_room(tmp_path):
    strike("full", "out", "filter", "text", tmp_path)
