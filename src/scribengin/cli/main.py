"""The command `scribengin`: finds the command's module, and maps every way to end to an exit status."""

from __future__ import annotations

import gc
import os
import sys
import traceback
from importlib import import_module
from pathlib import Path

import click

from scribengin.cli.answer import Answer, JsonOutput, problems_of, show_problem
from scribengin.cli.extras import missing_extra
from scribengin.cli.guesses import no_command
from scribengin.core.errors import EnvironmentFault, Exit
from scribengin.core.problems import Place, Problem

_COMMANDS = {
    "init": "Make a folder with a working flow and its data.",
    "validate": "Check flow files, without Java or Spark.",
    "plan": "Say what would run, with which guarantee, and what it would change.",
    "preview": "Show what a flow makes of some records, step by step; nothing is written.",
    "run": "Run a flow here, until Ctrl-C or (--once) until all that is there is read.",
    "test": "Run the tests of flow files, in one Spark session.",
    "package": "Make one file of flows with their code, known by its hash; look into one.",
    "up": "Start a registry, a master and its workers on this machine, until Ctrl-C.",
    "master": "Be one of the masters of a registry, until Ctrl-C.",
    "node": "Make this machine a host of workers, until Ctrl-C.",
    "apply": "Submit a flow to the control plane, or its next version.",
    "list": "Show the flows of the control plane, and how they stand.",
    "describe": "Show all that the registry says of a flow, and of its tasks.",
    "graph": "Show the steps of a flow as text, Mermaid or SVG; or a workflow, flows that meet.",
    "pause": "Let flows make no new Batch; their processes stay.",
    "resume": "Let flows run again, or try again what waits for a person.",
    "drain": "Let what is there go through all tiers, then end.",
    "stop": "End flows after the Batches under way.",
    "history": "Show the versions of a flow.",
    "rollback": "Go to another version of a flow that there was.",
    "scale": "Give a flow or a tier other cores, memory, executors.",
    "limit": "Say how many rows or bytes a second a flow, a source or an edge may take, while it runs.",
    "groups": "Show groups of equivalent places; take a member out while flows run, and let it back.",
    "peer": "Connect flows with those of another control plane, at another site.",
    "quota": "Say how many cores, how much memory, how many rows a second flows with a label may take together.",
    "events": "Show what became of a flow: states with their cause, versions, operations.",
    "recover": "Say whether all flows are as they are wanted, after everything was killed.",
    "ops": "Show operations of several steps, and cancel one.",
    "offsets": "Show how far a flow has read its sources; set it, while it is stopped.",
    "rewind": "Let a flow read again what it has read since a time or a Batch.",
    "delete": "Forget flows that are stopped.",
    "nodes": "Show the hosts that run workers.",
    "map": "Have a tier run on one node, and on no other.",
    "unmap": "Let a tier run on any node.",
    "spawn": "Start a tier on one node.",
    "decommission": "Give a node no new workers; those it has go elsewhere.",
    "token": "Make, list and remove tokens for the API.",
    "worker": "Show what a worker does.",
    "logs": "Show what a flow's workers have printed.",
    "top": "Show how all flows go: rates, what waits, what holds them up.",
    "alerts": "Show the alerts of a flow, and which fire; send a test.",
    "shell": "Type commands with completion and history, or run a script of them.",
    "audit": "Read outputs, dead letters and ledger again: does everything balance?",
    "summary": "Show the tables of a flow's summary sinks.",
    "status": "Show how far each tier is, what waits between them, what is acknowledged.",
    "trace": "Show the way of single records: tiers, Batches, times, sinks.",
    "dead": "List, show, repair, replay or purge the records that a step could not handle.",
    "source": "Show how far the sources are read, move forward; give up a file that is gone.",
    "maintain": "Keep the folders of file sinks: merge, close, clear away; report what nobody knows.",
    "files": "List the objects that sinks to object stores have committed.",
    "reset": "Forget what a flow has done, so that it starts anew.",
    "infer": "Look at files and propose the schema of a source that reads them.",
    "show": "Print a flow, with --resolved as it is understood.",
    "fmt": "Write flow files in the one common form.",
    "schema": "Print the JSON Schema of flow files, for editors.",
    "explain": "Explain a code that an error or a warning ends with: what it means, and what to do.",
    "config": "Show every system setting and where it comes from.",
    "doctor": "Check this machine: Python, Java, PySpark, memory, folders.",
    "warm": "List the Spark sessions kept warm for the next test, preview or plan; stop them.",
    "services": "Start, stop and look at servers of this project: Kafka, ZooKeeper, Spark, PostgreSQL, an object store.",
    "jars": "Fetch the jars that PySpark does not carry.",
    "completion": "Print the completion script of a shell.",
    "version": "Print the version.",
}
"""Command → its line in the help; the code of `x` is `cli/commands/x.py`, loaded when it is called."""


