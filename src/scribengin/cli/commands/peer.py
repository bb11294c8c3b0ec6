"""`scribengin peer set|list|remove`: configure other control planes whose flows are connected with flows here."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from scribengin.cli.answer import AnsweringCommand, CommandAnswer
from scribengin.cli.guesses import GuessingGroup
from scribengin.cli.plane_option import masters_option
from scribengin.core.errors import Refused
from scribengin.core.time_text import shown_moment

if TYPE_CHECKING:
    from collections.abc import Mapping

    from scribengin.cli.plane_option import Masters


@click.group(cls=GuessingGroup)
def command() -> None:
    """Connect flows with flows of another control plane, at another site.

    Each site has its own masters, registry and states. If a flow of one site writes what a flow of the other site reads (a topic, a table,
    objects), the upstream flow is throttled and paused as if both were at one site, and acknowledgements come back. Set the other site as a
    peer at the upstream site. Set each as a peer of the other to see both in `scribengin graph`.

    \b
    Example:
      scribengin peer set berlin https://flows.berlin.example:8443
    """


@command.command("set", cls=AnsweringCommand)
@click.argument("peer")
@click.argument("masters_there", metavar="URL...", nargs=-1, required=True)
@click.option(
    "--alias",
    "aliases",
    multiple=True,
    metavar="THERE=HERE",
    help="A server that flows there call HOST:PORT, and its name here. May be repeated.",
)
@masters_option
def set_(*, peer: str, masters_there: tuple[str, ...], aliases: tuple[str, ...], masters: Masters) -> CommandAnswer:
    """Add or replace a peer: the URLs of the masters of another control plane.

    If they require a token, create one there (scribengin token add NAME --role viewer) and write it to the file peers/PEER.token in the
    home folder of each master here, with mode 600.

    \b
    Examples:
      scribengin peer set berlin https://flows.berlin.example:8443
      scribengin peer set berlin https://flows.berlin.example:8443 \\
        --alias kafka.lan:9092=kafka.example:9094
    """
    import msgspec

    from scribengin.client.models import SetPeer

    names = dict(_alias(each) for each in aliases)
    with masters.client() as client:
        row = msgspec.to_builtins(client.set_peer(peer, SetPeer(masters_there, names)))
    return CommandAnswer(
        row, show=lambda: click.echo(f"peer {peer}: {', '.join(row['masters'])}; scribengin peer list shows whether it answers")
    )


@command.command("list", cls=AnsweringCommand)
@masters_option
def list_(*, masters: Masters) -> CommandAnswer:
    """List peers, whether they answer, and which of their flows are connected with flows here.

    \b
    Example:
      scribengin peer list
    """
    import msgspec

    with masters.client() as client:
        rows = msgspec.to_builtins(client.peers())

    def show() -> None:
        if not rows:
            click.echo("there are no peers; add one: scribengin peer set NAME URL")
        for row in rows:
            _show(row)

    return CommandAnswer(rows, show=show)


@command.command(cls=AnsweringCommand)
@click.argument("peer")
@masters_option
def remove(*, peer: str, masters: Masters) -> CommandAnswer:
    """Remove a peer. Its flows no longer throttle flows here.

    \b
    Example:
      scribengin peer remove berlin
    """
    with masters.client() as client:
        client.remove_peer(peer)
    return CommandAnswer({"peer": peer}, show=lambda: click.echo(f"peer {peer} is removed"))


def _alias(text: str) -> tuple[str, str]:
    there, mark, here = text.partition("=")
    if not (there and mark and here):
        raise Refused(f'"{text}" is not a valid alias', remedy="write THERE=HERE, each HOST:PORT", code="peer-alias")
    return there, here


def _show(row: Mapping[str, Any]) -> None:
    if row["refused"]:
        click.echo(f"peer {row['peer']}: its record {row['refused']}; set it anew: scribengin peer set {row['peer']} URL")
        return
    click.echo(f"peer {row['peer']}: {', '.join(row['masters'])}; {_answers(row)}")
    for there, here in row["aliases"].items():
        click.echo(f"  {there} there is {here} here")
    for flow in row["flows"]:
        click.echo(f"  {flow['flow']}: {flow['state']}" + (f", {flow['reason']}" if flow["reason"] else ""))
        for each in flow["meetings"]:
            click.echo(f"    {each['feeding']}.{each['sink']} -> {each['reading']}.{each['source']} ({each['place']})")
    if not row["flows"] and row["answered_at"]:
        click.echo("  none of its flows is connected to a flow here")


def _answers(row: Mapping[str, Any]) -> str:
    if row["silent_since"]:
        return f"no answer since {shown_moment(row['silent_since'])}: {row['why']}"
    return f"answered at {shown_moment(row['answered_at'])}" if row["answered_at"] else "not asked yet"
