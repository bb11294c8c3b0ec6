"""The command `scribengin`: finds the module of a command and maps every outcome to an exit status."""

from __future__ import annotations

import gc
import os
import sys
import traceback
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import click

from scribengin.cli.answer import RENAMED_FROM, CommandAnswer, JsonOutput, called, path_of, problems_of, show_notices, show_problem
from scribengin.cli.extras import missing_extra
from scribengin.cli.guesses import GuessingGroup
from scribengin.cli.tree import COMMANDS, HELP, RENAMED, SECTIONS, CommandGroup, renamed, words_of
from scribengin.core.errors import EnvironmentFault, Exit
from scribengin.core.problems import Place, Problem

if TYPE_CHECKING:
    from collections.abc import Mapping

    from click.shell_completion import CompletionItem

    from scribengin.cli.tree import CommandEntry

_ALL = "scribengin.all"
"""key of `click.Context.meta`: the help also lists hidden commands"""


class TreeGroup(GuessingGroup):
    """A group of commands from the command tree. The code of a command is loaded when it is called, not for the help or for completion."""

    def __init__(self, below: Mapping[str, CommandEntry | CommandGroup], **more: Any) -> None:
        super().__init__(**more)
        self.below = below

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002
        """The names of the current commands, including hidden ones."""
        return list(self.below)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        """The command, or None if no command has that name."""
        each = self.below.get(cmd_name)
        if isinstance(each, CommandGroup):
            return TreeGroup(each.below, name=cmd_name, help=each.help)
        return None if each is None else _loaded(each.code or f"{cmd_name}:command", cmd_name)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the commands of the group."""
        self.format_section(ctx, formatter, "Commands", self.below)

    def format_section(
        self, ctx: click.Context, formatter: click.HelpFormatter, title: str, below: Mapping[str, CommandEntry | CommandGroup]
    ) -> None:
        """Write the commands that are not hidden (with --all also the hidden ones) with their descriptions."""
        shown = {name: each for name, each in below.items() if not each.hidden or ctx.meta.get(_ALL)}
        width = max(map(len, self.below))
        if shown:
            with formatter.section(title):
                formatter.write_dl([(f"{name:<{width}}", each.line) for name, each in shown.items()])

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Complete commands. Hidden ones are included after the first character is typed."""
        from click.shell_completion import CompletionItem

        shown = {name: each for name, each in self.below.items() if name.startswith(incomplete) and (incomplete or not each.hidden)}
        return [CompletionItem(name, help=each.line) for name, each in shown.items()] + click.Command.shell_complete(self, ctx, incomplete)


