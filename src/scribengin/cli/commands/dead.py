"""`scribengin dead list|show FLOW`: the records that a step could not handle."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Any

import click

from scribengin.cli.answer import Answer, AnsweringCommand
from scribengin.cli.commands.trace import hop_text
from scribengin.cli.flow_argument import flow_argument
from scribengin.cli.flow_state import open_state
from scribengin.cli.settings import setting_flags

if TYPE_CHECKING:
    from pathlib import Path

    from scribengin.state.contract import DeadLetter

_PAYLOAD_SHOWN = 600


@click.group()
def command() -> None:
    """Records that a step could not handle, kept with their bytes, place, reason and error."""


@command.command("list", cls=AnsweringCommand)
@flow_argument
@click.option("--query", help="Of this Query only.")
@setting_flags("state")
def list_(*, flow: str, query: str | None, state: Path | None) -> Answer:
    """Count the dead letters by Query, step and reason, each with an example."""
    from scribengin.state.dead import read_letters

    found = open_state(flow, state)
    declared = found.declared
    groups: dict[tuple[str, str, str], dict[str, Any]] = {}
    for _, part in found.queries(query):
        for letter in read_letters(part):
            key = (letter.query, letter.step, letter.reason)
            if key not in groups:
                groups[key] = dict(zip(("query", "step", "reason"), key, strict=True)) | {
                    "count": 0,
                    "example": letter.message,
                    "place": place_of(letter, declared.folder),
                }
            groups[key]["count"] += 1
    rows = sorted(groups.values(), key=lambda row: (row["query"], -row["count"]))
    total = sum(row["count"] for row in rows)

    def show() -> None:
        if not rows:
            click.echo("no dead letters")
            return
        from scribengin.cli.tables import print_table

        print_table(
            rows, {"query": "Query", "step": "step", "count": "letters", "reason": "reason", "example": "for example", "place": "at"}
        )

    return Answer({"flow": declared.name, "dead": total, "groups": rows}, show=show)


@command.command(cls=AnsweringCommand)
@flow_argument
@click.argument("prefix", default="")
@click.option("--query", help="Of this Query only.")
@click.option("--step", help="Of this step only.")
@click.option("--limit", type=click.IntRange(1), default=10, show_default=True, help="How many at most.")
@setting_flags("state")
def show(*, flow: str, prefix: str, query: str | None, step: str | None, limit: int, state: Path | None) -> Answer:
    """Show dead letters whole, oldest Batch first; with PREFIX those whose id begins so."""
    from scribengin.state.dead import letter_as_json, read_letters

    opened = open_state(flow, state)
    declared = opened.declared
    found = (
        letter
        for _, part in opened.queries(query)
        for letter in read_letters(part)
        if letter.id.startswith(prefix) and step in (None, letter.step)
    )
    letters = list(islice(found, limit))

    def display() -> None:
        if not letters:
            click.echo("no dead letters")
        for letter in letters:
            _print(letter, declared.folder)

    return Answer({"flow": declared.name, "letters": [letter_as_json(letter) for letter in letters]}, show=display)


def place_of(letter: DeadLetter, folder: Path) -> str:
    """`data/a.jsonl line 7`, as exact as it is known; a file below the flow's folder is named from there."""
    parts = [letter.file.removeprefix(f"{folder.absolute()}/") or letter.source]
    parts += [f"{what} {number}" for what, number in (("line", letter.line), ("row", letter.row)) if number is not None]
    if len(parts) == 1 and letter.offset is not None:
        parts.append(f"byte {letter.offset}")
    return " ".join(filter(None, parts))


def _print(letter: DeadLetter, folder: Path) -> None:
    click.echo(f"{click.style(letter.id, bold=True)}  {click.style(f'{letter.query}, Batch {letter.batch}', dim=True)}")
    click.echo(f"  {click.style(letter.reason, fg='yellow')}: {letter.message}")
    for what, text in (
        ("id", letter.record),
        ("step", letter.step),
        ("at", place_of(letter, folder)),
        ("raised", letter.exception),
        ("code", letter.code_line),
    ):
        if text:
            click.echo(f"  {click.style(f'{what:<7}', dim=True)}{text}")
    text = letter.payload[:_PAYLOAD_SHOWN].decode(errors="backslashreplace")
    for nth, hop in enumerate(letter.trail):
        click.echo(f"  {click.style(('' if nth else 'came').ljust(7), dim=True)}{hop_text(dict(hop))}")
    rest = " …" if letter.truncated or len(letter.payload) > _PAYLOAD_SHOWN else ""
    click.echo(f"  {click.style('record ', dim=True)}{text}{rest}")
