"""`scribengin dead-letter export|edit|replay|purge`: the commands that copy, repair, replay and delete dead letters."""

from __future__ import annotations

import os
import sys
from dataclasses import asdict, dataclass, replace
from functools import partial, wraps
from pathlib import Path
from tempfile import mkstemp
from typing import TYPE_CHECKING, Any, TypeVar

import click

from scribengin.cli.answer import CommandAnswer
from scribengin.cli.complete_values import nodes, words
from scribengin.cli.confirm import confirm
from scribengin.cli.each_flow import FlowCommand, each_flow
from scribengin.cli.flow_argument import as_called, flow_argument, is_name
from scribengin.cli.flow_state import open_state, prepared_flow
from scribengin.cli.plane_option import masters_option
from scribengin.cli.settings import setting_flags
from scribengin.cli.value_options import as_moment
from scribengin.core.errors import EnvironmentFault, Refused, ScribenginError
from scribengin.core.remedies import flow_command

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from scribengin.cli.flow_state import FlowWithState
    from scribengin.cli.plane_option import Masters
    from scribengin.client.state_models import LetterRepaired, RepairLetter
    from scribengin.local.dead_letters import Which
    from scribengin.state.trash import Trash


# options that select dead letters


C = TypeVar("C")


@dataclass(frozen=True, slots=True)
class Filters:
    """The filters that select dead letters. An omitted filter excludes none."""

    which: Which

    def given(self) -> dict[str, str]:
        """The filters that were given, as parameters of a request to a master."""
        which = self.which
        names = ("query", "step", "reason", "prefix", "since", "until")
        return {name: value for name in names if (value := getattr(which, name))}


def letter_filters(command: Callable[..., C]) -> Callable[..., C]:
    """Add the argument ID and the filter options to a command. The command receives them as `filters`, a `Filters`."""

    @click.argument("letter", metavar="[ID]", default="")
    @click.option("--query", default="", help="Only this query.", shell_complete=nodes("sinks"))
    @click.option("--step", default="", help="Only this step.", shell_complete=nodes("steps", "sources", "sinks"))
    @click.option("--reason", default="", help="Only this reason.", shell_complete=words(_reasons))
    @click.option(
        "--since",
        default="",
        metavar="TIME",
        help="Only Batches decided since this time: 2026-01-31T12:00:00Z, or how long ago (2h).",
        callback=_moment,
    )
    @click.option("--until", default="", metavar="TIME", help="Only Batches decided before this time.", callback=_moment)
    @wraps(command)
    def with_filters(*, letter: str, query: str, step: str, reason: str, since: str, until: str, **more: Any) -> C:
        from scribengin.local.dead_letters import Which

        return command(filters=Filters(Which(query, step, reason, letter, since, until)), **more)

    return with_filters


def _reasons() -> list[str]:
    from scribengin.cli.code_catalog.reasons import REASONS

    return [reason.name for reason in REASONS]


def _moment(context: click.Context, option: click.Parameter, value: str) -> str:
    moment = as_moment(context, option, value)
    return "" if moment is None else moment.isoformat()


_NEWEST = "newest"
_OF_TERMINALS = frozenset(
    {"vi", "vim", "nvim", "view", "nano", "pico", "emacs", "joe", "micro", "hx", "mcedit", "editor", "sensible-editor"}
)
_KEYS = 3
"""the number of dead letters with the same reason whose keys are printed"""


@click.command(cls=FlowCommand)
@flow_argument
@letter_filters
@click.option("--to", "to", type=click.Path(dir_okay=False, path_type=Path), required=True, help="File to write; - for stdout.")
@setting_flags("state")
@masters_option
@each_flow("flow")
def export(*, flow: str, filters: Filters, to: Path, state: Path | None, masters: Masters) -> CommandAnswer:
    """Export dead letters to a file, one JSON object per line. Repair `payload` (the record) or `came` (the input row of the step) there,
    then run scribengin dead-letter replay FLOW --repaired FILE.

    \b
    Example:
      scribengin dead-letter export flow.yaml --to dead.jsonl
    """
    import msgspec

    if is_name(flow):
        with masters.client() as client:
            return _written(flow, to, (_whole(msgspec.to_builtins(each)) for each in client.dead_letters(flow, **filters.given())))
    from scribengin.local.dead_letter_repair import exported_letters

    opened = open_state(flow, state)
    queries = [part for _, part in opened.queries(filters.which.query or None)]
    return _written(opened.declared.name, to, exported_letters(queries, opened.declared.folder, filters.which))


