"""`scribengin dead list|show FLOW`: the records that a step could not handle."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Any

import click

from scribengin.cli.answer import Answer
from scribengin.cli.commands.trace import hop_text
from scribengin.cli.each_flow import FlowCommand, each_flow
from scribengin.cli.flow_argument import flow_argument, is_name
from scribengin.cli.flow_state import open_state
from scribengin.cli.plane_option import masters_option
from scribengin.cli.settings import setting_flags

if TYPE_CHECKING:
    from pathlib import Path

    from scribengin.cli.plane_option import Masters

_PAYLOAD_SHOWN = 600


@click.group()
def command() -> None:
    """Records that a step could not handle, kept with their bytes, place, reason and error. FLOW is a file or a submitted flow."""


@command.command("list", cls=FlowCommand)
@flow_argument
@click.option("--query", help="Of this Query only.")
@setting_flags("state")
@masters_option
@each_flow("flow")
def list_(*, flow: str, query: str | None, state: Path | None, masters: Masters) -> Answer:
    """Count the dead letters by Query, step and reason, each with an example."""
    if is_name(flow):
        import msgspec

        with masters.client() as client:
            found = msgspec.to_builtins(client.dead_letter_counts(flow, query or ""))
    else:
        from scribengin.local.letters import count_letters

        opened = open_state(flow, state)
        rows = count_letters([part for _, part in opened.queries(query)], opened.declared.folder)
        found = {"flow": opened.declared.name, "dead": sum(row["count"] for row in rows), "groups": rows}

    def show() -> None:
        if not found["groups"]:
            click.echo("no dead letters")
            return
        from scribengin.cli.tables import print_table

        headings = {"query": "Query", "step": "step", "count": "letters", "reason": "reason", "example": "for example", "place": "at"}
        print_table(found["groups"], headings)

    return Answer(found, show=show)


@command.command(cls=FlowCommand)
@flow_argument
@click.argument("prefix", default="")
@click.option("--query", help="Of this Query only.")
@click.option("--step", help="Of this step only.")
@click.option("--limit", type=click.IntRange(1), default=10, show_default=True, help="How many at most.")
@setting_flags("state")
@masters_option
@each_flow("flow")
def show(*, flow: str, prefix: str, query: str | None, step: str | None, limit: int, state: Path | None, masters: Masters) -> Answer:
    """Show dead letters whole, oldest Batch first; with PREFIX those whose id begins so.

    Of a flow that was submitted the bytes of records are shown to operators and above.
    """
    name, letters = (_of_name if is_name(flow) else _of_file)(flow, prefix, query, step, limit, state, masters)

    def display() -> None:
        if not letters:
            click.echo("no dead letters")
        for letter in letters:
            _print(letter)

    return Answer({"flow": name, "letters": letters}, show=display)


def _of_name(
    flow: str, prefix: str, query: str | None, step: str | None, limit: int, _state: Path | None, masters: Masters
) -> tuple[str, list[dict[str, Any]]]:
    import msgspec

    with masters.client() as client:
        found = client.dead_letters(flow, prefix=prefix, query=query or "", step=step or "")
        letters = [msgspec.to_builtins(letter) for letter in islice(found, limit)]
    for letter in letters:
        for key in ("payload", "payload_base64"):
            if letter[key] is None:
                del letter[key]
    return flow, letters


def _of_file(
    flow: str, prefix: str, query: str | None, step: str | None, limit: int, state: Path | None, _masters: Masters
) -> tuple[str, list[dict[str, Any]]]:
    from scribengin.local.letters import Which, place_of
    from scribengin.state.dead import letter_as_json, read_letters

    opened = open_state(flow, state)
    which = Which(step=step or "", prefix=prefix)
    found = (letter for _, part in opened.queries(query) for letter in read_letters(part) if which.fits(letter))
    folder = opened.declared.folder
    return opened.declared.name, [{**letter_as_json(each), "place": place_of(each, folder)} for each in islice(found, limit)]


def _print(letter: dict[str, Any]) -> None:
    where = f"{letter['query']}, Batch {letter['batch']}"
    click.echo(f"{click.style(letter['id'], bold=True)}  {click.style(where, dim=True)}")
    click.echo(f"  {click.style(letter['reason'], fg='yellow')}: {letter['message']}")
    for what, text in (
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
    payload = _payload(letter)
    if payload is None:
        click.echo(f"  {click.style('record ', dim=True)}(its bytes are for operators and above)")
        return
    rest = " …" if letter["truncated"] or len(payload) > _PAYLOAD_SHOWN else ""
    click.echo(f"  {click.style('record ', dim=True)}{payload[:_PAYLOAD_SHOWN].decode(errors='backslashreplace')}{rest}")


def _payload(letter: dict[str, Any]) -> bytes | None:
    """The record's bytes; None where they are withheld."""
    import base64

    if "payload_base64" in letter:
        return base64.b64decode(letter["payload_base64"])
    text = letter.get("payload")
    return None if text is None else str(text).encode()
