"""`max_dead`: how many records may become dead letters, and what happens beyond it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from scribengin.cli.commands.run import exit_of
from scribengin.spark.dead_letter_limit import DeadTally, Excess
from scribengin.spec.model import MaxDead, RecordBound
from scribengin.state.contract import Counts
from scribengin.state.dead_letters import read_letters
from scribengin.state.folder import StateFolder

if TYPE_CHECKING:
    from tests.conftest import FlowFolder

FLOW = """
version: 1
name: drift
sources:
  events: {type: files, path: data, format: json, schema: "n BIGINT"}
steps:
  even: {from: events, filter: "n < 100", require: {even: n % 2 = 0}}
sinks:
  kept: {from: even, type: files, path: out, format: json}
"""
PERCENT = RecordBound(percent=10.0)


def tally(bounds: MaxDead | None) -> DeadTally:
    return DeadTally(("events",), bounds)


def counted(records: int, dead: int) -> dict[str, Counts]:
    return {"events": Counts(records, records), "even": Counts(records, records - dead, dead=dead)}


def test_a_batch_at_its_bound_passes_and_one_record_more_does_not() -> None:
    bounded = tally(MaxDead(batch=PERCENT))
    assert bounded.excess(counted(100, 10)) is None
    assert bounded.excess(counted(100, 11)) == Excess(11, 100, "10%", of_run=False)


def test_the_bound_of_a_run_is_over_all_of_its_batches() -> None:
    bounded = tally(MaxDead(run=RecordBound(records=5)))
    assert bounded.add(counted(10, 3)) is None
    assert bounded.excess(counted(10, 2)) is None
    assert bounded.excess(counted(10, 3)) == Excess(6, 20, "5", of_run=True)
    assert bounded.excess(counted(1000, 0)) is None


def test_letters_of_a_batch_that_reads_nothing_are_no_percentage() -> None:
    assert tally(MaxDead(batch=PERCENT)).excess(counted(0, 3)) is None
    assert tally(MaxDead(batch=RecordBound(percent=100.0))).excess(counted(10, 30)) is None, "a step may make several rows of a record"
    assert tally(MaxDead(batch=RecordBound(records=2))).excess(counted(0, 3)) == Excess(3, 0, "2", of_run=False)


def test_letters_that_are_replayed_and_die_again_do_not_count() -> None:
    counts = {"events": Counts(6, 6, replayed=6), "even": Counts(8, 0, dead=8, replayed=2)}
    for bounds in (None, MaxDead(RecordBound(records=0), RecordBound(records=0))):
        replaying = tally(bounds)
        assert replaying.add(counts) is None
        assert (replaying.records, replaying.dead, replaying.cause) == (0, 0, "")
    mixed = {"events": Counts(16, 16, replayed=6), "even": Counts(16, 8, dead=8)}
    assert tally(MaxDead(RecordBound(records=1))).excess(mixed) == Excess(2, 10, "1", of_run=False)


def test_letters_of_a_lookup_table_are_no_share_of_the_records_that_came() -> None:
    counts = counted(10, 1) | {"names": Counts(6, 2, dead=4)}
    looking = DeadTally(("events",), None, ("names",))
    assert looking.add(counts) is None
    assert looking.cause == ""
    assert str(looking) == "1 of 10 records of this run are dead letters (10 %); 4 more from lookup tables"
    assert DeadTally(("events",), MaxDead(batch=RecordBound(records=4)), ("names",)).excess(counts) is not None


def test_without_a_bound_more_than_half_is_reported_and_100_percent_accepts_it() -> None:
    for bounds, cause in ((None, "more than half of the records of this run are dead letters"), (MaxDead(RecordBound(percent=100.0)), "")):
        unbounded = tally(bounds)
        unbounded.add(counted(10, 5))
        assert unbounded.cause == ""
        assert unbounded.add(counted(10, 6)) is None
        assert unbounded.cause == cause


def test_degraded_stays_with_its_first_cause() -> None:
    degrading = tally(MaxDead(batch=PERCENT, then="degrade"))
    for records, dead in ((10, 5), (10, 0), (10, 9)):
        degrading.add(counted(records, dead))
    assert degrading.degraded == Excess(5, 10, "10%", of_run=False)
    assert degrading.cause == "more records of a Batch are dead letters than max_dead.batch: 10% allows"


def test_a_batch_with_too_many_is_not_committed_and_runs_again_once_the_step_is_fixed(folder: FlowFolder) -> None:
    folder.flow(FLOW + "max_dead: 1%\n")
    folder.data("data/a.jsonl", [{"n": n} for n in range(10)])
    result = folder.run()
    assert result.state == "failed"
    (problem,) = [each for each in result.problems if each.severity == "error"]
    assert problem.code == "max-dead"
    assert "query kept: 5 of 10 records of the Batch are dead letters (50 %); max_dead.batch is 1%" in problem.message
    assert "the Batch is not committed and is processed again at the next start" in problem.message
    assert "most of them at even (require)" in problem.message
    assert "a.jsonl:2: " in problem.message
    assert problem.place.line == 7, "the step, not the sink"
    query = StateFolder(folder.path / ".scribengin", "drift").query("kept")
    assert (folder.read("out"), list(read_letters(query))) == ([], [])

    folder.flow(FLOW.replace("n % 2 = 0", "n >= 0") + "max_dead: 1%\n")
    result = folder.run()
    assert result.state == "finished"
    assert sorted(row["n"] for row in folder.read("out")) == list(range(10))


def test_degrade_commits_and_ends_with_an_error(folder: FlowFolder) -> None:
    folder.flow(FLOW + "max_dead: {batch: 20%, then: degrade}\n")
    folder.data("data/a.jsonl", [{"n": n} for n in range(10)])
    result = folder.run()
    assert (result.state, [each.code for each in result.problems]) == ("finished", ["max-dead"])
    assert sorted(row["n"] for row in folder.read("out")) == [0, 2, 4, 6, 8]
    assert len(list(read_letters(StateFolder(folder.path / ".scribengin", "drift").query("kept")))) == 5


@pytest.mark.parametrize(("bound", "status", "codes"), [("", 1, ["mostly-dead"]), ("max_dead: 100%\n", 0, [])])
def test_a_run_of_which_more_than_half_dies_is_no_success(folder: FlowFolder, bound: str, status: int, codes: list[str]) -> None:
    folder.flow(FLOW + bound)
    folder.data("data/a.jsonl", [{"n": n} for n in (1, 2, 3)])
    result = folder.run()
    assert (result.state, [each.code for each in result.problems]) == ("finished", codes)
    assert int(exit_of(result, strict=False)) == status
