"""`scribengin explain CODE`: explain an error code or a reason of dead letters. Needs no network."""

from __future__ import annotations

from difflib import get_close_matches
from textwrap import fill, indent
from typing import TYPE_CHECKING, Any

import click

from scribengin.cli.answer import AnsweringCommand, CommandAnswer
from scribengin.cli.complete_values import words
from scribengin.core.errors import InputError
from scribengin.core.problems import Place, Problem

if TYPE_CHECKING:
    from scribengin.cli.code_catalog.reasons import Reason

_WIDTH = 100


def _known() -> list[str]:
    from scribengin.cli.code_catalog import everything
    from scribengin.cli.code_catalog.reasons import REASONS

    return [*everything(), *(each.name for each in REASONS)]


@click.command(cls=AnsweringCommand)
@click.argument("code", metavar="CODE", shell_complete=words(_known))
def command(code: str) -> CommandAnswer:
    """Explain the code at the end of an error or warning, such as state-changed, or the reason of a dead letter, such as malformed: its
    meaning and remedy. Needs no network.

    \b
    Example:
      scribengin explain state-changed
    """
    from scribengin.cli.code_catalog import entry_of
    from scribengin.cli.code_catalog.reasons import reason_of

    asked = code.strip().strip("[]")
    entry, reason = entry_of(asked), reason_of(asked)
    if entry is None and reason is None:
        near = get_close_matches(asked, _known(), n=3, cutoff=0.5)
        remedy = f"did you mean {', '.join(near)}?" if near else "write it as the message does, without the brackets"
        raise InputError([Problem("code-unknown", Place(""), f'there is no code or reason "{asked}"', remedy)])
    if entry is None:
        assert reason is not None
        return CommandAnswer(_reason_as_json(reason), show=lambda: _show_reason(reason))
    result: dict[str, Any] = {
        "code": entry.code,
        "severity": entry.severity,
        "title": entry.title,
        "meaning": entry.meaning,
        "remedy": entry.remedy,
        "wrong": entry.fragment(entry.example) if entry.example else None,
        "right": entry.fragment(entry.right) if entry.right else None,
    }
    if reason is not None:  # a few names are both a code and a reason
        result["dead_letters"] = _reason_as_json(reason)

    def show() -> None:
        click.echo(f"{click.style(entry.code, bold=True)} ({entry.severity}): {entry.title}\n")
        click.echo(f"{fill(entry.meaning, _WIDTH)}\n\n{fill(f'What to do: {entry.remedy}', _WIDTH)}")
        for called, text in (("Wrong:", result["wrong"]), ("Right:", result["right"])):
            if text:
                click.echo(f"\n{called}\n{indent(str(text), '  ')}")
        if reason is not None:
            click.echo()
            _show_reason(reason)

    return CommandAnswer(result, show=show)


def _reason_as_json(reason: Reason) -> dict[str, Any]:
    return {"reason": reason.name} | {name: getattr(reason, name) for name in ("title", "meaning", "remedy", "example")}


def _show_reason(reason: Reason) -> None:
    click.echo(f"{click.style(reason.name, bold=True)} (a reason of dead letters): {reason.title}\n")
    click.echo(f"{fill(reason.meaning, _WIDTH)}\n\n{fill(f'What to do: {reason.remedy}', _WIDTH)}")
    click.echo(f"\nExample:\n{fill(reason.example, _WIDTH, initial_indent='  ', subsequent_indent='  ')}")