class _Lazy(click.Group):
    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002
        return list(_COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name in _COMMANDS:
            command: click.Command = import_module(f"scribengin.cli.commands.{cmd_name}").command
            command.name = cmd_name
            return command
        if cmd_name.startswith("-") or ctx.resilient_parsing:
            return None
        raise click.UsageError(no_command(cmd_name, _COMMANDS), ctx)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        with formatter.section("Commands"):
            formatter.write_dl(list(_COMMANDS.items()))


@click.group(cls=_Lazy, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110})
@click.version_option(package_name="scribengin", message="scribengin %(version)s")
def scribengin() -> None:
    """Reliable data flows on Spark: checked before they start, exactly once, with a ledger that proves it.

    FLOW is a flow file (it ends in .yaml, .yml or .py, or holds a "/"). Every command knows --json: exactly one object on stdout.
    Exit status: 0 done, 1 the flow failed or does not balance, 2 the input is wrong, 3 the environment, 130 a second Ctrl-C.
    """


def main(arguments: list[str] | None = None) -> None:
    """Run a command line and leave with its exit status; `arguments` are the process's own by default."""
    given = sys.argv[1:] if arguments is None else arguments
    if given[:1] == ["help"]:  # as in git and kubectl: help COMMAND
        given = [*given[1:], "--help"]
    color = False if "NO_COLOR" in os.environ else None
    try:
        status = scribengin.main(given, prog_name="scribengin", standalone_mode=False, color=color)
    except click.ClickException as error:
        status = _usage(error, given)
    except ModuleNotFoundError as error:  # in the imports at the head of a command's own module
        fault = missing_extra(error, next((word for word in given if word in _COMMANDS), ""))
        if fault is None:
            raise
        status = _told(fault, given)
    except (click.Abort, KeyboardInterrupt) as error:
        interrupt = error if isinstance(error, KeyboardInterrupt) else error.__context__  # without one a question was answered with no
        if isinstance(interrupt, KeyboardInterrupt) and (place := _place_of_others(interrupt)):
            click.echo(f"interrupted at {place}", err=True)
        status = Exit.INTERRUPTED
    except BrokenPipeError:  # the reader of stdout has left (`| head`): nobody is there to be told
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        status = Exit.FAILED
    if arguments is None:  # the process ends: Python need not look through all that was loaded for cycles, which takes 0.2 s after a run
        gc.freeze()
    sys.exit(int(status or 0))


def _place_of_others(error: BaseException) -> str:
    """The innermost line that is neither Scribengin's nor of an installed package: a flow's own code. Empty where none was under way."""
    installed = (str(Path(__file__).parents[1]), sys.prefix, sys.base_prefix, "<")
    lines = [(frame.f_code.co_filename, line) for frame, line in traceback.walk_tb(error.__traceback__)]
    return next((f"{file}:{line}" for file, line in reversed(lines) if not file.startswith(installed)), "")


def _told(fault: EnvironmentFault, given: list[str]) -> int:
    """A fault from before the command could begin, for people or, asked for with --json, for programs."""
    (problem,) = problems_of(fault)
    if "--json" in given:
        output = JsonOutput()
        output.write(Answer(problems=[problem], exit=fault.exit).as_object(next((word for word in given if word in _COMMANDS), "")))
        output.close()
    else:
        show_problem(problem)
    return int(fault.exit)


def _usage(error: click.ClickException, given: list[str]) -> int:
    """A command line that cannot be understood is wrong input, also for programs that asked for JSON."""
    if "--json" not in given:
        error.show()
        return Exit.INPUT
    context = getattr(error, "ctx", None)
    command = context.command_path.partition(" ")[2] if context is not None else ""
    problem = Problem("usage", Place(""), error.format_message(), f"see scribengin {command} --help".replace("  ", " "))
    output = JsonOutput()
    output.write(Answer(problems=[problem], exit=Exit.INPUT).as_object(command))
    output.close()
    return Exit.INPUT
