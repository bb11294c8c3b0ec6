"""Utilities of `order: free` beside every fixed order (python benchmarks/utilities.py --rows N).

Three tests of tweets, written worst first: the dearest drops least. Contenders are `order: free`, the six fixed orders and the written
one as a chain of python steps; one process, one warm session, interleaved, `--runs` times. Each output is checked against the first
one's (count and sum of ids) before its figure counts. CPU seconds are those of this process, the JVM and all Python workers, reading and
decoding included; ratios are taken run by run, and the median is told.

Then the data change in mid-stream, so that another order is best; told is after how many Batches the next one begins with it.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import statistics
import sys
import tempfile
import time
from itertools import permutations
from pathlib import Path
from typing import Any

import orjson
from cpu import tree_cpu_s

from harness.tweets import SCHEMA, write_tweets
from scribengin.local.contract import RunSettings
from scribengin.local.run import run_flow
from scribengin.spark.session import start_session
from scribengin.state.decisions import Decisions

WRITTEN = ("polite", "tagged", "hot")
BEFORE, AFTER = 6, 14
"""Batches of one file each, before and after the change"""


def flow_text(name: str, steps: str, last: str, more: str = "") -> str:
    return f"""version: 1
name: {name.replace(" ", "_").replace("-", "_")}
sources:
  tweets: {{type: files, path: "${{env:BENCH_DATA}}", format: json, schema: "{SCHEMA}"{more}}}
steps:
{steps}sinks:
  kept: {{from: {last}, type: files, path: "${{env:BENCH_OUT}}", format: json}}
