"""What `rewind` and `offsets set` share: told first, done with --yes, waited for."""

from __future__ import annotations

import getpass
import time
from typing import TYPE_CHECKING

import click

from scribengin.cli.answer import Answer
from scribengin.cli.waiting import NotReached
from scribengin.core.errors import Refused, ScribenginError

if TYPE_CHECKING:
    from scribengin.control.offsets import Going
    from scribengin.control.operate import OperationRow
    from scribengin.registry.contract import Registry

_POLL_S = 0.2


class OperationFailed(ScribenginError):
    """An operation has ended otherwise than it should."""

    code = "operation-failed"


def done(registry: Registry, going: Going, *, yes: bool, wait_s: float | None, again: str) -> Answer:
    """Begin it, and wait for its end where that is wanted. Raises Refused without `yes`, with what it would mean; `again`: what to say."""
    from scribengin.control.offsets import begin_going

    if not yes:
        raise Refused("; ".join(going.says), remedy=f"say --yes: {again}", code="unsaid")
    id_ = begin_going(registry, going, by=getpass.getuser())
    row = wait_for_operation(registry, going.flow, id_, wait_s)

    def show() -> None:
        for sentence in going.says:
            click.echo(sentence)
        click.echo(f"flow {going.flow}: operation {id_} " + ("has begun" if row is None else f"is {row.step}"))

    return Answer({**going.as_json(), "operation": id_, "step": None if row is None else row.step}, show=show)


def wait_for_operation(registry: Registry, flow: str, id_: str, wait_s: float | None) -> OperationRow | None:
    """The operation once it is over; None where it is not to be waited for. Raises OperationFailed, NotReached."""
    from scribengin.control.operate import list_operations

    if wait_s is None:
        return None
    deadline = time.monotonic() + wait_s
    while True:
        row = next(each for each in list_operations(registry, flow) if each.id == id_)
        if row.step == "done":
            return row
        if not row.under_way:
            raise OperationFailed(
                f"operation {id_} of flow {flow} ({row.kind}) is {row.step}: {row.error}", remedy="nothing is lost; see ops"
            )
        if time.monotonic() >= deadline:
            raise NotReached(
                f"operation {id_} of flow {flow} ({row.kind}) is at step {row.step} after {wait_s:.0f} s",
                remedy=f"wait longer; see: scribengin ops {flow}",
            )
        time.sleep(_POLL_S)
