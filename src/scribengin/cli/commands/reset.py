"""`scribengin reset FLOW`."""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import click

from scribengin.cli.answer import Answer, AnsweringCommand
from scribengin.cli.flow_argument import flow_argument
from scribengin.cli.flow_state import open_state
from scribengin.cli.settings import setting_flags
from scribengin.core.errors import Refused

if TYPE_CHECKING:
    from pathlib import Path

    from scribengin.state.folder import StateFolder

_KEPT = ("lock", "terms")
"""Terms must never begin again: an old driver that sleeps would look like a new one."""


@click.command(cls=AnsweringCommand)
@flow_argument
@click.option("--outputs", is_flag=True, help="Also delete what its sinks have written (files of others stay).")
@click.option("--yes", is_flag=True, help="Do it; without this it is only told.")
@setting_flags("state")
def command(*, flow: str, outputs: bool, yes: bool, state: Path | None) -> Answer:
    """Forget what a flow has done: positions, state, dead letters and ledger. It then reads everything again."""
    from scribengin.local.migrate import open_left_sinks
    from scribengin.local.prepare import open_sinks
    from scribengin.state.lease import take_lease
    from scribengin.state.topology import read_topology, tiers_with_state

    found = open_state(flow, state)
    folder, declared = found.tiers[0].folder, found.declared
    own = {tier.folder.tier: tier.folder for tier in found.tiers}
    earlier = [tier for tier in tiers_with_state(folder.root, declared.name) if tier.tier not in own]
    places = {id_: sink.place for tier in found.tiers for id_, sink in tier.flow.sinks.items()}
    sinks = {id_: sink for tier in found.tiers for id_, sink in open_sinks(tier.flow).items() if outputs}
    if outputs and (cuts := read_topology(folder.root, declared.name)) is not None:
        left = {channel.id: channel for channel in cuts.channels if channel.id not in sinks}
        options = {id_: channel.sink for id_, channel in left.items()}
        places |= {id_: channel.place for id_, channel in left.items()}
        sinks |= open_left_sinks(declared, folder.root, folder.query("reset"), folder.tier, (), options)
    queries = list(dict.fromkeys(query.name for tier in (*own.values(), *earlier) for query in tier.queries()))
    if not yes:
        written = "".join(f" and what sink {id_} wrote to {places[id_]}" for id_ in sinks)
        told = f"this forgets the state of {', '.join(queries) or 'no query'} in {found.path}{written}"
        raise Refused(
            f"{told}; it cannot be undone", remedy=f"say --yes: scribengin reset {flow}{' --outputs' * outputs} --yes", code="reset-unsaid"
        )
    with found.leases(), ExitStack() as stack:
        for tier in earlier:
            stack.enter_context(take_lease(tier))
        owner = _owner(folder)
        for sink in sinks.values():
            sink.clear(owner=owner, flow=declared.name, dry_run=True)
        for tier in (*own.values(), *earlier):
            _forget(tier)
        _forget_cuts(folder)
        cleared = [{"sink": id_, "place": places[id_], "files": sink.clear(owner=owner, flow=declared.name)} for id_, sink in sinks.items()]
    result: dict[str, Any] = {"flow": declared.name, "folder": str(found.path), "queries": queries, "outputs": cleared}

    def show() -> None:
        click.echo(f"forgot {', '.join(queries) or 'nothing: there was no state'} ({found.path})")
        for row in cleared:
            gone = f"deleted {row['files']:,} files or rows" if row["files"] else "found nothing"
            click.echo(f"{gone} of sink {row['sink']} in {row['place']}")

    return Answer(result, show=show)


def _owner(folder: StateFolder) -> str:
    """Whose outputs may be deleted; those of a copied state folder belong to the original."""
    try:
        return folder.read_owner()
    except Refused:
        return ""


def _forget_cuts(folder: StateFolder) -> None:
    """How the flow was cut, and a move that was cut short."""
    from scribengin.state.accepted import forget_accepted
    from scribengin.state.learned import forget_learned
    from scribengin.state.moves import Journal
    from scribengin.state.topology import forget_topology

    Journal(folder.root, folder.flow).remove()
    forget_topology(folder.root, folder.flow)
    forget_learned(folder.root, folder.flow)
    forget_accepted(folder.root, folder.flow)


def _forget(folder: StateFolder) -> None:
    """Under the lease. State goes before outputs: killed in between, the next run refuses the outputs instead of doubling them."""
    from scribengin.core.storage import names_in, remove_tree
    from scribengin.state.folder import renew_owner

    for name in names_in(folder.path):
        if name not in _KEPT:
            remove_tree(folder.path / name)
    if not _owner(folder):  # a copy of a state folder becomes an installation of its own
        renew_owner(folder.root)
