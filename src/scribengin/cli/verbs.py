"""`pause`, `resume`, `drain`, `stop`: what is wanted of flows by name."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from scribengin.cli.answer import Answer, AnsweringCommand
from scribengin.cli.labels_option import chosen, labels_option
from scribengin.cli.plane_option import masters_option
from scribengin.cli.waiting import wait_for, wait_option

if TYPE_CHECKING:
    from scribengin.cli.plane_option import Masters
    from scribengin.registry.kinds import Goal


def verb(goal: Goal, states: tuple[str, ...], doc: str) -> click.Command:
    """A command that says `goal` of the flows it is given; with --wait until they are one of `states`."""

    @click.command(cls=AnsweringCommand, help=doc)
    @click.argument("flows", nargs=-1, metavar="NAME...")
    @labels_option
    @wait_option
    @masters_option
    def command(*, flows: tuple[str, ...], labels: dict[str, str], wait: float | None, masters: Masters) -> Answer:
        import msgspec

        with masters.client() as client:
            flows = chosen(client, flows, labels)  # all of them are there, or nothing is done
            for flow in flows:
                client.want(flow, goal)
            found = [{"flow": flow, "wanted": goal, "status": msgspec.to_builtins(wait_for(client, flow, states, wait))} for flow in flows]

        def show() -> None:
            for each in found:
                now = each["status"]
                click.echo(f"flow {each['flow']} " + (f"is {now['state']}" if isinstance(now, dict) else f"is wanted {goal}"))

        return Answer(found, show=show)

    return command
