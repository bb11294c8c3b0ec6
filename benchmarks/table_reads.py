"""A table of a store to Parquet by Scribengin, beside a bare loop: turns, checks and figures that benchmarks of such reads share."""

from __future__ import annotations

import argparse
import shutil
import statistics
import sys
import time
from typing import TYPE_CHECKING, Any

import pyarrow.compute as pc
import pyarrow.dataset as pads
from cpu import tree_cpu_s

from scribengin.local.contract import RunSettings
from scribengin.local.run import run_flow

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

Found = tuple[int, int]
"""rows, sum of ids"""


def asked(about: str) -> argparse.Namespace:
    """`rows` and `runs`."""
    options = argparse.ArgumentParser(description=about.splitlines()[0])
    options.add_argument("--rows", type=int, default=200_000)
    options.add_argument("--runs", type=int, default=3)
    return options.parse_args()


def by_scribengin(spark: Any, out: Path, flow: str, turn: int) -> Found:
    """The text of a flow whose sink is `type: files, path: out, format: parquet`."""
    (out / "flow.yaml").write_text(flow)
    result = run_flow(out / "flow.yaml", RunSettings(once=True, state=out / f"state-{turn}"), lambda _: None, spark=spark)
    if result.state != "finished" or not result.balanced:
        raise SystemExit(f"{result.state}, {result.problems} {result.violations}")
    ids = pads.dataset(out / "out", format="parquet").to_table(columns=["id"]).column("id")
    return len(ids), int(pc.sum(ids).as_py())


def compare(of_what: str, readers: Mapping[str, Callable[[int], Found]], bare: str, expected: Found, out: Path, runs: int) -> None:
    """Each takes its turn with an `out` that is empty, `runs` times after one that warms up; `bare` is what others are measured by."""
    wall_s: dict[str, list[float]] = {name: [] for name in readers}
    cpu_s: dict[str, list[float]] = {name: [] for name in readers}
    named = list(readers.items())
    for turn in range(runs + 1):
        for name, read in named[turn % len(named) :] + named[: turn % len(named)]:
            shutil.rmtree(out, ignore_errors=True)
            out.mkdir()
            begun_s, before_s = time.perf_counter(), tree_cpu_s()
            found = read(turn)
            spent_s, used_s = time.perf_counter() - begun_s, tree_cpu_s() - before_s
            if found != expected:
                raise SystemExit(f"{name}: {found} (rows, sum of ids), expected {expected}")
            if turn:
                wall_s[name].append(spent_s)
                cpu_s[name].append(used_s)
            print(f"{'warm-up' if not turn else f'turn {turn}'}  {name:<32}{spent_s:7.2f} s  CPU {used_s:6.2f} s", file=sys.stderr)
    rows = expected[0]
    print(f"{rows:,} {of_what}, rows/s (median of {runs})")
    for name, each in wall_s.items():
        speeds = f"{rows / statistics.median(each):10,.0f}  ({rows / max(each):,.0f} to {rows / min(each):,.0f})"
        print(f"  {name:<32}{speeds}  CPU {statistics.median(cpu_s[name]):.1f} s")
    for name, each in wall_s.items():
        if name != bare:
            ratio = statistics.median(their / our for their, our in zip(wall_s[bare], each, strict=True))
            print(f"{name} is {ratio:.2f} × a bare loop")
