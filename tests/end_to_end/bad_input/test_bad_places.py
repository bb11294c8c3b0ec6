"""Files, folders, columns and disks that are not as a flow needs them: told with the remedy, and nothing is lost meanwhile."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from typing import TYPE_CHECKING

import pytest

from harness.faults.small_disk import SmallDisk, no_small_disk
from scribengin.core.errors import InputError, SourceError
from scribengin.spark.source_input import Feed

if TYPE_CHECKING:
    from pathlib import Path

    from tests.conftest import FlowFolder

FLOW = """\
version: 1
name: places
sources:
  rows: {type: files, path: data, format: json, schema: "id BIGINT, word STRING"}
steps:
  some: {from: rows, filter: id >= 0}
sinks:
  kept: {from: some, type: files, path: out, format: json}
"""
ROWS = [{"id": id_, "word": "w"} for id_ in range(50)]


@pytest.fixture
def taken(folder: FlowFolder, monkeypatch: pytest.MonkeyPatch):
    """A run that hears of a file (its source log says so) right before `disturb` strikes it, and what the run said."""

    def run(disturb):
        folder.flow(FLOW).data("data/a.jsonl", ROWS[:25]).data("data/b.jsonl", ROWS[25:])
        take = Feed._take

        def take_and_disturb(feed: Feed) -> bool:
            found = take(feed)
            if found:
                disturb(folder.path / "data/b.jsonl")
            return found

        monkeypatch.setattr(Feed, "_take", take_and_disturb)
        result = folder.run()
        monkeypatch.undo()
        return result

    return run


def test_a_file_that_is_removed_stops_the_query_until_it_is_back(taken, folder):
    kept = folder.path / "kept"
    result = taken(lambda file: file.rename(kept))
    assert result.state == "failed"
    (problem,) = result.problems
    assert "b.jsonl is missing" in problem.message
    assert "restore it, or skip it: scribengin offsets skip" in problem.remedy
    assert "remedy:" not in problem.message
    assert folder.read("out") == []
    kept.rename(folder.path / "data/b.jsonl")
    result = folder.run()
    assert (result.state, result.balanced) == ("finished", True)
    assert [row["id"] for row in folder.read("out")] == list(range(50))


def test_a_file_that_changes_stops_the_query_until_it_is_as_it_was(taken, folder):
    file = folder.path / "data/b.jsonl"

    def change(path: Path) -> None:
        path.write_text(path.read_text() + '{"id": 99, "word": "new"}\n')

    result = taken(change)
    assert result.state == "failed"
    (problem,) = result.problems
    assert "b.jsonl" in problem.message
    assert "changed" in problem.message
    assert problem.remedy
    assert folder.read("out") == []
    assert file.exists()


def test_a_missing_column_is_told_with_its_place_before_anything_runs(folder):
    folder.flow(FLOW.replace("id >= 0", "idd >= 0")).data("data/a.jsonl", ROWS)
    with pytest.raises(InputError) as caught:
        folder.run()
    (problem,) = caught.value.problems
    assert (problem.place.line, problem.place.column) == (6, 30)
    assert "idd" in problem.message
    assert 'did you mean "id"?' in problem.remedy


def test_a_folder_that_is_not_there_is_told(folder):
    folder.flow(FLOW)
    with pytest.raises(SourceError) as caught:
        folder.run()
    assert "data" in caught.value.message
    assert caught.value.remedy
    assert caught.value.place is not None
    assert caught.value.place.line == FLOW.splitlines().index("sources:") + 2


AS_NOBODY = """
import os, sys
from scribengin.local.prepare import open_sources, prepare
from scribengin.core.errors import ScribenginError
from pathlib import Path
source = open_sources(prepare(Path(sys.argv[1]), state=None).plan.flow)["rows"]
import scribengin.connectors.files.reader, scribengin.connectors.files.discovery
if os.geteuid() == 0:
    os.setegid(65534)
    os.seteuid(65534)
try:
    source.reader()
except ScribenginError as error:
    print(error, "|", error.remedy)
"""


def test_a_folder_without_permission_is_told_with_the_remedy(public_path):
    (public_path / "flow.yaml").write_text(FLOW)
    (public_path / "data").mkdir()
    (public_path / "data").chmod(0)
    try:
        ended = subprocess.run(
            [sys.executable, "-c", AS_NOBODY, str(public_path / "flow.yaml")], capture_output=True, text=True, check=False
        )
    finally:
        (public_path / "data").chmod(0o755)
    assert f"this user is not allowed to read {public_path / 'data'} | make it readable: chmod a+rx" in ended.stdout, ended.stderr


@pytest.mark.timeout(200)
@pytest.mark.skipif(no_small_disk() != "", reason="no tmpfs of one's own here")
def test_a_full_disk_is_told_and_the_run_goes_on_when_there_is_room(tmp_path):
    (tmp_path / "flow.yaml").write_text(FLOW)
    (tmp_path / "data").mkdir()
    (tmp_path / "data/a.jsonl").write_text("".join(json.dumps(row | {"word": "w" * 1000}) + "\n" for row in ROWS))
    with SmallDisk(tmp_path / "out", "100k") as disk:
        subprocess.run(disk.wrap(["sh", "-c", "head -c 80000 /dev/zero > out/full"], tmp_path), check=True)
        command = disk.wrap([sys.executable, "-m", "scribengin.cli", "run", "flow.yaml", "--json", "--progress", "plain"], tmp_path)
        with (tmp_path / "said").open("w") as said:
            run = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=said, text=True, start_new_session=True)
        try:
            wait_for(lambda: "No space left on device" in (tmp_path / "said").read_text(), run)
            subprocess.run(disk.wrap(["rm", "out/full"], tmp_path), check=True)
            wait_for(lambda: "out 50" in (tmp_path / "said").read_text(), run)
            os.killpg(run.pid, signal.SIGINT)
            out, _ = run.communicate(timeout=60)
        finally:
            if run.poll() is None:
                os.killpg(run.pid, signal.SIGKILL)
                run.communicate()
        result = json.loads(out)["result"]
        written = subprocess.run(disk.wrap(["sh", "-c", "cat out/part-*"], tmp_path), capture_output=True, text=True, check=True).stdout
    assert (result["state"], result["ledger"]["balanced"]) == ("stopped", True)
    assert [json.loads(line)["id"] for line in written.splitlines()] == list(range(50))


def wait_for(condition, run: subprocess.Popen[str], *, limit_s: float = 90.0) -> None:
    deadline = time.monotonic() + limit_s
    while not condition():
        assert run.poll() is None
        assert time.monotonic() < deadline
        time.sleep(0.1)
