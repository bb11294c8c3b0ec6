"""The answer of a command: its result, its problems and its exit status, printed for people or as JSON.

With `--json` stdout carries exactly one object, `{"command", "ok", "result", "problems"}`. All other output of the process, of Spark and of
user code goes to stderr.
"""

from __future__ import annotations

import contextlib
import os
import sys
import traceback
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import click

from scribengin.cli.extras import missing_extra
from scribengin.cli.flow_argument import as_called, file_of_name, refuse_files
from scribengin.cli.tree import with_new_options
from scribengin.core.errors import Exit, InputError, ScribenginError
from scribengin.core.problems import Place, Problem

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from scribengin.cli.tree import Renamed


@dataclass(frozen=True, slots=True)
class CommandAnswer:
    """What a command function returns. `result` is the JSON result; `show` prints the same for people on stdout. Problems are printed on
    stderr for people."""

    result: Any = None
    problems: Sequence[Problem] = ()
    exit: Exit = Exit.DONE
    show: Callable[[], None] | None = None

    def as_object(self, command: str) -> dict[str, Any]:
        """The object that `--json` prints."""
        problems = [problem.as_json() for problem in self.problems]
        return {"command": command, "ok": self.exit is Exit.DONE, "result": self.result, "problems": problems}


RENAMED_FROM, _NOTICES = "scribengin.renamed", "scribengin.notices"
"""keys of `click.Context.meta`: the old spelling of the command (a `Renamed`), and the notices about old options"""


def path_of(ctx: click.Context) -> str:
    """The full name of the command, without `scribengin`."""
    return ctx.command_path.partition(" ")[2]


def called(ctx: click.Context) -> str:
    """The command's name in the JSON answer. A command that was called by an old name keeps the old name."""
    old: Renamed | None = ctx.meta.get(RENAMED_FROM)
    return path_of(ctx) if old is None else old.called(path_of(ctx))


def show_notices(ctx: click.Context) -> None:
    """Print one line on stderr for each old spelling in the command line. A second call prints nothing."""
    old: Renamed | None = ctx.meta.pop(RENAMED_FROM, None)
    for line in ([] if old is None else [old.notice(path_of(ctx), ctx.params)]) + ctx.meta.pop(_NOTICES, []):
        click.echo(line, err=True)


class AnsweringCommand(click.Command):
    """A command whose function returns a `CommandAnswer`. Adds `--json` and `-o`, and turns exceptions into problems and exit statuses."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.params += [
            click.Option(["--json", "as_json"], is_flag=True, help="Print exactly one JSON object on stdout."),
            click.Option(["-o", "--output", "output_form"], type=click.Choice(["text", "json"]), help="json: as with --json."),
        ]

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Replace old option names by the current ones, parse, and refuse a file where a name is expected."""
        args, ctx.meta[_NOTICES] = with_new_options(path_of(ctx).removeprefix("flow "), args)
        left = super().parse_args(ctx, args)
        refuse_files(ctx)
        return left

    def invoke(self, ctx: click.Context) -> None:
        """Run the function and print its answer. Always exits the context with the answer's exit status."""
        name = called(ctx)
        as_json = ctx.meta["scribengin.json"] = (ctx.params.pop("output_form") == "json") | ctx.params.pop("as_json")
        output = JsonOutput() if as_json else None
        if output is None:
            show_notices(ctx)
        try:
            answer = self._answer(ctx)
            if output is not None:
                output.write(answer.as_object(name))
            else:
                if answer.show is not None:
                    answer.show()
                for problem in answer.problems:
                    show_problem(problem)
                if len(answer.problems) > 1:
                    click.echo(counted(answer.problems), err=True)
        finally:
            if output is not None:
                output.close()
        ctx.exit(int(answer.exit))

    def _answer(self, ctx: click.Context) -> CommandAnswer:
        try:
            answer = super().invoke(ctx)
        except ScribenginError as error:
            problems = [replace(each, remedy=as_called(each.remedy, ctx.params)) for each in problems_of(error)]
            if error.code == "not-up" and (file := file_of_name(str(ctx.params.get("flow") or ""))):
                problems = [replace(each, remedy=f"if you mean the file, write {file}; otherwise {each.remedy}") for each in problems]
            return CommandAnswer(problems=problems, exit=error.exit)
        except (click.exceptions.Exit, click.ClickException, click.Abort, KeyboardInterrupt, BrokenPipeError):
            raise
        except ModuleNotFoundError as error:
            fault = missing_extra(error, path_of(ctx))
            if fault is not None:
                return CommandAnswer(problems=problems_of(fault), exit=fault.exit)
            traceback.print_exc()
            return CommandAnswer(problems=[_bug(error)], exit=Exit.FAILED)
        except Exception as error:
            traceback.print_exc()
            return CommandAnswer(problems=[_bug(error)], exit=Exit.FAILED)
        assert isinstance(answer, CommandAnswer)
        return answer


class JsonOutput:
    """Keeps the real stdout for the JSON answer and redirects all other output on stdout to stderr."""

    def __init__(self) -> None:
        sys.stdout.flush()
        self._stdout = os.dup(1)
        os.dup2(2, 1)  # redirects output of Spark and of child processes
        self._redirected = contextlib.redirect_stdout(sys.stderr)  # redirects output of Python code, in order with its output on stderr
        self._redirected.__enter__()

    def write(self, value: dict[str, Any]) -> None:
        """Print the object on stdout as indented JSON."""
        import msgspec

        data = memoryview(msgspec.json.format(msgspec.json.encode(value), indent=2) + b"\n")
        while data:
            data = data[os.write(self._stdout, data) :]

    def close(self) -> None:
        """Restore stdout."""
        self._redirected.__exit__(None, None, None)
        os.dup2(self._stdout, 1)
        os.close(self._stdout)


def show_problem(problem: Problem, *, err: bool = True) -> None:
    """Print a problem as one line, `place: severity: message; remedy [code]`, coloured on a terminal."""
    place = f"{click.style(str(problem.place), bold=True)}: " if problem.place.file else ""
    severity = click.style("warning", fg="yellow") if problem.severity == "warning" else click.style("error", fg="red")
    remedy = f"; {problem.remedy}" if problem.remedy else ""
    click.echo(f"{place}{severity}: {problem.message}{remedy} {click.style(f'[{problem.code}]', dim=True)}", err=err)


def counted(problems: Sequence[Problem]) -> str:
    """Returns the number of problems of each severity: `2 errors, 1 warning`."""
    errors = sum(problem.severity == "error" for problem in problems)
    parts = [(errors, "error"), (len(problems) - errors, "warning")]
    return ", ".join(f"{count} {word}{'s' * (count != 1)}" for count, word in parts if count)


def problems_of(error: ScribenginError) -> Sequence[Problem]:
    """Returns the problems that an exception describes."""
    if isinstance(error, InputError):
        return error.problems
    return [Problem(error.code, error.place or Place(""), error.message, error.remedy)]


def _bug(error: Exception) -> Problem:
    remedy = "report it with the lines above and the output of: scribengin doctor"
    return Problem("bug", Place(""), f"this is a mistake in Scribengin: {type(error).__name__}: {error}", remedy)
