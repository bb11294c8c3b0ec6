"""`scribengin maintain FLOW`."""

from __future__ import annotations

import time
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, Union

import click

from scribengin.cli.answer import AnsweringCommand, CommandAnswer
from scribengin.cli.confirm import confirm
from scribengin.cli.flow_argument import flow_argument, is_name
from scribengin.cli.flow_state import open_state
from scribengin.cli.settings import setting_flags
from scribengin.core.errors import EnvironmentFault, Exit, Refused, ScribenginError
from scribengin.core.problems import Place, Problem
from scribengin.core.remedies import flow_command
from scribengin.core.units import parse_duration_s, show_bytes, show_duration

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from scribengin.connectors.files.maintenance import MaintenanceRun
    from scribengin.connectors.objects.maintenance import StoreKeeper
    from scribengin.plan.maintained_places import KeptTable
    from scribengin.spec.model import Flow

_SHOWN = 50


@click.command(cls=AnsweringCommand)
@flow_argument
@setting_flags("state")
@click.option("--once", is_flag=True, help="Run once and exit (the default).")
@click.option("--every", metavar="DURATION", help="Repeat at this interval until Ctrl-C, such as 1m.")
@click.option("--flush", is_flag=True, help="Merge all hidden segments, whatever their size and age.")
@click.option("--report", is_flag=True, help="Report files that no record names; change nothing.")
@click.option("--remove-orphans", is_flag=True, help="Report such files, and delete those that Scribengin left.")
@click.option("--remove-foreign", is_flag=True, help="Also delete such files of other programs. Lists them and asks.")
@click.option("--yes", is_flag=True, help="Do not ask.")
def command(
    *,
    flow: str,
    state: Path | None,
    once: bool,
    every: str | None,
    flush: bool,
    report: bool,
    remove_orphans: bool,
    remove_foreign: bool,
    yes: bool,
) -> CommandAnswer:
    """Maintain the places that a flow's sinks write to.

    Folders of files: merge hidden segments (`roll`), write markers of complete folders, delete folders older than `keep`, compact records,
    delete what killed tasks left. Delta tables: merge small files, delete files that were replaced longer ago than `retain`. Object stores
    and HDFS: merge waiting segments (`roll`). Works beside a run or without one; several may run at once.

    \b
    Examples:
      scribengin maintain flow.yaml --report
      scribengin maintain flow.yaml --every 1m
    """
    if is_name(flow):
        message = f'"{flow}" is a flow of the control plane, whose hosts maintain its folders'
        raise Refused(message, remedy=f"see: scribengin status {flow}; or name the flow's file")
    if once and every is not None:
        raise click.UsageError("--once and --every exclude each other")
    every_s = None if every is None else _duration(every)
    from scribengin.plan.maintained_places import kept_folders, kept_stores, kept_tables

    opened = open_state(flow, state)
    tiers = opened.tiers
    folders = [Path(folder) for folder in sorted({folder for tier in tiers for folder in kept_folders(tier.flow)})]
    if report or remove_orphans or remove_foreign:
        if remove_foreign:
            _confirm_foreign(folders, yes=yes)
        return _orphans(folders, opened.declared, own=remove_orphans, foreign=remove_foreign)
    tables = {table: place for tier in tiers for table, place in kept_tables(tier.flow).items()}
    stores = [store for tier in tiers for store in kept_stores(tier.flow)]
    turns = _turns([*folders, *stores, *tables], tables, every_s, flush=flush)
    problems = [Problem(error.code, Place(""), f"{folder}: {error.message}", error.remedy) for folder, _, error in turns if error]
    result = [{"folder": str(folder), **asdict(done)} for folder, done, _ in turns]
    exit_ = next((error.exit for _, _, error in turns if error), Exit.DONE)
    return CommandAnswer(result, problems, exit_, show=lambda: None if turns else click.echo(_NONE))


_NONE = "the flow has no sink that writes to a folder or a Delta table, nor one to a store that has something to merge"
_Kept = Union[Path, str, "StoreKeeper"]
_Turn = tuple[_Kept, "MaintenanceRun", ScribenginError | None]


def _turns(folders: Sequence[_Kept], tables: Mapping[str, KeptTable], every_s: float | None, *, flush: bool) -> list[_Turn]:
    """Maintain the places once, or repeatedly until Ctrl-C, and print what was done.

    Args:
        folders: folders, tables and places in stores
        tables: how to open those of `folders` that are Delta tables
        every_s: the interval in seconds; None runs once
        flush: merge all hidden segments, whatever their size and age

    Returns: the result of the last run for each place
    """
    last: list[_Turn] = []
    try:
        while True:
            last = [_turn(folder, tables.get(str(folder)), flush=flush) for folder in folders]
            for folder, done, error in last:
                click.echo(f"{folder}: {error.message if error else _text(done)}") if error or every_s is None or done.anything else None
            if every_s is None or not folders:
                return last
            due_s = [done.due_s for _, done, _ in last if done.due_s is not None]
            time.sleep(max(0.1, min([every_s, *due_s])))
    except KeyboardInterrupt:
        return last


