"""`map` and `spawn`: a tier is bound to a node."""

from __future__ import annotations

import getpass
import time
from typing import TYPE_CHECKING

import click

from scribengin.cli.answer import Answer, AnsweringCommand
from scribengin.cli.home_option import home_option
from scribengin.cli.waiting import NotReached, wait_option

if TYPE_CHECKING:
    from scribengin.control.home import Home
    from scribengin.registry.contract import Registry

_POLL_S = 0.2


def binding(doc: str, *, start: bool) -> click.Command:
    """A command that binds a tier to a node; with --wait until it runs there."""

    @click.command(cls=AnsweringCommand, help=doc)
    @click.argument("tier", metavar="FLOW.TIER")
    @click.argument("node", metavar="NODE")
    @wait_option
    @home_option
    def command(*, tier: str, node: str, wait: float | None, home: Home) -> Answer:
        from scribengin.control import bindings

        with home.registry() as registry:
            changed = bindings.bind(registry, tier, node, by=getpass.getuser(), start=start)
            if wait is not None:
                _runs_on(registry, tier, node, wait)

        def show() -> None:
            said = f"runs on {node}" if wait is not None else f"is to run on {node}"
            click.echo(f"{tier} {said}" + ("" if changed else ", as before"))

        return Answer({"tier": tier, "node": node, "changed": changed}, show=show)

    return command


def _runs_on(registry: Registry, name: str, node: str, wait_s: float) -> None:
    """Until its worker there has said that it runs. Raises NotReached."""
    from scribengin.control.reading import describe

    flow, _, tier = name.partition(".")
    deadline = time.monotonic() + wait_s
    while True:
        said = describe(registry, flow)
        now = next(each for each in said["tiers"] if each["tier"] == tier)
        if now["node"] == node and now["state"] == "running":
            return
        if time.monotonic() >= deadline:
            status = said["status"] or {}
            why = f": {status['reason']}" if status.get("reason") else ""
            raise NotReached(
                f"{name} is {now['state']} on {now['node'] or 'no node'}, not running on {node}, after {wait_s:.0f} s{why}",
                remedy=status.get("next") or "wait longer: --wait 10m",
            )
        time.sleep(_POLL_S)
