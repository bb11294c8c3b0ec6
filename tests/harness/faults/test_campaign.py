"""The campaign itself, without Spark: does the foreign reader see what it must, and does the sample take every cell once?"""

import os
import random
import re
import signal
import subprocess
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path

import msgspec
import pytest

from harness.faults.cells import (
    MEETINGS,
    PLACES,
    STRIKES,
    CellSample,
    all_cells,
    count_open,
    count_wanted,
    open_meetings,
    wanted,
    wanted_meetings,
)
from harness.faults.drivers import DriverProcess, Hung, session_members
from harness.faults.flows import FORMATS, KINDS, FaultFlow
from harness.faults.outcomes import Aim, Life, LifeOutcome
from harness.faults.reader import ForeignReader, start_reader
from harness.faults.report import append_outcome, outcomes_in, read_outcomes, write_report
from harness.faults.stores_page import page_with
from harness.faults.ways import is_soft
from scribengin.core import faults
from scribengin.core.faults import POINTS, VARIABLE
from scribengin.testing.records import Records

ROWS = Records("run", 1, 6).of(0)
LINES = msgspec.json.Encoder().encode_lines(ROWS)


@pytest.fixture
def reader(tmp_path):
    (tmp_path / "part-0.jsonl").write_bytes(LINES)
    reader = ForeignReader(tmp_path, "json", records=True)
    reader.read_visible()
    assert reader.sight.wrong == []
    return reader


def complaint_after(reader, change):
    change()
    for _ in range(10):  # one of ten looks is a full one
        reader.read_visible()
    return " ".join(reader.sight.wrong)


def test_a_reader_is_content_with_whole_files_that_come_and_stay(reader, tmp_path):
    (tmp_path / "part-1.jsonl").write_bytes(msgspec.json.Encoder().encode_lines(Records("run", 2, 6).of(1)))
    (tmp_path / "_scribengin").mkdir()
    (tmp_path / "_scribengin" / "staged").write_bytes(LINES[:100])
    assert complaint_after(reader, lambda: None) == ""
    assert (reader.sight.files, reader.sight.rows) == (2, 12)


def test_a_reader_sees_a_torn_file(reader, tmp_path):
    assert "part-1" in complaint_after(reader, lambda: (tmp_path / "part-1.jsonl").write_bytes(LINES[:-10]))


def test_a_reader_sees_a_file_that_grows(reader, tmp_path):
    assert "has changed" in complaint_after(reader, lambda: (tmp_path / "part-0.jsonl").write_bytes(LINES + LINES))


def test_a_reader_sees_a_file_that_goes(reader, tmp_path):
    assert "is gone" in complaint_after(reader, (tmp_path / "part-0.jsonl").unlink)


def test_a_reader_sees_a_record_twice(reader, tmp_path):
    assert "stands in" in complaint_after(reader, lambda: (tmp_path / "part-1.jsonl").write_bytes(LINES))


def test_a_reader_sees_a_record_with_a_wrong_checksum(reader, tmp_path):
    assert "torn record" in complaint_after(reader, lambda: (tmp_path / "part-1.jsonl").write_bytes(LINES.replace(b"quick", b"quack")))


def test_a_reader_in_a_process_of_its_own_tells_what_it_saw(tmp_path):
    (tmp_path / "part-0.jsonl").write_bytes(LINES)
    (tmp_path / "part-1.jsonl").write_bytes(LINES[:-10])
    sight = start_reader(tmp_path, "json", records=True).finish()
    assert (sight.files, bool(sight.wrong)) == (2, True)


def passed(life, seed):
    return LifeOutcome(life, seed, [True] * len(life.aims))


@pytest.mark.parametrize("only", ["csv|hbase", pytest.param("", marks=pytest.mark.long)])
def test_the_sample_takes_what_is_open_and_ends_when_all_is_covered_in_few_lives(only):
    outcomes, sample = [], CellSample([], only)
    cells = {(aim, flow[1]) for aim, flow in all_cells(only)}
    targets = sum(wanted(aim, format) for aim, format in cells)
    others = count_wanted() - targets
    while count_open(outcomes) > others:
        assert len(outcomes) * STRIKES < 1.1 * targets  # lives are as full as they may be
        outcomes.append(passed(sample.choose(random.Random(len(outcomes))), len(outcomes)))
        sample.add(outcomes[-1])
    strikes = sum(len(outcome.life.aims) for outcome in outcomes)
    assert targets <= strikes < 1.1 * targets
    assert {outcome.life.kind for outcome in outcomes} == {flow[0] for _, flow in all_cells(only)}
    assert {outcome.life.partitioned for outcome in outcomes} == {True, False}


