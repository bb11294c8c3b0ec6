"""`scribengin agent list|describe|map|start-tier|unmap|drain|undrain|remove` and `scribengin gateway list|set-chain`: agents and gateways
of a registry, through the masters."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import click

from scribengin.cli.answer import AnsweringCommand, CommandAnswer
from scribengin.cli.binding import parts_of
from scribengin.cli.plane_option import masters_option
from scribengin.cli.tables import print_table
from scribengin.cli.waiting import NotReached, wait_option
from scribengin.core.time_text import shown_moment
from scribengin.core.units import show_bytes, show_duration

if TYPE_CHECKING:
    from collections.abc import Mapping

    from scribengin.cli.plane_option import Masters
    from scribengin.client.client import Client

_POLL_S = 0.5
_agent_argument = click.argument("agent", metavar="AGENT")


@click.command(cls=AnsweringCommand, name="list")
@click.option("--group", metavar="GROUP", help="Only agents of this group.")
@masters_option
def list_(*, group: str | None, masters: Masters) -> CommandAnswer:
    """List agents: state, backlog, the age of the oldest record that is not acknowledged, and of the last report.

    \b
    Example:
      scribengin agent list --group web
    """
    import msgspec

    with masters.reader() as plane:
        found = msgspec.to_builtins(plane.agents(group))

    def show() -> None:
        if not found:
            click.echo("no agent has reported yet: scribengin agent run --gateway URL")
            return
        columns = ("agent", "group", "host", "release", "gateway", "state", "backlog", "oldest", "report", "message")
        print_table([_row(each) for each in found], {name: name for name in columns})

    return CommandAnswer(found, show=show)


@click.command(cls=AnsweringCommand)
@_agent_argument
@masters_option
def describe(*, agent: str, masters: Masters) -> CommandAnswer:
    """Show an agent: the tiers that it runs, its lanes, its versions and its gateways in the order in which it tries them.

    \b
    Example:
      scribengin agent describe web1
    """
    import msgspec

    with masters.reader() as plane:
        view: dict[str, Any] = msgspec.to_builtins(plane.agent(agent))
    return CommandAnswer(view, show=lambda: _show(view))


@click.command(cls=AnsweringCommand)
@click.argument("tier", metavar="FLOW.TIER")
@_agent_argument
@masters_option
def map_(*, tier: str, agent: str, masters: Masters) -> CommandAnswer:
    """Run a tier at an agent, also if the agent is of another group.

    \b
    Example:
      scribengin agent map logs.edge db1
    """
    return _bound(tier, agent, masters, start=False)


@click.command(cls=AnsweringCommand)
@click.argument("tier", metavar="FLOW.TIER")
@_agent_argument
@masters_option
def start_tier(*, tier: str, agent: str, masters: Masters) -> CommandAnswer:
    """Start a tier at an agent: bind it there and set the desired state of its flow to running, in one step.

    \b
    Example:
      scribengin agent start-tier logs.edge db1
    """
    return _bound(tier, agent, masters, start=True)


@click.command(cls=AnsweringCommand)
@click.argument("tier", metavar="FLOW.TIER")
@_agent_argument
@masters_option
def unmap(*, tier: str, agent: str, masters: Masters) -> CommandAnswer:
    """Remove the binding of a tier to an agent. An agent of the tier's group continues to run it.

    \b
    Example:
      scribengin agent unmap logs.edge db1
    """
    with masters.client() as client:
        changed = client.unbind_agent(*parts_of(tier), agent).changed
    said = f"{tier} is no longer mapped to agent {agent}" if changed else f"{tier} was not mapped to agent {agent}"
    return CommandAnswer({"tier": tier, "agent": agent, "changed": changed}, show=lambda: click.echo(said))


@click.command(cls=AnsweringCommand)
@_agent_argument
@wait_option
@masters_option
def drain(*, agent: str, wait: float | None, masters: Masters) -> CommandAnswer:
    """Drain an agent: it reads nothing more, and hands over what it has read. With --wait the command returns when all of it is committed.

    \b
    Example:
      scribengin agent drain web1 --wait
    """
    with masters.client() as client:
        done = client.decommission_agent(agent)
        left = list(done.lanes) if wait is None else _handed_over(client, agent, wait)
    still = f"; not committed yet: {', '.join(left)}" if left else ", and has handed over all records"
    return CommandAnswer(
        {"agent": agent, "decommissioned": True, "changed": done.changed, "lanes": left},
        show=lambda: click.echo(f"agent {agent} reads nothing more{still}"),
    )


@click.command(cls=AnsweringCommand)
@_agent_argument
@masters_option
def undrain(*, agent: str, masters: Masters) -> CommandAnswer:
    """Allow a drained agent to read again.

    \b
    Example:
      scribengin agent undrain web1
    """
    with masters.client() as client:
        done = client.decommission_agent(agent, undo=True)
    return CommandAnswer(
        {"agent": agent, "decommissioned": False, "changed": done.changed, "lanes": list(done.lanes)},
        show=lambda: click.echo(f"agent {agent} reads" + ("" if done.changed else ", as before")),
    )


@click.command(cls=AnsweringCommand)
@_agent_argument
@masters_option
def remove(*, agent: str, masters: Masters) -> CommandAnswer:
    """Remove an agent whose host no longer exists. Its flows no longer wait for it.

    \b
    Example:
      scribengin agent remove web1
    """
    with masters.client() as client:
        client.remove_agent(agent)
    return CommandAnswer({"agent": agent, "removed": True}, show=lambda: click.echo(f"agent {agent} is removed"))


@click.command(cls=AnsweringCommand, name="list")
@masters_option
def gateways(*, masters: Masters) -> CommandAnswer:
    """List the gateways that are up: their addresses, groups, costs, and the number of agents that report to each.

    \b
    Example:
      scribengin gateway list
    """
    import msgspec

    with masters.reader() as plane:
        found = msgspec.to_builtins(plane.gateways())

    def show() -> None:
        if not found:
            click.echo("no gateway of this registry is up: scribengin server gateway --registry ADDRESS")
            return
        rows = [{**each, "group": each["group"] or "–", "out": each["out"] or "–", "cost": f"{each['cost']:g}"} for each in found]
        columns = ("gateway", "url", "group", "cost", "agents", "host", "release", "since", "out")
        print_table(rows, {name: name for name in columns})

    return CommandAnswer(found, show=show)


@click.command(cls=AnsweringCommand)
@click.argument("group", metavar="GROUP")
@click.option("--cost", "costs", multiple=True, metavar="GATEWAY=COST", help="Cost of a gateway, in place of its own; repeat for more.")
@click.option("--order", metavar="GATEWAY,…", help="Gateways in the order in which all agents try them.")
@click.option("--disable", multiple=True, metavar="GATEWAY", help="Gateway that agents are not to use; repeat for more.")
@click.option("--reason", default="disabled", show_default=True, help="Why it is disabled, for people.")
@masters_option
def set_chain(
    *, group: str, costs: tuple[str, ...], order: str | None, disable: tuple[str, ...], reason: str, masters: Masters
) -> CommandAnswer:
    """Set which gateways the agents of a GROUP of gateways use, in place of the costs that the gateways name. Without options, the
    gateways' own costs apply again. `default` is the group of gateways without one.

    \b
    Examples:
      scribengin gateway set-chain dmz --cost gateway2=5
      scribengin gateway set-chain dmz --order gateway1,gateway2
      scribengin gateway set-chain dmz
    """
    import msgspec

    from scribengin.client.agent_models import ChainSettings

    found = {}
    for each in costs:
        name, equals, text = each.partition("=")
        try:
            found[name] = float(text)
        except ValueError:
            equals = ""
        if not (name and equals):
            raise click.BadParameter(f'"{each}" is not of the form GATEWAY=COST', param_hint="--cost")
    names = tuple(name.strip() for name in (order or "").split(",") if name.strip())
    chain = ChainSettings(found, dict.fromkeys(disable, reason), names)
    with masters.client() as client:
        client.set_chain(group, chain)
    return CommandAnswer(
        {"group": group, **msgspec.to_builtins(chain)},
        show=lambda: click.echo(f"agents get the new order of the gateways of {group} with their next configuration"),
    )


def _bound(tier: str, agent: str, masters: Masters, *, start: bool) -> CommandAnswer:
    with masters.client() as client:
        changed = client.bind_agent(*parts_of(tier), agent, start=start).changed
    said = f"{tier} will run at agent {agent}" + ("" if changed else ", as before")
    return CommandAnswer({"tier": tier, "agent": agent, "changed": changed}, show=lambda: click.echo(said))


def _row(agent: Mapping[str, Any]) -> dict[str, Any]:
    return {
        **agent,
        "group": agent["group"] or "–",
        "state": "away, decommissioned" if agent["decommissioned"] and agent["state"] == "away" else agent["state"],
        "oldest": "–" if agent["oldest_age_s"] is None else show_duration(agent["oldest_age_s"]),
        "report": f"{show_duration(agent['report_age_s'])} ago",
        "message": agent["message"] or "–",
    }


def _show(view: Mapping[str, Any]) -> None:
    row = _row(view["agent"])
    click.echo(f"agent {row['agent']} is {row['state']}, group {row['group']}, on {row['host']}, release {row['release'] or '–'}")
    started = f", started {shown_moment(view['since'])}" if view["since"] else ""
    click.echo(f"  last report {row['report']} to gateway {row['gateway']}{started}; configuration {view['revision'] or '–'}")
    click.echo(f"  not committed: {row['backlog']:,} records, {show_bytes(row['waiting_bytes'])} in its log, the oldest {row['oldest']}")
    if row["message"] != "–":
        click.echo(f"  {row['message']}")
    for tier in view["tiers"]:
        why = "mapped to it" if tier["bound"] else f"of group {row['group']}"
        roll_out = "" if tier["stage"] == "done" else f"; roll-out of version {tier['wanted']}: {tier['stage']}"
        click.echo(f"  runs {tier['tier']} version {tier['version']}, {why}{roll_out}" + (f": {tier['reason']}" if tier["reason"] else ""))
    if view["lanes"]:
        click.echo("\nlanes")
        columns = ("lane", "state", "version", "files", "read", "stored", "committed", "dropped", "message")
        print_table([{**each, "message": each["message"] or "–"} for each in view["lanes"]], {name: name for name in columns})
    if view["chain"]:
        click.echo("\ngateways, in the order in which it tries them")
        rows = [{**each, "cost": f"{each['cost']:g}"} for each in view["chain"]]
        print_table(rows, {name: name for name in ("gateway", "url", "cost")})


def _handed_over(client: Client, agent: str, wait_s: float) -> list[str]:
    deadline = time.monotonic() + wait_s
    while True:
        lanes = client.agent(agent).lanes
        left = [each.lane for each in lanes if each.read > each.committed or each.waiting_bytes]
        if not left:
            return []
        if time.monotonic() >= deadline:
            raise NotReached(
                f"agent {agent} still has records of {', '.join(left)} that are not committed after {wait_s:.0f} s",
                remedy=f"see whether it reports, and whether its flows run: scribengin agent describe {agent}",
            )
        time.sleep(_POLL_S)
