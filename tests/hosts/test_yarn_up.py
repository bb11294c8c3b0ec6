"""`scribengin server dev --yarn`: its options, and a flow in a YARN of its own."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from scribengin.cli.commands.up import _yarn_cluster
from scribengin.cli.main import main
from scribengin.embedded.yarn import Yarn
from scribengin.launch.yarn import YarnLauncher
from scribengin.launch.yarn_cluster import Application, YarnCluster

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

WITHIN_S = 400.0
FLOW = """\
version: 1
name: numbers
sources: {{numbers: {{type: files, path: {folder}/data, format: json, schema: "id BIGINT"}}}}
steps: {{odd: {{from: numbers, filter: id % 2 = 1}}}}
sinks: {{kept: {{from: odd, type: files, path: {folder}/out, format: json}}}}
tiers:
  all:
    steps: [odd]
    resources: {{executors: 1, cores: 1, memory: 512MiB, spark: {{spark.driver.memory: 512m, spark.driver.memoryOverhead: 256m}}}}
"""


def conf_of(folder: Path, host: str) -> Path:
    folder.mkdir()
    text = f"<configuration><property><name>yarn.resourcemanager.hostname</name><value>{host}</value></property></configuration>"
    (folder / "yarn-site.xml").write_text(text)
    return folder


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--yarn", "--cores", "4"], "YARN has its own limits"),
        (["--yarn", "--spark-standalone"], "give one of them"),
        (["--yarn", "{remote}"], "--state URL"),
    ],
)
def test_options_that_contradict_each_other_are_refused(
    tmp_path: Path, words: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    remote = conf_of(tmp_path / "conf", "rm.example")
    with pytest.raises(SystemExit) as ended:
        main(["server", "dev", "--home", str(tmp_path / "home"), *[word.format(remote=remote) for word in words]])
    assert ended.value.code == 2
    assert said in capsys.readouterr().err


def test_a_folder_without_settings_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "conf").mkdir()
    with pytest.raises(SystemExit) as ended:
        main(["server", "dev", "--home", str(tmp_path / "home"), "--yarn", str(tmp_path / "conf")])
    assert ended.value.code == 3
    assert "yarn-settings" in capsys.readouterr().err


def test_drivers_are_in_the_cluster_if_it_reaches_this_registry(tmp_path: Path) -> None:
    assert _yarn_cluster(str(conf_of(tmp_path / "here", "127.0.0.1")), None) == YarnCluster.of(tmp_path / "here")
    found = _yarn_cluster(str(conf_of(tmp_path / "there", "rm.example")), Path("hdfs://n:1/state"))
    assert isinstance(found, YarnCluster)
    assert found.client


class Place:
    """A flow in a folder, and a home beside it."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.home, self.files = folder, folder / "home", 0
        (folder / "data").mkdir()
        (folder / "flow.yaml").write_text(FLOW.format(folder=folder))

    def adds(self) -> None:
        path = self.folder / "data" / f".{self.files}"
        path.write_text("".join(f'{{"id": {self.files * 100 + n}}}\n' for n in range(100)))
        path.rename(path.with_name(f"{self.files}.jsonl"))
        self.files += 1

    def all_came(self) -> None:
        self.until(lambda: len(self.found()) >= 50 * self.files, f"{self.files} files")
        assert self.found() == list(range(1, 100 * self.files, 2)), "each once"

    def found(self) -> list[int]:
        return sorted(json.loads(line)["id"] for file in (self.folder / "out").glob("part-*") for line in file.read_text().splitlines())

    def until(self, what: Callable[[], Any], said: str) -> None:
        deadline = time.monotonic() + WITHIN_S
        while not what():
            assert time.monotonic() < deadline, f"{said} not within {WITHIN_S:g} s: {(self.folder / 'up.log').read_text()} {self.logs()}"
            time.sleep(0.2)

    def logs(self) -> str:
        return "\n".join(path.read_text()[-2000:] for path in self.home.glob("workers/logs/*"))

    def says(self, *words: str) -> Any:
        command = [sys.executable, "-m", "scribengin.cli", *words, "--home", str(self.home), "--json"]
        ended = subprocess.run(command, cwd=self.folder, capture_output=True, text=True, timeout=WITHIN_S, check=False)
        assert ended.returncode == 0, f"{words}: {ended.stdout} {ended.stderr} {self.logs()}"
        return json.loads(ended.stdout)["result"]

    def applications(self) -> list[Application]:
        """Those of the flow, newest first."""
        return YarnLauncher(self.home / "workers", YarnCluster.of(self.home / "yarn" / "client"))._applications()

    @contextmanager
    def up(self) -> Iterator[subprocess.Popen[bytes]]:
        """`scribengin server dev --yarn`, until it answers."""
        command = [sys.executable, "-m", "scribengin.cli", "server", "dev", "--home", str(self.home), "--yarn"]
        with (self.folder / "up.log").open("ab") as log, subprocess.Popen(command, cwd=self.folder, stdout=log, stderr=log) as process:
            try:
                self.until(lambda: self.up_by() == process.pid or process.poll() is not None, "up")
                assert process.poll() is None, (self.folder / "up.log").read_text()
                yield process
            finally:
                process.kill()

    def up_by(self) -> int:
        path = self.home / "up.json"
        return int(json.loads(path.read_text())["pid"]) if path.exists() else 0


@pytest.mark.long
@pytest.mark.timeout(1500)
def test_a_flow_runs_in_its_yarn_outlives_it_and_ends_with_it(tmp_path: Path) -> None:
    place = Place(tmp_path)
    try:
        place.adds()
        with place.up() as up:
            place.says("apply", "flow.yaml")
            place.all_came()
            (first,) = [each.id for each in place.applications() if each.is_live]
            up.kill()
            up.wait()
        place.adds()
        place.all_came()  # in containers, which nobody has ended
        with place.up() as up:
            place.adds()
            place.all_came()
            (again,) = [each.id for each in place.applications() if each.is_live]
            assert again == first, "adopted"
            yarn = Yarn(place.home / "yarn")
            assert yarn.resource_manager.pid is not None
            os.kill(yarn.resource_manager.pid, signal.SIGKILL)
            place.until(lambda: "the YARN cluster has ended; it is restarted" in (tmp_path / "up.log").read_text(), "it is missed")
            place.adds()
            place.all_came()
            place.until(yarn.answers, "the ResourceManager")
            up.send_signal(signal.SIGINT)
            assert up.wait(WITHIN_S) == 0, (tmp_path / "up.log").read_text()
        assert "1 worker ends after the Batch under way" in (tmp_path / "up.log").read_text()
        assert (yarn.pid, yarn.hdfs.pid, yarn.kill_containers()) == (None, None, 0), "nothing is left"
        place.adds()
        with place.up():
            place.all_came()  # its desired state has stayed
            newest, old = place.applications()
            assert (newest.id != first, old.id) == (True, first)
            assert (old.state, old.final_status) == ("FINISHED", "SUCCEEDED"), "it ended by itself, it was not killed"
            place.says("stop", "numbers", "--wait")
    finally:
        Yarn(place.home / "yarn").stop()