def test_aggregations_and_joins_meet_every_keyed_store_by_every_way_though_no_point_is_open():
    only = "kill@ postgres|kill@ delta|die@stage.mid delta|zombie@ delta|server@ delta|kill@ http"
    everything = [passed(Life("tail", flow[1], False, (aim,)), seed) for seed in range(4) for aim, flow in all_cells(only)]
    outcomes, sample = everything, CellSample(everything, only, strikes=10)
    lives = []
    for seed in range(100, 106):
        lives.append(sample.choose(random.Random(seed)))
        outcomes.append(passed(lives[-1], seed))
        sample.add(outcomes[-1])
    routes = ("files-to-delta-by-key", "files-to-delta-stored-by-key", "files-to-postgres-by-key")
    assert {(life.kind, life.format) for life in lives} == {(kind, route) for kind in ("aggregate", "join") for route in routes}
    met = {meeting for meeting in wanted_meetings() if meeting[1] in routes and (meeting[2] == "kill" or "delta" in meeting[1])}
    assert not met & open_meetings(outcomes).keys()
    assert max(len(life.aims) for life in lives) == sum(MEETINGS.values())
    assert open_meetings(outcomes)["join", "files-to-postgres-by-key", "server"] == MEETINGS["server"]
    assert "http" not in str(wanted_meetings())  # it has no key


def test_a_life_that_failed_and_a_strike_that_missed_meet_nothing():
    life = Life("join", "files-to-hbase", False, (Aim("kill", "decide.after"), Aim("die", "decide.after"), Aim("die", "stage.closed")))
    everything = open_meetings([])
    assert open_meetings([LifeOutcome(life, 1, [True] * 3, wrong=["lost"])]) == everything
    left = everything - open_meetings([LifeOutcome(life, 1, [True, True, False])])
    assert dict(left) == {("join", "files-to-hbase", "kill"): 1}  # a death of the driver costs no worker


def test_the_page_tells_of_stores_what_their_ledger_holds():
    docs = Path(__file__).parents[3] / "docs"
    page = (docs / "faults.md").read_text()
    assert page_with(page, outcomes_in(docs / "faults-over-stores.jsonl")) == page, "python -m harness.faults.stores_page"


def test_lives_at_once_share_the_work():
    sample = CellSample([], "two@")
    lives = [sample.choose(random.Random(seed)) for seed in range(8)]
    assert len({(aim, life.format) for life in lives for aim in life.aims if wanted(aim, life.format) == 1}) == sum(
        wanted(aim, life.format) == 1 for life in lives for aim in life.aims
    )


def test_a_sample_goes_on_where_nothing_is_open():
    sample = CellSample([], "kill@decide.after tail json partitioned")
    for seed in range(3):
        life = sample.choose(random.Random(seed))
        assert life == Life("tail", "json", True, (Aim("kill", "decide.after"),))
        sample.add(passed(life, seed))


def test_a_life_may_be_told_to_be_short():
    assert len(CellSample([], "two@", strikes=3).choose(random.Random(1)).aims) == 3


def test_a_strike_that_was_not_reached_covers_nothing_and_neither_does_a_life_that_failed():
    life = Life("tail", "json", False, (Aim("kill", "decide.after"), Aim("die", "batch.entry")))
    assert count_open([LifeOutcome(life, 1, [True, False])]) == count_open([]) - 1
    failed = LifeOutcome(life, 2, [True, True], wrong=["lost"])
    assert count_open([failed]) == count_open([])
    assert count_open([failed, passed(life, 2)]) == count_open([]) - 2


def test_what_failed_waits_for_its_turn():
    cells = "@decide.after tail json"
    life = Life("tail", "json", False, (Aim("kill", "decide.after"),))
    chosen = CellSample([LifeOutcome(life, 1, [True], wrong=["lost"])], cells).choose(random.Random(1))
    assert chosen.partitioned


@pytest.mark.parametrize("seed", range(5))
def test_a_recovery_comes_after_a_kill_that_leaves_it_work(seed):
    life = CellSample([], "recovery@").choose(random.Random(seed))
    (first, *others) = life.aims
    assert first.way == "kill"
    assert {aim.way for aim in others} == {"recovery"}
    assert len(life.aims) <= STRIKES + 1


