"""Flows that are managed, their executors on a real Spark standalone cluster: executors, drivers and masters killed."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
import urllib.request
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import psutil
import pytest

from harness.dev_plane import processes_of
from scribengin.control.home import Home
from scribengin.embedded.standalone import StandaloneCluster
from scribengin.hosts.up import House
from scribengin.launch.standalone import SparkCluster

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

WITHIN_S = 240.0
FLOW = """\
version: 1
name: numbers
sources: {numbers: {type: files, path: data, format: json, schema: "id BIGINT"}}
steps: {odd: {from: numbers, python: "steps:odd"}}
sinks: {kept: {from: odd, type: files, path: out, format: json}}
"""
COUNTED = """\
version: 1
name: numbers
sources: {numbers: {type: files, path: data, format: json, watermark: at 0s, schema: "id BIGINT, at TIMESTAMP"}}
steps:
  tens:
    from: numbers
    sql: "SELECT window.start AS at, id % 10 AS ten, count(*) AS n FROM numbers GROUP BY window(at, '1 minute'), id % 10"
sinks: {kept: {from: tens, type: files, path: out, format: json}}
tiers: {all: {steps: [numbers, tens, kept], resources: {executors: 2, cores: 1, memory: 512MiB}}}
"""
"""keeps a count for each key"""
STEPS = "from scribengin import record\n\n\n@record\ndef odd(row):\n    return row['id'] % 2 == 1\n"


def until(what: Callable[[], Any], said: str) -> Any:
    deadline = time.monotonic() + WITHIN_S
    while not (found := what()):
        assert time.monotonic() < deadline, f"not within {WITHIN_S:g} s: {said}"
        time.sleep(0.1)
    return found


class Shop:
    """A flow in a folder, and a home beside it."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.home, self.files = folder / "flow", folder / "home", 0
        (self.folder / "data").mkdir(parents=True)
        (self.folder / "flow.yaml").write_text(FLOW)
        (self.folder / "steps.py").write_text(STEPS)

    @property
    def environment(self) -> dict[str, str]:
        return os.environ | {"SCRIBENGIN_HOME": str(self.home)}

    def says(self, *words: str) -> Any:
        command = [sys.executable, "-m", "scribengin.cli", *words, "--json"]
        ended = subprocess.run(command, cwd=self.folder, env=self.environment, capture_output=True, text=True, timeout=300, check=False)
        assert ended.returncode == 0, f"{words}: {ended.stdout} {ended.stderr} {self.logs()}"
        return json.loads(ended.stdout)["result"]

    def logs(self) -> str:
        return "\n".join(path.read_text()[-2000:] for path in self.home.glob("workers/logs/*"))

    def adds(self) -> None:
        path = self.folder / "data" / f".{self.files}"
        path.write_text("".join(f'{{"id": {self.files * 100 + n}}}\n' for n in range(100)))
        path.rename(path.with_name(f"{self.files}.jsonl"))
        self.files += 1

    def rows(self) -> list[dict[str, Any]]:
        files = (self.folder / "out").glob("part-*")
        return [json.loads(line) for file in files for line in file.read_text().splitlines()]

    def finds(self) -> list[int]:
        return sorted(row["id"] for row in self.rows())

    def goes_on(self, why: str) -> None:
        """A file comes, and all that came is out, each record once."""
        self.adds()
        until(lambda: len(self.finds()) >= 50 * self.files, why)
        assert self.finds() == list(range(1, 100 * self.files, 2))

    def worker(self) -> psutil.Process:
        return psutil.Process(until(lambda: (self.says("status", "numbers")["tiers"][0]["process"] or {}).get("pid"), "a worker"))

    @contextmanager
    def up(self) -> Iterator[subprocess.Popen[str]]:
        """`scribengin server dev --spark-standalone`, until it answers."""
        log = (self.folder / "up.log").open("a")
        words = ["server", "dev", "--spark-standalone", "--spark-memory", "1GiB"]
        command = [sys.executable, "-m", "scribengin.cli", *words]
        with log, subprocess.Popen(command, cwd=self.folder, env=self.environment, stdout=log, stderr=log, text=True) as process:
            try:
                until(lambda: self.up_by() == process.pid or process.poll() is not None, "up")
                assert process.poll() is None, (self.folder / "up.log").read_text()
                yield process
            finally:
                process.kill()

    def up_by(self) -> int:
        """The process that said last that it is up."""
        path = self.home / "up.json"
        return int(json.loads(path.read_text())["pid"]) if path.exists() else 0

    def processes(self) -> list[psutil.Process]:
        """All that has this home in its environment: workers, their JVMs, servers."""
        return processes_of(self.home)


@pytest.fixture
def shop(tmp_path: Path) -> Iterator[Shop]:
    shop = Shop(tmp_path)
    yield shop
    for process in shop.processes():
        process.kill()


def words_of(process: psutil.Process) -> list[str]:
    """Its command line; none of one that has ended."""
    try:
        return process.cmdline()
    except psutil.Error:
        return []


