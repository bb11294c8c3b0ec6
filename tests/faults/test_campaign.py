"""The campaign itself, without Spark: does the foreign reader see what it must, and does the sample take every cell once?"""

import os
import random
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import msgspec
import pytest

from scribengin.core.faults import POINTS, VARIABLE
from scribengin.testing.faults.cases import WAYS, Cell, Outcome
from scribengin.testing.faults.cells import PLACES, Sample, all_cells, wanted
from scribengin.testing.faults.flows import FORMATS, KINDS, FaultFlow
from scribengin.testing.faults.reader import ForeignReader, start_reader
from scribengin.testing.faults.report import append_outcome, count_open, read_outcomes, write_report
from scribengin.testing.records import Records

ROWS = Records("run", 1, 6).of(0)
LINES = msgspec.json.Encoder().encode_lines(ROWS)


@pytest.fixture
def reader(tmp_path):
    (tmp_path / "part-0.jsonl").write_bytes(LINES)
    reader = ForeignReader(tmp_path, "json", records=True)
    reader.look()
    assert reader.sight.wrong == []
    return reader


def complaint_after(reader, change):
    change()
    for _ in range(10):  # one of ten looks is a full one
        reader.look()
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


def test_the_sample_takes_what_is_open_and_ends_when_all_is_covered():
    outcomes, sample = [], Sample([])
    while count_open(outcomes):
        assert len(outcomes) < 1500
        outcome = Outcome(sample.choose(random.Random(len(outcomes))), len(outcomes))
        outcomes.append(outcome)
        sample.add(outcome)
    targets = sum(wanted(way, point) * len(FORMATS) for way, points in PLACES.items() for point in points)
    assert len(outcomes) == targets
    assert {outcome.cell.kind for outcome in outcomes} == set(KINDS)


def test_a_cell_that_failed_is_still_open_and_waits_for_its_turn():
    cell = Cell("kill", "decide.after", "tail", "json", False)
    failed = Outcome(cell, 1, wrong=["lost"])
    assert Sample([failed], "kill@decide.after").choose(random.Random(1)) != cell
    assert count_open([failed]) == count_open([])
    assert count_open([failed, Outcome(cell, 1)]) == count_open([]) - 1


def test_every_point_is_killed_and_every_way_is_known():
    assert PLACES["kill"] == POINTS
    assert set(PLACES) < set(WAYS)
    assert not list(all_cells("no such thing"))


def test_outcomes_come_back_as_they_were_written_and_a_torn_last_line_costs_only_itself(tmp_path):
    outcomes = [Outcome(cell, seed, ["kill"], rows=3) for seed, cell in enumerate(all_cells("kill@decide.after tail"))]
    for outcome in outcomes:
        append_outcome(tmp_path, outcome)
    with (tmp_path / "outcomes.jsonl").open("ab") as file:
        file.write(b'{"cell": {"way"')
    assert read_outcomes(tmp_path) == outcomes
    report = write_report(tmp_path, [*outcomes, Outcome(outcomes[0].cell, 99, wrong=["2 lost"])]).read_text()
    assert "| kill | decide.after | 2/1 ✗ | 2/1 | 2/1 | 2/1 |" in report
    assert "seed 99, kill@decide.after tail json: 2 lost" in report


def test_a_fault_with_once_strikes_the_first_process_only(tmp_path):
    program = "from scribengin.core import faults; faults.reached('decide.after')"
    environment = {**os.environ, VARIABLE: f"once={tmp_path},decide.after:die"}
    statuses = [subprocess.run([sys.executable, "-c", program], env=environment, check=False).returncode for _ in range(3)]
    assert statuses == [-9, 0, 0]
    assert (tmp_path / "decide.after").exists()


@pytest.mark.skipif(not Path("/proc/self").exists(), reason="looks processes up in /proc")
def test_a_campaign_that_is_ended_leaves_no_process(tmp_path):
    folder = tmp_path / "of this test alone"
    command = [sys.executable, "-m", "scribengin.testing.faults", "--only", "kill@commit.before tail json", "--folder", str(folder)]
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
    findings = flow.judge()
    assert findings.lost or findings.imbalance
