"""Topic to topic: Scribengin beside its rivals, over one broker of this program's own (make bench-kafka, or --rows N --runs N).

250-byte JSON records out of 4 partitions into 4; rows with a small amount are dropped, one in ten; a *record step* also adds a column
in Python. Each contender runs in a process of its own and writes a topic of its own; a reader of committed records then checks every
row of it before the figure counts. Contenders take turns, and the medians of `--runs` turns are shown.

What is timed. A process first does the whole job once over a smaller topic, so that no start and no compiler is timed. *wall*: from
the word to begin (session up, nothing of the job made: consumers, transactions, plans, checkpoints are in) to the last moment at
which the broker had more committed than before, asked every 50 ms. *cpu*: of all processes of the contender, from the word to begin
until its job was through; *broker*: of the broker meanwhile, which is nobody's. *per core*: rows for each CPU second of the contender,
which is rows/s divided by the cores in use. *process*: from the start of the process to its end, warm-up and session included.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import shutil
import statistics
import sys
import tempfile
import time
from dataclasses import asdict, dataclass
from pathlib import Path

import psutil
from kafka_contenders import CONTENDERS, HERE, Contender, ContenderError, clean_up_when_ended, given, profiles, python_of, started, versions
from kafka_rows import ROW_BYTES, kept
from kafka_topics import BROKER, PARTITIONS, Topics, WrongOutputError

from scribengin.embedded.kafka import KafkaCluster

WARM_ROWS = (50_000, 200_000)
"""a fifth of the rows, but at least and at most so many"""
BASELINES = {False: "pyspark: filter", True: "pyspark: row UDF"}


@dataclass(frozen=True)
class Figure:
    """One timed run."""

    wall_s: float
    cpu_parts_s: dict[str, float]
    process_s: float
    broker_s: float
    """CPU seconds of the broker meanwhile: what is sent in small pieces costs there"""

    @property
    def cpu_s(self) -> float:
        return sum(self.cpu_parts_s.values())


@dataclass(frozen=True)
class Comparison:
    """`target` is what Scribengin has set itself, as a ratio; None where the guarantees differ, or nothing is promised."""

    ours: str
    theirs: str
    per_core: bool
    target: float | None


COMPARISONS = (
    Comparison("scribengin: filter", "pyspark: filter", False, 1.0),
    Comparison("scribengin: filter", "pyspark: filter, lingering", False, None),
    Comparison("scribengin: filter, no record id", "pyspark: filter", False, 1.1),
    Comparison("scribengin: filter, no record id", "pyspark: filter, lingering", False, None),
    Comparison("scribengin: record step", "pyspark: row UDF", False, 1.5),
    Comparison("scribengin: record step", "pyspark: row UDF, lingering", False, None),
    Comparison("scribengin: record step, no record id", "pyspark: row UDF", False, None),
    Comparison("scribengin: record step", "loop with transactions", True, 1.0),
    Comparison("scribengin: record step", "loop, a process per core", True, 1.0),
    Comparison("scribengin: record step", "loop, a process per core", False, None),
    Comparison("scribengin: record step", "quix streams", True, 1.0),
    Comparison("scribengin: record step", "bytewax", True, None),
)


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--rows", type=int, default=1_000_000)
    options.add_argument("--runs", type=int, default=3)
    options.add_argument("--only", default="", help="contenders whose name contains one of these, with commas")
    options.add_argument("--profiles", action="store_true", help="the record step under each profile too")
    options.add_argument("--flow", type=Path, action="append", default=[], help="a flow file that does the record step, too")
    options.add_argument("--json", type=Path, help="write the figures there too")
    options.add_argument("--logs", type=Path, help="keep there what the contenders said")
    asked = options.parse_args()
    clean_up_when_ended()
    wanted = [word.strip() for word in asked.only.split(",") if word.strip()]
    with tempfile.TemporaryDirectory(prefix="scribengin-bench-") as name:
        folder = Path(name)
        make_flows(folder)
        known = (*CONTENDERS, *(profiles(folder) if asked.profiles else ()))
        contenders = [one for one in known if not wanted or any(word in one.name for word in wanted)] + given(asked.flow, folder)
        contenders, left_out = installed(contenders)
        with KafkaCluster(folder / "kafka", properties=BROKER) as cluster:
            try:
                figures = run(
                    Topics(cluster.bootstrap), psutil.Process(cluster.brokers_up[1]), folder, contenders, left_out, asked.rows, asked.runs
                )
            finally:
                if asked.logs is not None:
                    asked.logs.mkdir(parents=True, exist_ok=True)
                    for log in folder.glob("*.log"):
                        shutil.copy(log, asked.logs)
    show(contenders, figures, left_out, asked.rows)
    if asked.json is not None:
        asked.json.parent.mkdir(parents=True, exist_ok=True)
        report = {name: [asdict(figure) for figure in runs] for name, runs in figures.items()}
        asked.json.write_text(json.dumps({"rows": asked.rows, "left_out": left_out, "figures": report}, indent=1))


def make_flows(folder: Path) -> None:
    """The flow files, and the step beside them."""
    (folder / "flows").mkdir()
    for flow in HERE.glob("flows/kafka-*.yaml"):
        shutil.copy(flow, folder / "flows")
    shutil.copy(HERE / "kafka_rows.py", folder / "flows")


def installed(contenders: list[Contender]) -> tuple[list[Contender], dict[str, str]]:
    """(those that are there, the others with the reason)"""
    there, left_out = [], {}
    for contender in contenders:
        try:
            python_of(contender)
            there.append(contender)
        except ContenderError as error:
            left_out[contender.name] = str(error)
    return there, left_out


def run(
    topics: Topics, broker: psutil.Process, folder: Path, contenders: list[Contender], left_out: dict[str, str], rows: int, runs: int
) -> dict[str, list[Figure]]:
    """Who fails once is left out from there on, with the reason in `left_out`."""
    fewest, most = WARM_ROWS
    warm_rows = min(rows, most, max(fewest, rows // 5))
    sources = {count: topics.make(f"source-{count}") for count in {warm_rows, rows}}
    for count, source in sources.items():
        topics.fill(source, count)
    figures: dict[str, list[Figure]] = {contender.name: [] for contender in contenders}
    for turn in range(1, runs + 1):
        first = turn % len(contenders)  # nobody always comes after the same neighbour
        for contender in [*contenders[first:], *contenders[:first]]:
            if contender.name in left_out:
                continue
            try:
                figure = timed(topics, broker, folder, contender, sources, (warm_rows, rows), turn)
            except (ContenderError, WrongOutputError) as error:
                left_out[contender.name] = str(error)
                del figures[contender.name]
                print(f"run {turn}  {contender.name:<46} left out: {error}", file=sys.stderr)
                continue
            figures[contender.name].append(figure)
            parts = ", ".join(f"{part} {cpu_s:.2f}" for part, cpu_s in figure.cpu_parts_s.items())
            seconds = f"{figure.wall_s:6.2f} s wall {figure.cpu_s:6.2f} s cpu ({parts})"
            print(f"run {turn}  {contender.name:<46} {seconds}", file=sys.stderr)
    return figures


def timed(
    topics: Topics, broker: psutil.Process, folder: Path, contender: Contender, sources: dict[int, str], counts: tuple[int, int], turn: int
) -> Figure:
    jobs = {}
    for part, rows in zip(("warm", "timed"), counts, strict=True):
        name = f"{contender.flow or contender.key}-{turn}-{part}"
        job = {"name": name, "bootstrap": topics.bootstrap, "source": sources[rows], "sink": topics.make(name), "folder": str(folder)}
        jobs[part] = job | {"rows": rows, "kept": sum(map(kept, range(rows))), "flow": contender.flow}
    sink = jobs["timed"]["sink"]
    try:
        with started(contender, jobs, folder) as process:
            process.wait_for("@ready")
            with topics.watched(sink) as watch:
                before, broker_s, begun_s = process.cpu_s(), sum(broker.cpu_times()[:2]), time.perf_counter()
                process.go_on()
                process.wait_for("@done")
                after, broker_s = process.cpu_s(), sum(broker.cpu_times()[:2]) - broker_s
            process.go_on()
            process_s = process.wait_end()
        topics.check(sink, counts[1], banded=contender.banded)
    finally:
        for job in jobs.values():
            topics.delete(job["sink"])
            shutil.rmtree(folder / job["name"], ignore_errors=True)
    return Figure(watch.moved_s - begun_s, {part: after[part] - before[part] for part in after}, process_s, broker_s)


def show(contenders: list[Contender], figures: dict[str, list[Figure]], left_out: dict[str, str], rows: int) -> None:
    machine = f"{platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}"
    print(f"{rows:,} records of {ROW_BYTES} bytes, {PARTITIONS} partitions; {machine}")
    print(versions())
    heads = {"guarantee": 14, "rows/s": 10, "wall s": 8, "(min–max)": 14, "cpu s/M": 9, "cores": 7, "per core": 10}
    heads |= {"broker s/M": 12, "process s": 11}
    print(" " * 46 + "".join(f"{head:>{width}}" for head, width in heads.items()))
    for contender in contenders:
        if not figures.get(contender.name):
            continue
        runs = figures[contender.name]
        wall, cpu, broker, whole = (
            statistics.median(column) for column in zip(*((f.wall_s, f.cpu_s, f.broker_s, f.process_s) for f in runs), strict=True)
        )
        spread = f"{min(f.wall_s for f in runs):.2f}–{max(f.wall_s for f in runs):.2f}"
        line = f"{contender.name:<46}{contender.guarantee:>14}{rows / wall:>10,.0f}{wall:>8.2f}{spread:>14}{cpu / rows * 1e6:>9.1f}"
        line += f"{cpu / wall:>7.2f}{rows / cpu:>10,.0f}{broker / rows * 1e6:>12.1f}{whole:>11.1f}"
        baseline = BASELINES[contender.banded]
        if figures.get(baseline) and baseline != contender.name:
            line += f"   {ratio(runs, figures[baseline], per_core=False):.2f} × {baseline}"
        print(line)
    for comparison in COMPARISONS:
        ours, theirs = figures.get(comparison.ours), figures.get(comparison.theirs)
        if ours and theirs:
            found = ratio(ours, theirs, per_core=comparison.per_core)
            measure = "rows per core" if comparison.per_core else "rows/s"
            verdict = (
                ""
                if comparison.target is None
                else f" (to reach: {comparison.target:.1f}, {'reached' if found >= comparison.target else 'missed'})"
            )
            print(f"{comparison.ours} is {found:.2f} × {comparison.theirs} in {measure}{verdict}")
    for name, reason in left_out.items():
        print(f"{name} left out: {reason}")


def ratio(ours: list[Figure], theirs: list[Figure], *, per_core: bool) -> float:
    """The median of the turns' ratios, above 1 where ours is faster."""
    pairs = zip(ours, theirs, strict=True)
    return statistics.median(b.cpu_s / a.cpu_s if per_core else b.wall_s / a.wall_s for a, b in pairs)


if __name__ == "__main__":
    main()
