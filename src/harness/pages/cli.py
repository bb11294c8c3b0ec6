"""Generates docs/cli.md from the tree of commands. A test fails if the page is outdated."""

from __future__ import annotations

import inspect
import re
from collections import Counter
from textwrap import fill
from typing import TYPE_CHECKING

import click

from scribengin.cli.main import scribengin
from scribengin.cli.tree import RENAMED, RENAMED_OPTIONS, SECTIONS, CommandGroup

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from scribengin.cli.tree import CommandEntry

_Key = tuple[str, str]
"""(name of an option, its help)"""
_COMMON = 20
"""an option of at least so many commands is described only once"""
_WIDTH = 150
_HEAD = """\
# Commands

`scribengin COMMAND --help` prints the same on the terminal. Commands that are marked *hidden* are listed by `scribengin help --all` only.
`scribengin completion bash` (zsh, fish) prints a script that completes commands, options, flow files, and nodes of a flow file.

FLOW is a flow file (it ends in .yaml, .yml or .py, or contains a "/") or the name of a submitted flow. FILE is always a file, NAME a name.

## Exit codes

| code | meaning |
|---|---|
| 0 | done |
| 1 | the flow failed, does not balance, or a wait ended too early |
| 2 | the input is wrong: the command line, a flow file, or a change that needs a confirmation |
| 3 | the environment: Java, memory, a folder, a server that does not answer |
| 130 | interrupted by a second Ctrl-C |

With `--json` stdout has exactly one object: [JSON output](json.md). Errors have a code, which `scribengin explain CODE` explains.
"""


def cli_page() -> str:
    """The text of docs/cli.md: a section for each part of the help, with a subsection for each command."""
    all_of_them = [(words, command) for section in SECTIONS.values() for words, command in _commands(section)]
    counts = Counter(_key(option) for _, command in all_of_them for option in _options(command))
    common = {key for key, count in counts.items() if count >= _COMMON}
    parts = [_HEAD, "## Common options", _table(_first(all_of_them, common))]
    for title, section in SECTIONS.items():
        parts.append(f"## {title}")
        for name, each in section.items():
            parts += _part(name, each, common)
    parts += ["## Names of the release before", _RENAMED, _renamed()]
    return re.sub(r"\n{3,}", "\n\n", "\n\n".join(parts)).rstrip() + "\n"


_RENAMED = """\
These spellings work for one release more. They print the new name on stderr. With `--json` they print no such line, and `command` in the
answer is the old name."""


def _part(name: str, each: CommandEntry | CommandGroup, common: set[_Key]) -> Iterator[str]:
    yield f"### scribengin {name}"
    if each.hidden:
        yield "*Hidden.*"
    if name == "flow":
        assert isinstance(each, CommandGroup)
        yield f"Each of these is also a command of its own: {', '.join(f'[{verb}](#scribengin-{verb})' for verb in each.below)}."
        return
    command = _command_named(name)
    if isinstance(command, click.Group):
        yield _help(command)
        for words, leaf in _commands({name: each}):
            yield f"#### scribengin {words}"
            yield from _leaf(words, leaf, common)
    else:
        yield from _leaf(name, command, common)


def _leaf(words: str, command: click.Command, common: set[_Key]) -> Iterator[str]:
    context = click.Context(command, info_name=f"scribengin {words}")
    yield f"Usage: `{context.command_path} {' '.join(command.collect_usage_pieces(context))}`"
    yield _help(command)
    own = [option for option in _options(command) if _key(option) not in common]
    if own:
        yield _table(own)
    shared = sorted({_key(option) for option in _options(command)} & common)
    if shared:
        yield f"[Common options](#common-options): {', '.join(f'`{name}`' for name, _ in shared)}."


def _commands(section: Mapping[str, CommandEntry | CommandGroup]) -> Iterator[tuple[str, click.Command]]:
    """(words, command) of all commands."""
    for name in section:
        command = _command_named(name)
        if name == "flow":
            continue
        if isinstance(command, click.Group):
            context = click.Context(command)
            for below in command.list_commands(context):
                found = command.get_command(context, below)
                assert found is not None
                yield f"{name} {below}", found
        else:
            yield name, command


def _command_named(name: str) -> click.Command:
    command = scribengin.get_command(click.Context(scribengin), name)
    assert command is not None
    return command


def _options(command: click.Command) -> list[click.Option]:
    context = click.Context(command, help_option_names=["-h", "--help"])
    return [each for each in command.get_params(context) if isinstance(each, click.Option) and not each.hidden]


def _key(option: click.Option) -> _Key:
    return max(option.opts, key=len), option.help or ""


def _first(commands: list[tuple[str, click.Command]], keys: set[_Key]) -> list[click.Option]:
    found: dict[_Key, click.Option] = {}
    for _, command in commands:
        for option in _options(command):
            if _key(option) in keys:
                found.setdefault(_key(option), option)
    return list(found.values())


def _table(options: list[click.Option]) -> str:
    rows = ["| option | |", "|---|---|"]
    for option in options:
        with click.Context(click.Command("x"), help_option_names=["-h", "--help"]) as context:
            record = option.get_help_record(context)
        if record is not None:
            names, about = (text.replace("|", "\\|") for text in record)
            rows.append(f"| `{names}` | {about.replace('<', '&lt;')} |")
    return "\n".join(rows)


def _help(command: click.Command) -> str:
    """The paragraphs of a command's help. Paragraphs that must not be wrapped, such as examples, are blocks of code."""
    parts = []
    for paragraph in inspect.cleandoc(command.help or "").split("\n\n"):
        if not paragraph.startswith("\b"):
            parts.append(fill(" ".join(paragraph.split()), _WIDTH, break_long_words=False, break_on_hyphens=False))
            continue
        lines = paragraph.splitlines()[1:]
        title = lines.pop(0) if lines[0].endswith(":") else ""
        parts.append("\n".join([*([title, ""] if title else []), "```sh", *(line.removeprefix("  ") for line in lines), "```"]))
    return "\n\n".join(parts)


def _renamed() -> str:
    rows = ["| old | new |", "|---|---|"]
    for each in RENAMED:
        rows += [f"| `{each.old} {shown}` | `{new}` |" for shown, new in each.by.values()]
        if not each.by or each.new not in {new for _, new in each.by.values()}:
            rows.append(f"| `{each.old}{' …' * any(row.startswith(f'| `{each.old}` ') for row in rows)}` | `{each.new}` |")
    rows += [f"| `{each.command} {each.old}` | `{each.command} {each.new}` |" for each in RENAMED_OPTIONS]
    return "\n".join(dict.fromkeys(rows))
