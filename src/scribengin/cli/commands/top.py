"""`scribengin top`: show live rates, backlog and bottlenecks of all flows, updated every second."""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING, Any

import click

from scribengin.cli.answer import AnsweringCommand, CommandAnswer
from scribengin.cli.each_flow import NO_FLOW
from scribengin.cli.plane_option import masters_option
from scribengin.cli.value_options import chosen, labels_option
from scribengin.core.errors import Unreachable
from scribengin.core.units import show_bytes, show_duration

if TYPE_CHECKING:
    from collections.abc import Collection

    from rich.console import Group
    from rich.table import Table

    from scribengin.cli.plane_option import Masters
    from scribengin.client.client import Client

_EVERY_S = 1.0
_STYLE = {"running": "green", "failed": "red", "degraded": "red", "recovering": "yellow", "starting": "yellow"}


@click.command(cls=AnsweringCommand)
@click.argument("flows", nargs=-1, metavar="[NAME]...")
@click.option("--once", is_flag=True, help="Print once and exit; --json does so too.")
@labels_option
@masters_option
def command(*, flows: tuple[str, ...], once: bool, labels: dict[str, str], masters: Masters) -> CommandAnswer:
    """Show live state, rates, backlog and its age, restarts, and bottlenecks of flows.

    The leading master has these figures from the workers, at the latest ten seconds after it became leader. Press Ctrl-C to exit.

    \b
    Examples:
      scribengin top
      scribengin top orders --once
    """
    with masters.client() as client:
        flows = chosen(client, flows, labels) if labels else flows
        found = _overview(client, flows)
        # with --json stdout carries the JSON answer only
        if not once and sys.stdout.isatty() and sys.stdout is sys.__stdout__:
            _live(client, flows)
            found = _overview(client, flows)
    return CommandAnswer(found, show=lambda: _print(found))


def _overview(client: Client, flows: Collection[str]) -> list[dict[str, Any]]:
    return [row for row in client.overview() if not flows or row["flow"] in flows]


def _live(client: Client, flows: Collection[str]) -> None:
    """Draw the table until Ctrl-C."""
    from rich.live import Live
    from rich.text import Text

    with Live(auto_refresh=False, screen=True) as screen:
        try:
            while True:
                try:
                    screen.update(drawn(_overview(client, flows)), refresh=True)
                except Unreachable as error:  # the leading master is being replaced
                    screen.update(Text(error.message, style="yellow"), refresh=True)
                time.sleep(_EVERY_S)
        except KeyboardInterrupt:
            return


def _print(rows: list[dict[str, Any]]) -> None:
    from scribengin.cli.tables import open_console

    if not rows:
        click.echo(NO_FLOW)
        return
    open_console().print(drawn(rows))


def drawn(rows: list[dict[str, Any]]) -> Group:
    """The table of flows, followed by the lines about their running utilities."""
    from rich.console import Group
    from rich.text import Text

    orders = [Text(f"{row['flow']}: {line}", style="dim") for row in rows for line in (row["now"] or {}).get("orders", ())]
    return Group(table(rows), *([Text(), *orders] if orders else []))


def table(rows: list[dict[str, Any]]) -> Table:
    """A table with one row for each flow."""
    from rich.table import Table
    from rich.text import Text

    drawn = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim")
    for heading in ("flow", "state"):
        drawn.add_column(heading, no_wrap=True)
    for heading in ("in/s", "out/s", "waits", "delay", "caught up in", "dead", "restarts"):
        drawn.add_column(heading, justify="right", no_wrap=True)
    drawn.add_column("what holds it up")
    for row in rows:
        state = Text(row["state"], style=_STYLE.get(row["state"], "dim"))
        drawn.add_row(row["flow"], state, *_figures(row["now"]), row["why"])
    return drawn


def _figures(now: dict[str, Any] | None) -> list[str]:
    if now is None:
        return ["–"] * 7
    waits = f"{now['lag_rows']:,}" if now["lag_rows"] is not None else show_bytes(now["lag_bytes"]) if now["lag_bytes"] is not None else "–"
    soon = "never" if now["falls_behind"] else show_duration(now["catch_up_s"]) if now["catch_up_s"] else "–"
    delay = "–" if now["delay_s"] is None else show_duration(now["delay_s"])
    rates = [f"{now['rows_in_per_s']:,.0f}", f"{now['rows_out_per_s']:,.0f}"]
    return [*rates, waits, delay, soon, f"{now['dead']:,}", f"{now['restarts']:,}"]
