"""`scribengin operation list [NAME]` and `scribengin operation cancel NAME ID`: list or cancel operations."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from scribengin.cli.answer import AnsweringCommand, CommandAnswer
from scribengin.cli.plane_option import masters_option
from scribengin.cli.tables import print_table
from scribengin.cli.value_options import chosen, labels_option

if TYPE_CHECKING:
    from scribengin.cli.plane_option import Masters


def _waits(row: dict[str, Any]) -> str:
    """The flows and conditions that an operation on a workflow waits for; empty for other operations."""
    return "; ".join(row["arguments"].get("waits_for", ()))


@click.command(cls=AnsweringCommand)
@click.argument("flow", metavar="[NAME]", required=False)
@labels_option
@masters_option
def list_(*, flow: str | None, labels: dict[str, str], masters: Masters) -> CommandAnswer:
    """List operations of a flow, or of all flows, newest first: step, since when, error.

    \b
    Example:
      scribengin operation list orders
    """
    import msgspec

    with masters.client() as client:
        flows = chosen(client, [flow] if flow else [], labels) if labels else [flow]
        rows = [row for each in flows for row in msgspec.to_builtins(client.operations(each))]

    def show() -> None:
        if not rows:
            click.echo("there are no operations")
            return
        shown = [{**row, "tiers": ", ".join(row["tiers"]), "error": row["error"] or _waits(row)} for row in rows]
        print_table(shown, {name: name for name in ("flow", "id", "kind", "step", "since", "tiers", "by", "error")})

    return CommandAnswer(rows, show=show)


@click.command(cls=AnsweringCommand)
@click.argument("flow", metavar="NAME")
@click.argument("id_", metavar="ID")
@masters_option
def cancel(*, flow: str, id_: str, masters: Masters) -> CommandAnswer:
    """Cancel an operation that has not changed anything yet. An operation over a workflow (w1, w2, …) then asks no further flow; the flows
    it has already asked keep their new state.

    \b
    Example:
      scribengin operation cancel orders 3
    """
    with masters.client() as client:
        client.cancel(flow, id_)
    return CommandAnswer({"flow": flow, "id": id_}, show=lambda: click.echo(f"flow {flow}: operation {id_} is cancelled"))
