"""`scribengin logs NAME`: what a flow's workers have printed."""

from __future__ import annotations

from collections import deque
from pathlib import Path
from typing import TYPE_CHECKING

import click

from scribengin.cli.answer import Answer, AnsweringCommand
from scribengin.cli.home_option import home_option

if TYPE_CHECKING:
    from scribengin.control.home import Home


@click.command(cls=AnsweringCommand)
@click.argument("flow", metavar="NAME")
@click.option("--tier", help="Of this tier only.")
@click.option("-n", "--lines", default=50, show_default=True, help="So many lines of each file, the last ones.")
@home_option
def command(*, flow: str, tier: str | None, lines: int, home: Home) -> Answer:
    """Show what the newest worker of each tier has printed, and where the run logs of the tiers are."""
    from scribengin.control import admin
    from scribengin.launch.local import LocalLauncher

    with home.registry() as registry:
        tiers = [each for each in admin.describe(registry, flow)["tiers"] if tier in (None, each["tier"])]
        state = admin.state_of(registry, flow)
    launcher = LocalLauncher(home.workers)
    found = []
    for each in tiers:
        files = [path for path in launcher.logs(each["worker"]) if Path(path).is_file()] if each["worker"] else []
        files += [str(path) for path in [Path(state) / flow / each["tier"] / "tmp/run.log"] if path.is_file()]
        found += [{"tier": each["tier"], "file": path, "lines": _last(Path(path), lines)} for path in files]

    def show() -> None:
        for each in found:
            click.echo(f"--- tier {each['tier']}: {each['file']}")
            for line in each["lines"]:
                click.echo(line)

    return Answer(found, show=show)


def _last(path: Path, lines: int) -> list[str]:
    with path.open(errors="replace") as file:
        return [line.rstrip("\n") for line in deque(file, maxlen=lines)]