def test_a_death_at_a_transaction_costs_one_task_only_where_tasks_commit():
    aim = Aim("die", "transaction.sent")
    assert is_soft(aim, by_unit=True)
    assert not is_soft(aim, by_unit=False)
    assert not is_soft(Aim("kill", "transaction.sent"), by_unit=True)


def test_strikes_are_chosen_by_a_part_of_their_text_or_by_several():
    flows = {flow[1] for _, flow in all_cells("kill@decide.after tail files-to-hbase|two@decide.after coins csv")}
    assert flows == {"files-to-hbase", "files-to-hbase-by-key", "files-to-hbase-by-thrift", "csv"}


def test_over_stores_what_kills_and_what_sleeps_is_wanted_three_times_of_a_sink():
    def of_sink(aim, *routes):
        return [wanted(Aim(*aim.split("@")), route) for route in routes]

    assert of_sink("kill@decide.after", "files-to-cassandra", "files-to-cassandra-by-key") == [2, 2]
    assert of_sink("server@stage.closed", "files-to-objects", "files-to-objects-listed", "files-to-objects-rolled") == [1, 1, 1]
    assert of_sink("kill@roll.record.after", "files-to-objects-rolled") == [3]  # nothing of the others' is merged
    assert of_sink("die@stage.mid_write", "postgres-to-files") == [3]
    assert of_sink("die@decide.after", "postgres-to-files") == of_sink("two@decide.after", "postgres-to-files") == [1]


def test_every_point_is_killed():
    assert PLACES["kill"] == POINTS
    assert not list(all_cells("no such thing"))
    assert CellSample([], "no such thing").choose(random.Random(1)) is None


def test_outcomes_come_back_as_they_were_written_and_a_torn_last_line_costs_only_itself(tmp_path):
    aims = (Aim("kill", "decide.after"), Aim("two", "fold.after"))
    outcomes = [
        LifeOutcome(Life("tail", format, False, aims), seed, [True, False], ["kill"], rows=3) for seed, format in enumerate(FORMATS)
    ]
    for outcome in outcomes:
        append_outcome(tmp_path, outcome)
    with (tmp_path / "outcomes.jsonl").open("ab") as file:
        file.write(b'{"life": {"kind"')
    assert read_outcomes(tmp_path) == outcomes
    failed = LifeOutcome(outcomes[0].life, 99, [True, False], wrong=["2 lost"])
    report = write_report(tmp_path, [*outcomes, failed]).read_text()
    assert "| kill | decide.after | 1/1 ✗ | 1/1 | 1/1 | 1/1 |" in report
    assert "| two | fold.after | open ✗ | open | open | open |" in report
    assert "seed 99, tail json: kill@decide.after two@fold.after: 2 lost" in report


def test_every_point_that_the_code_passes_can_be_armed():
    source = Path(faults.__file__).parent.parent
    passed = {name for file in source.rglob("*.py") for name in re.findall(r'faults\.reached\("([a-z._]+)"\)', file.read_text())}
    others = (
        faults.OFFER_POINTS,
        faults.MOVE_POINTS,
        faults.OUTBOX_POINTS,
        faults.UPKEEP_POINTS,
        faults.ROLL_POINTS,
        faults.KEEPING_POINTS,
        faults.LETTER_POINTS,
        faults.TRASH_POINTS,
        faults.ELSEWHERE_POINTS,
        faults.BUCKET_POINTS,
        faults.WAL_POINTS,
        faults.AGENT_POINTS,
        faults.GATEWAY_POINTS,
    )
    assert passed == {*POINTS, *faults.TRANSACTION_POINTS}.union(*others)
    try:
        for name in passed:
            faults.arm(f"{name}:enospc")
    finally:
        faults.arm("")


def test_a_fault_with_once_strikes_the_first_process_only(tmp_path):
    program = "from scribengin.core import faults; faults.reached('decide.after')"
    environment = {**os.environ, VARIABLE: f"once={tmp_path},decide.after:die"}
    statuses = [subprocess.run([sys.executable, "-c", program], env=environment, check=False).returncode for _ in range(3)]
    assert statuses == [-9, 0, 0]
    assert (tmp_path / "decide.after").exists()


