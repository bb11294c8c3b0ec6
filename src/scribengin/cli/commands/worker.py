"""`scribengin worker show FLOW.TIER[-N]`: show a worker."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import click

from scribengin.cli.answer import AnsweringCommand, CommandAnswer
from scribengin.cli.commands.status import show_folders
from scribengin.cli.guesses import GuessingGroup
from scribengin.cli.plane_option import masters_option
from scribengin.cli.tables import print_table
from scribengin.client.worker_page import read_worker_page
from scribengin.core.errors import Refused, ScribenginError
from scribengin.core.problems import did_you_mean

if TYPE_CHECKING:
    from scribengin.api.views import RegistryView
    from scribengin.cli.plane_option import Masters
    from scribengin.client.client import Client
    from scribengin.client.models import TierRow

_WORKER = re.compile(r"([^.]+)\.([^.]+?)(-[1-9][0-9]*)?")


@click.group(cls=GuessingGroup)
def command() -> None:
    """Worker processes, which run the tiers of flows.

    \b
    Example:
      scribengin worker show orders.core
    """


@command.command(cls=AnsweringCommand)
@click.argument("worker", metavar="FLOW.TIER[-N]")
@masters_option
def show(*, worker: str, masters: Masters) -> CommandAnswer:
    """Show a worker: its flow and version, lease and master, nodes, next hops, and backlog.

    The information comes from the worker's own status page, through a master and its node if it runs on another host. If the page does not
    answer, the command shows the records of the registry. Without a number: the worker that runs the tier now.

    \b
    Example:
      scribengin worker show orders.core
    """
    import msgspec

    found = _WORKER.fullmatch(worker)
    if found is None:
        raise Refused(f'"{worker}" is not a valid name of a worker', remedy="write FLOW.TIER or FLOW.TIER-N", code="worker-unknown")
    with masters.reader() as plane:
        flow = plane.flow(found[1])
        tiers = {tier.tier: tier for tier in flow.tiers}
        tier = tiers.get(found[2])
        if tier is None:
            near = did_you_mean(found[2], tiers) or f"it has {', '.join(tiers) or 'none'}"
            raise Refused(f'flow {found[1]} has no tier "{found[2]}"', remedy=near, code="tier-unknown")
        known = _known(tier, worker if found[3] else tier.worker or "")
        if known is None:
            there = " and ".join(filter(None, [tier.worker, tier.standby.worker if tier.standby else None]))
            remedy = f"the newest: {there}" if there else f"see: scribengin status {found[1]}"
            raise Refused(f'there is no record of a worker "{worker}"', remedy=remedy, code="worker-unknown")
        own = _own(known, found[1], plane)
    result = {"source": "worker", **own} if own is not None else {"source": "registry", **known}
    result["folders"] = msgspec.to_builtins([folder for folder in flow.folders if tier.tier in folder.tiers])
    return CommandAnswer(result, show=lambda: _show(result))


def _known(tier: TierRow, worker: str) -> dict[str, Any] | None:
    """The registry's record of the worker; None if its records are of other workers."""
    spare = tier.standby
    if spare is not None and spare.worker == worker:
        return {"worker": worker, "tier": tier.tier, "state": spare.state, "node": spare.node, "http": spare.http}
    if not worker or tier.worker != worker:
        return None
    process = {"pid": tier.process.pid, "host": tier.process.host} if tier.process else None
    said = {"failures": tier.failures, "cause": tier.cause, "remedy": tier.remedy, "starts_again": tier.starts_again}
    return {"worker": worker, "tier": tier.tier, "state": tier.state, "node": tier.node, "process": process, **said, "http": tier.http}


def _own(known: dict[str, Any], flow: str, plane: Client | RegistryView) -> dict[str, Any] | None:
    """The worker's own report, read from its page directly or through a master and the worker's node. None if it does not answer."""
    if (said := read_worker_page(known["http"], known["worker"])) is not None:
        return said
    from scribengin.client.client import Client as Asking

    if not isinstance(plane, Asking):
        return None
    try:
        return plane.worker(flow, known["worker"])
    except ScribenginError as error:
        known["silent"] = error.message
        return None


def _show(found: dict[str, Any]) -> None:
    click.echo(f"worker {found['worker']} is {found['state']}" + (f", {found['http']}" if found["source"] == "worker" else ""))
    if found["source"] == "registry":
        click.echo(f"it does not answer ({found.get('silent') or 'here'}); the registry has:")
    for name in ("node", "cause", "remedy", "starts_again"):
        if found.get(name):
            click.echo(f"  {name.replace('_', ' ')}: {found[name]}")
    if process := found.get("process"):
        click.echo(f"  process: {process['pid']} on {process['host']}")
    if found["source"] == "registry":
        show_folders(found["folders"])
        return
    lease, master = found["lease"], found["master"]
    click.echo(
        f"  version {found['version']}; " + (f"holds the lease, term {lease['term']}" if lease["held"] else "does not hold the lease")
    )
    click.echo("  master: " + (f"{master['id']} on {master['host'] or 'this host'}" if master else "none leads"))
    nodes = [{**node, "type": node["type"] or "–", "from": ", ".join(node["from"]) or "–"} for node in found["nodes"]]
    for title, rows, columns in (
        ("nodes", nodes, ("node", "type", "stage", "from")),
        ("queries", found["queries"], ("query", "state", "batches", "rows_in", "rows_out", "dead", "rows_per_s", "message")),
        ("gates", found["gates"], ("channel", "from", "to", "rows", "bytes", "age_s", "in_per_s", "out_per_s")),
        ("reads from", found["reads_from"], ("tier", "channel")),
        ("writes to", found["hands_to"], ("tier", "channel")),
    ):
        if rows:
            click.echo(f"\n{title}")
            print_table(rows, {name: name for name in columns})
    if found["folders"]:
        click.echo()
        show_folders(found["folders"])
