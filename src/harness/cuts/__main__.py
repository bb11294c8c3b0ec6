"""`make cuts [ARGS="--examples 300"]` runs random flows whole and divided into tiers. A folder that reproduces the failure is kept for each
flow that fails."""

from __future__ import annotations

import os
import random
import sys
import time
from pathlib import Path

import click

from harness.cuts.flows import make_case
from harness.cuts.trial import compare, refusals, remove, write_case
from harness.faults.java import java_settings


@click.command()
@click.option("--examples", type=click.IntRange(1), default=100, show_default=True, help="How many flows.")
@click.option("--seed", type=int, default=0, show_default=True, help="Of the first one; each has the next.")
@click.option("--folder", type=click.Path(path_type=Path), default=Path(".scribengin-cuts"), show_default=True)
def main(*, examples: int, seed: int, folder: Path) -> None:
    """Run random flows whole and divided into tiers, and compare outputs, dead letters, ledgers and audits.

    For a seed that fails, FOLDER/SEED is kept: `whole` and `cut` each contain a flow.yaml with data, steps and outputs.
    """
    from scribengin.spark.session import start_session

    folder = folder.resolve()
    folder.mkdir(parents=True, exist_ok=True)
    os.environ |= java_settings(None)
    spark = start_session("cuts", master="local[2,2]", memory="", conf={}, folder=folder / "spark")
    failed = ran = refused = 0
    try:
        while ran < examples:
            case, home = make_case(random.Random(seed)), folder / str(seed)
            remove(home)
            write_case(case, home)
            seed += 1
            if refusals(home):
                refused += 1
                remove(home)
                continue
            began = time.monotonic()
            found = compare(case, home, spark)
            ran += 1
            shape = f"{len(case.steps)} steps, {len(case.sinks)} sinks, {len(case.tiers)} tiers{', stopped once' * found.stopped}"
            seconds = f"{time.monotonic() - began:.1f} s"
            click.echo(
                f"seed {seed - 1}: {shape}, {found.rows} rows, {found.letters} dead letters, {seconds}{', FAILED' * bool(found.wrong)}"
            )
            if not found.wrong:
                remove(home)
                continue
            failed += 1
            (home / "wrong.txt").write_text("\n".join(found.wrong) + "\n", encoding="utf-8")
            for line in found.wrong:
                click.echo(f"    {line}")
            click.echo(f"    see {home}")
    finally:
        spark.stop()
    click.echo(f"{ran} flows, {failed} failed; the checks refused {refused} others")
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
