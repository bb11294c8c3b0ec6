"""Commands that set the desired state of flows (`pause`, `resume`, `drain`, `stop`), and the steps of commands that begin operations."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import click

from scribengin.cli.answer import AnsweringCommand, CommandAnswer
from scribengin.cli.confirm import confirm
from scribengin.cli.plane_option import masters_option
from scribengin.cli.value_options import chosen, labels_option
from scribengin.cli.waiting import NotReached, WaitOption, wait_for, wait_option, wait_running_option
from scribengin.core.errors import ScribenginError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from scribengin.cli.plane_option import Masters
    from scribengin.client.change_models import Going, OperationRow
    from scribengin.client.client import Client
    from scribengin.client.models import WorkflowBegun
    from scribengin.registry.records import Goal


# `offsets rewind` and `offsets set`: list and confirm what would repeat, begin the operation, and wait for its end.


_POLL_S = 0.2
_AGAIN = "fix the cause and repeat the command for that flow: the operation continues"


class OperationFailed(ScribenginError):
    """An operation ended without success."""

    code = "operation-failed"


def done(client: Client, begin: Callable[[bool], Going], *, yes: bool, dry_run: bool, wait_s: float | None) -> CommandAnswer:
    """Confirm and begin an operation, and wait for its end if asked to.

    Args:
        client: the masters
        begin: sends the request to a master; with False it only returns the effects
        yes: the operation is confirmed already
        dry_run: only show the effects
        wait_s: seconds to wait for the end; None does not wait

    Raises:
        Refused: a confirmation is needed and there is no terminal
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
    """What an operation on a workflow waits for; empty for other operations."""
    return [str(each) for each in row.arguments.get("waits_for", ())]


def wait_for_operation(client: Client, flow: str, id_: str, wait_s: float | None) -> OperationRow | None:
    """Returns the operation after it has ended; None without waiting if `wait_s` is None. Raises OperationFailed if it ended without
    success, NotReached if it is stuck or has not ended in time."""
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


def _over_workflows(client: Client, flows: Sequence[str], goal: Goal, wait_s: float | None) -> CommandAnswer:
    """Set the desired state of all flows in the workflows of these flows, with one operation for each workflow."""
    begun: list[WorkflowBegun] = []
    for flow in flows:
        if not any(flow in each.flows for each in begun):
            begun.append(client.want_workflow(flow, goal))
    found: list[dict[str, Any]] = []
    for each in begun:
        row = wait_for_operation(client, each.workflow, each.operation, wait_s)
        step = None if row is None else row.step
        found.append({"workflow": each.workflow, "wanted": goal, "flows": list(each.flows), "operation": each.operation, "step": step})

    def show() -> None:
        for each in found:
            done = "is done" if each["step"] == "done" else "has begun"
            click.echo(f"workflow {each['workflow']}: {', '.join(each['flows'])} wanted {goal}: operation {each['operation']} {done}")

    return CommandAnswer(found, show=show)


def verb(goal: Goal, states: tuple[str, ...], doc: str) -> click.Command:
    """Returns a command that sets the desired state of flows to `goal`. With --wait it waits until each is in one of `states`."""

    @click.command(cls=AnsweringCommand, help=doc)
    @click.argument("flows", nargs=-1, metavar="NAME...")
    @labels_option
    @click.option("--workflow", is_flag=True, help="All flows of their workflows (see graph NAME), one after the other.")
    @(wait_running_option if goal == "running" else wait_option)
    @masters_option
    def command(
        *, flows: tuple[str, ...], labels: dict[str, str], workflow: bool, wait: WaitOption | float | None, masters: Masters
    ) -> CommandAnswer:
        import msgspec

        limit = WaitOption(wait) if isinstance(wait, float) else wait
        with masters.client() as client:
            flows = chosen(client, flows, labels)  # raises before the first change if one of the flows does not exist
            if workflow:
                return _over_workflows(client, flows, goal, None if limit is None else limit.seconds)
            for flow in flows:
                client.want(flow, goal)
            found = [{"flow": flow, "wanted": goal, "status": msgspec.to_builtins(wait_for(client, flow, states, limit))} for flow in flows]

        def show() -> None:
            for each in found:
                now = each["status"]
                click.echo(f"flow {each['flow']} " + (f"is {now['state']}" if isinstance(now, dict) else f"is wanted {goal}"))

        return CommandAnswer(found, show=show)

    return command
