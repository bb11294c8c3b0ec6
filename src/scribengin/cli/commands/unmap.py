"""`scribengin unmap FLOW.TIER`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from scribengin.cli.answer import Answer, AnsweringCommand
from scribengin.cli.home_option import home_option

if TYPE_CHECKING:
    from scribengin.control.home import Home


@click.command(cls=AnsweringCommand)
@click.argument("tier", metavar="FLOW.TIER")
@home_option
def command(*, tier: str, home: Home) -> Answer:
    """Let a tier run on any node. It stays where it is until it is started anew."""
    from scribengin.control import bindings

    with home.registry() as registry:
        changed = bindings.unbind(registry, tier)
    said = "may run anywhere" if changed else "was not mapped"
    return Answer({"tier": tier, "changed": changed}, show=lambda: click.echo(f"{tier} {said}"))