def _whole(letter: dict[str, Any]) -> dict[str, Any]:
    """Returns the dead letter unchanged. Raises Refused if the master withholds the record: without it the export could not be replayed."""
    if letter["payload"] is None and letter["payload_base64"] is None:
        raise Refused(
            "your token may not see the bytes of records, so no dead letter can be exported",
            remedy=f"use a token that may see records, or list without them: {flow_command('dead-letter show')}",
            code="letter-refused",
        )
    return letter


def _written(flow: str, to: Path, letters: Any) -> CommandAnswer:
    import msgspec

    count = 0
    # a partially written file must not get the final name; devices and pipes are written directly
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
    return CommandAnswer(
        {"flow": flow, "letters": count, "file": str(to)}, show=lambda: click.echo(f"{_counted(count)} in {to}", err=str(to) == "-")
    )


@click.command(cls=FlowCommand)
@flow_argument
@click.argument("letter", metavar="ID")
@click.option("--query", default="", help="Only this query.", shell_complete=nodes("sinks"))
@click.option("--set", "columns", metavar="COLUMN=VALUE", multiple=True, help="Set a column to another value, without an editor.")
@click.option("--with", "file", type=click.Path(dir_okay=False, path_type=Path), help="Read the new text from this file; - for stdin.")
@click.option("--from-start", is_flag=True, help="Edit the record as the source delivered it, even if the input row of the step is known.")
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
    masters: Masters,
) -> CommandAnswer:
    """Repair a dead letter: in $EDITOR, or with --set or --with. The repair is checked against the flow and kept until the dead letter is
    replayed.

    ID is the id of a dead letter, a prefix of it, or its key (`kept:12:3`).

    \b
    Example:
      scribengin dead-letter edit flow.yaml kept:12:3 --set amount=4
    """
    from scribengin.client.state_models import LetterRepaired, RepairLetter

    repair, given = RepairLetter(letter, query, from_start, _values(columns, file)), _given(file)
    several = False
    if is_name(flow):
        with masters.client() as client:
            found = _repaired(lambda asked: client.repair_letter(flow, asked), repair, given)
    else:
        from scribengin.local.dead_letter_repair import repair_letter

        prepared = prepared_flow(flow, state)
        several = sum(len(tier.plan.queries) for tier in prepared.tiers) > 1
        found = _repaired(lambda asked: LetterRepaired(**repair_letter(prepared, asdict(asked))), repair, given)
    changed = found.queries
    result = {"flow": found.flow, "id": found.id, "queries": list(changed), "at": found.at}
    replay_it = as_called(flow_command("dead-letter replay", letter, *["--from-start"] * from_start), {"flow": flow, "state": state})
    said = f"repaired for {', '.join(changed)}; to replay it: {replay_it}" if changed else "nothing was changed"

    def show() -> None:
        click.echo(f"{letter}: {said}")
        if several and len(changed) == 1 and not query and letter != found.id:
            by_id = as_called(flow_command("dead-letter edit", found.id), {"flow": flow, "state": state})
            click.echo(f"if other queries refused the same record, repair it for all of them by its id: {by_id}")

    return CommandAnswer(result, show=show)


def _repaired(ask: Callable[[RepairLetter], LetterRepaired], repair: RepairLetter, given: bytes | None) -> LetterRepaired:
    """Repair the dead letter with `given`, with columns, or in an editor. For the editor the text is requested first; the repair then
    carries the text's digest, so that it only applies to that text."""
    from base64 import b64decode, b64encode

    if given is not None:
        return ask(replace(repair, text_base64=b64encode(given).decode()))
    if repair.columns:
        return ask(repair)
    seen = ask(repair)
    _check_editor(repair)
    before = seen.text.encode() if seen.text is not None else b64decode(seen.text_base64 or "")
    given = _edited(seen.id, before, row=seen.row)
    if given.removesuffix(b"\n") == before:
        return seen
    try:
        return ask(replace(repair, text_base64=b64encode(given).decode(), digest=seen.digest))
    except ScribenginError as error:
        file, name = mkstemp(prefix="letter-", suffix=".json" if seen.row else ".txt")
        with os.fdopen(file, "wb") as kept:
            kept.write(given)
        told = f"your text is in {name}; pass it with --with"
        error.remedy = f"{error.remedy}; {told}" if error.remedy else told
        raise


