"""A flow beside a neighbour that floods, and beside one that is killed and starts again without end: does it keep its rate?

`scribengin server dev` in a fresh home; flow `steady` reads what comes at an even pace, which it can keep up with. Each round has three
phases: `steady` alone; beside `loud`, before which more lies than it can read; beside `loud` whose worker is killed whenever it commits.
Each flow has a label with a quota of its own. Rate: rows between the first and the last commit in a phase; delay: from when a file was
brought to the commit that has it.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from recovery_flows import STEPS

from harness.tweets import SCHEMA, write_tweets
from scribengin.control.home import Home
from scribengin.launch.marks import marked_processes
from scribengin.state.decisions import Decisions

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

WITHIN_S = 600.0
EVERY_S = 0.25
LOUD_FILES = 400
PHASES = ("alone", "floods", "fails")
FLOW = f"""
version: 1
name: NAME
labels: {{team: NAME}}
defaults: {{delivery: exactly_once, on_error: dead_letter}}
sources:
  tweets: {{type: files, path: data, format: json, settle: 0s, max_bytes: 16MiB, schema: "{SCHEMA}"}}
steps:
  known: {{from: tweets, filter: followers > 5000, require: {{dated: ts IS NOT NULL}}}}
  hot: {{from: known, filter: retweets > 500}}
  tagged: {{from: hot, python: "steps:has_tag"}}
sinks:
  kept: {{from: tagged, type: files, path: out, format: parquet}}
"""


@dataclass(frozen=True)
class Seen:
    """A phase of a round, as `steady` went through it; `other` is what its neighbour read meanwhile, in rows a second."""

    rate: float
    p50_s: float
    p99_s: float
    other: float
    kills: int
    load: float


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=60.0, help="of each phase")
    parser.add_argument("--rows", type=int, default=4_000, help="a second, of the steady flow")
    parser.add_argument("--rate", type=float, default=50_000, help="rows a second that the quota of the loud flow allows; 0: any")
    parser.add_argument("--cores", type=int, default=2, help="what all workers have together, each its own CPUs; 0: shared by all")
    parser.add_argument("--keep", action="store_true", help="leave the folder")
    asked = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="scribengin-isolation-"))
    try:
        bench = Bench(folder, rows=asked.rows)
        with bench.up(asked.cores, asked.rate), bench.feed():
            rounds = [bench.round(number, asked.seconds) for number in range(asked.rounds)]
        bench.check()
    finally:
        if asked.keep:
            print(folder)
        else:
            shutil.rmtree(folder, ignore_errors=True)
    tell(rounds, asked.rows)


def tell(rounds: list[dict[str, Seen]], rows: int) -> None:
    """The medians, and how each phase differs from being alone: the median of the rounds' own differences."""
    print(f"\n{len(rounds)} rounds, medians; steady is given {rows:,} rows/s (wanted: its rate changes by less than 5 %)")
    print(f"{'':8} {'rows/s':>9} {'change':>8} {'delay p50':>10} {'change':>8} {'p99':>8} {'neighbour':>12} {'kills':>6} {'load':>5}")
    for phase in PHASES:
        seen = [each[phase] for each in rounds]
        by_rate = statistics.median(each[phase].rate / each["alone"].rate - 1 for each in rounds)
        by_delay = statistics.median(each[phase].p50_s / each["alone"].p50_s - 1 for each in rounds)
        rate, p50_s, p99_s, other, load = (
            statistics.median(getattr(each, name) for each in seen) for name in ("rate", "p50_s", "p99_s", "other", "load")
        )
        kills = sum(each.kills for each in seen)
        print(
            f"{phase:8} {rate:9,.0f} {by_rate:+8.1%} {p50_s:9.2f}s {by_delay:+8.0%} {p99_s:7.2f}s {other:8,.0f} r/s {kills:6} {load:5.1f}"
        )