"""


def listed(names: tuple[str, ...]) -> str:
    return "[" + ", ".join(f'"bench_utilities:{name}"' for name in names) + "]"


def contenders() -> dict[str, str]:
    """Name → flow file, `free` first."""
    flows = {"free": flow_text("free", f"  u: {{from: tweets, utilities: {listed(WRITTEN)}, order: free}}\n", "u")}
    for order in permutations(WRITTEN):
        name = "-".join(order)
        flows[name] = flow_text(name, f"  u: {{from: tweets, utilities: {listed(order)}}}\n", "u")
    chain, before = "", "tweets"
    for name in WRITTEN:
        chain += f'  {name}: {{from: {before}, python: "bench_utilities:{name}"}}\n'
        before = name
    return flows | {"python steps": flow_text("chain", chain, before)}


def main() -> None:
    options = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    options.add_argument("--rows", type=int, default=1_000_000)
    options.add_argument("--runs", type=int, default=3)
    asked = options.parse_args()
    with tempfile.TemporaryDirectory(prefix="scribengin-bench-") as folder:
        run(Path(folder), asked.rows, asked.runs)


def run(folder: Path, rows: int, runs: int) -> None:
    shutil.copy(Path(__file__).parent / "flows" / "bench_utilities.py", folder)
    write_tweets(folder / "data", rows=rows)
    spark = start_session("bench", master="", memory="4g", conf={}, folder=folder / "spark")
    cpu_s: dict[str, list[float]] = {name: [] for name in contenders()}
    expected: tuple[int, int] | None = None
    for turn in range(runs + 1):  # the first turn warms up and is not counted
        named = list(contenders().items())
        for index, (name, text) in enumerate(named[turn:] + named[:turn]):
            out = folder / f"out-{turn}-{index}"
            spent_s = once(spark, folder, text, folder / "data", out)
            found = came_out(out)
            expected = expected or found
            if found != expected:
                raise SystemExit(f"{name}: {found[0]} rows with an id sum of {found[1]}, expected {expected[0]} and {expected[1]}")
            shutil.rmtree(out)
            if turn:
                cpu_s[name].append(spent_s)
            print(f"{'warm-up' if not turn else f'run {turn}'}  {name:<24}{spent_s:7.2f} s cpu", file=sys.stderr)
    tell(cpu_s, rows)
    follow(spark, folder, rows // 20)
    spark.stop()


def once(spark: Any, folder: Path, text: str, data: Path, out: Path) -> float:
    """CPU seconds of one run from an empty state."""
    flow = folder / "flow.yaml"
    flow.write_text(text)
    os.environ["BENCH_DATA"], os.environ["BENCH_OUT"] = str(data), str(out)
    begun_s = tree_cpu_s()
    result = run_flow(flow, RunSettings(once=True, state=folder / f"state-{out.name}"), lambda _: None, spark=spark)
    spent_s = tree_cpu_s() - begun_s
    if result.state != "finished" or not result.balanced:
        raise SystemExit(f"{result.state}, {result.problems} {result.violations}")
    return spent_s


def came_out(out: Path) -> tuple[int, int]:
    files = [file for file in out.rglob("*.json*") if not any(part.startswith((".", "_")) for part in file.relative_to(out).parts)]
    ids = [orjson.loads(line)["id"] for file in files for line in file.read_bytes().splitlines()]
    return len(ids), sum(ids)


def tell(cpu_s: dict[str, list[float]], rows: int) -> None:
    print(f"{rows:,} tweets, three tests, CPU seconds of the whole run (median of {len(cpu_s['free'])})")
    for name, each in cpu_s.items():
        print(f"  {name:<24}{statistics.median(each):7.2f}  ({min(each):.2f}–{max(each):.2f})")
    written = "-".join(WRITTEN)
    fixed = ["-".join(order) for order in permutations(WRITTEN)]
    best = min(fixed, key=lambda name: statistics.median(cpu_s[name]))
    for what, name in (("the written order", written), (f"the best fixed order, {best},", best)):
        ratio = statistics.median(one / other for one, other in zip(cpu_s[name], cpu_s["free"], strict=True))
        print(f"{what} costs {ratio:.2f} × what order: free costs")
    ratio = statistics.median(one / other for one, other in zip(cpu_s[written], cpu_s["python steps"], strict=True))
    print(f"order: fixed costs {ratio:.2f} × the same as python steps")


def follow(spark: Any, folder: Path, rows: int) -> None:
    """In mid-stream most tweets become hot, and few are tagged any more."""
    data = folder / "shift"
    write_tweets(data, rows=rows * (BEFORE + AFTER) // 10, files=BEFORE + AFTER)
    for number in range(BEFORE, BEFORE + AFTER):
        file = data / f"tweets-{number:03}.jsonl"
        lines = file.read_bytes().replace(b'"retweets":', b'"retweets":90')
        file.write_bytes(re.sub(rb"[048]\",\"text\":\"([^\"]*) #PresidentialDebate", rb'0","text":"\1', lines))
        file.write_bytes(re.sub(rb"( #PresidentialDebate)([^\n]*)\n([^\n]*) #PresidentialDebate", rb"\2\n\3", file.read_bytes()))
        stamp = time.time() - 1000 + number
        os.utime(file, (stamp, stamp))
    steps = f"  u: {{from: tweets, utilities: {listed(WRITTEN)}, order: free}}\n"
    once(spark, folder, flow_text("shift", steps, "u", ", max_files: 1"), data, folder / "out-shift")
    (place,) = (folder / "state-out-shift").glob("*/main/kept/decisions")
    orders = [decision.orders["u"] for decision in Decisions(place).since()]
    for number, learned in enumerate(orders):
        figures = zip(learned["names"], learned["keeps"], learned["ns"], strict=True)
        keeps = "  ".join(f"{name} {'?' if keep is None else f'{keep:.0%}'} {ns or 0:.0f} ns" for name, keep, ns in figures)
        print(f"  batch {number:2}{' (changed)' if number >= BEFORE else ' ' * 10}  next: {' '.join(learned['order']):<22}{keeps}")
    first, last = orders[BEFORE - 1]["order"], orders[-1]["order"]
    after = next(number for number in range(BEFORE, len(orders)) if orders[number]["order"] == last) - BEFORE + 1
    print(f"from {', '.join(first)} to {', '.join(last)}: followed after {after} batches" if first != last else "the order did not change")


if __name__ == "__main__":
    main()