@pytest.mark.skipif(not Path("/proc/self").exists(), reason="looks processes up in /proc")
def test_a_driver_that_is_frozen_runs_nowhere_in_its_session_until_it_is_released(tmp_path):
    command = ["sh", "-c", "setsid true; sleep 600 & sleep 600"]
    process = subprocess.Popen(command, start_new_session=True)
    with DriverProcess(process, tmp_path, (), 60, threading.Event()) as driver:
        until(lambda: len(session_members(process.pid)) == 3)
        driver.freeze()
        until(lambda: {state_of(pid) for pid in session_members(process.pid)} == {"T"})
        driver.release()
        until(lambda: "T" not in {state_of(pid) for pid in session_members(process.pid)})
        assert (tmp_path / "go").exists()
    until(lambda: not session_members(process.pid))


def test_a_driver_that_woke_is_waited_for_a_while_and_has_its_whole_limit_again(tmp_path):
    for name in ("stdout", "stderr"):
        (tmp_path / name).touch()
    with DriverProcess(subprocess.Popen(["sleep", "600"], start_new_session=True), tmp_path, (), 30, threading.Event()) as driver:
        driver.began -= 60
        with pytest.raises(Hung):
            driver.wait_for(0.1)
        driver.release()
        assert driver.wait_for(0.1) is None
        driver.process.kill()
        assert driver.wait_for(100) == -9


def state_of(pid):
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


@pytest.mark.skipif(not Path("/proc/self").exists(), reason="looks processes up in /proc")
def test_a_campaign_that_is_ended_leaves_no_process(tmp_path):
    folder = tmp_path / "of this test alone"
    command = [sys.executable, "-m", "harness.faults", "--no-archive", "--only", "kill@commit.before tail json"]
    command += ["--folder", str(folder)]
    campaign = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    until(lambda: len(named(folder)) >= 3 or campaign.poll() is not None)  # the campaign, its reader, a run
    assert campaign.poll() is None
    campaign.send_signal(signal.SIGTERM)
    assert campaign.wait(timeout=100) == 130
    until(lambda: not named(folder))


def named(folder):
    """The processes whose command line names the folder."""
    found = []
    for file in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):
            if str(folder).encode() in file.read_bytes():
                found.append(int(file.parent.name))
    return found


def until(condition, limit_s=100):
    deadline = time.monotonic() + limit_s
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)


@pytest.mark.parametrize("kind", KINDS)
def test_the_judge_finds_an_empty_output_wrong(tmp_path, kind):
    flow = FaultFlow(tmp_path, kind, "json", partitioned=False)
    flow.write()
    flow.grow(2)
    flow.close()
    findings = flow.judge()
    assert findings.lost or findings.imbalance


@pytest.mark.parametrize("kind", ["tail", "dedupe", "aggregate", "join"])
def test_input_that_grows_in_steps_is_what_it_is_at_once(tmp_path, kind):
    at_once, in_steps = (FaultFlow(tmp_path / name, kind, "json", partitioned=False) for name in ("at once", "in steps"))
    at_once.write()
    at_once.grow(5)
    in_steps.write()
    for batches in (1, 0, 3, 1):
        in_steps.grow(batches)
    at_once.close()
    in_steps.close()
    assert contents(at_once.folder) == contents(in_steps.folder)
    assert at_once.late == in_steps.late


def test_a_late_record_has_one_letter_and_no_other_has_any(tmp_path):
    flow = FaultFlow(tmp_path, "aggregate", "json", partitioned=False)
    flow.write()
    flow.grow(4)
    late = [msgspec.json.encode(row) for row in flow._late()]
    assert len(late) == flow.late > 1
    assert flow.misjudged(late) == []
    assert len(flow.misjudged(late[1:])) == 1
    assert len(flow.misjudged([*late, late[0]])) == 1
    assert len(flow.misjudged([*late, b'{"part": 0, "seq": 0}'])) == 1


def contents(folder):
    return {path.relative_to(folder): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize("kind", KINDS)
def test_a_life_may_be_given_many_records_in_large_batches(tmp_path, kind):
    flow = FaultFlow(tmp_path, kind, "json", partitioned=False, batch_rows=200)
    flow.write()
    flow.grow(1)
    assert len(records_in(tmp_path)) == 200
    flow.fill(901)
    flow.fill(901)
    assert len(set(records_in(tmp_path))) == 1000  # whole Batches; `dedupe` repeats some


def records_in(folder):
    rows = [row for path in (folder / "data").iterdir() for row in map(msgspec.json.decode, path.read_bytes().splitlines())]
    return [(row["part"], row["seq"]) for row in rows]