def _values(columns: tuple[str, ...], file: Path | None) -> dict[str, str]:
    if columns and file is not None:
        raise click.UsageError("--set and --with exclude each other")
    if wrong := [each for each in columns if "=" not in each]:
        raise click.UsageError(f'--set {wrong[0]}: write COLUMN=VALUE, such as --set "amount=1.5"')
    return dict(each.split("=", 1) for each in columns)


def _given(file: Path | None) -> bytes | None:
    if file is None:
        return None
    try:
        return sys.stdin.buffer.read() if str(file) == "-" else file.read_bytes()
    except OSError as error:
        raise EnvironmentFault(f"{file} cannot be read: {error.strerror}", remedy="name another file with --with") from error


def _check_editor(repair: RepairLetter) -> None:
    """Raises Refused if there is no terminal for the editor."""
    editor = (os.environ.get("VISUAL") or os.environ.get("EDITOR") or "").split()
    if not (sys.stdin.isatty() and sys.stdout.isatty()) and (not editor or Path(editor[0]).name in _OF_TERMINALS):
        more = [*(["--query", repair.query] if repair.query else []), *["--from-start"] * repair.from_start]
        edit_it = flow_command("dead-letter edit", repair.letter, *more, "--set", "COLUMN=VALUE")
        raise Refused(
            "there is no terminal for an editor",
            remedy=f"set a column: {edit_it}; or replace the text: --with FILE",
            code="editor-no-terminal",
        )


def _edited(letter: str, before: bytes, *, row: bool) -> bytes:
    """Open the text in an editor and return the result."""
    try:
        text = before.decode()
    except UnicodeDecodeError:
        raise Refused(f"{letter} is not text", remedy="replace its bytes: --with FILE", code="letter-columns") from None
    edited = click.edit(text + "\n", extension=".json" if row or text.lstrip().startswith("{") else ".txt")
    return before if edited is None else edited.encode()


@click.command(cls=FlowCommand)
@flow_argument
@letter_filters
@click.option("--from-start", is_flag=True, help="Send them through all steps again, even if that duplicates rows.")
@click.option(
    "--repaired",
    "file",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Replay the dead letters of this file, with the changes made in it.",
)
@click.option("--as-is", is_flag=True, help="Replay them unchanged, without the repairs of `dead-letter edit`.")
@click.option("--dry-run", is_flag=True, help="Only show what would be replayed, and what cannot be.")
@click.option("--yes", is_flag=True, help="Do not ask.")
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
    yes: bool,
    state: Path | None,
    masters: Masters,
) -> CommandAnswer:
    """Replay dead letters once: from the step that refused them, in the query that refused them, with their repairs.

    A running flow picks them up at its next look, a stopped one at its next run. Each dead letter is replayed once, however often you run
    this; if the record fails again, it becomes a new dead letter. Without ID and filters the command replays all open dead letters: it asks
    in a terminal, and needs --yes elsewhere.

    \b
    Example:
      scribengin dead-letter replay flow.yaml --step parsed
    """
    from scribengin.local.dead_letter_repair import parse_exported_letters

    lines: Sequence[bytes] | None = None
    if file is not None:
        try:
            lines = file.read_bytes().split(b"\n")
        except OSError as error:
            raise EnvironmentFault(f"{file} cannot be read: {error.strerror}", remedy="name the file that was exported") from error
    given = None if lines is None else parse_exported_letters(lines, str(file))
    if is_name(flow):
        text = None if lines is None else b"\n".join(lines).decode(errors="surrogateescape")

        def ask(*, dry_run: bool) -> dict[str, Any]:
            with masters.client() as client:
                return client.replay_letters(flow, filters.given(), from_start=from_start, as_is=as_is, dry_run=dry_run, repaired=text)
    else:
        from scribengin.local.dead_letter_replay import replay as ask_here

        prepared = prepared_flow(flow, state)

        def ask(*, dry_run: bool) -> dict[str, Any]:
            return ask_here(prepared, filters.which, from_start=from_start, given=given, as_they_were=as_is, dry_run=dry_run).as_json()

    params = {"flow": flow, "state": state}
    if not dry_run:
        _ask_first(ask(dry_run=True), everything=not filters.given() and file is None and not yes)
    found = ask(dry_run=dry_run)
    found["refusals"] = [row | {"remedy": as_called(row["remedy"], params)} for row in found["refusals"]]
    return CommandAnswer(found, show=_shown(found, params))


