"""`make faults [ONLY=publish] [MINUTES=30] [SEED=7] [LIVES=2] [STRIKES=12]` strikes runs, checks the results, stores them and writes a
report."""

from __future__ import annotations

import random
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import click

from harness.faults.brokers import Brokers
from harness.faults.cells import STRIKES, CellSample, count_open, open_meetings
from harness.faults.control.campaign import STRIKES as CONTROL_STRIKES
from harness.faults.control.campaign import run_control_campaign
from harness.faults.drivers import CampaignEnded
from harness.faults.edge_campaign import STRIKES as EDGE_STRIKES
from harness.faults.edge_campaign import run_edge_campaign
from harness.faults.lives import run_life
from harness.faults.report import append_outcome, line_of, read_outcomes, write_report
from harness.faults.yarn_campaign import STRIKES as YARN_STRIKES
from harness.faults.yarn_campaign import run_yarn_campaign
from scribengin.core.java import find_java
from scribengin.spark.class_archive import archive_path

if TYPE_CHECKING:
    from collections.abc import Callable

    from harness.faults.outcomes import Life, LifeOutcome

_LOOK_S = 0.2


@click.command()
@click.option("--minutes", type=float, default=30.0, show_default=True, help="No life is begun after this time; one that runs goes on.")
@click.option(
    "--only",
    default="",
    help="Strikes whose text holds this: publish, two@, parquet, kafka, files-to-kafka, tiers, kill@decide.before tail, hbase|hdfs …",
)
@click.option("--seed", type=int, help="Live the life with this seed again; an unknown one begins a row of new lives.")
@click.option("--lives", type=click.IntRange(1), default=1, show_default=True, help="How many at once.")
@click.option(
    "--strikes",
    type=click.IntRange(1),
    help=f"In one life; by default {STRIKES} at most, {CONTROL_STRIKES} of a control plane, {YARN_STRIKES} in YARN, "
    f"{EDGE_STRIKES} of the edge. "
    "Few: more flows in the same time.",
)
@click.option("--limit", "limit_s", type=float, default=300.0, show_default=True, help="Seconds for each start of a run.")
@click.option(
    "--records", type=click.IntRange(min=0), default=20_000, show_default=True, help="What a life over a store takes in, at least; 0: few."
)
@click.option("--archive/--no-archive", default=True, help="First an archive of Spark's classes: half a minute, once; halves a start.")
@click.option("--folder", type=click.Path(path_type=Path), default=Path(".scribengin-faults"), show_default=True)
def main(
    *,
    minutes: float,
    only: str,
    seed: int | None,
    lives: int,
    strikes: int | None,
    limit_s: float,
    records: int,
    archive: bool,
    folder: Path,
) -> None:
    """Strike real runs at their crash points and check every record. Continues from where the last call ended."""
    stop = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stop.set())
    signal.signal(signal.SIGINT, lambda *_: stop.set())
    folder = folder.resolve()
    made = _archive() if archive else None
    if only.startswith("control"):
        sys.exit(_control(folder, only, minutes, seed, stop, made, strikes or CONTROL_STRIKES))
    if only.startswith("edge"):
        sys.exit(_edge(folder, only, minutes, seed, stop, strikes or EDGE_STRIKES, limit_s))
    if only.startswith("yarn"):
        sys.exit(_yarn(folder, only, minutes, seed, stop, strikes or YARN_STRIKES))
    with Brokers(folder / "brokers") as brokers:
        live = partial(run_life, limit_s=limit_s, archive=made, brokers=brokers, stop=stop, records=records)
        campaign = _Campaign(folder, only, stop, live, strikes or STRIKES)
        again = [outcome.life for outcome in campaign.outcomes if outcome.seed == seed]
        first = seed if seed is not None else max((outcome.seed for outcome in campaign.outcomes), default=0) + 1
        if again:
            campaign.live_again(again[-1], first)
        else:
            campaign.go_on(first, deadline=time.monotonic() + minutes * 60, at_once=lives, once=bool(only))
    if stop.is_set():
        click.echo("ended by a signal; the lives that ran are not counted", err=True)
        sys.exit(130)
    failed = sum(outcome.verdict == "failed" for outcome in campaign.new)
    still = f"{count_open(campaign.outcomes)} seeds and {open_meetings(campaign.outcomes).total()} strikes of kinds without an origin"
    click.echo(f"{len(campaign.new)} lives, {failed} failed; open are {still}; {folder / 'report.md'}")
    sys.exit(1 if failed else 0)