def executors(web: str) -> list[psutil.Process]:
    """Of all applications of a cluster."""
    found = []
    for process in psutil.process_iter():
        words = words_of(process)
        if "org.apache.spark.executor.CoarseGrainedExecutorBackend" in words and _is_on(web, words[words.index("--app-id") + 1]):
            found.append(process)
    return found


def _is_on(web: str, application: str) -> bool:
    with urllib.request.urlopen(f"{web}/json/", timeout=60) as answer:
        return any(each["id"] == application for each in json.loads(answer.read())["activeapps"])


@pytest.mark.long
@pytest.mark.timeout(600)
def test_a_flow_that_was_submitted_runs_on_the_cluster_and_its_executors_may_be_killed(shop: Shop, cluster: StandaloneCluster) -> None:
    home = Home(shop.home)
    with House(home, spark=SparkCluster(cluster.address, cluster.web)):
        assert shop.says("node", "list")[0]["spark"] == cluster.address
        shop.adds()
        shop.says("apply", "flow.yaml")
        until(lambda: len(shop.finds()) == 50, "the first Batch")
        worker = shop.worker()
        (folder,) = shop.says("status", "numbers")["folders"]
        assert (folder["path"], folder["node"], folder["keeper"]["pid"]) == (str(shop.folder / "out"), "local", os.getpid())
        struck = executors(cluster.web)
        assert len(struck) == 1
        password = home.login().secret.reveal().partition(":")[2]
        said = [word for process in [worker, *worker.children(recursive=True), *struck] for word in words_of(process)]
        assert cluster.address in " ".join(said)
        assert not any(password in word for word in said), "no secret stands on a command line"
        struck[0].kill()
        shop.goes_on("another executor does it")
        assert shop.worker() == worker, "its driver is the same"
        shop.says("stop", "numbers", "--wait")
        assert until(lambda: not executors(cluster.web), "no executor is left") is True
    assert not worker.is_running()


@pytest.mark.long
@pytest.mark.timeout(1200)
def test_a_tier_with_state_spreads_its_keys_over_executors_which_may_be_killed(shop: Shop, tmp_path: Path) -> None:
    (shop.folder / "flow.yaml").write_text(COUNTED)

    def minute(number: int, rows: int) -> None:
        path = shop.folder / "data" / f".{number}"
        lines = (json.dumps({"id": id_, "at": f"2026-01-01T00:{number:02}:{id_ % 60:02}Z"}) for id_ in range(rows))
        path.write_text("".join(f"{line}\n" for line in lines))
        path.rename(path.with_name(f"{number}.jsonl"))

    def counted(minutes: int, why: str) -> None:
        """All windows but the newest are out, and each key of each is counted once."""
        until(lambda: len(shop.rows()) >= 10 * minutes, why)
        rows = [(row["at"][14:16], row["ten"], row["n"]) for row in shop.rows()]
        assert sorted(rows) == [(f"{number:02}", ten, 40) for number in range(minutes) for ten in range(10)]

    with (
        StandaloneCluster(tmp_path / "cluster", workers=2, cores=2, memory_mib=1024) as cluster,
        House(Home(shop.home), spark=SparkCluster(cluster.address, cluster.web)),
    ):
        minute(0, 400)
        minute(1, 400)
        shop.says("apply", "flow.yaml")
        counted(1, "the first window")
        struck = until(lambda: len(found := executors(cluster.web)) == 2 and found, "two executors")
        assert len({process.ppid() for process in struck}) == 2, "one with each of the cluster's workers"
        struck[0].kill()
        minute(2, 400)
        counted(2, "another executor goes on with its keys")
        shop.says("scale", "numbers", "--executors", "3")
        minute(3, 400)
        counted(3, "three share the keys")
        until(lambda: len(executors(cluster.web)) == 3, "three executors")
        shop.says("audit", "numbers")
        shop.says("stop", "numbers", "--wait")


@pytest.mark.long
@pytest.mark.timeout(1200)
def test_drivers_masters_and_the_cluster_are_killed_and_everything_goes_on(shop: Shop) -> None:
    with shop.up() as up:
        shop.adds()
        shop.says("apply", "flow.yaml")
        until(lambda: len(shop.finds()) == 50, "the first Batch")
        first = shop.worker()
        first.kill()
        shop.goes_on("another driver does it")
        second = shop.worker()
        assert second != first
        up.kill()
        up.wait()
    with shop.up() as up:
        assert shop.worker() == second, "adopted"
        shop.goes_on("with the cluster of before")
        # the cluster's own master: it is started again, and knows its applications
        (master,) = [each for each in shop.processes() if "org.apache.spark.deploy.master.Master" in each.cmdline()]
        master.kill()
        until(lambda: "is started again" in (shop.folder / "up.log").read_text(), "it is missed")
        shop.goes_on("without a word of it")
        assert shop.worker() == second
        up.send_signal(signal.SIGINT)
        assert up.wait(300) == 0
    assert until(lambda: not shop.processes(), "nothing is left") is True
