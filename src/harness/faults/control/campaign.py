"""`make faults ONLY=control [MINUTES=30] [SEED=7]` runs one life after the other; `ONLY=control-soak` runs one life of that many minutes.

`ONLY=control:worker-killed,network` selects the ways whose names contain one of these words.
"""

from __future__ import annotations

import random
import shutil
import time
from collections import Counter
from itertools import cycle, islice
from typing import TYPE_CHECKING

import click

from harness.faults.control.life import LifeGround, in_order, run_control_life
from harness.faults.control.report import append_life, line_of_life, read_lives, write_lives_report
from harness.faults.control.soak import Sampler, trends
from harness.faults.control.strikes import LifeTold
from harness.faults.control.ways import (
    OF_CUTS,
    OF_ENSEMBLE,
    OF_HOSTS,
    OF_MASTERS,
    OF_READERS,
    OF_WIRE,
    OF_WORKERS,
    ON_SMALL_DISK,
    WAYS,
)
from harness.faults.java import java_settings
from harness.faults.small_disk import SmallDisk, no_small_disk

if TYPE_CHECKING:
    import threading
    from contextlib import AbstractContextManager
    from pathlib import Path

    from harness.faults.brokers import Brokers
    from harness.faults.control.household import Household
    from harness.faults.control.life import Way

CAMPAIGN = "control"
"""the name of its files"""
STRIKES = 5
"""number of strikes in a life"""
_DISK = "256m"
CALM = ("worker-killed", "session-expired", "network-cut", "worker-stopped", "master-stopped-a-minute", "paused-and-resumed")
"""ways after which the master and ZooKeeper stay alive: two thirds of a soak, so that one process can be observed for long"""


def run_control_campaign(
    folder: Path,
    only: str,
    *,
    minutes: float,
    seed: int | None,
    stop: threading.Event,
    archive: Path | None,
    brokers: Brokers,
    strikes: int = STRIKES,
) -> int:
    """Run lives until the time is over; returns the number of lives that failed.

    Args:
        folder: The folder of the campaign.
        only: Selects the ways to strike; see the module.
        minutes: The time limit.
        seed: The seed of the first life. A life that was run before with this seed is repeated, alone. None: the next new seed.
        stop: When it is set, the campaign ends.
        archive: The archive of Spark's classes; None for none.
        brokers: The brokers that lives share.
        strikes: The number of strikes in a life.

    Raises:
        UsageError: if `only` matches no way.
        CampaignEnded: if `stop` is set.
    """
    lives, failed = read_lives(folder, CAMPAIGN), 0
    kind, _, part = only.partition(":")
    ways = tuple(way for way in WAYS if any(each in way for each in part.split(",")))
    if kind not in ("control", "control-soak") or not ways:
        raise click.UsageError(f"ONLY={only}: write control, control-soak, or control:WAY with one of {', '.join(WAYS)}")
    java = java_settings(archive)
    again = next((life for life in reversed(lives) if life.seed == seed), None)
    number = seed if seed is not None else max((life.seed for life in lives), default=0) + 1
    deadline = time.monotonic() + minutes * 60
    while not stop.is_set():
        rng = random.Random(number)
        work = folder / "work" / f"control-{number}"
        kafka, chosen = (again.kafka, again.ways) if again is not None else choose(rng, ways, lives, strikes)
        if kind == "control-soak":
            # a single master, which is observed all the time
            kafka, chosen = True, tuple(way for way in ways if way not in ON_SMALL_DISK | OF_ENSEMBLE | OF_MASTERS)
        click.echo(f"  seed {number}  {LifeTold(chosen, number, kafka)} …", err=True)
        if ON_SMALL_DISK & {*chosen} and (reason := no_small_disk()):
            told = LifeTold(chosen, number, skipped=reason)
        else:
            ground = LifeGround(
                work,
                java,
                stop,
                brokers.cluster().bootstrap if kafka else "",
                SmallDisk(work.absolute(), _DISK) if ON_SMALL_DISK & {*chosen} else None,
                hosts=2 if OF_HOSTS & {*chosen} else 1,
                masters=3 if OF_MASTERS & {*chosen} else 1,
                voting=3 if OF_ENSEMBLE & {*chosen} else 1,
                shared=bool(OF_WORKERS & {*chosen}),
                cut=bool(OF_CUTS & {*chosen}),
                read=bool(OF_READERS & {*chosen}),
            )
            told = _soak(chosen, number, ground, minutes) if kind == "control-soak" else _life(chosen, number, ground)
        lives.append(told)
        failed += told.verdict == "failed"
        append_life(folder, CAMPAIGN, told)
        for path in () if told.wrong else (work, work.with_name(f"{work.name}-logs")):
            shutil.rmtree(path, ignore_errors=True)
        click.echo(line_of_life(told))
        for strike in told.strikes:
            click.echo(f"    {strike}")
        write_lives_report(folder, CAMPAIGN, WAYS, lives)
        number += 1
        if again is not None or kind == "control-soak" or time.monotonic() > deadline:
            break
    return failed


def _life(ways: tuple[str, ...], seed: int, ground: LifeGround) -> LifeTold:
    return run_control_life(ways, seed, ground, in_order([(way, WAYS[way]) for way in ways]))


def _soak(ways: tuple[str, ...], seed: int, ground: LifeGround, minutes: float) -> LifeTold:
    """A soak: the first third of the time with all ways, the rest with those after which the master and ZooKeeper stay alive. A figure that
    grows meanwhile is a failure."""
    rng = random.Random(f"soak {seed}")
    calm = tuple(way for way in ways if way in CALM) or ways
    samplers: list[Sampler] = []

    def schedule(elapsed_s: float) -> tuple[str, Way] | None:
        if elapsed_s > minutes * 60:
            return None
        way = rng.choice(ways if elapsed_s < minutes * 20 else calm)
        return way, WAYS[way]

    def beside(house: Household) -> AbstractContextManager[object]:
        samplers.append(Sampler(house, ground.folder.with_name(f"{ground.folder.name}-samples.tsv")))
        return samplers[-1].running()

    told = run_control_life(ways, seed, ground, schedule, beside=beside)
    found = trends([sample for sampler in samplers for sample in sampler.samples])
    for trend in found:
        click.echo(f"    {trend}")
    told.wrong += [str(trend) for trend in found if not trend.is_flat]
    told.flat = [str(trend) for trend in found]
    return told


def choose(rng: random.Random, ways: tuple[str, ...], lives: list[LifeTold], strikes: int = STRIKES) -> tuple[bool, tuple[str, ...]]:
    """Choose whether a chain over Kafka takes part, and `strikes` ways for the same environment: those that were used least come first; if
    there are fewer, they are repeated. A way that inserts a tier is repeated once more to remove it."""
    met = Counter((strike.way, life.kafka) for life in lives for strike in life.strikes)
    kafka = sum(life.kafka for life in lives) * 2 < len(lives)
    first, *others = sorted(ways, key=lambda way: (met[way, kafka], rng.random()))
    if first in ON_SMALL_DISK and not met[first, False]:
        return False, (first, first)
    apart = ON_SMALL_DISK | (OF_WIRE if first in OF_ENSEMBLE else OF_ENSEMBLE)
    found = [way for way in (first, *others) if way not in apart]
    if not found:
        return False, (first, first)
    chosen = [*islice(cycle(found), strikes)]
    chosen += [way for way in sorted(OF_CUTS) if chosen.count(way) % 2]
    return kafka, tuple(chosen)
