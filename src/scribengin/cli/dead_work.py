"""`scribengin dead export|edit|replay|purge`: what a person does with dead letters."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from scribengin.cli.answer import Answer
from scribengin.cli.dead_filters import Filters, letter_filters
from scribengin.cli.each_flow import FlowCommand, each_flow
from scribengin.cli.flow_argument import flow_argument, is_name
from scribengin.cli.flow_state import open_state, prepared_flow
from scribengin.cli.plane_option import masters_option
from scribengin.cli.settings import setting_flags
from scribengin.core.errors import EnvironmentFault, Refused

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from scribengin.cli.plane_option import Masters
    from scribengin.local.repairing import Editing


@click.command(cls=FlowCommand)
@flow_argument
@letter_filters
@click.option("--to", "to", type=click.Path(dir_okay=False, path_type=Path), required=True, help="The file to write; - for stdout.")
@setting_flags("state")
@masters_option
@each_flow("flow")
def export(*, flow: str, filters: Filters, to: Path, state: Path | None, masters: Masters) -> Answer:
    """Write dead letters to a file, whole, one JSON object a line. Repair `payload` (the record) or `came` (the row that came to the step)
    there, and give it back: scribengin dead replay FLOW --repaired FILE."""
    import msgspec

    if is_name(flow):
        with masters.client() as client:
            return _written(flow, to, (_whole(msgspec.to_builtins(each)) for each in client.dead_letters(flow, **filters.said())))
    from scribengin.local.repairing import whole_letters

    opened = open_state(flow, state)
    queries = [part for _, part in opened.queries(filters.which.query or None)]
    return _written(opened.declared.name, to, whole_letters(queries, opened.declared.folder, filters.which))


def _whole(letter: dict[str, Any]) -> dict[str, Any]:
    """As a master gives it. Raises Refused where it withholds the record: what has none is no copy."""
    if letter["payload"] is None and letter["payload_base64"] is None:
        raise Refused(
            "the master withholds the bytes of records from you, so that no letter can be exported",
            remedy="ask who may see records, or look without them: scribengin dead show FLOW",
            code="letter-refused",
        )
    return letter


def _written(flow: str, to: Path, letters: Any) -> Answer:
    import msgspec

    count = 0
    # what is cut short must not stand where a whole file is looked for; a device or pipe is written to as it is
    beside = to.with_name(f".{to.name}.{os.getpid()}") if str(to) != "-" and (to.is_file() or not to.exists()) else None
    try:
        with sys.stdout.buffer if str(to) == "-" else (beside or to).open("wb") as file:
            for letter in letters:
                file.write(msgspec.json.encode(letter) + b"\n")
                count += 1
            file.flush()
        if beside is not None:
            beside.replace(to)
    except BaseException as error:
        if beside is not None:
            beside.unlink(missing_ok=True)
        if not isinstance(error, OSError):
            raise
        raise EnvironmentFault(f"{to} cannot be written: {error.strerror}", remedy="name another file with --to") from error
    return Answer(
        {"flow": flow, "letters": count, "file": str(to)}, show=lambda: click.echo(f"{count:,} letters in {to}", err=str(to) == "-")
    )


@click.command(cls=FlowCommand)
@flow_argument
@click.argument("letter", metavar="ID")
@click.option("--query", default="", help="Of this Query only.")
@click.option("--set", "columns", metavar="COLUMN=VALUE", multiple=True, help="Give a column another value, without an editor.")
@click.option("--with", "file", type=click.Path(dir_okay=False, path_type=Path), help="Take the text from this file; - for stdin.")
@click.option(
    "--from-start", is_flag=True, help="Edit the record as its source gave it, also where the row that came to the step is known."
)
@setting_flags("state")
@masters_option
@each_flow("flow")
def edit(
    *,
    flow: str,
    letter: str,
    query: str,
    columns: tuple[str, ...],
    file: Path | None,
    from_start: bool,
    state: Path | None,
    masters: Masters,  # noqa: ARG001 (letters of names are repaired in a file)
) -> Answer:
    """Repair a dead letter: in $EDITOR, or with --set or --with. The repair is kept, if the flow would take it, until it is replayed.

    ID is a letter's id, or how it begins, or its key (`kept:12:3`).
    """
    from scribengin.local.letters import Which
    from scribengin.local.repairing import find_to_edit, keep_all

    if is_name(flow):
        raise _by_hand(flow)
    prepared = prepared_flow(flow, state)
    found = find_to_edit(prepared, Which(query=query, prefix=letter), record=from_start)
    text = _new_text(found[0], columns, file)
    changed = keep_all(found, text)
    first = found[0]
    result = {"flow": prepared.name, "id": first.letter.id, "queries": changed, "at": first.at or first.letter.source}
    said = (
        f"repaired for {', '.join(changed)}; it waits for: scribengin dead replay {flow} '{letter}'" if changed else "nothing was changed"
    )
    return Answer(result, show=lambda: click.echo(f"{first.letter.id}: {said}"))


def _by_hand(flow: str) -> Refused:
    return Refused(
        f'letters of "{flow}", which was submitted, are repaired in a file',
        remedy=f"scribengin dead export {flow} --to FILE; change it; scribengin dead replay {flow} --repaired FILE",
        code="letter-refused",
    )


def _new_text(editing: Editing, columns: tuple[str, ...], file: Path | None) -> bytes:
    if columns and file is not None:
        raise click.UsageError("say --set or --with, not both")
    if file is not None:
        try:
            return sys.stdin.buffer.read() if str(file) == "-" else file.read_bytes()
        except OSError as error:
            raise EnvironmentFault(f"{file} cannot be read: {error.strerror}", remedy="name another file with --with") from error
    if columns:
        if wrong := [each for each in columns if "=" not in each]:
            raise click.UsageError(f'--set {wrong[0]}: write COLUMN=VALUE, such as --set "amount=1.5"')
        return editing.with_columns(dict(each.split("=", 1) for each in columns))
    try:
        text = editing.text.decode()
    except UnicodeDecodeError:
        raise Refused(f"{editing.letter.id} is no text", remedy="give its bytes whole: --with FILE", code="letter-columns") from None
    edited = click.edit(text + "\n", extension=".json" if editing.is_row or text.lstrip().startswith("{") else ".txt")
    return editing.text if edited is None else edited.encode()


@click.command(cls=FlowCommand)
@flow_argument
@letter_filters
@click.option("--from-start", is_flag=True, help="Through all steps again, also where that makes rows a second time.")
@click.option("--repaired", "file", type=click.Path(dir_okay=False, path_type=Path), help="The letters of this file, as they stand there.")
@click.option("--as-is", is_flag=True, help="As they died, without what `dead edit` has made of them.")
@click.option("--dry-run", is_flag=True, help="Only tell what would be replayed, and what cannot.")
@setting_flags("state")
@masters_option
@each_flow("flow")
def replay(
    *,
    flow: str,
    filters: Filters,
    from_start: bool,
    file: Path | None,
    as_is: bool,
    dry_run: bool,
    state: Path | None,
    masters: Masters,
) -> Answer:
    """Send dead letters on their way again, once: from the step that refused them, in the Query that refused them, repaired where they are.

    A run of the flow takes them up at its next look; one that is not running when it runs next. Each letter is replayed once, however often
    this is said; one that dies again is a letter of its own.
    """
    from scribengin.local.repairing import given_letters

    lines: Sequence[bytes] | None = None
    if file is not None:
        try:
            lines = file.read_bytes().split(b"\n")
        except OSError as error:
            raise EnvironmentFault(f"{file} cannot be read: {error.strerror}", remedy="name the file that was exported") from error
    given = None if lines is None else given_letters(lines, str(file))
    if is_name(flow):
        with masters.client() as client:
            text = None if lines is None else b"\n".join(lines).decode(errors="surrogateescape")
            found = client.replay_letters(flow, filters.said(), from_start=from_start, as_is=as_is, dry_run=dry_run, repaired=text)
    else:
        from scribengin.local.replay import replay as ask

        prepared = prepared_flow(flow, state)
        asked = ask(prepared, filters.which, from_start=from_start, given=given, as_they_were=as_is, dry_run=dry_run)
        found = asked.as_json()
    return Answer(found, show=_shown(found, flow))


def _shown(found: dict[str, Any], flow: str) -> Callable[[], None]:
    def show() -> None:
        for row in found["refusals"]:
            click.echo(f"{click.style(row['id'] or row['key'], bold=True)} stays: {row['why']}; {click.style(row['remedy'], dim=True)}")
        if found["refused"] > len(found["refusals"]):
            click.echo(f"… and {found['refused'] - len(found['refusals']):,} more")
        will = "would enter" if found["dry_run"] else "enter"
        for row in found["entering"]:
            click.echo(f"{row['count']:,} {will} Query {row['query']} at {row['at']}")
        for row in found["late"]:
            click.echo(
                f"{row['count']:,} of them lie behind the watermark of Query {row['query']}, {row['watermark']}: late, they come back"
            )
        parts = [f"{found['replayed']:,} {'to be replayed' if found['dry_run'] else 'are on their way'}"]
        parts += [f"{found['repaired']:,} of them repaired"] if found["repaired"] else []
        parts += [f"{found['already']:,} had been asked for before"] if found["already"] else []
        parts += [f"{found['refused']:,} stay"] if found["refused"] else []
        click.echo(", ".join(parts))
        if found["replayed"] and not found["dry_run"]:
            click.echo("the flow runs, and takes them up now" if found["running"] else f"they wait for the next run: scribengin run {flow}")

    return show


@click.command(cls=FlowCommand)
@flow_argument
@letter_filters
@click.option("--replayed", is_flag=True, help="Only those that have been replayed.")
@click.option("--yes", is_flag=True, help="Do it; without this it is only told.")
@setting_flags("state")
@masters_option
@each_flow("flow")
def purge(*, flow: str, filters: Filters, replayed: bool, yes: bool, state: Path | None, masters: Masters) -> Answer:  # noqa: ARG001
    """Delete dead letters; their number stays in the ledger. The flow must not run meanwhile."""
    from scribengin.local.purging import find_doomed
    from scribengin.local.purging import purge as delete

    if is_name(flow):
        raise Refused(
            f'letters of "{flow}", which was submitted, go with `retain`',
            remedy="write defaults: {retain: {age: 30d, size: 1GiB}}, or name the flow file and its --state where the flow is stopped",
            code="dead-purge-unsaid",
        )
    opened = open_state(flow, state)
    queries = [part for _, part in opened.queries(filters.which.query or None)]
    doomed = find_doomed(queries, filters.which, replayed=replayed)
    if doomed.count and not yes:
        never = f", {doomed.unreplayed:,} of which were never replayed" if doomed.unreplayed else ""
        raise Refused(
            f"this deletes {doomed.count:,} dead letters of {', '.join(doomed.by_query)}{never}; it cannot be undone",
            remedy="say --yes; to keep a copy: scribengin dead export FLOW --to FILE",
            code="dead-purge-unsaid",
        )
    if doomed.count:
        with opened.leases():
            delete(doomed)
    return Answer(
        {"flow": opened.declared.name, "purged": doomed.count, "unreplayed": doomed.unreplayed, "queries": dict(doomed.by_query)},
        show=lambda: click.echo(f"deleted {doomed.count:,} dead letters" if doomed.count else "no dead letters"),
    )
