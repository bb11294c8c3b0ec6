"""`scribengin nodes`: the hosts that run workers."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from scribengin.cli.answer import Answer, AnsweringCommand
from scribengin.cli.home_option import home_option
from scribengin.cli.tables import print_table
from scribengin.core.units import show_bytes

if TYPE_CHECKING:
    from scribengin.control.home import Home


@click.command(cls=AnsweringCommand)
@home_option
def command(*, home: Home) -> Answer:
    """Show the hosts that have registered: whether each is up, what it has, which workers run there, which tiers are mapped to it."""
    from scribengin.control import bindings

    with home.registry() as registry:
        found = bindings.nodes(registry)

    def show() -> None:
        if not found:
            click.echo("no node has registered yet: scribengin node")
            return
        rows = [
            {
                **each,
                "state": each["state"] if each["up"] or each["state"] == "away" else f"{each['state']}, away",
                "cores": each["cores"] or "no limit",
                "memory": show_bytes(each["memory_bytes"]) if each["memory_bytes"] else "no limit",
                "spark": each["spark"] or "in the workers",
                "workers": ", ".join(each["workers"]) or "–",
                "mapped": ", ".join(each["mapped"]) or "–",
            }
            for each in found
        ]
        print_table(rows, {name: name for name in ("node", "state", "host", "cores", "memory", "spark", "workers", "mapped")})

    return Answer(found, show=show)
