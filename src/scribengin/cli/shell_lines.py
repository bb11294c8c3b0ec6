"""From the text of a shell's script to its commands."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING

from scribengin.core.errors import InputError
from scribengin.core.problems import Place, Problem

if TYPE_CHECKING:
    from collections.abc import Iterator


def read_script(text: str, name: str) -> list[tuple[int, list[str]]]:
    """(number of the line where it begins, words) of each command. Raises InputError with every line that cannot be read, before anything
    runs."""
    commands, problems = list[tuple[int, list[str]]](), list[Problem]()
    for number, line in _lines(text):
        try:
            commands += [(number, words) for words in split_line(line)]
        except ValueError as error:
            problems.append(Problem("shell-quote", Place(name, number, 1), f"{error} in: {line.strip()}", "close the quotes"))
    if problems:
        raise InputError(problems)
    return commands


def split_line(line: str) -> list[list[str]]:
    """The commands of a line, parted by `;`. Raises ValueError where a quote is not closed.

    >>> split_line("list; status 'a;b'  # both")
    [['list'], ['status', 'a;b']]
    """
    reader = shlex.shlex(line, posix=True, punctuation_chars=";")
    reader.whitespace_split = True
    commands: list[list[str]] = [[]]
    for word in reader:
        if set(word) == {";"}:
            commands.append([])
        else:
            commands[-1].append(word)
    return [words for words in commands if words]


def _lines(text: str) -> Iterator[tuple[int, str]]:
    """With those that a backslash continues put together; a line has the number of its first."""
    held, since = "", 0
    for number, line in enumerate(text.splitlines(), 1):
        since = since or number
        if line.endswith("\\"):
            held += f"{line[:-1]} "
            continue
        yield since, held + line
        held, since = "", 0
    if held:
        yield since, held
