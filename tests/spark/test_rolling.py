"""Sinks that roll, in whole runs: who reads them, a disk that is full at the end, files that another flow still has to read."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from scribengin.connectors.files.maintenance import roll_folder
from scribengin.connectors.files.retention import ReadLease
from scribengin.core import faults
from scribengin.local.contract import RunSettings
from scribengin.local.run import run_flow, run_flows
from scribengin.testing.checker import visible_files

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

    from scribengin.local.contract import RunResult

FEEDING = """
version: 1
name: feeding
sources:
  orders: {type: files, path: data, format: json, schema: id BIGINT, max_files: 1}
sinks:
  kept: {from: orders, type: files, path: between, format: json, roll: {size: 1MiB, every: 1h}}
"""
READING = """
version: 1
name: reading
sources:
  kept: {type: files, path: between, format: json, schema: id BIGINT, settle: 0s, when_done: delete}
sinks:
  out: {from: kept, type: files, path: out, format: json}
"""


def write(folder: Path, files: range) -> None:
    (folder / "data").mkdir(exist_ok=True)
    for number in files:
        (folder / f"data/{number:02}.jsonl").write_text("".join(f'{{"id": {number * 10 + n}}}\n' for n in range(10)))


def ids(folder: Path) -> list[int]:
    return sorted(json.loads(line)["id"] for path in visible_files(folder) for line in path.read_text().splitlines())


def flows(folder: Path) -> list[Path]:
    paths = [folder / "feeding.yaml", folder / "reading.yaml"]
    for path, text in zip(paths, (FEEDING, READING), strict=True):
        path.write_text(text)
    return paths


def run(path: Path, spark: SparkSession) -> RunResult:
    return run_flow(path, RunSettings(once=True), lambda _: None, spark=spark)


def test_a_flow_that_ends_behind_one_that_rolls_reads_all_that_it_has_committed(tmp_path: Path, spark: SparkSession) -> None:
    paths = flows(tmp_path)
    write(tmp_path, range(4))
    (tmp_path / "between").mkdir()
    result = run_flows(paths, RunSettings(once=True), lambda _: None, spark=spark)
    assert (result.state, result.balanced, result.problems) == ("finished", True, ())
    assert ids(tmp_path / "out") == list(range(40))
    assert list(visible_files(tmp_path / "between")) == [], "one merged file was read, and deleted"


def test_a_disk_that_is_full_at_the_end_fails_the_run_and_the_next_shows_all(tmp_path: Path, spark: SparkSession) -> None:
    feeding, reading = flows(tmp_path)
    write(tmp_path, range(3))
    faults.arm("roll.draft.writing:enospc")
    try:
        result = run(feeding, spark)
    finally:
        faults.arm("")
    assert result.state == "failed"
    (problem,) = result.problems
    assert "3 segments cannot be merged" in problem.message
    assert "they stay hidden, nothing is lost, and the merge is retried: No space left on device" in problem.message
    assert problem.remedy.endswith("feeding.yaml --flush")
    assert (problem.place.file, ids(tmp_path / "between")) == (str(feeding), [])
    assert run(feeding, spark).state == "finished"
    assert ids(tmp_path / "between") == list(range(30))
    # another flow holds the file: who is through with it leaves it there until that is over
    (merged,) = visible_files(tmp_path / "between")
    other = ReadLease(tmp_path / "between", "other")
    other.hold({merged.name})
    assert run(reading, spark).state == "finished"
    assert (merged.exists(), ids(tmp_path / "out")) == (True, list(range(30)))
    other.let_go({merged.name})
    write(tmp_path, range(3, 4))
    run(feeding, spark)
    roll_folder(tmp_path / "between", lambda: None)
    run(reading, spark)
    assert (merged.exists(), ids(tmp_path / "out")) == (False, list(range(40)))


BY_ORIGIN = """
version: 1
name: both
sources:
  old: {type: files, path: old, format: json, schema: id BIGINT}
  new: {type: files, path: new, format: json, schema: id BIGINT}
steps:
  all: {from: [old, new], merge: {how: union, origin: came}}
sinks:
  kept: {from: all, type: files, path: out, format: json, partition_by: [came], roll: {size: 1MiB, every: 1h}}
"""


def test_rows_are_sorted_by_the_input_they_came_from(tmp_path: Path, spark: SparkSession) -> None:
    (tmp_path / "both.yaml").write_text(BY_ORIGIN)
    for name, first in (("old", 0), ("new", 100)):
        (tmp_path / name).mkdir()
        for number in range(2):
            (tmp_path / name / f"{number}.jsonl").write_text("".join(f'{{"id": {first + 10 * number + n}}}\n' for n in range(3)))
    result = run(tmp_path / "both.yaml", spark)
    assert (result.state, result.balanced) == ("finished", True)
    assert ids(tmp_path / "out/came=old") == [0, 1, 2, 10, 11, 12]
    assert ids(tmp_path / "out/came=new") == [100, 101, 102, 110, 111, 112]
    assert [len(list(visible_files(tmp_path / "out" / f"came={name}"))) for name in ("old", "new")] == [1, 1]
