"""The shell: runs commands one after the other, each in its own process, so that edited code is read again and Spark ends with its
command."""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.shell_completion import ShellComplete

from scribengin.core.errors import InputError
from scribengin.core.problems import Place, Problem

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping


# parsing of a script


def read_script(text: str, name: str) -> list[tuple[int, list[str]]]:
    """Parse a script into (number of the first line, words) of each command. Raises InputError with all lines that cannot be parsed;
    nothing has run then."""
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
    """Split a line into commands at `;`. Raises ValueError if a quote is not closed.

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
    """The lines of a script, with continued lines (a backslash at the end) joined. A joined line has the number of its first line."""
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


_REMEMBERED = 2_000
"""number of lines of the history"""
_ENDS = ("exit", "quit")


class ShellSession:
    """Runs commands. `environment` is their environment; `done` has each command and its exit status, in order."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        self._environment = dict(environment)
        self.done: list[dict[str, Any]] = []

    def perform(self, words: list[str]) -> int:
        """Run a command to its end and return its exit status. Ctrl-C interrupts the command, not the session."""
        words = words[1:] if words[0] == "scribengin" and len(words) > 1 else words
        if words[0] == "shell":
            click.echo("this is already the shell", err=True)
            status = 2
        else:
            status = self._run(words)
        self.done.append({"command": shlex.join(words), "exit": status})
        return status

    def _run(self, words: list[str]) -> int:
        sys.stdout.flush()
        # a handler, since the command would inherit SIG_IGN
        before = signal.signal(signal.SIGINT, lambda *_: None)
        try:
            status = subprocess.run([sys.executable, "-m", "scribengin.cli", *words], env=self._environment, check=False).returncode
        finally:
            signal.signal(signal.SIGINT, before)
        # 128 + signal, as other shells report a command that a signal ended
        return status if status >= 0 else 128 - status


def converse(session: ShellSession, history: Path) -> None:
    """Read commands from stdin and run them, until its end or `exit`."""
    interactive = sys.stdin.isatty()
    if interactive:
        _begin_history(history)
    status = 0
    while True:
        try:
            line = input(f"scribengin{f' [{status}]' if status else ''}> " if interactive else "")
        except EOFError:
            break
        except KeyboardInterrupt:
            click.echo(err=True)
            continue
        try:
            commands = split_line(line)
        except ValueError as error:
            click.echo(f"{error}: close the quotes", err=True)
            continue
        for words in commands:
            if words[0] in _ENDS:
                return
            status = session.perform(words)
            if status:
                break
        if interactive:
            _keep_history(history)
    if interactive:
        click.echo(err=True)


def completions(line: str, end: int) -> list[str]:
    """The completions of the word that ends at `end`; a complete word is followed by a blank.

    >>> completions("his", 3)
    ['history ']
    """
    from scribengin.cli.main import scribengin

    try:
        words = split_line(line[:end])
    except ValueError:
        return []
    current = words[-1] if words else []
    incomplete = current.pop() if current and not line[:end].endswith((" ", ";")) else ""
    if line[:end].rstrip().endswith(";"):
        current = []
    found = ShellComplete(scribengin, {}, "scribengin", "_SCRIBENGIN_COMPLETE").get_completions(current, incomplete)
    names = [item.value for item in found if item.type == "plain"]
    if any(item.type in ("file", "dir") for item in found):
        names += _paths(incomplete)
    return [name if name.endswith("/") else f"{name} " for name in names]


def _paths(start: str) -> list[str]:
    folder, _, name = start.rpartition("/")
    above = f"{folder}/" if "/" in start else ""
    try:
        entries = sorted(os.scandir(Path(above or ".").expanduser()), key=lambda entry: entry.name)
    except OSError:
        return []
    there = [entry for entry in entries if entry.name.startswith(name) and (name.startswith(".") or not entry.name.startswith("."))]
    return [f"{above}{entry.name}{'/' if entry.is_dir() else ''}" for entry in there]


def _begin_history(history: Path) -> None:
    import readline

    readline.set_completer_delims(" ;")
    readline.set_completer(_completer)
    readline.parse_and_bind("tab: complete")
    readline.set_history_length(_REMEMBERED)
    with suppress(OSError):
        readline.read_history_file(history)


def _keep_history(history: Path) -> None:
    import readline

    with suppress(OSError):  # the shell also works without a history file
        history.parent.mkdir(parents=True, exist_ok=True)
        os.close(os.open(history, os.O_CREAT | os.O_WRONLY, 0o600))
        readline.write_history_file(history)


def _completer(_text: str, state: int) -> str | None:
    import readline

    found = completions(readline.get_line_buffer(), readline.get_endidx())
    return found[state] if state < len(found) else None
