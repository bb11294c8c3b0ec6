"""`make faults ONLY=edge [MINUTES=30] [SEED=7] [STRIKES=8]`: agents, gateways, a channel and workers, each part of which is struck.

`ONLY=edge:gateway,network` selects the ways whose names contain one of these words; `ONLY=edge-light` has lives whose tier runs without
Spark: ten times as many strikes in the same time.
"""

from __future__ import annotations

import random
import shutil
import time
from collections import Counter
from typing import TYPE_CHECKING

import click

from harness.control_programs import NotInTime
from harness.faults.control.report import run_lives
from harness.faults.control.strikes import LifeTold, Struck
from harness.faults.drivers import CampaignEnded
from harness.faults.edge_life import EdgeLife, EdgeShape
from harness.faults.edge_ways import EDGE_WAYS, LONG_WAYS, SPARING_AGENTS

if TYPE_CHECKING:
    import threading
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

KINDS = ("edge", "edge-light")
STRIKES = 8
"""number of strikes in a life; a life takes a minute to start"""
_AT_ONCE = 0.35
"""share of strikes that the next one follows before all runs again"""


def run_edge_campaign(
    folder: Path, only: str, *, minutes: float, seed: int | None, stop: threading.Event, strikes: int = STRIKES, limit_s: float = 300.0
) -> int:
    """Run lives until the time is over; returns the number of lives that failed.

    Args:
        folder: The folder of the campaign.
        only: Selects the ways to strike; see the module.
        minutes: No life begins after this time.
        seed: The seed of the first life. A life that was run before with this seed is repeated, alone. None: the next new seed.
        stop: When it is set, the campaign ends.
        strikes: The number of strikes in a life.
        limit_s: The longest time until what was written is committed, in seconds.

    Raises:
        UsageError: if `only` matches no way.
        CampaignEnded: if `stop` is set.
    """
    kind, _, named = only.partition(":")
    words = named.split(",")
    ways = tuple(way for way in EDGE_WAYS if any(word in way for word in words) and (named or way not in LONG_WAYS))
    if not ways or kind not in KINDS:
        raise click.UsageError(f"ONLY={only}: write edge, or edge:WAY with one of {', '.join(EDGE_WAYS)}")
    light = kind.endswith("-light")

    def shape(number: int) -> EdgeShape:
        return EdgeShape.of_seed(number, light=light)

    return run_lives(
        folder,
        kind,
        EDGE_WAYS,
        minutes=minutes,
        seed=seed,
        choose=lambda number, lives: choose_ways(shape(number), random.Random(number), ways, lives, strikes),
        live=lambda number, chosen: live(folder / "work" / f"{kind}-{number}", shape(number), chosen, number, stop, limit_s=limit_s),
        about=lambda number: f"{shape(number)}: ",
    )


def choose_ways(shape: EdgeShape, rng: random.Random, ways: Sequence[str], lives: Sequence[LifeTold], strikes: int) -> tuple[str, ...]:
    """Choose `strikes` ways that fit the life: those that were used least come first; if there are fewer, they are repeated."""
    spared = shape.durability != "end_to_end"
    fitting = [way for way in ways if (not spared or way in SPARING_AGENTS) and (shape.channel == "kafka" or way != "broker-killed")]
    fitting = fitting or list(SPARING_AGENTS)
    met = Counter(strike.way for life in lives for strike in life.strikes)
    chosen: list[str] = []
    if shape.durability == "best_effort":
        chosen.append("long-cut")
    while len(chosen) < strikes:
        round_ = sorted(fitting, key=lambda way: (met[way], rng.random()))[: strikes - len(chosen)]
        rng.shuffle(round_)
        chosen += round_
    return tuple(chosen)


def live(
    folder: Path,
    shape: EdgeShape,
    ways: Sequence[str],
    seed: int,
    stop: threading.Event,
    *,
    limit_s: float,
    broken: Mapping[str, str] | None = None,
    say: Callable[[str], None] = click.echo,
) -> LifeTold:
    """Run a life in a new folder, which is deleted unless it fails. `broken` is for `EdgeLife`. Raises CampaignEnded: `stop` is set; no
    process is left then."""
    told = LifeTold(tuple(ways), seed, kafka=shape.channel == "kafka", about=str(shape))
    began_s = time.monotonic()
    shutil.rmtree(folder, ignore_errors=True)
    try:
        with EdgeLife(folder, shape, seed=seed, limit_s=limit_s, stop=stop, broken=broken) as life:
            try:
                life.wait_arrival()
                for nth, name in enumerate(ways):
                    _strike(life, told, name, random.Random(f"{seed}/{nth}"), last=nth == len(ways) - 1)
                    say(f"    {told.strikes[-1]}")
                found = life.finish()
                told.rows = found.found
                say(f"    {found}; {sum(len(host.rotated) for host in life.hosts)} rotations; {life.line()}")
            finally:
                told.wrong += life.wrong
                told.workers = 1 + len(life.ended)
    except NotInTime as error:
        told.wrong.append(str(error))
    except KeyboardInterrupt:
        raise CampaignEnded from None
    told.seconds = round(time.monotonic() - began_s, 1)
    if not told.wrong:
        life.remove()
    return told


def _strike(life: EdgeLife, told: LifeTold, name: str, rng: random.Random, *, last: bool) -> None:
    life.pause(rng.uniform(0.0, 3.0))
    strike = Struck(name)
    told.strikes.append(strike)
    struck_s = time.monotonic()
    strike.about = EDGE_WAYS[name](life, rng)
    if not last and rng.random() < _AT_ONCE:
        strike.about += "; then at once"
    else:
        life.wait_arrival()
    strike.running_s = round(time.monotonic() - struck_s, 1)
