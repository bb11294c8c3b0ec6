"""`scribengin alerts FLOW`: what a flow's alerts watch for, and which fire. `alerts test FLOW`: send a test through their targets."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from scribengin.cli.answer import AnsweringCommand, CommandAnswer, problems_of
from scribengin.cli.each_flow import together
from scribengin.cli.labels_option import chosen, labels_option
from scribengin.cli.plane_option import masters_option
from scribengin.core.errors import Exit, ScribenginError
from scribengin.core.problems import Place, Problem

if TYPE_CHECKING:
    from scribengin.cli.plane_option import Masters
    from scribengin.client.client import Client


@click.command(cls=AnsweringCommand)
@click.argument("words", nargs=-1, metavar="[test] NAME [ALERT]")
@labels_option
@masters_option
def command(*, words: tuple[str, ...], labels: dict[str, str], masters: Masters) -> CommandAnswer:
    """List the alerts of a flow: quiet, pending (the condition holds, but not for long enough yet) or firing, since when, and the value.

    `alerts test NAME` sends a test through each target of its alerts, `alerts test NAME ALERT` through those of one. The leading master
    sends it, as it sends all alerts. The command fails if a target fails. With -l instead of NAME: for each flow with the label.

    \b
    Examples:
      scribengin alerts orders
      scribengin alerts test orders
    """
    tests, named = bool(words) and words[0] == "test" and (len(words) > 1 or bool(labels)), words
    if tests:
        named = words[1:]
    if not (named or labels) or len(named) > (not labels) + tests:
        raise click.UsageError("write: alerts NAME, or alerts test NAME [ALERT]; -l NAME=VALUE in place of NAME")
    with masters.client() as client:
        flow, alert = ("", *named, None)[:2] if labels else (*named, None)[:2]
        if not labels:
            return _of(client, flow or "", alert, tests=tests)
        answers = {}
        for each in chosen(client, (), labels):
            try:
                answers[each] = _of(client, each, alert, tests=tests)
            except ScribenginError as error:
                answers[each] = CommandAnswer(problems=problems_of(error), exit=error.exit)
    return together(answers)


def _of(client: Client, flow: str, alert: str | None, *, tests: bool) -> CommandAnswer:
    if not tests:
        found = client.alerts(flow)
        return CommandAnswer(found, show=lambda: _show(found))
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
