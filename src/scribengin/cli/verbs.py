"""`pause`, `resume`, `drain`, `stop`: set the desired state of flows by name."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from scribengin.cli.answer import AnsweringCommand, CommandAnswer
from scribengin.cli.going import wait_for_operation
from scribengin.cli.labels_option import chosen, labels_option
from scribengin.cli.plane_option import masters_option
from scribengin.cli.waiting import WaitOption, wait_for, wait_option, wait_running_option

if TYPE_CHECKING:
    from collections.abc import Sequence

    from scribengin.cli.plane_option import Masters
    from scribengin.client.client import Client
    from scribengin.client.workflow_models import WorkflowBegun
    from scribengin.registry.kinds import Goal


def _over_workflows(client: Client, flows: Sequence[str], goal: Goal, wait_s: float | None) -> CommandAnswer:
    """The same of all flows of their workflows, by an operation each."""
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
    """A command that says `goal` of the flows it is given; with --wait until they are one of `states`."""

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
            flows = chosen(client, flows, labels)  # all of them are there, or nothing is done
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
