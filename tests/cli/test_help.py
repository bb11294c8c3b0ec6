"""The help of every command: in a group, with an example, in standard words."""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import TYPE_CHECKING

import click
import pytest

from scribengin.cli import commands
from scribengin.cli.main import _COMMANDS, _GROUPS, scribengin
from tests.words import faults_of

if TYPE_CHECKING:
    from collections.abc import Iterator

WITHOUT_EXAMPLE = {"completion", "schema"}
"""their help is one"""


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


def test_each_command_is_in_one_group() -> None:
    folder = Path(commands.__file__).parent
    assert sorted(name for group in _GROUPS.values() for name in group) == sorted(
        path.stem for path in folder.glob("*.py") if path.stem != "__init__"
    )
    assert max(map(len, _GROUPS.values())) <= 15, "a group that people can scan"


@pytest.mark.parametrize("name", sorted(_COMMANDS))
def test_each_help_has_an_example(name: str) -> None:
    found = scribengin.get_command(click.Context(scribengin), name)
    assert found is not None
    for path, command in below(found, (name,)):
        if isinstance(command, click.Group) or name in WITHOUT_EXAMPLE:
            continue
        lines = [line.split() for line in (command.help or "").splitlines()]
        assert any(line[: len(path) + 1] == ["scribengin", *path] for line in lines), f"{path}: give an example"


@pytest.mark.parametrize("name", ["", *sorted(_COMMANDS)])
def test_help_is_written_in_standard_words(name: str) -> None:
    found = scribengin.get_command(click.Context(scribengin), name) if name else None
    texts = (
        [*_GROUPS, *_COMMANDS.values(), scribengin.help or ""]
        if found is None
        else [text for _, command in below(found) for text in texts_of(command)]
    )
    assert not {text: faults for text in texts if (faults := faults_of(text))}


def test_words_that_people_do_not_know_are_found() -> None:
    assert faults_of("Say how flows go") == [
        '"how flows go": write state; rates and backlog',
        '"Say": write set/show, allow, run, run on, delete',
    ]
    assert faults_of("List submitted flows and their state.") == []
