"""Commands in texts for people: a test in which a problem is made whose remedy names a command that does not parse fails.

A command is parsed and never called. Whether files exist, and whether values are right, is not looked at: `FILE` is as good as a file.

A test that does call it says so by the marker `executes(*codes)`; it fails unless a problem with one of these codes names a command.
"""

from __future__ import annotations

import re
import shlex
from functools import cache, wraps
from typing import TYPE_CHECKING, Any, NamedTuple

import click
import pytest

from scribengin.core.errors import ScribenginError
from scribengin.core.problems import Problem

if TYPE_CHECKING:
    from collections.abc import Iterator

EXECUTES = "executes"
"""the marker's name"""
PLACEHOLDER = "placeholder"
"""in place of what is not known before a text is printed; it may be any number of words, or an option"""
_NAME = "scribengin "
_QUOTED = re.compile(r"`scribengin ([a-z][^`\n]*)`")
_BARE = re.compile(
    r"""(?:(?P<runs>^|: |: type )|(?<!from )(?<=[\s(]))scribengin (?P<rest>[a-z-](?:'[^'\n]*'|[^;,()`\n'])*)""", re.MULTILINE
)
"""`runs`: what stands so is what a person is to type, as a whole"""
_ENDS = re.compile(r"\.(?= |$)| (?:\||>|&&|&|#|→) ?| (?:or|to|and) .*$| \\$")
_COMMANDS = re.compile(r"\b(?:scribengin|pip) [a-z]")
_HELP = ("-h", "--help")


class Mention(NamedTuple):
    """A command in a text. `whole`: it is to be typed as it is; else it is a reference, which may leave its arguments out."""

    words: tuple[str, ...]
    whole: bool


def mentions(text: str) -> list[Mention]:
    """The commands that a text names.

    >>> mentions("mend it; then: scribengin resume shop (or `scribengin stop`)")
    [Mention(words=('resume', 'shop'), whole=True), Mention(words=('stop',), whole=False)]
    """
    found = [_mention(each["rest"], whole=each["runs"] is not None) for each in _BARE.finditer(text)]
    return found + [_mention(each[1], whole=False) for each in _QUOTED.finditer(text)]


def _mention(text: str, *, whole: bool) -> Mention:
    text = _ENDS.split(text)[0]
    try:
        words = shlex.split(text)
    except ValueError:
        words = text.split()
    return Mention(tuple(PLACEHOLDER if word == "…" or "|" in word else word for word in words), whole and "…" not in words)


@cache
def fault_of(mention: Mention) -> str:
    """Why the command line does not take it; empty where it does.

    >>> fault_of(Mention(("status", "shop", "--stat", "x"), whole=True))
    "No such option '--stat'."
    """
    from scribengin.cli.main import scribengin

    command: click.Command = scribengin
    words = mention.words[1:] if mention.words[0] == "help" else mention.words  # as git and kubectl have it
    rest = [word for word in words if word not in _HELP]
    whole = mention.whole and len(rest) == len(mention.words)
    try:
        while isinstance(command, click.Group):
            context = click.Context(command)
            command.parse_args(context, rest)
            rest = [*context._protected_args, *context.args]
            if rest[0] == PLACEHOLDER or (rest[0].isupper() and command is scribengin):
                return ""
            below = command.get_command(context, rest[0])
            if below is None:
                return f'there is no command "{rest[0]}"'
            command, rest = below, rest[1:]
        return _leaf_fault(command, rest, whole=whole)
    except click.exceptions.NoArgsIsHelpError:
        return "no command is named" if whole else ""
    except click.BadOptionUsage as error:  # its value is left out
        return error.format_message() if whole else ""
    except click.UsageError as error:
        return error.format_message()


def _leaf_fault(command: click.Command, words: list[str], *, whole: bool) -> str:
    given, extra, _ = command.make_parser(click.Context(command)).parse_args(words)
    for parameter in command.params:
        value = given.get(str(parameter.name))
        choices = [str(choice) for choice in parameter.type.choices] if isinstance(parameter.type, click.Choice) else []
        if choices and isinstance(value, str) and value.islower() and value not in (PLACEHOLDER, *choices):
            return f"{value} is not one of {', '.join(choices)}"
        there = isinstance(value, (str, list, tuple)) and value
        if whole and parameter.required and not there and not given.get("labels"):  # those are in place of a name
            return f"{parameter.human_readable_name} is missing"
    if whole and any(word != PLACEHOLDER for word in extra):
        return f"what is behind it is taken for arguments: {' '.join(extra)}"
    return ""


def faults_in(text: str) -> Iterator[str]:
    """What is wrong with the commands in a text."""
    for mention in mentions(text):
        if fault := fault_of(mention):
            yield f"scribengin {shlex.join(mention.words)}: {fault}\n  in: {text}"


# --- all texts of problems that a test makes ---

_made: set[str] = set()
_met: set[str] = set()
"""codes of those whose remedy names a command"""


def _noted(original: Any, *, of_problem: bool) -> Any:
    @wraps(original)
    def init(self: Any, *args: Any, **named: Any) -> None:
        original(self, *args, **named)
        for text in (self.remedy, self.message) if of_problem else (self.remedy,):
            if isinstance(text, str) and _NAME in text:
                _made.add(text)
        if isinstance(self.remedy, str) and _COMMANDS.search(self.remedy):
            _met.add(self.code)

    return init


def pytest_configure() -> None:
    Problem.__init__ = _noted(Problem.__init__, of_problem=True)  # type: ignore[method-assign]
    ScribenginError.__init__ = _noted(ScribenginError.__init__, of_problem=False)  # type: ignore[method-assign]


def take_faults() -> list[str]:
    """Of the texts that were made since it was called last."""
    texts = sorted(_made)
    _made.clear()
    return [fault for text in texts for fault in faults_in(text)]


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> object:
    """Those of fixtures too, which are made before."""
    try:
        answer = yield
    except BaseException:  # it has failed for another reason, or is skipped: the next test is not to answer for it
        _made.clear()
        _met.clear()
        raise
    met = _met.copy()
    _met.clear()
    for marker in item.iter_markers(EXECUTES):
        if not met.intersection(marker.args):
            pytest.fail(f"no problem with the code {' or '.join(marker.args)} was made that names a command", pytrace=False)
    if faults := take_faults():
        pytest.fail("\n".join(["a remedy names a command that does not parse:", *faults]), pytrace=False)
    return answer