class _Root(TreeGroup):
    def __init__(self, **more: Any) -> None:
        super().__init__(COMMANDS, **more)

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Replace an old spelling by the current one, then parse."""
        while "--all" in args[:2] and all(word.startswith("-") for word in args):
            args.remove("--all")
            ctx.meta[_ALL] = True
        if old := renamed(args):
            ctx.meta[RENAMED_FROM], args = old
        return super().parse_args(ctx, args)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        kept = next((each.kept for each in RENAMED if each.kept and each.old == cmd_name), "")
        return _loaded(kept, cmd_name) if kept else super().get_command(ctx, cmd_name)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        for title, below in SECTIONS.items():
            self.format_section(ctx, formatter, title, below)


def _loaded(code: str, name: str) -> click.Command:
    module, _, attribute = code.partition(":")
    command: click.Command = getattr(import_module(f"scribengin.cli.commands.{module}"), attribute)
    command.name = name
    return command


@click.group(cls=_Root, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(package_name="scribengin", message="scribengin %(version)s")
def scribengin() -> None:
    """Reliable data flows on Spark: checked before they start, exactly once, with a ledger that proves it.

    FLOW is a flow file (it ends in .yaml, .yml or .py, or contains a "/") or the name of a submitted flow. With --json every command prints
    exactly one JSON object on stdout. `scribengin COMMAND --help` shows an example of each command, `scribengin help --all` further
    commands.

    \b
    Examples:
      scribengin init shop
      scribengin run shop/flow.yaml --once
    """


def main(arguments: list[str] | None = None) -> None:
    """Run a command line and exit the process with its status. `arguments` defaults to the arguments of the process."""
    if "_SCRIBENGIN_COMPLETE" in os.environ:
        _complete()
    given = sys.argv[1:] if arguments is None else arguments
    if given[:1] == ["help"]:  # `help COMMAND`, as in git and kubectl
        given = [*given[1:], "--help"]
    if given[:1] in (["agent"], ["gateway"]) and given[1:2] and given[1].startswith("-") and given[1] not in HELP:
        given = [given[0], "run", *given[1:]]  # the process is what the name stands for
    color = False if "NO_COLOR" in os.environ else None
    try:
        status = scribengin.main(given, prog_name="scribengin", standalone_mode=False, color=color)
    except click.ClickException as error:
        status = _usage(error, given)
    except ModuleNotFoundError as error:  # raised by the imports at the head of a command's module
        fault = missing_extra(error, words_of(given)[0])
        if fault is None:
            raise
        status = _report_fault(fault, given)
    except (click.Abort, KeyboardInterrupt) as error:
        # click.Abort without a KeyboardInterrupt: a question was answered with no
        interrupt = error if isinstance(error, KeyboardInterrupt) else error.__context__
        if isinstance(interrupt, KeyboardInterrupt) and (place := _place_of_others(interrupt)):
            click.echo(f"interrupted at {place}", err=True)
        status = Exit.INTERRUPTED
    except BrokenPipeError:  # the reader of stdout has closed it (`| head`)
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        status = Exit.FAILED
    if arguments is None:  # the process ends: skip Python's final garbage collection, which takes 0.2 s after a run
        gc.freeze()
    sys.exit(int(status or 0))


def _complete() -> NoReturn:
    """Print completions for the shell and exit. On an error nothing is printed, since the shell would show it as completions."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
    with suppress(Exception):
        scribengin.main([], prog_name="scribengin", standalone_mode=False)
    sys.exit(1)


def _place_of_others(error: BaseException) -> str:
    """The innermost line of the traceback that is neither in Scribengin nor in an installed package: the flow's own code. Empty if there is
    none."""
    installed = (str(Path(__file__).parents[1]), sys.prefix, sys.base_prefix, "<")
    lines = [(frame.f_code.co_filename, line) for frame, line in traceback.walk_tb(error.__traceback__)]
    return next((f"{file}:{line}" for file, line in reversed(lines) if not file.startswith(installed)), "")


def _report_fault(fault: EnvironmentFault, given: list[str]) -> int:
    """Report an error from before the command started: as text, or as JSON if --json was given. Returns the exit status."""
    (problem,) = problems_of(fault)
    if _asks_json(given):
        output = JsonOutput()
        output.write(CommandAnswer(problems=[problem], exit=fault.exit).as_object(words_of(given)[1]))
        output.close()
    else:
        show_problem(problem)
    return int(fault.exit)


def _usage(error: click.ClickException, given: list[str]) -> int:
    """Report a command line that cannot be parsed: as text, or as JSON if --json was given. Returns the exit status."""
    context = getattr(error, "ctx", None)
    if not _asks_json(given):
        if context is not None:
            show_notices(context)
        error.show()
        return Exit.INPUT
    problem = Problem(
        "usage", Place(""), error.format_message(), f"see scribengin {path_of(context) if context else ''} --help".replace("  ", " ")
    )
    output = JsonOutput()
    output.write(CommandAnswer(problems=[problem], exit=Exit.INPUT).as_object(called(context) if context else ""))
    output.close()
    return Exit.INPUT


def _asks_json(given: list[str]) -> bool:
    """True if the command line asks for JSON; works for command lines that cannot be parsed."""
    return any(
        word in ("--json", "-ojson", "--output=json") or (word == "json" and before in ("-o", "--output"))
        for before, word in zip(["", *given], given, strict=False)
    )
