"""`scribengin recover`: list the flows that are not in their desired state after an outage."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import click

from scribengin.cli.answer import AnsweringCommand, CommandAnswer
from scribengin.cli.plane_option import masters_option
from scribengin.cli.tables import print_table
from scribengin.cli.value_options import labels_option
from scribengin.cli.waiting import wait_option
from scribengin.core.errors import Exit

if TYPE_CHECKING:
    from scribengin.cli.plane_option import Masters
    from scribengin.client.client import Client
    from scribengin.client.models import FlowRow

_REACHED = {"running": "running", "paused": "paused", "drained": "stopped", "stopped": "stopped"}
_FOR_A_PERSON = ("failed", "degraded")
_POLL_S = 0.5


@click.command(cls=AnsweringCommand)
@click.option("--retry", is_flag=True, help="Retry failed and degraded flows.")
@labels_option
@wait_option
@masters_option
def command(*, retry: bool, labels: dict[str, str], wait: float | None, masters: Masters) -> CommandAnswer:
    """After an outage, list the flows that are not in their desired state. The leading master restarts all flows from their checkpoints
    automatically. The exit status is 1 if a flow is not in its desired state; with --wait, after that time.

    \b
    Example:
      scribengin recover --wait 300s
    """
    import msgspec

    with masters.client() as client:
        rows = client.flows(labels)
        asked = [row.flow for row in rows if retry and row.state in _FOR_A_PERSON]
        for row in rows:
            if row.flow in asked:
                client.want(row.flow, row.wanted)
        deadline = time.monotonic() + (wait or 0.0)
        while True:
            rows = client.flows(labels)
            coming = any(_is_on_its_way(row) for row in rows) or any(not _is_looked_at(client, flow) for flow in asked)
            if not coming or time.monotonic() >= deadline:
                break
            time.sleep(_POLL_S)
    missing = [row for row in rows if row.state != _REACHED[row.wanted]]
    found = {"flows": len(rows), "back": len(rows) - len(missing), "asked_again": asked, "missing": msgspec.to_builtins(missing)}

    def show() -> None:
        click.echo(f"{found['back']} of {found['flows']} flows are in their desired state")
        if missing:
            print_table(found["missing"], {name: name for name in ("flow", "wanted", "state", "since", "reason", "next")})

    return CommandAnswer(found, exit=Exit.FAILED if missing else Exit.DONE, show=show)


def _is_looked_at(client: Client, flow: str) -> bool:
    """True if a master has processed the newest desired state of the flow."""
    view = client.flow(flow)
    return view.status is not None and view.status.generation == view.wanted.revision


def _is_on_its_way(row: FlowRow) -> bool:
    return row.state != _REACHED[row.wanted] and row.state not in _FOR_A_PERSON