def _ask_first(found: dict[str, Any], *, everything: bool) -> None:
    """Print which dead letters will fail again, before the replay is requested. Raises Refused if `everything` is not confirmed."""
    ahead = _ahead(found)
    if not found["replayed"] or not everything:
        for line in ahead:
            click.echo(line, err=True)
        return
    why = dict.fromkeys(row["why"] for row in found["refusals"])
    stay = [f"{found['refused']:,} stay: {' | '.join(why)}"] if why else []
    lines = [_counted(found["replayed"]), *stay, *ahead]
    remedy = "choose dead letters by an ID, --step or --reason, or list them first: --dry-run"
    confirm("this replays all open dead letters:", lines, yes=False, code="dead-replay-unsaid", remedy=remedy)


def _ahead(found: dict[str, Any]) -> list[str]:
    """Returns lines about the dead letters that are expected to fail again."""
    lines = [
        f"{row['count']:,} of them are behind the watermark of query {row['query']}, {row['watermark']}: they become "
        "dead letters again, except those that a step drops before"
        for row in found["late"]
    ]
    lines += [
        f"{row['count']:,} of them enter at {row['at']}, whose columns only Spark knows: a row that does not fit there becomes "
        "a dead letter again"
        for row in found.get("unchecked", ())  # masters of earlier releases leave this out
    ]
    unrepaired = found["replayed"] - found["repaired"]
    if unrepaired:
        lines.append(f"{unrepaired:,} of them are not repaired: they fail again unless the step or sink that refused them has changed")
    return lines


def _shown(found: dict[str, Any], named: Mapping[str, Any]) -> Callable[[], None]:
    def show() -> None:
        if not found["replayed"] + found["already"] + found["refused"]:
            click.echo("no dead letters match")
            return
        groups: dict[tuple[str, str], list[dict[str, str]]] = {}
        for row in found["refusals"]:
            groups.setdefault((row["why"], row["remedy"].replace(row["key"], "")), []).append(row)
        for (why, _), rows in groups.items():
            keys = ", ".join(row["key"] for row in rows[:_KEYS]) + (f" and {len(rows) - _KEYS} more" if len(rows) > _KEYS else "")
            stay = "stays" if len(rows) == 1 else "stay"
            click.echo(f"{click.style(keys, bold=True)} {stay}: {why}; {click.style(rows[0]['remedy'], dim=True)}")
        if found["refused"] > len(found["refusals"]):
            click.echo(f"… and {found['refused'] - len(found['refusals']):,} more")
        if any(len(rows) > 1 and rows[0]["key"] in rows[0]["remedy"] for rows in groups.values()):
            back = as_called(flow_command("dead-letter replay", "--repaired", "FILE"), named)
            click.echo(f"to repair many in one file: {as_called(flow_command('dead-letter export', '--to', 'FILE'), named)}, then {back}")
        will = "would enter" if found["dry_run"] else "enter"
        for row in found["entering"]:
            click.echo(f"{row['count']:,} {will} query {row['query']} at {row['at']}")
        for line in _ahead(found) if found["dry_run"] else ():
            click.echo(line)
        parts = [f"{found['replayed']:,} {'to be replayed' if found['dry_run'] else 'are on their way'}"]
        parts += [f"{found['repaired']:,} of them repaired"] if found["repaired"] else []
        parts += [f"{found['already']:,} were already asked for"] if found["already"] else []
        parts += [f"{found['refused']:,} stay"] if found["refused"] else []
        click.echo(", ".join(parts))
        if found["replayed"] and not found["dry_run"]:
            waits = f"the next run replays them: {flow_command('run')}"
            click.echo("the flow is running and replays them now" if found["running"] else as_called(waits, named))

    return show


