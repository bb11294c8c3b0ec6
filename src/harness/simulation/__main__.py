"""`make sim-scale [ARGS="--flows 1000 --hosts 100"]` simulates a control plane for a week, and reports what a master did and what it cost.

It exits with 1 if a bar is missed: an action that the next pass undoes, a lost host whose workers are not elsewhere within three passes, a
flow that does not come to rest.
"""

from __future__ import annotations

import gc
import statistics
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import click

from harness.simulation.checks import LOST_HOST_PASSES
from harness.simulation.plane import SimulatedPlane, SimulationLoad
from scribengin.control.host_launchers import Fleet
from scribengin.control.registry_cache import Mirror
from scribengin.control.snapshot import Observer
from scribengin.registry.contract import Term

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence


_DAY_S = 86_400.0
_SHOWN = 20
"""missed bars that are shown"""


@click.command()
@click.option("--flows", type=click.IntRange(1), default=1_000, show_default=True)
@click.option("--hosts", type=click.IntRange(2), default=100, show_default=True)
@click.option("--tiers", type=click.IntRange(1), default=10, show_default=True, help="Of each flow; each has a worker.")
@click.option("--days", type=float, default=7.0, show_default=True, help="The simulated time, after all flows have started.")
@click.option("--events", type=float, default=1.0, show_default=True, help="Times as many events as usual in that time.")
@click.option("--at-work", is_flag=True, help="All flows run at the beginning; otherwise they are submitted, and the master starts them.")
@click.option("--seed", type=int, default=1, show_default=True, help="The same seed gives the same events, decisions and writes.")
def main(*, flows: int, hosts: int, tiers: int, days: float, events: float, at_work: bool, seed: int) -> None:
    """Simulate a control plane: the real master and a registry in memory, simulated hosts, workers and time."""
    usual = SimulationLoad()
    counted = ("lost_hosts", "node_processes_away", "drained_hosts", "crashes", "lost_sessions", "versions", "pauses", "stops", "failing")
    numbers = {name: round(getattr(usual, name) * events) for name in counted}
    plane = SimulatedPlane(
        SimulationLoad(flows=flows, hosts=hosts, tiers=tiers, seconds=days * _DAY_S, seed=seed, at_work=at_work, **numbers)
    )
    began_s, began_cpu_s = time.perf_counter(), time.process_time()
    plane.run()
    took = f"{time.perf_counter() - began_s:,.0f} s, CPU {time.process_time() - began_cpu_s:,.0f} s"
    click.echo(f"{flows:,} flows of {tiers} tiers on {hosts:,} hosts, {plane.load.workers:,} workers: {days:g} days in {took}; seed {seed}")
    for line in report(plane):
        click.echo(line)
    if plane.missed:
        click.echo(f"MISSED: {len(plane.missed)}")
        for missed in plane.missed[:_SHOWN]:
            click.echo(f"  {_hours(missed.at_s - plane.started_s)}  {missed.bar}: {missed.what}")
        sys.exit(1)


def report(plane: SimulatedPlane) -> Iterator[str]:
    """The results of a simulation, line by line."""
    yield ""
    yield "events                                      n   seconds to rest: median     worst   passes: median  worst"
    for kind in dict.fromkeys(event.kind for event in plane.happenings):
        there = [event for event in plane.happenings if event.kind == kind]
        took_s = [event.settled_s - event.began_s for event in there if event.settled_s is not None]
        if took_s:
            passes = [event.passes for event in there]
            figures = f"{statistics.median(took_s):24,.0f}{max(took_s):10,.0f}{statistics.median(passes):17.0f}{max(passes):7}"
            yield f"  {kind:40}{len(there):4}{figures}"
    yield ""
    yield f"actions    {', '.join(f'{count:,} {kind}' for kind, count in plane.actions.most_common())}"
    yield from _passes(plane)
    yield from _sizes(plane)
    yield ""
    yield f"bars       no action is undone by the next pass: {len(plane.passes):,} passes with {plane.actions.total():,} actions"
    lost = plane.lost_hosts.met
    if lost:
        most, slowest = max(each.workers for each in lost), max(each.passes for each in lost)
        what = f"{len(lost)} hosts with up to {most} workers, {slowest} passes at most"
        yield f"           a lost host's workers are elsewhere within {LOST_HOST_PASSES} passes: {what}"


def _passes(plane: SimulatedPlane) -> Iterator[str]:
    first = [each for each in plane.passes if each.at_s < plane.started_s]
    later = [each for each in plane.passes if each.at_s >= plane.started_s]
    names = ("records read", "folders read", "commits", "records written", "changes told")
    yield ""
    yield f"passes                         n   CPU ms: median       p99   wall ms: median       p99   {'   '.join(names)} (mean)"
    for what, passes in (
        ("until all flows run", first),
        ("nothing has changed", [each for each in later if not each.actions and not each.counts["changes told"]]),
        ("changed, nothing to do", [each for each in later if not each.actions and each.counts["changes told"]]),
        ("1 to 9 actions", [each for each in later if 1 <= each.actions < 10]),
        ("10 actions or more", [each for each in later if each.actions >= 10]),
    ):
        if passes:
            means = "".join(f"{statistics.mean(each.counts[name] for each in passes):{len(name) + 3}.1f}" for name in names)
            cpu, wall = ([getattr(each, kind) * 1_000 for each in passes] for kind in ("cpu_s", "wall_s"))
            figures = f"{statistics.median(cpu):17.1f}{_p99(cpu):10.1f}{statistics.median(wall):18.1f}{_p99(wall):10.1f}"
            yield f"  {what:25}{len(passes):6,}{figures}{means}"


def _sizes(plane: SimulatedPlane) -> Iterator[str]:
    nodes = plane.store.nodes.values()
    ephemeral = sum(1 for node in nodes if node.session)
    yield ""
    data = sum(len(node.data) for node in nodes) / 2**20
    yield f"registry   {len(nodes):,} records and folders ({ephemeral:,} ephemeral), {data:.0f} MiB; {plane.watches} watches of the master"
    mib, took_s = measure_observer(plane)
    yield f"memory     {memory_mib():,.0f} MiB of this process; {mib:,.0f} MiB for what a master keeps, read in {took_s:.1f} s of CPU"


def measure_observer(plane: SimulatedPlane) -> tuple[float, float]:
    """(MiB that another master needs for what it observes, seconds of CPU of its first observation)."""
    gc.collect()
    before = memory_mib()
    registry = plane.store.client()
    mirror = Mirror(registry)
    observer = Observer(mirror, Fleet(registry, mirror, lambda: Term("", 0, 0), {}))
    began_s = time.process_time()
    world = observer.observe(plane.queue.now_s)
    took_s = time.process_time() - began_s
    mib = memory_mib() - before
    assert len(world.flows) == plane.load.flows
    return mib, took_s


def memory_mib() -> float:
    """The resident memory of this process."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmRSS")) / 1024


def _p99(values: Sequence[float]) -> float:
    return sorted(values)[min(len(values) - 1, int(len(values) * 0.99))]


def _hours(seconds: float) -> str:
    return f"{seconds / 3_600:7.2f} h"


if __name__ == "__main__":
    main()
