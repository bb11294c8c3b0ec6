"""The help of every command: in a group, with an example, in standard words."""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import TYPE_CHECKING

import click
import pytest
from click.testing import CliRunner

from scribengin.cli import commands
from scribengin.cli.main import scribengin
from scribengin.cli.tree import COMMANDS, RENAMED, SECTIONS, CommandGroup, leaves
from tests.words import faults_of

if TYPE_CHECKING:
    from collections.abc import Iterator


def texts_of(command: click.Command) -> list[str]:
    options = (parameter for parameter in command.params if isinstance(parameter, click.Option))
    return [inspect.cleandoc(command.help or ""), *(option.help or "" for option in options)]


def below(command: click.Command, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    yield path, command
    if isinstance(command, click.Group):
        context = click.Context(command)
        for name in command.list_commands(context):
            found = command.get_command(context, name)
            assert found is not None
            yield from below(found, (*path, name))


def found(name: str) -> click.Command:
    command = scribengin.get_command(click.Context(scribengin), name)
    assert command is not None
    return command


def test_each_module_of_a_command_is_in_the_tree() -> None:
    codes = {(each.code or f"{words.split()[-1]}:command").partition(":")[0] for words, each in leaves()}
    kept = {each.kept.partition(":")[0] for each in RENAMED if each.kept}
    folder = Path(commands.__file__).parent
    assert codes | kept == {path.stem for path in folder.glob("*.py") if path.stem != "__init__"}
    assert len(COMMANDS) == sum(map(len, SECTIONS.values())), "each command is in one section"
    shown = [[name for name, each in section.items() if not each.hidden] for section in SECTIONS.values()]
    assert max(map(len, shown)) <= 15, "a section that people can scan"
    assert sum(map(len, shown)) <= 50


@pytest.mark.parametrize("name", sorted(COMMANDS))
def test_each_help_has_an_example(name: str) -> None:
    for path, command in below(found(name), (name,)):
        lines = [line.split() for line in (command.help or "").splitlines()]
        of_verb = path[1:] if path[0] == "flow" and len(path) > 1 else path  # `flow pause` is `pause`
        assert any(line[: len(of_verb) + 1] == ["scribengin", *of_verb] for line in lines), f"{path}: give an example"


@pytest.mark.parametrize("name", ["", *sorted(COMMANDS)])
def test_help_fits_100_columns(name: str) -> None:
    for path, _ in below(found(name), (name,)) if name else [((), scribengin)]:
        ended = CliRunner().invoke(scribengin, [*path, "--help"], terminal_width=100)
        assert ended.exit_code == 0, path
        long = [line for line in ended.output.splitlines() if len(line) > 100]
        assert long == [], path


@pytest.mark.parametrize("name", ["", *sorted(COMMANDS)])
def test_help_is_written_in_standard_words(name: str) -> None:
    if name:
        texts = [text for _, command in below(found(name)) for text in texts_of(command)]
    else:
        groups = [COMMANDS, *(each.below for each in COMMANDS.values() if isinstance(each, CommandGroup))]
        texts = [*SECTIONS, *(each.line for group in groups for each in group.values()), scribengin.help or ""]
    assert not {text: faults for text in texts if (faults := faults_of(text))}


def test_the_help_lists_all_commands_if_asked_to() -> None:
    def shown(*words: str) -> set[str]:
        output = CliRunner().invoke(scribengin, [*words]).output
        return {name for name in COMMANDS if f"\n  {name} " in output}

    hidden = {name for name, each in COMMANDS.items() if each.hidden}
    assert {"dev-services", "dev-jars", "completion", "worker", "shell", "summary", "warm"} == hidden
    assert shown("--help") == COMMANDS.keys() - hidden
    assert shown("--help", "--all") == shown("--all", "--help") == COMMANDS.keys()


def test_words_that_people_do_not_know_are_found() -> None:
    assert faults_of("Say how flows go") == [
        '"how flows go": write state; rates and backlog',
        '"Say": write set/show, allow, run, run on, delete',
    ]
    assert faults_of("List submitted flows and their state.") == []