class Commits:
    """What a flow has committed, and when: Batch after Batch, as they come."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._decisions = Decisions(folder)
        self.seen: list[tuple[float, int]] = []
        """when, and rows read until then"""

    def read_new(self) -> int:
        """Take in what is new; how many there are."""
        while (path := self._folder / f"{len(self.seen):010}.json").exists():
            decision = self._decisions.read(len(self.seen))
            assert decision is not None
            before = self.seen[-1][1] if self.seen else 0
            self.seen.append((path.stat().st_mtime, before + decision.counts["tweets"].rows_in))
        return len(self.seen)

    def rows(self) -> int:
        self.read_new()
        return self.seen[-1][1] if self.seen else 0


class Bench:
    """A home with two flows; `steady` is always fed and always runs."""

    def __init__(self, folder: Path, *, rows: int) -> None:
        self.home = Home(folder / "home")
        self.folder = folder
        self.file_rows = int(rows * EVERY_S)
        for name in ("steady", "loud"):
            (folder / name / "data").mkdir(parents=True)
            (folder / name / "flow.yaml").write_text(FLOW.replace("NAME", name))
            (folder / name / "steps.py").write_text(STEPS)
        write_tweets(folder / "small", rows=20 * self.file_rows, files=20)
        write_tweets(folder / "large", rows=400_000, files=4)
        self.commits = {name: Commits(self.home.state / name / "main" / "kept" / "decisions") for name in ("steady", "loud")}
        self.brought: list[float] = []
        """when the files of `steady` came, in their order"""
        self.linked = 0

    @contextmanager
    def up(self, cores: int, rate: float) -> Iterator[None]:
        """`scribengin server dev` with both quotas, `steady` running."""
        environment = os.environ | {"SCRIBENGIN_HOME": str(self.home.folder)}
        words = ["--cores", str(cores)] if cores else []
        with (
            (self.folder / "up.log").open("w") as log,
            subprocess.Popen(
                [sys.executable, "-m", "scribengin.cli", "server", "dev", *words], env=environment, stdout=log, stderr=log
            ) as up,
        ):
            try:
                _until(lambda: (self.home.folder / "up.json").exists() or up.poll() is not None, "up")
                self.run("quota", "set", "team=steady", "--cores", "1", "--memory", "2GiB")
                self.run("quota", "set", "team=loud", "--cores", "1", "--memory", "2GiB", *(["--rate", str(rate)] if rate else []))
                self.run("apply", str(self.folder / "steady" / "flow.yaml"), "--wait", "5m")
                yield
            finally:
                up.send_signal(signal.SIGINT)
                up.wait(300)

    @contextmanager
    def feed(self) -> Iterator[None]:
        """Bring `steady` a file every EVERY_S, by the clock."""
        stop = threading.Event()
        stock = sorted((self.folder / "small").iterdir())

        def bring() -> None:
            begun = time.monotonic()
            for number in itertools.count():
                if stop.wait(max(0.0, begun + number * EVERY_S - time.monotonic())):
                    return
                os.link(stock[number % len(stock)], self.folder / "steady" / "data" / f"{number:08}.jsonl")
                self.brought.append(time.time())

        thread = threading.Thread(target=bring)
        thread.start()
        try:
            yield
        finally:
            stop.set()
            thread.join()

    def round(self, number: int, seconds: float) -> dict[str, Seen]:
        """All phases once."""
        found = {}
        for phase in PHASES:
            if phase == "floods":
                self.flood()
                self.run("apply" if number == 0 else "resume", *self.loud(number), "--wait", "5m")
            self.settle()
            found[phase] = self.measure(seconds, kills=phase == "fails")
            if phase == "fails":
                self.run("stop", "loud", "--wait", "5m")
            seen = found[phase]
            print(
                f"{number + 1:2} {phase:7} {seen.rate:8,.0f} rows/s, delay p50 {seen.p50_s:5.2f} s, p99 {seen.p99_s:5.2f} s; "
                f"neighbour {seen.other:9,.0f} rows/s, killed {seen.kills}; load {seen.load:.1f}",
                flush=True,
            )
        return found

    def loud(self, number: int) -> list[str]:
        return [str(self.folder / "loud" / "flow.yaml")] if number == 0 else ["loud"]

    def flood(self) -> None:
        """Lay more before `loud` than it can read."""
        stock = sorted((self.folder / "large").iterdir())
        for _ in range(LOUD_FILES):
            os.link(stock[self.linked % len(stock)], self.folder / "loud" / "data" / f"{self.linked:08}.jsonl")
            self.linked += 1

    def settle(self) -> None:
        """Until `steady` has caught up with what is brought, and goes on for a few Batches."""
        commits = self.commits["steady"]
        _until(lambda: commits.rows() >= (len(self.brought) - 4 / EVERY_S) * self.file_rows, "steady catches up")
        after = commits.read_new() + 3
        _until(lambda: commits.read_new() >= after, "further Batches of steady")

    def measure(self, seconds: float, *, kills: bool) -> Seen:
        """`steady` for so long."""
        commits, other = self.commits["steady"], self.commits["loud"]
        begun, other_before, killed = time.time(), other.rows(), 0
        ends = threading.Event()
        worker = ""
        committed = other.read_new()
        loads = []
        while (now := time.time()) < begun + seconds:
            commits.read_new()
            loads.append(os.getloadavg()[0])
            if kills and other.read_new() > committed:
                worker, committed = self.kill_loud(worker), other.read_new()
                killed += 1
            ends.wait(min(0.1, begun + seconds - now))
        brought = len([at for at in self.brought if at < begun + seconds])
        _until(lambda: commits.rows() >= brought * self.file_rows, "all of the phase")
        inside = [(at, rows) for at, rows in commits.seen if begun <= at <= begun + seconds]
        (first, rows_first), (last, rows_last) = inside[0], inside[-1]
        delays = []
        for number, at in enumerate(self.brought[:brought]):
            if at >= begun:
                delays.append(next(when for when, rows in commits.seen if rows >= (number + 1) * self.file_rows) - at)
        delays.sort()
        return Seen(
            (rows_last - rows_first) / (last - first),
            statistics.median(delays),
            delays[min(len(delays) - 1, int(len(delays) * 0.99))],
            (other.rows() - other_before) / (time.time() - begun),
            killed,
            statistics.median(loads),
        )

    def kill_loud(self, before: str) -> str:
        """Kill all processes of its worker; the worker's name."""
        workers = {name: found for name, found in marked_processes(self.home.workers.resolve()).items() if name.startswith("loud.")}
        for name, found in workers.items():
            if name != before:
                for process in found:
                    process.send(signal.SIGKILL)
        return max(workers, default=before)

    def check(self) -> None:
        """Nothing lost, nothing doubled."""
        for name in ("steady", "loud"):
            said = self.say("audit", str(self.folder / name / "flow.yaml"), "--state", str(self.home.state))
            ledger = said["result"]["ledger"]
            print(f"audit of {name}: {'balanced' if ledger['balanced'] else ledger['violations']}")

    def run(self, *words: str) -> None:
        environment = os.environ | {"SCRIBENGIN_HOME": str(self.home.folder)}
        subprocess.run([sys.executable, "-m", "scribengin.cli", *words], env=environment, check=True, stdout=subprocess.DEVNULL)

    def say(self, *words: str) -> Any:
        ended = subprocess.run([sys.executable, "-m", "scribengin.cli", *words, "--json"], capture_output=True, text=True, check=False)
        with suppress(json.JSONDecodeError):
            return json.loads(ended.stdout)
        raise SystemExit(ended.stderr)


def _until(what: Callable[[], bool], said: str) -> None:
    deadline = time.monotonic() + WITHIN_S
    while not what():
        if time.monotonic() > deadline:
            raise SystemExit(f"never came: {said}")
        time.sleep(0.05)


if __name__ == "__main__":
    main()