@click.command(cls=FlowCommand)
@flow_argument
@letter_filters
@click.option("--replayed", is_flag=True, help="Only dead letters that were replayed.")
@click.option("--dry-run", is_flag=True, help="Only show how many would be deleted.")
@click.option("--yes", is_flag=True, help="Do not ask.")
@click.option(
    "--undo",
    metavar="[PURGE]",
    is_flag=False,
    flag_value=_NEWEST,
    help="Restore what the newest purge deleted, or the purge with this id.",
)
@setting_flags("state")
@masters_option
@each_flow("flow")
def purge(
    *,
    flow: str,
    filters: Filters,
    replayed: bool,
    dry_run: bool,
    yes: bool,
    undo: str | None,
    state: Path | None,
    masters: Masters,
) -> CommandAnswer:
    """Delete dead letters. Their number stays in the ledger. The flow must be stopped.

    They go to a trash for 7 days; --undo restores them.

    \b
    Example:
      scribengin dead-letter purge flow.yaml --replayed
    """
    if undo is not None:
        if replayed or dry_run or filters.given():
            raise click.UsageError("--undo excludes IDs and --dry-run")
        return _undo_purge(flow, "" if undo == _NEWEST else undo, state, masters)
    purged = partial(_purged_there, flow, filters, masters) if is_name(flow) else partial(_purged_here, flow, filters, state)
    found = purged(replayed=replayed, dry_run=True)
    count = found["purged"]
    if count and not dry_run:
        never = f", {found['unreplayed']:,} of which were never replayed" if found["unreplayed"] else ""
        lines = [f"{_counted(count)} of {', '.join(found['queries'])}{never}"]
        remedy = f"to keep a copy: {flow_command('dead-letter export', '--to', 'FILE')}"
        confirm("this moves to the trash, which keeps them for 7 days:", lines, yes=yes, code="dead-purge-unsaid", remedy=remedy)
        found = purged(replayed=replayed, dry_run=False)
        count = found["purged"]

    def show() -> None:
        if not count:
            click.echo("no dead letters")
            return
        click.echo(f"{'would delete' if dry_run else 'deleted'} {_counted(count)}")
        if (trash := found.get("trash")) is not None:
            undo_it = as_called(flow_command("dead-letter purge", "--undo", trash["id"]), {"flow": flow, "state": state})
            click.echo(f"to bring them back, until {trash['until'][:10]}: {undo_it}")

    return CommandAnswer(found, show=show)


def _counted(letters: int) -> str:
    return f"{letters:,} dead letter{'s' * (letters != 1)}"


def _undo_purge(flow: str, id_: str, state: Path | None, masters: Masters) -> CommandAnswer:
    found = _undone_there(flow, id_, masters) if is_name(flow) else _undone_here(flow, id_, state)

    def show() -> None:
        click.echo(f"brought back {_counted(found['restored'])} that the purge {found['id']} deleted")
        if found["expired"]:
            click.echo(f"{found['expired']:,} more expired meanwhile by `retain`")

    return CommandAnswer(found, show=show)


def _undone_here(flow: str, id_: str, state: Path | None) -> dict[str, Any]:
    from scribengin.local.dead_letter_repair import undo_purge

    opened = open_state(flow, state)
    with opened.leases():
        return {"flow": opened.declared.name} | undo_purge(_trash_of(opened), id_).as_json()


def _undone_there(flow: str, id_: str, masters: Masters) -> dict[str, Any]:
    with masters.client() as client:
        return asdict(client.undo_purge(flow, id_))


def _trash_of(opened: FlowWithState) -> Trash:
    from scribengin.state.trash import PURGE, Trash

    return Trash(opened.tiers[0].folder.root, opened.declared.name, PURGE)


def _purged_here(flow: str, filters: Filters, state: Path | None, *, replayed: bool, dry_run: bool) -> dict[str, Any]:
    from scribengin.local.dead_letter_repair import purge as delete
    from scribengin.local.dead_letter_repair import select_for_purge

    opened = open_state(flow, state)
    queries = [part for _, part in opened.queries(filters.which.query or None)]
    discarded = None
    if dry_run:
        doomed = select_for_purge(queries, filters.which, replayed=replayed)
    else:
        with opened.leases():
            doomed = select_for_purge(queries, filters.which, replayed=replayed)
            discarded = delete(doomed, _trash_of(opened))
    said = {"flow": opened.declared.name} | doomed.as_json()
    return said if discarded is None else said | {"trash": discarded.as_json()}


def _purged_there(flow: str, filters: Filters, masters: Masters, *, replayed: bool, dry_run: bool) -> dict[str, Any]:
    with masters.client() as client:
        found = client.purge_letters(flow, filters.given(), replayed=replayed, dry_run=dry_run)
    said = {"flow": found.flow, "purged": found.purged, "unreplayed": found.unreplayed, "queries": dict(found.queries)}
    return said if found.trash is None else said | {"trash": dict(found.trash)}
