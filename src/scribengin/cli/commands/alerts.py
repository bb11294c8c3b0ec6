"""`scribengin alerts list FLOW`: list the alerts of a flow and their states. `alerts test FLOW`: send a test to their targets."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from scribengin.cli.answer import CommandAnswer
from scribengin.cli.each_flow import FlowCommand, each_flow
from scribengin.cli.plane_option import masters_option
from scribengin.core.errors import Exit
from scribengin.core.problems import Place, Problem

if TYPE_CHECKING:
    from scribengin.cli.plane_option import Masters


@click.command(cls=FlowCommand)
@click.argument("flow", metavar="NAME")
@masters_option
@each_flow("flow")
def list_(*, flow: str, masters: Masters) -> CommandAnswer:
    """List the alerts of a flow: quiet, pending (the condition holds, but not for long enough yet) or firing, since when, and the value.

    \b
    Example:
      scribengin alerts list orders
    """
    with masters.client() as client:
        found = client.alerts(flow)
    return CommandAnswer(found, show=lambda: _show(found))


@click.command(cls=FlowCommand)
@click.argument("flow", metavar="NAME")
@click.argument("alert", metavar="[ALERT]", required=False)
@masters_option
@each_flow("flow")
def test(*, flow: str, alert: str | None, masters: Masters) -> CommandAnswer:
    """Send a test through each target of a flow's alerts, or of one alert. The leading master sends it, as it sends all alerts. The command
    fails if a target fails.

    \b
    Example:
      scribengin alerts test orders
    """
    with masters.client() as client:
        sent = client.test_alerts(flow, alert)
    failed = [
        Problem("alert-target", Place(""), f"{each['alert']}, {each['target']}: {each['message']}") for each in sent if not each["ok"]
    ]
    return CommandAnswer(sent, failed, Exit.FAILED if failed else Exit.DONE, lambda: _show_sent(sent))


def _show(alerts: list[dict[str, Any]]) -> None:
    from scribengin.cli.tables import print_table

    if not alerts:
        click.echo("the flow file has no `alerts`")
        return
    rows = [{**each, "since": each["since"] or "–", "targets": ", ".join(each["targets"])} for each in alerts]
    print_table(rows, {name: name for name in ("alert", "state", "since", "when", "value", "targets")})


def _show_sent(sent: list[dict[str, Any]]) -> None:
    from scribengin.cli.tables import print_table

    if not sent:
        click.echo("the flow file has no `alerts`")
        return
    rows = [{**each, "result": "sent" if each["ok"] else each["message"]} for each in sent]
    print_table(rows, {name: name for name in ("alert", "target", "result")})
