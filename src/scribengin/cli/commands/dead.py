"""`scribengin dead-letter`: list and show the records that a step could not process. `cli.dead_letters` has the commands that change
them."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Any

import click

from scribengin.cli.answer import CommandAnswer
from scribengin.cli.commands.trace import hop_text
from scribengin.cli.dead_letters import edit, export, letter_filters, purge, replay
from scribengin.cli.each_flow import FlowCommand, each_flow
from scribengin.cli.flow_argument import as_called, flow_argument, is_name
from scribengin.cli.flow_state import open_state
from scribengin.cli.guesses import GuessingGroup
from scribengin.cli.plane_option import masters_option
from scribengin.cli.settings import setting_flags
from scribengin.core.remedies import flow_command

if TYPE_CHECKING:
    from pathlib import Path

    from scribengin.cli.dead_letters import Filters
    from scribengin.cli.plane_option import Masters

_PAYLOAD_SHOWN = 600


@click.group(cls=GuessingGroup)
def command() -> None:
    """Records that a step could not process, kept with their bytes, place, reason and error.

    \b
    Examples:
      scribengin dead-letter list flow.yaml
      scribengin dead-letter replay flow.yaml --step parsed
    """


@command.command("list", cls=FlowCommand)
@flow_argument
@letter_filters
@click.option("--by-query", is_flag=True, help="Count each query separately; several may have refused the same record.")
@setting_flags("state")
@masters_option
@each_flow("flow")
def list_(*, flow: str, filters: Filters, by_query: bool, state: Path | None, masters: Masters) -> CommandAnswer:
    """Count dead letters by step and reason, each with an example and what was done with them.

    \b
    Example:
      scribengin dead-letter list flow.yaml
    """
    from scribengin.local.dead_letters import count_letters, sum_over_queries

    if is_name(flow):
        import msgspec

        with masters.client() as client:
            found = msgspec.to_builtins(client.dead_letter_counts(flow, **filters.given()))
    else:
        opened = open_state(flow, state)
        queries = [part for _, part in opened.queries(filters.which.query or None)]
        rows = count_letters(queries, opened.declared.folder, filters.which, opened.made())
        found = {"flow": opened.declared.name, "dead": sum(row["count"] for row in rows), "groups": rows}

    def show() -> None:
        if not found["groups"]:
            click.echo("no dead letters")
            return
        from scribengin.cli.tables import print_table

        rows = found["groups"] if by_query else sum_over_queries(found["groups"])
        rows = [{**row, "query": _queries(row), "last": row["last"][:19]} for row in rows]
        done = {name: name for name in ("repaired", "asked", "replayed") if any(row[name] for row in rows)}
        headings = {"query": "Query", "step": "step", "count": "letters", **done, "reason": "reason", "key": "for example"}
        print_table(rows, headings | {"example": "message", "place": "at", "last": "the last"})
        if key := rows[0]["key"]:  # masters of earlier releases leave the key out
            click.echo(f"to see one in full: {as_called(flow_command('dead-letter show', key), {'flow': flow, 'state': state})}")
        click.echo(f"what a reason means, and what to do: scribengin explain {rows[0]['reason']}")
        if stranded := sum(row["asked"] for row in rows if row["gone"]):
            click.echo(f"{stranded:,} wait to be replayed in a query that no sink belongs to; they continue if a sink joins it again")

    return CommandAnswer(found, show=show)


def _queries(row: dict[str, Any]) -> str:
    names = ", ".join(row.get("queries", [row["query"]]))
    return f"{names} (gone)" if row["gone"] else names


@command.command(cls=FlowCommand)
@flow_argument
@letter_filters
@click.option("--limit", type=click.IntRange(1), default=10, show_default=True, help="Maximum number to show.")
@setting_flags("state")
@masters_option
@each_flow("flow")
def show(*, flow: str, filters: Filters, limit: int, state: Path | None, masters: Masters) -> CommandAnswer:
    """Show dead letters in full, oldest Batch first. With ID: that one, those whose id begins so, or the one with this key (`kept:12:3`).

    The bytes of records of a submitted flow are shown to operators and above.

    \b
    Example:
      scribengin dead-letter show flow.yaml kept:12:3
    """
    name, found = (_of_name if is_name(flow) else _of_file)(flow, filters, limit + 1, state, masters)
    letters = found[:limit]

    def display() -> None:
        if not letters:
            click.echo("no dead letters")
        for letter in letters:
            _print(letter)
        if len(found) > limit:
            click.echo(f"… and more: these are the first {limit:,}; --limit shows others")

    return CommandAnswer({"flow": name, "letters": letters}, show=display)


def _of_name(flow: str, filters: Filters, limit: int, _state: Path | None, masters: Masters) -> tuple[str, list[dict[str, Any]]]:
    import msgspec

    with masters.client() as client:
        letters = [msgspec.to_builtins(letter) for letter in islice(client.dead_letters(flow, **filters.given()), limit)]
    for letter in letters:
        for key in ("payload", "payload_base64"):
            if letter[key] is None:
                del letter[key]
    return flow, letters


def _of_file(flow: str, filters: Filters, limit: int, state: Path | None, _masters: Masters) -> tuple[str, list[dict[str, Any]]]:
    from scribengin.local.dead_letter_repair import exported_letters

    opened = open_state(flow, state)
    queries = [part for _, part in opened.queries(filters.which.query or None)]
    return opened.declared.name, list(islice(exported_letters(queries, opened.declared.folder, filters.which), limit))


def _print(letter: dict[str, Any]) -> None:
    where = f"Query {letter['query']}, Batch {letter['batch']}"
    click.echo(f"{click.style(letter['key'], bold=True)}  {click.style(where, dim=True)}")
    click.echo(f"  {click.style(letter['reason'], fg='yellow')}: {letter['message']}")
    again = f"the replay of {letter['replay_of']}{', repaired' * bool(letter.get('repaired'))}" if letter.get("replay_of") else ""
    for what, text in (
        ("state", letter["state"]),
        ("was", again),
        ("id", letter["record"]),
        ("step", letter["step"]),
        ("at", letter["place"]),
        ("raised", letter["exception"]),
        ("code", letter["code_line"]),
    ):
        if text:
            click.echo(f"  {click.style(f'{what:<7}', dim=True)}{text}")
    for nth, hop in enumerate(letter["trail"]):
        click.echo(f"  {click.style(('' if nth else 'came').ljust(7), dim=True)}{hop_text(dict(hop))}")
    if letter.get("came"):
        click.echo(f"  {click.style('row    ', dim=True)}{letter['came'][:_PAYLOAD_SHOWN]}{' …' * (len(letter['came']) > _PAYLOAD_SHOWN)}")
    payload = _payload(letter)
    if payload is None:
        click.echo(f"  {click.style('record ', dim=True)}(its bytes are for operators and above)")
        return
    rest = " …" if letter["truncated"] or len(payload) > _PAYLOAD_SHOWN else ""
    click.echo(f"  {click.style('record ', dim=True)}{payload[:_PAYLOAD_SHOWN].decode(errors='backslashreplace')}{rest}")


def _payload(letter: dict[str, Any]) -> bytes | None:
    """The record's bytes; None if the caller may not see them."""
    import base64

    if "payload_base64" in letter:
        return base64.b64decode(letter["payload_base64"])
    text = letter.get("payload")
    return None if text is None else str(text).encode()


for _work in (export, edit, replay, purge):
    command.add_command(_work)
