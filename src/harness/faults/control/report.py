"""The lives of a campaign: the loop that runs them, their stored results (`control.jsonl`, `yarn.jsonl`, `edge.jsonl`, one life per line),
and the report about them (`control.md`, `yarn.md`, `edge.md`)."""

from __future__ import annotations

import statistics
import time
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import click
import msgspec

from harness.faults.control.strikes import LifeTold, Struck

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from pathlib import Path

_TITLES = {
    "control": "Faults of the control plane",
    "yarn": "Faults in YARN",
    "edge": "Faults of the edge",
    "edge-light": "Faults of the edge, without Spark",
}
_SECONDS = {
    "control": "Seconds: the longest in which nothing new of a flow could be seen; from the strike until all was said to run.",
    "yarn": "Seconds from the strike until records that were added after it were in both outputs.",
    **dict.fromkeys(
        ("edge", "edge-light"),
        "Seconds from the strike until all that hosts had written by its end was committed at the agents, or until the next strike.",
    ),
}
_MARKS = {"passed": "✓", "failed": "✗", "skipped": "skipped"}


def read_lives(folder: Path, campaign: str) -> list[LifeTold]:
    """All lives of a campaign so far, oldest first."""
    file = folder / f"{campaign}.jsonl"
    if not file.exists():
        return []
    lines: list[dict[str, Any]] = [msgspec.json.decode(line) for line in file.read_bytes().splitlines() if line.endswith(b"}")]
    return [
        LifeTold(**{**line, "ways": tuple(line["ways"]), "strikes": [Struck(**strike) for strike in line["strikes"]]}) for line in lines
    ]


def append_life(folder: Path, campaign: str, life: LifeTold) -> None:
    """Store the result of a life."""
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / f"{campaign}.jsonl").open("ab") as file:
        file.write(msgspec.json.encode(asdict(life)) + b"\n")


def run_lives(
    folder: Path,
    campaign: str,
    ways: Iterable[str],
    *,
    minutes: float,
    seed: int | None,
    choose: Callable[[int, Sequence[LifeTold]], tuple[str, ...]],
    live: Callable[[int, tuple[str, ...]], LifeTold],
    about: Callable[[int], str] = lambda _: "",
) -> int:
    """Run lives one after the other until the time is over, and store each; returns the number of lives that failed.

    Args:
        folder: The folder of the campaign.
        campaign: The name of its files.
        ways: All that the report has a row for.
        minutes: No life begins after this time.
        seed: The seed of the first life. A life that was run before with this seed is repeated, alone. None: the next new seed.
        choose: Returns the ways of a life by its seed and the lives before it.
        live: Runs a life by its seed and its ways.
        about: What else the terminal shows of a life, by its seed.
    """
    lives, failed = read_lives(folder, campaign), 0
    again = next((life for life in reversed(lives) if life.seed == seed), None)
    number = seed if seed is not None else max((life.seed for life in lives), default=0) + 1
    deadline = time.monotonic() + minutes * 60
    while True:
        chosen = again.ways if again is not None else choose(number, lives)
        click.echo(f"  seed {number}  {about(number)}{' '.join(chosen)} …", err=True)
        told = live(number, chosen)
        lives.append(told)
        failed += told.verdict == "failed"
        append_life(folder, campaign, told)
        write_lives_report(folder, campaign, ways, lives)
        click.echo(line_of_life(told))
        number += 1
        if again is not None or time.monotonic() > deadline:
            return failed


def write_lives_report(folder: Path, campaign: str, ways: Iterable[str], lives: Sequence[LifeTold]) -> Path:
    """Write the report of a campaign, with a row for each of `ways`; returns its path."""
    path = folder / f"{campaign}.md"
    path.write_text("\n".join([*_summary(campaign, lives), *_recoveries(campaign, ways, lives), *_lives(lives), ""]))
    return path


def line_of_life(life: LifeTold) -> str:
    """The result of a life in one line, for the terminal."""
    wrong = "; ".join(life.wrong) or life.skipped
    return f"{_MARKS[life.verdict]} seed {life.seed}  {life}  {life.rows} rows, {life.seconds:g} s" + (f"  {wrong}" if wrong else "")


def _summary(campaign: str, lives: Sequence[LifeTold]) -> list[str]:
    counts = [f"{count} {verdict}" for verdict in _MARKS if (count := sum(life.verdict == verdict for life in lives))]
    strikes = sum(len(life.strikes) for life in lives)
    rows, workers = sum(life.rows for life in lives), sum(life.workers for life in lives)
    return [
        f"# {_TITLES[campaign]}",
        "",
        f"Written by `make faults ONLY={campaign}`; live a life again with `make faults ONLY={campaign} SEED=…`.",
        "",
        f"{len(lives)} lives: {', '.join(counts)}. {strikes} strikes, {workers} workers started. {rows:,} rows checked.",
        "",
    ]


def _recoveries(campaign: str, ways: Iterable[str], lives: Sequence[LifeTold]) -> list[str]:
    silences = any(strike.silent_s for life in lives for strike in life.strikes)
    heads = [
        "strike",
        "times",
        *(["a flow is silent: median", "worst"] if silences else []),
        "all runs after: median",
        "worst",
        "resumed by hand",
    ]
    lines = ["## Recovery", "", _SECONDS[campaign], "", f"| {' | '.join(heads)} |", f"|{'---|' * len(heads)}"]
    for way in ways:
        struck = [strike for life in lives for strike in life.strikes if strike.way == way]
        silent = sorted(took for strike in struck for took in strike.silent_s.values())
        running = sorted(strike.running_s for strike in struck if strike.running_s is not None)
        persons = sum(bool(strike.person) for strike in struck)
        cells = [way, str(len(struck)), *([_middle_and_worst(silent)] if silences else []), _middle_and_worst(running), str(persons or "")]
        lines.append(f"| {' | '.join(cells)} |")
    return [*lines, ""]


def _middle_and_worst(times: Sequence[float]) -> str:
    return f"{statistics.median(times):.1f} | {times[-1]:.1f}" if times else " | "


def _lives(lives: Sequence[LifeTold]) -> list[str]:
    lines = ["## Lives", ""]
    for life in lives:
        lines.append(f"- seed {life.seed}, {life.verdict}, {life}: {life.rows} rows, {life.workers} workers, {life.seconds:g} s")
        lines += [f"  - {strike}" for strike in life.strikes]
        lines += [f"  - {trend}" for trend in life.flat]
        lines += [f"  - WRONG: {' '.join(wrong.split())[:500]}" for wrong in life.wrong]
    return lines
