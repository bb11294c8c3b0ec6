"""The commands `node map` and `node start-tier`: bind a tier to a node."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import click

from scribengin.cli.answer import AnsweringCommand, CommandAnswer
from scribengin.cli.plane_option import masters_option
from scribengin.cli.waiting import NotReached, wait_option
from scribengin.core.errors import Refused

if TYPE_CHECKING:
    from scribengin.cli.plane_option import Masters
    from scribengin.client.client import Client

_POLL_S = 0.2


def binding(doc: str, *, start: bool) -> click.Command:
    """Returns a command that binds a tier to a node. With --wait it waits until the tier runs there."""

    @click.command(cls=AnsweringCommand, help=doc)
    @click.argument("tier", metavar="FLOW.TIER")
    @click.argument("node", metavar="NODE")
    @wait_option
    @masters_option
    def command(*, tier: str, node: str, wait: float | None, masters: Masters) -> CommandAnswer:
        with masters.client() as client:
            changed = client.bind(*parts_of(tier), node, start=start).changed
            if wait is not None:
                _runs_on(client, tier, node, wait)

        def show() -> None:
            said = f"runs on {node}" if wait is not None else f"will run on {node}"
            click.echo(f"{tier} {said}" + ("" if changed else ", as before"))

        return CommandAnswer({"tier": tier, "node": node, "changed": changed}, show=show)

    return command


def parts_of(name: str) -> tuple[str, str]:
    """Split FLOW.TIER into flow and tier. Raises Refused if the text does not name a tier."""
    flow, dot, tier = name.partition(".")
    if not (flow and dot and tier):
        raise Refused(
            f'"{name}" does not name a tier', remedy="write FLOW.TIER; a flow without tiers has one tier, main", code="tier-unknown"
        )
    return flow, tier


def _runs_on(client: Client, name: str, node: str, wait_s: float) -> None:
    """Wait until the tier's worker on the node reports that it runs. Raises NotReached after `wait_s` seconds."""
    flow, tier = parts_of(name)
    deadline = time.monotonic() + wait_s
    while True:
        said = client.flow(flow)
        now = next(each for each in said.tiers if each.tier == tier)
        if now.node == node and now.state == "running":
            return
        if time.monotonic() >= deadline:
            why = f": {said.status.reason}" if said.status and said.status.reason else ""
            raise NotReached(
                f"{name} is {now.state} on {now.node or 'no node'}, not running on {node}, after {wait_s:.0f} s{why}",
                remedy=(said.status.next if said.status else "") or "wait longer: --wait 10m",
            )
        time.sleep(_POLL_S)
