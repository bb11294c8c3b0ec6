"""`make faults [ONLY=publish] [MINUTES=30] [SEED=7]`: strike, check, remember, report."""

from __future__ import annotations

import random
import signal
import sys
import time
from pathlib import Path

import click

from scribengin.testing.faults.cases import run_case
from scribengin.testing.faults.cells import Sample
from scribengin.testing.faults.report import append_outcome, count_open, line_of, read_outcomes, write_report


@click.command()
@click.option("--minutes", type=float, default=30.0, show_default=True, help="No case is begun after this time.")
@click.option("--only", default="", help="Cells whose text holds this: publish, two@, parquet, kill@decide.before …")
@click.option("--seed", type=int, help="Run the case with this seed again; an unknown one begins a row of new cases.")
@click.option("--limit", "limit_s", type=float, default=300.0, show_default=True, help="Seconds for each start of a run.")
@click.option("--folder", type=click.Path(path_type=Path), default=Path(".scribengin-faults"), show_default=True)
def main(*, minutes: float, only: str, seed: int | None, limit_s: float, folder: Path) -> None:
    """Strike real runs at their crash points and check every record; goes on where the last call ended."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(130))
    outcomes = read_outcomes(folder)
    again = [outcome.cell for outcome in outcomes if outcome.seed == seed]
    deadline = time.monotonic() + minutes * 60
    sample = Sample(outcomes, only)
    begun = len(outcomes)
    seed = seed if seed is not None else max((outcome.seed for outcome in outcomes), default=0) + 1
    while time.monotonic() < deadline:
        cell = again[-1] if again else sample.choose(random.Random(seed))
        if cell is None:
            raise click.UsageError(f"no cell has {only!r} in its text")
        click.echo(f"  seed {seed}  {cell} …", err=True)
        outcome = run_case(cell, seed, folder / "work" / f"{seed}-{len(outcomes)}", limit_s=limit_s)
        append_outcome(folder, outcome)
        outcomes.append(outcome)
        sample.add(outcome)
        click.echo(line_of(outcome))
        write_report(folder, outcomes)
        if again or not (count_open(outcomes) or only):
            break
        seed += 1
    failed = sum(outcome.verdict == "failed" for outcome in outcomes[begun:])
    click.echo(f"{len(outcomes) - begun} cases, {failed} failed; {count_open(outcomes)} seeds are open; {write_report(folder, outcomes)}")
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
