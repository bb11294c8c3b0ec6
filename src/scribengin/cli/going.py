"""What `offsets rewind` and `offsets set` share: what would repeat is listed and confirmed, then done, and waited for."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import click

from scribengin.cli.answer import CommandAnswer
from scribengin.cli.confirm import confirm
from scribengin.cli.waiting import NotReached
from scribengin.core.errors import ScribenginError

if TYPE_CHECKING:
    from collections.abc import Callable

    from scribengin.client.client import Client
    from scribengin.client.verb_models import Going, OperationRow

_POLL_S = 0.2
_AGAIN = "fix the cause and repeat the command for that flow: the operation continues"


class OperationFailed(ScribenginError):
    """An operation has ended otherwise than it should."""

    code = "operation-failed"


def done(client: Client, begin: Callable[[bool], Going], *, yes: bool, dry_run: bool, wait_s: float | None) -> CommandAnswer:
    """Begin an operation, and wait for its end if asked to.

    `begin` asks a master; with False it only returns the effects. Raises Refused if a confirmation is needed and there is no terminal.
    """
    going = begin(yes and not dry_run)
    if dry_run:
        asked = {"flow": going.flow, "says": list(going.says), "queries": list(going.queries), "operation": None, "step": None}
        return CommandAnswer(asked, show=lambda: click.echo("\n".join(going.says)))
    if going.operation is None:
        confirm(f"of flow {going.flow}:", going.says, yes=False, code="unsaid")
        going = begin(True)
    assert going.operation is not None
    row = wait_for_operation(client, going.flow, going.operation, wait_s)

    def show() -> None:
        for sentence in going.says:
            click.echo(sentence)
        click.echo(f"flow {going.flow}: operation {going.operation} " + ("has begun" if row is None else f"is {row.step}"))

    said = {"flow": going.flow, "says": list(going.says), "queries": list(going.queries)}
    return CommandAnswer({**said, "operation": going.operation, "step": None if row is None else row.step}, show=show)


def _waits(row: OperationRow) -> list[str]:
    """What one over a workflow waits for."""
    return [str(each) for each in row.arguments.get("waits_for", ())]


def wait_for_operation(client: Client, flow: str, id_: str, wait_s: float | None) -> OperationRow | None:
    """The operation once it is over; None where it is not to be waited for. Raises OperationFailed, NotReached."""
    if wait_s is None:
        return None
    deadline = time.monotonic() + wait_s
    while True:
        row = next(each for each in client.operations(flow) if each.id == id_)
        if row.step == "done":
            return row
        if not row.under_way:
            said = f": {row.error}" if row.error else ""
            raise OperationFailed(
                f"operation {id_} of flow {flow} ({row.kind}) is {row.step}{said}",
                remedy=f"fix the cause and repeat the command; see: scribengin operation list {flow}",
            )
        if row.arguments.get("stuck"):
            raise NotReached("; ".join([f"operation {id_} of flow {flow} ({row.kind}) needs intervention", *_waits(row)]), remedy=_AGAIN)
        if time.monotonic() >= deadline:
            raise NotReached(
                "; ".join([f"operation {id_} of flow {flow} ({row.kind}) is at step {row.step} after {wait_s:.0f} s", *_waits(row)]),
                remedy=f"wait longer; see: scribengin operation list {flow}",
            )
        time.sleep(_POLL_S)
