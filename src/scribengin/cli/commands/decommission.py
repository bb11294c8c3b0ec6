"""`scribengin decommission NODE`: take a host out, or back."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import click

from scribengin.cli.answer import AnsweringCommand, CommandAnswer
from scribengin.cli.plane_option import masters_option
from scribengin.cli.waiting import NotReached, wait_option

if TYPE_CHECKING:
    from scribengin.cli.plane_option import Masters
    from scribengin.client.client import Client

_POLL_S = 0.2


@click.command(cls=AnsweringCommand)
@click.argument("node", metavar="NODE")
@click.option("--undo", is_flag=True, help="Allow workers on the node again.")
@click.option("--forget", is_flag=True, help="Remove a node whose machine no longer exists.")
@wait_option
@masters_option
def command(*, node: str, undo: bool, forget: bool, wait: float | None, masters: Masters) -> CommandAnswer:
    """Drain a node: it gets no new workers, and its workers continue on other nodes; each stops there after the current Batches.

    A worker that no other node can take stays and keeps running until one can. With --wait the command returns when no worker is left; the
    machine can then be removed.

    \b
    Example:
      scribengin decommission host2 --wait
    """
    if undo and forget:
        raise click.UsageError("--undo and --forget exclude each other")
    with masters.client() as client:
        if forget:
            client.forget_node(node)
            return CommandAnswer({"node": node, "forgotten": True}, show=lambda: click.echo(f"node {node} is removed"))
        done = client.decommission(node, undo=undo)
        changed, left = done.changed, list(done.workers)
        if wait is not None and not undo:
            left = _emptied(client, node, wait)

    def show() -> None:
        if undo:
            click.echo(f"node {node} takes workers" + ("" if changed else ", as before"))
        elif left:
            click.echo(f"node {node} takes no new workers; still running there: {', '.join(left)}")
        else:
            click.echo(f"node {node} takes no new workers, and has none")

    return CommandAnswer({"node": node, "decommissioned": not undo, "changed": changed, "workers": left}, show=show)


def _emptied(client: Client, node: str, wait_s: float) -> list[str]:
    deadline = time.monotonic() + wait_s
    while left := [worker for row in client.nodes() if row.node == node for worker in row.workers]:
        if time.monotonic() >= deadline:
            raise NotReached(
                f"node {node} still has {', '.join(left)} after {wait_s:.0f} s",
                remedy="they move when another node has room: see scribengin nodes, and the tiers mapped to this node",
            )
        time.sleep(_POLL_S)
    return left