def _archive() -> Path | None:
    """The archive of Spark's classes for this Java, which is created if necessary; None if that is not possible."""
    subprocess.run([sys.executable, "-m", "scribengin.local.training_run"], check=False)
    made = archive_path(find_java())
    return made if made.exists() else None


def _control(folder: Path, only: str, minutes: float, seed: int | None, stop: threading.Event, archive: Path | None, strikes: int) -> int:
    """Run the campaign of the control plane; returns its exit status."""
    with Brokers(folder / "brokers") as brokers:
        try:
            failed = run_control_campaign(
                folder, only, minutes=minutes, seed=seed, stop=stop, archive=archive, brokers=brokers, strikes=strikes
            )
        except CampaignEnded:
            click.echo("ended by a signal; the life that ran is not counted", err=True)
            return 130
    click.echo(f"{failed} lives failed; {folder / 'control.md'}")
    return 1 if failed else 0


def _yarn(folder: Path, only: str, minutes: float, seed: int | None, stop: threading.Event, strikes: int) -> int:
    """Run the campaign in YARN; returns its exit status."""
    try:
        failed = run_yarn_campaign(folder, only, minutes=minutes, seed=seed, stop=stop, strikes=strikes)
    except CampaignEnded:
        click.echo("ended by a signal; the life that ran is not counted", err=True)
        return 130
    click.echo(f"{failed} lives failed; {folder / 'yarn.md'}")
    return 1 if failed else 0


def _edge(folder: Path, only: str, minutes: float, seed: int | None, stop: threading.Event, strikes: int, limit_s: float) -> int:
    """Run the campaign of the edge; returns its exit status."""
    try:
        failed = run_edge_campaign(folder, only, minutes=minutes, seed=seed, stop=stop, strikes=strikes, limit_s=limit_s)
    except CampaignEnded:
        click.echo("ended by a signal; the life that ran is not counted", err=True)
        return 130
    click.echo(f"{failed} lives failed; {folder / only.partition(':')[0]}.md")
    return 1 if failed else 0


class _Campaign:
    def __init__(
        self, folder: Path, only: str, stop: threading.Event, live: Callable[[Life, int, Path], LifeOutcome], strikes: int
    ) -> None:
        self.outcomes = read_outcomes(folder)
        self.new: list[LifeOutcome] = []
        self._folder = folder
        self._stop = stop
        self._live = live
        self._sample = CellSample(self.outcomes, only, strikes=strikes)

    def live_again(self, life: Life, seed: int) -> None:
        """Run one life again that was run before."""
        with ThreadPoolExecutor(1) as pool:
            self._await({self._begin(pool, life, seed)})

    def go_on(self, seed: int, *, deadline: float, at_once: int, once: bool) -> None:
        """Run lives of the sample until the deadline, or until no cell is open; `once` runs one round even then."""
        running: set[Future[LifeOutcome]] = set()
        with ThreadPoolExecutor(at_once) as pool:
            while not self._stop.is_set():
                wants_more = time.monotonic() < deadline and (once or count_open(self.outcomes) or open_meetings(self.outcomes))
                if wants_more and len(running) < at_once:
                    life = self._sample.choose(random.Random(seed))
                    if life is None:
                        raise click.UsageError("nothing to strike answers to --only")
                    running.add(self._begin(pool, life, seed))
                    seed += 1
                elif running:
                    for outcome in self._await(running):
                        self._sample.add(outcome)
                else:
                    return

    def _begin(self, pool: ThreadPoolExecutor, life: Life, seed: int) -> Future[LifeOutcome]:
        click.echo(f"  seed {seed}  {life} …", err=True)
        work = self._folder / "work" / f"{seed}-{len(self.outcomes)}"
        return pool.submit(self._live, life, seed, work)

    def _await(self, running: set[Future[LifeOutcome]]) -> list[LifeOutcome]:
        """Wait until a life ends. Lives that have ended are removed from the set, stored and reported."""
        done: set[Future[LifeOutcome]] = set()
        while not done:  # in small steps, so that signals are handled between them
            done, _ = wait(running, timeout=_LOOK_S, return_when=FIRST_COMPLETED)
        running -= done
        ended = []
        for future in done:
            try:
                outcome = future.result()
            except CampaignEnded:
                continue
            append_outcome(self._folder, outcome)
            self.outcomes.append(outcome)
            self.new.append(outcome)
            ended.append(outcome)
            click.echo(line_of(outcome))
            write_report(self._folder, self.outcomes)
        return ended


if __name__ == "__main__":
    main()
