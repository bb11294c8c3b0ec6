"""`scribengin node list` and `scribengin node describe NAME`: show the hosts that run workers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from scribengin.cli.answer import AnsweringCommand, CommandAnswer
from scribengin.cli.plane_option import masters_option
from scribengin.cli.tables import print_table
from scribengin.core.time_text import shown_moment
from scribengin.core.units import show_bytes

if TYPE_CHECKING:
    from scribengin.cli.plane_option import Masters


@click.command(cls=AnsweringCommand)
@masters_option
def list_(*, masters: Masters) -> CommandAnswer:
    """List registered nodes: whether each is up, its resources, its workers, and the tiers mapped to it.

    \b
    Example:
      scribengin node list
    """
    return _all(masters)


@click.command(cls=AnsweringCommand)
@click.argument("node", metavar="NAME")
@masters_option
def describe(*, node: str, masters: Masters) -> CommandAnswer:
    """Show all that a node reports: its packages, its lease, its workers, and its last orders.

    \b
    Example:
      scribengin node describe host2
    """
    return _one(node, masters)


@click.command(cls=AnsweringCommand)
@click.argument("node", metavar="[NAME]", required=False)
@masters_option
def command(*, node: str | None, masters: Masters) -> CommandAnswer:
    """The old `nodes [NAME]`: see `scribengin node list` and `scribengin node describe`."""
    return _all(masters) if node is None else _one(node, masters)


def _one(node: str, masters: Masters) -> CommandAnswer:
    import msgspec

    with masters.client() as client:
        view: dict[str, Any] = msgspec.to_builtins(client.node(node))
    return CommandAnswer(view, show=lambda: _show(view))


def _all(masters: Masters) -> CommandAnswer:
    import msgspec

    with masters.reader() as plane:
        found = msgspec.to_builtins(plane.nodes())

    def show() -> None:
        if not found:
            click.echo("no node has registered yet: scribengin server node --registry ADDRESS")
            return
        print_table(
            [_row(each) for each in found],
            {name: name for name in ("node", "state", "host", "cores", "memory", "spark", "workers", "mapped")},
        )

    return CommandAnswer(found, show=show)


def _row(node: dict[str, Any]) -> dict[str, Any]:
    return {
        **node,
        "state": node["state"] if node["up"] or node["state"] == "away" else f"{node['state']}, away",
        "cores": node["cores"] or "no limit",
        "memory": show_bytes(node["memory_bytes"]) if node["memory_bytes"] else "no limit",
        "spark": node["spark"] or "in the workers",
        "workers": ", ".join(node["workers"]) or "–",
        "mapped": ", ".join(node["mapped"]) or "–",
    }


def _show(view: dict[str, Any]) -> None:
    row, now = _row(view["node"]), view["now"]
    click.echo(f"node {row['node']} is {row['state']}" + (f", {row['http']}" if row["up"] else ""))
    click.echo(f"  on {row['host']} in {row['home']}, registered {shown_moment(row['since'])}")
    click.echo(f"  cores: {row['cores']}, memory: {row['memory']}, Spark: {row['spark']}; mapped to it: {row['mapped']}")
    if now is None:
        click.echo(f"  {view['silent']}; its workers by its last report: {row['workers']}")
        return
    lease, master = now["lease"], now["master"]
    click.echo(
        f"  process {now['pid']} " + (f"holds the node's lease, term {lease['term']}" if lease["held"] else "does not hold the lease")
    )
    click.echo("  master: " + (f"{master['id']} on {master['host'] or 'this host'}" if master else "none leads"))
    click.echo(f"  packages kept: {len(now['packages'])}, {show_bytes(sum(each['size'] for each in now['packages']))}")
    for title, columns in (("workers", ("worker", "state", "pid", "since", "asked")), ("orders", ("at", "worker", "ask"))):
        if now[title]:
            click.echo(f"\n{title}")
            rows = [{name: str(each.get(name) or "–") for name in columns} for each in now[title]]
            print_table(rows, {name: name for name in columns})
