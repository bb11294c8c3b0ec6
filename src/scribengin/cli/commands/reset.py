"""`scribengin reset FLOW`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from scribengin.cli.answer import AnsweringCommand, CommandAnswer
from scribengin.cli.confirm import confirm
from scribengin.cli.flow_argument import as_called, flow_argument
from scribengin.cli.flow_state import open_state
from scribengin.cli.settings import setting_flags
from scribengin.core.remedies import flow_command

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from scribengin.cli.flow_state import FlowWithState
    from scribengin.state.trash import Discarded


@click.command(cls=AnsweringCommand)
@flow_argument
@click.option("--outputs", is_flag=True, help="Also remove the outputs of its sinks; files of other programs stay.")
@click.option("--dry-run", is_flag=True, help="Only list what would be removed.")
@click.option("--yes", is_flag=True, help="Do not ask.")
@click.option(
    "--undo", metavar="[ID]", is_flag=False, flag_value="newest", help="Restore what the newest reset removed, or the reset with this ID."
)
@setting_flags("state")
def command(*, flow: str, outputs: bool, dry_run: bool, yes: bool, undo: str | None, state: Path | None) -> CommandAnswer:
    """Delete a flow's state, so that it reads all sources from the start: positions, state, dead letters, ledger.

    Lists what would be removed, and asks. State, and outputs in folders, object stores and HDFS, go to a trash for 7 days; --undo restores
    them. Rows in databases are deleted for good.

    \b
    Example:
      scribengin reset flow.yaml --outputs --dry-run
    """
    named = {"flow": flow, "state": state}
    if undo is not None:
        if outputs or dry_run:
            raise click.UsageError("--undo takes neither --outputs nor --dry-run")
        return _undo(open_state(flow, state), "" if undo == "newest" else undo, named)
    from scribengin.local.reset import Reset

    found = open_state(flow, state)
    reset = Reset.of(found.declared, [(tier.flow, tier.folder) for tier in found.tiers], outputs=outputs)
    queries, removed = reset.lost()
    lines = [str(each) for each in (*queries, *(output for output in removed if output.items))]
    result: dict[str, Any] = {
        "flow": found.declared.name,
        "folder": str(found.path),
        "queries": [each.as_json() for each in queries],
        "outputs": [each.as_json() for each in removed],
    }
    if dry_run:
        return CommandAnswer(result, show=lambda: _show_lost(lines))
    if lines:
        confirm(f"reset of flow {found.declared.name} removes:", lines, yes=yes, code="reset-unsaid")
    discarded = reset.run([*result["queries"], *result["outputs"]])
    return CommandAnswer(result | {"trash": discarded.as_json()}, show=lambda: _show_done(lines, discarded, named))


def _undo(found: FlowWithState, id_: str, named: Mapping[str, Any]) -> CommandAnswer:
    from scribengin.local.reset import Reset
    from scribengin.state.trash import Trash

    # opens the sinks only if the trash holds outputs: without them the undo also works for a flow whose sinks cannot be opened
    outputs = bool(Trash(found.tiers[0].folder.root, found.declared.name).find(id_).outputs)
    reset = Reset.of(found.declared, [(tier.flow, tier.folder) for tier in found.tiers], outputs=outputs)
    discarded = reset.undo(id_)
    left = reset.trash.all()

    def show() -> None:
        click.echo(f"brought back what the reset {discarded.id} removed:")
        for lost in discarded.lost:
            click.echo(f"  {_lost_text(lost)}")
        for other in left:
            what = ", ".join(_lost_text(lost) for lost in other.lost) or "nothing"
            click.echo(f"still in the trash: {other.id} ({what}); {_undo_command(other, named)}")

    return CommandAnswer({"flow": found.declared.name, "folder": str(found.path), "trash": discarded.as_json()}, show=show)


def _undo_command(discarded: Discarded, named: Mapping[str, Any]) -> str:
    """The command that restores `discarded`. `named` has the flow and the state as they were given to this command."""
    return as_called(flow_command("reset", "--undo", discarded.id), named)


def _lost_text(lost: Mapping[str, Any]) -> str:
    """Describe an entry in the trash's list of removed things."""
    if "query" in lost:
        return f"the state of query {lost['query']}"
    return f"{lost['items']:,} files of sink {lost['sink']}" if lost["restorable"] else f"sink {lost['sink']}: deleted permanently"


def _show_lost(lines: Sequence[str]) -> None:
    for line in lines or ("nothing: there is no state",):
        click.echo(line)


def _show_done(lines: Sequence[str], discarded: Discarded, named: Mapping[str, Any]) -> None:
    if not lines:
        click.echo("nothing was removed: there was no state")
        return
    for line in lines:
        click.echo(f"removed {line}")
    if discarded.owner:  # a trash without an owner belongs to another installation, so this one cannot restore it
        click.echo(f"to bring it back, until {discarded.until:%Y-%m-%d}: {_undo_command(discarded, named)}")
