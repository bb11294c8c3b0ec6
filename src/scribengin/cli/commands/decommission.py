"""`scribengin node drain|undrain|remove NODE`: remove the workers from a node, allow them again, or remove the node."""

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


_node_argument = click.argument("node", metavar="NODE")


@click.command(cls=AnsweringCommand)
@_node_argument
@wait_option
@masters_option
def drain(*, node: str, wait: float | None, masters: Masters) -> CommandAnswer:
    """Drain a node: it gets no new workers, and its workers continue on other nodes; each stops there after the current Batches.

    A worker that no other node can take stays and keeps running until one can. With --wait the command returns when no worker is left; the
    machine can then be removed.

    \b
    Example:
      scribengin node drain host2 --wait
    """
    return _drained(node, wait, masters)


@click.command(cls=AnsweringCommand)
@_node_argument
@masters_option
def undrain(*, node: str, masters: Masters) -> CommandAnswer:
    """Allow workers on a drained node again.

    \b
    Example:
      scribengin node undrain host2
    """
    return _undrained(node, masters)


@click.command(cls=AnsweringCommand)
@_node_argument
@masters_option
def remove(*, node: str, masters: Masters) -> CommandAnswer:
    """Remove a node whose machine no longer exists.

    \b
    Example:
      scribengin node remove host2
    """
    return _removed(node, masters)


@click.command(cls=AnsweringCommand)
@_node_argument
@click.option("--undo", is_flag=True, help="Allow workers on the node again.")
@click.option("--forget", is_flag=True, help="Remove a node whose machine no longer exists.")
@wait_option
@masters_option
def command(*, node: str, undo: bool, forget: bool, wait: float | None, masters: Masters) -> CommandAnswer:
    """The old `node drain NODE`: see `scribengin node drain`, `scribengin node undrain` and `scribengin node remove`."""
    if undo and forget:
        raise click.UsageError("--undo and --forget exclude each other")
    return _removed(node, masters) if forget else _undrained(node, masters) if undo else _drained(node, wait, masters)


def _drained(node: str, wait_s: float | None, masters: Masters) -> CommandAnswer:
    with masters.client() as client:
        done = client.decommission(node, undo=False)
        left = list(done.workers) if wait_s is None else _emptied(client, node, wait_s)
    still = f"; still running there: {', '.join(left)}" if left else ", and has none"
    return CommandAnswer(
        {"node": node, "decommissioned": True, "changed": done.changed, "workers": left},
        show=lambda: click.echo(f"node {node} takes no new workers{still}"),
    )


def _undrained(node: str, masters: Masters) -> CommandAnswer:
    with masters.client() as client:
        done = client.decommission(node, undo=True)
    return CommandAnswer(
        {"node": node, "decommissioned": False, "changed": done.changed, "workers": list(done.workers)},
        show=lambda: click.echo(f"node {node} takes workers" + ("" if done.changed else ", as before")),
    )


def _removed(node: str, masters: Masters) -> CommandAnswer:
    with masters.client() as client:
        client.forget_node(node)
    return CommandAnswer({"node": node, "forgotten": True}, show=lambda: click.echo(f"node {node} is removed"))


def _emptied(client: Client, node: str, wait_s: float) -> list[str]:
    deadline = time.monotonic() + wait_s
    while left := [worker for row in client.nodes() if row.node == node for worker in row.workers]:
        if time.monotonic() >= deadline:
            raise NotReached(
                f"node {node} still has {', '.join(left)} after {wait_s:.0f} s",
                remedy="they move when another node has room: see scribengin node list, and the tiers mapped to this node",
            )
        time.sleep(_POLL_S)
    return left
