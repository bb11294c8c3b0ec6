"""`make faults ONLY=yarn [MINUTES=30] [SEED=7] [STRIKES=14]`: chained flows in a real YARN, each part of which is struck.

`ONLY=yarn:driver,host` selects the ways whose names contain one of these words.
"""

from __future__ import annotations

import random
import shutil
import time
from collections import Counter
from itertools import cycle, islice
from typing import TYPE_CHECKING

import click

from harness.control_programs import NotInTime
from harness.faults.control.report import run_lives
from harness.faults.control.strikes import LifeTold, Struck
from harness.faults.drivers import CampaignEnded
from harness.faults.yarn_ways import YARN_WAYS
from harness.yarn_plane import ROWS, YarnPlane

if TYPE_CHECKING:
    import threading
    from collections.abc import Sequence
    from pathlib import Path

CAMPAIGN = "yarn"
"""the name of its files"""
STRIKES = 14
"""number of strikes in a life; a life takes some minutes to start"""


def run_yarn_campaign(folder: Path, only: str, *, minutes: float, seed: int | None, stop: threading.Event, strikes: int = STRIKES) -> int:
    """Run lives until the time is over; returns the number of lives that failed.

    Args:
        folder: The folder of the campaign.
        only: Selects the ways to strike; see the module.
        minutes: No life begins after this time.
        seed: The seed of the first life. A life that was run before with this seed is repeated, alone. None: the next new seed.
        stop: When it is set, the campaign ends.
        strikes: The number of strikes in a life.

    Raises:
        UsageError: if `only` matches no way.
        CampaignEnded: if `stop` is set.
    """
    words = only.partition(":")[2].split(",")
    ways = tuple(way for way in YARN_WAYS if any(word in way for word in words))
    if not ways:
        raise click.UsageError(f"ONLY={only}: write yarn, or yarn:WAY with one of {', '.join(YARN_WAYS)}")
    return run_lives(
        folder,
        CAMPAIGN,
        YARN_WAYS,
        minutes=minutes,
        seed=seed,
        choose=lambda number, lives: _choose(random.Random(number), ways, lives, strikes),
        live=lambda number, chosen: _live(folder / "work" / f"yarn-{number}", chosen, number, stop),
    )


def _choose(rng: random.Random, ways: tuple[str, ...], lives: Sequence[LifeTold], strikes: int) -> tuple[str, ...]:
    """Choose `strikes` ways: those that were used least come first; if there are fewer, they are repeated."""
    met = Counter(strike.way for life in lives for strike in life.strikes)
    return (*islice(cycle(sorted(ways, key=lambda way: (met[way], rng.random()))), strikes),)


def _live(folder: Path, ways: tuple[str, ...], seed: int, stop: threading.Event) -> LifeTold:
    """Run a life in a new folder, which is deleted unless it fails. Raises CampaignEnded: `stop` is set; no process is left then."""
    told = LifeTold(ways, seed, kafka=True)
    began_s = time.monotonic()
    shutil.rmtree(folder, ignore_errors=True)
    try:
        with YarnPlane(folder, stop=stop) as plane:
            for nth, name in enumerate(ways):
                rng = random.Random(f"{seed}/{nth}")
                plane.pause(rng.uniform(0.0, 4.0))
                strike = Struck(name)
                told.strikes.append(strike)
                struck_s = time.monotonic()
                strike.about = YARN_WAYS[name](plane, rng)
                plane.wait_arrival()
                strike.running_s = round(time.monotonic() - struck_s, 1)
                click.echo(f"    {strike}")
            plane.drain()
            told.wrong += plane.judge()
            told.workers = sum(len(plane.applications(flow)) for flow in plane.FLOWS)
            told.rows = plane.parts * ROWS
    except NotInTime as error:
        told.wrong.append(str(error))
    except KeyboardInterrupt:
        raise CampaignEnded from None
    told.seconds = round(time.monotonic() - began_s, 1)
    if not told.wrong:
        shutil.rmtree(folder, ignore_errors=True)
    return told
