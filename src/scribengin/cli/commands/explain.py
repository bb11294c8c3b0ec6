"""`scribengin explain CODE`: the entry of a code, offline."""

from __future__ import annotations

from difflib import get_close_matches
from textwrap import fill, indent

import click

from scribengin.cli.answer import Answer, AnsweringCommand
from scribengin.core.errors import InputError
from scribengin.core.problems import Place, Problem

_WIDTH = 100


@click.command(cls=AnsweringCommand)
@click.argument("code", metavar="CODE")
def command(code: str) -> Answer:
    """Explain a code that an error or a warning ends with, such as state-changed: what it means, and what to do. Needs no network."""
    from scribengin.cli.code_catalog import entry_of, everything

    asked = code.strip().strip("[]")
    entry = entry_of(asked)
    if entry is None:
        near = get_close_matches(asked, everything(), n=3, cutoff=0.5)
        remedy = f"did you mean {', '.join(near)}?" if near else "write it as the message does, without the brackets"
        raise InputError([Problem("code-unknown", Place(""), f'there is no code "{asked}"', remedy)])
    result = {
        "code": entry.code,
        "severity": entry.severity,
        "title": entry.title,
        "meaning": entry.meaning,
        "remedy": entry.remedy,
        "wrong": entry.fragment(entry.example) if entry.example else None,
        "right": entry.fragment(entry.right) if entry.right else None,
    }

    def show() -> None:
        click.echo(f"{click.style(entry.code, bold=True)} ({entry.severity}): {entry.title}\n")
        click.echo(f"{fill(entry.meaning, _WIDTH)}\n\n{fill(f'What to do: {entry.remedy}', _WIDTH)}")
        for called, text in (("Wrong:", result["wrong"]), ("Right:", result["right"])):
            if text:
                click.echo(f"\n{called}\n{indent(str(text), '  ')}")

    return Answer(result, show=show)