def _turn(folder: _Kept, table: KeptTable | None, *, flush: bool) -> _Turn:
    from scribengin.connectors.files.maintenance import MaintenanceRun, keep_folder

    try:
        if table is not None:
            from scribengin.connectors.delta.maintenance import keep_table

            return folder, keep_table(table.place(), table.options["file_size"], table.options["retain"], flush=flush), None
        if not isinstance(folder, Path | str):
            return folder, folder.keep(flush=flush), None
        return folder, keep_folder(Path(folder), lambda: None, flush=flush), None
    except ScribenginError as error:
        return folder, MaintenanceRun(), error
    except OSError as error:
        return (
            folder,
            MaintenanceRun(),
            EnvironmentFault(f"maintenance failed: {error}", remedy="fix the cause; nothing is lost, and the next run continues"),
        )


def _text(done: MaintenanceRun) -> str:
    parts = [
        f"{done.merged:,} segments merged to {done.merged_files:,} files ({show_bytes(done.merged_bytes)})" * bool(done.merged),
        f"{done.closed:,} folders closed" * bool(done.closed),
        f"{done.expired:,} files of old folders deleted" * bool(done.expired),
        f"{done.folded:,} records folded" * bool(done.folded),
        f"{done.files:,} unneeded files deleted ({show_bytes(done.bytes)})" * bool(done.files),
    ]
    waits = f"; hidden segments are due in {show_duration(max(0.0, done.due_s))}" if done.due_s is not None else ""
    return (", ".join(filter(None, parts)) or "nothing to do") + waits


def _confirm_foreign(folders: Sequence[Path], *, yes: bool) -> None:
    """Ask before foreign files are deleted. Raises Refused if they would be deleted without a confirmation."""
    from scribengin.connectors.files.orphans import find_orphans

    foreign = [each for folder in folders for each in find_orphans(folder) if each.foreign and not each.may_be_used]
    if foreign:
        size = show_bytes(sum(each.bytes for each in foreign))
        lines = [str(each.path) for each in foreign[:_SHOWN]]
        if len(foreign) > _SHOWN:
            lines.append(f"and {len(foreign) - _SHOWN:,} more")
        heading = f"this permanently deletes {len(foreign):,} files ({size}) that are not Scribengin's:"
        confirm(heading, lines, yes=yes, code="foreign-unsaid", remedy=f"list all of them: {flow_command('maintain', '--report')}")


def _orphans(folders: Sequence[Path], declared: Flow, *, own: bool, foreign: bool) -> CommandAnswer:
    from scribengin.connectors.files.orphans import find_orphans

    found: list[dict[str, Any]] = []
    for folder in folders:
        for each in find_orphans(folder):
            remove = (foreign if each.foreign else own) and not each.may_be_used
            if remove:
                each.path.unlink(missing_ok=True)
            found.append(
                {
                    "path": str(each.path),
                    "kind": each.kind,
                    "bytes": each.bytes,
                    "age_s": round(each.age_s, 1),
                    "may_be_used": each.may_be_used,
                    "removed": remove,
                }
            )
    found += _orphan_objects(declared, own=own)

    def show() -> None:
        from scribengin.cli.tables import print_table

        if not found:
            click.echo("a record names every file")
            return
        shown = [
            {**each, "bytes": show_bytes(each["bytes"]), "age_s": show_duration(each["age_s"]), "what": _what(each)}
            for each in found[:_SHOWN]
        ]
        print_table(shown, {"path": "file", "kind": "kind", "bytes": "size", "age_s": "age", "what": ""})
        if len(found) > _SHOWN:
            click.echo(f"… and {len(found) - _SHOWN:,} more")
        left = [each for each in found if not each["removed"]]
        if any(each["kind"] == "foreign" for each in left):
            click.echo("foreign: no record of Scribengin names it; --remove-foreign deletes these too")
        if any(each["kind"] != "foreign" and not each["may_be_used"] for each in left):
            click.echo("the others are unneeded files of Scribengin: --remove-orphans deletes them")

    return CommandAnswer(found, show=show)


def _orphan_objects(declared: Flow, *, own: bool) -> list[dict[str, Any]]:
    """Report the orphans of sinks to object stores, and delete Scribengin's own if `own`. Objects of other programs are never deleted."""
    from scribengin.plan.maintained_places import places_in_stores

    found = []
    for _, address, _ in places_in_stores(declared):
        from scribengin.connectors.objects.orphans import find_orphans, remove

        store = address.open()
        for each in find_orphans(store):
            removed = own and not each.foreign and not each.may_be_used
            if removed:
                remove(store, each)
            found.append(
                {
                    "path": f"{address.url.rstrip('/')}/{each.key}",
                    "kind": each.kind,
                    "bytes": each.bytes,
                    "age_s": round(each.age_s, 1),
                    "may_be_used": each.may_be_used,
                    "removed": removed,
                }
            )
    return found


def _what(orphan: dict[str, Any]) -> str:
    return "removed" if orphan["removed"] else "so new that another process may still write it" if orphan["may_be_used"] else ""


def _duration(text: str) -> float:
    try:
        return parse_duration_s(text)
    except ValueError as error:
        raise click.UsageError(f"--every: {error}") from None
