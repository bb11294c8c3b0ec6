"""From the death of a worker to the first new commit: `up` in a fresh home, a flow under steady load, SIGKILL to all of its worker's
processes, again and again; how long until the next worker has committed a new Batch, and where that time went.

The last commit record in the state folder when nothing of the old worker lives any more is the last of the old; the next one is new.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from recovery_flows import FILES, KAFKA, ROWS, STEPS, bring_files, bring_messages, load

from harness.tweets import write_tweets
from scribengin.control import flow_records
from scribengin.control.home import Home
from scribengin.control.world import RunId
from scribengin.core.java import find_java
from scribengin.core.process import within
from scribengin.embedded.kafka import KafkaCluster
from scribengin.launch.marks import marked_processes
from scribengin.registry.record_io import Stored, read_record
from scribengin.registry.tree import RUN
from scribengin.spark.class_archive import archive_path
from scribengin.worker.log import read_timelines

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from scribengin.core.process import Process
    from scribengin.registry.zookeeper import ZooKeeperRegistry

WITHIN_S = 300.0
PHASES = {
    "noticed": "the master has noted the end",
    "born": "its successor's process begins",
    "loaded": "Python has loaded",
    "connected": "it knows what is wanted",
    "leased": "it holds the lease",
    "planned": "the flow is checked and planned",
    "spark": "Spark is up",
    "recovering": "the lock of its state is taken",
    "running": "every step is checked with Spark, what was decided is recovered",
    "committed": "the first Batch is committed",
}


@dataclass
class Trial:
    """Seconds from the kill."""

    total_s: float
    marks: dict[str, float]
    load: float


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--standby", action="store_true", help="with a warm standby")
    parser.add_argument("--no-archive", action="store_true", help="without the archive of Spark's classes")
    parser.add_argument("--compare-archive", action="store_true", help="with and without it in turn")
    parser.add_argument("--kafka", action="store_true", help="topic to topic in two tiers; the second one's worker is killed")
    parser.add_argument("--keep", action="store_true", help="leave the folder")
    parser.add_argument("--seed", type=int, default=1)
    asked = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="scribengin-recovery-"))
    trials: list[Trial] = []
    try:
        with ExitStack() as outer, ExitStack() as stack:
            if asked.no_archive:
                os.environ["SCRIBENGIN_CLASS_ARCHIVE"] = "no"
            bootstrap = outer.enter_context(KafkaCluster(folder / "kafka")).bootstrap if asked.kafka else ""
            bench = Bench(folder, bootstrap, standby=asked.standby)
            stack.callback(bench.check)
            stack.enter_context(bench.up())
            stack.enter_context(load(bench.bring))
            if not asked.no_archive and not archive_path(find_java()).exists():
                print("the worker makes the archive of Spark's classes, once on a machine: a minute and a half", flush=True)
                _until(lambda: archive_path(find_java()).exists(), "the archive")
            chance = random.Random(asked.seed)
            for number in range(asked.kills):
                bench.settle(commits=3)
                time.sleep(chance.uniform(0.0, 2.0))  # at any moment of a Batch
                with _without_archive(away=asked.compare_archive and number % 2 == 1):
                    trial = bench.kill()
                trials.append(trial)
                print(f"{number + 1:2}  {trial.total_s:5.1f} s  load {trial.load:4.1f}  {_steps(trial.marks)}", flush=True)
    finally:
        if asked.keep:
            print(folder)
        else:
            shutil.rmtree(folder, ignore_errors=True)
    _tell(trials[::2] if asked.compare_archive else trials, standby=asked.standby)
    if asked.compare_archive:
        print("\nthe same without the archive of Spark's classes, each after one of those above:")
        _tell(trials[1::2], standby=asked.standby)


@contextmanager
def _without_archive(*, away: bool) -> Iterator[None]:
    path = archive_path(find_java())
    aside = path.with_suffix(".aside")
    if away:
        path.rename(aside)
    try:
        yield
    finally:
        if away:
            aside.rename(path)


def _steps(marks: dict[str, float]) -> str:
    return " ".join(f"{name} {at:.1f}" for name, at in marks.items())


def _tell(trials: list[Trial], *, standby: bool) -> None:
    totals = sorted(trial.total_s for trial in trials)
    median, worst = statistics.median(totals), totals[-1]
    bar = "median < 8 s" if standby else "median < 20 s, worst < 35 s"
    print(f"\n{len(trials)} kills{', warm standby' if standby else ''}: median {median:.1f} s, worst {worst:.1f} s (wanted: {bar})")
    print(f"load of the machine ({os.cpu_count()} cores): median {statistics.median(trial.load for trial in trials):.1f}\n")
    before = 0.0
    for name, about in PHASES.items():
        found = [trial.marks[name] for trial in trials if name in trial.marks]
        if found and (at := statistics.median(found)) >= 0:  # a standby has done much of it before
            print(f"  {at:5.1f} s  {at - before:+5.1f}  {about}")
            before = at


class Bench:
    """A home, a flow, and its worker."""

    def __init__(self, folder: Path, bootstrap: str, *, standby: bool) -> None:
        self.place = folder / "flow"
        self.home = Home(folder / "home")
        (self.place / "data").mkdir(parents=True)
        flow = (KAFKA if bootstrap else FILES).replace("STANDBY", "warm" if standby else "none").replace("BOOTSTRAP", bootstrap)
        (self.place / "flow.yaml").write_text(flow)
        (self.place / "steps.py").write_text(STEPS)
        write_tweets(folder / "stock", rows=20 * ROWS, files=20)
        stock = sorted((folder / "stock").iterdir())
        self.bring = bring_messages(stock, bootstrap) if bootstrap else bring_files(stock, self.place / "data")
        self.tier = "core" if bootstrap else "main"
        self.commits = self.home.state / "recovery" / self.tier / "kept" / "decisions"
        self.standby = standby

    @contextmanager
    def up(self) -> Iterator[None]:
        """`scribengin server dev` and the flow, running."""
        environment = os.environ | {"SCRIBENGIN_HOME": str(self.home.folder)}
        command = [sys.executable, "-m", "scribengin.cli"]
        up_command = [*command, "server", "dev"]
        with (self.place / "up.log").open("w") as log, subprocess.Popen(up_command, env=environment, stdout=log, stderr=log) as up:
            try:
                _until(lambda: (self.home.folder / "up.json").exists() or up.poll() is not None, "up")
                subprocess.run([*command, "apply", str(self.place / "flow.yaml"), "--wait", "4m"], env=environment, check=True)
                with self.home.registry() as self.registry:
                    yield
            finally:
                up.send_signal(signal.SIGINT)
                up.wait(300)

    def settle(self, *, commits: int) -> None:
        """Until the worker has committed so often, and its standby, if any, is ready."""
        after = self.newest() + commits
        _until(lambda: self.newest() >= after, "further Batches")
        if self.standby:
            _until(self._is_spared, "the standby")

    def kill(self) -> Trial:
        """Kill all of the worker, and wait for its successor's first commit."""
        run = _run(self.registry, self.tier)
        there = self._processes(str(run))
        load = os.getloadavg()[0]
        killed_at = time.time()
        for process in there:
            process.send(signal.SIGKILL)
        assert within(20, lambda: not any(process.alive() for process in there)), "what is killed ends"
        last = self.newest()
        noticed_at = 0.0

        def committed() -> bool:
            nonlocal noticed_at
            if not noticed_at and (_run(self.registry, self.tier) != run or _ended(self.registry, self.tier)):
                noticed_at = time.time()
            return self.newest() > last

        _until(committed, "a new commit")
        committed_at = (self.commits / f"{last + 1:010}.json").stat().st_mtime
        successor = _run(self.registry, self.tier)
        _until(lambda: self._timeline(str(successor)) is not None, "its line")
        marks = {"noticed": noticed_at, **(self._timeline(str(successor)) or {}), "committed": committed_at}
        return Trial(committed_at - killed_at, {name: marks[name] - killed_at for name in PHASES if name in marks}, load)

    def newest(self) -> int:
        """The number of the newest commit record; -1 where there is none."""
        return max((int(path.stem) for path in self.commits.glob("*.json")), default=-1)

    def check(self) -> None:
        """Nothing lost, nothing doubled."""
        command = [
            sys.executable,
            "-m",
            "scribengin.cli",
            "audit",
            str(self.place / "flow.yaml"),
            "--state",
            str(self.home.state),
            "--json",
        ]
        ended = subprocess.run(command, capture_output=True, text=True, check=False)
        said = json.loads(ended.stdout)
        print(f"audit: {'balanced' if said['result']['ledger']['balanced'] else said['result']['ledger']['violations']}")

    def _is_spared(self) -> bool:
        tier = next(each for each in flow_records.describe(self.registry, "recovery")["tiers"] if each["tier"] == self.tier)
        return tier["standby"] is not None and tier["standby"]["state"] == "standby"

    def _processes(self, worker: str) -> list[Process]:
        return marked_processes(self.home.workers.resolve()).get(worker, [])

    def _timeline(self, worker: str) -> dict[str, float] | None:
        """What the worker has last told of its start."""
        logs = sorted((self.home.workers / "logs").glob(f"*{worker}*"))
        found = [line for log in logs for line in read_timelines(log.read_text(errors="replace"))]
        return found[-1] if found else None


def _run(registry: ZooKeeperRegistry, tier: str) -> RunId:
    found = read_record(registry, RUN("recovery", tier))
    assert isinstance(found, Stored)
    return RunId("recovery", tier, found.record.number)


def _ended(registry: ZooKeeperRegistry, tier: str) -> bool:
    found = read_record(registry, RUN("recovery", tier))
    return isinstance(found, Stored) and found.record.ended_at is not None


def _until(what: Callable[[], bool], said: str) -> None:
    deadline = time.monotonic() + WITHIN_S
    while not what():
        if time.monotonic() > deadline:
            raise SystemExit(f"never came: {said}")
        time.sleep(0.02)


if __name__ == "__main__":
    main()
