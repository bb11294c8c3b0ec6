"""The command `scribengin`: finds the command's module, and maps every way to end to an exit status."""

from __future__ import annotations

import gc
import os
import sys
import traceback
from importlib import import_module
from pathlib import Path

import click

from scribengin.cli.answer import CommandAnswer, JsonOutput, problems_of, show_problem
from scribengin.cli.extras import missing_extra
from scribengin.cli.guesses import no_command
from scribengin.core.errors import EnvironmentFault, Exit
from scribengin.core.problems import Place, Problem

_GROUPS = {
    "Develop": {
        "init": "Create a folder with a working flow and its data.",
        "validate": "Check flow files; needs no Java or Spark.",
        "plan": "Show what would run, its guarantees, and what it would change.",
        "preview": "Show what a flow makes of sample records, step by step.",
        "run": "Run flows on this machine, until Ctrl-C or (--once) until all data is read.",
        "test": "Run the tests of flow files, in one Spark session.",
        "audit": "Verify outputs, dead letters and the ledger by reading them again.",
        "graph": "Show a flow or a workflow as text, Mermaid or SVG.",
        "infer": "Propose the schema of a source from its files.",
        "show": "Print a flow, with --resolved in full.",
        "fmt": "Format flow files.",
        "explain": "Explain an error code: its meaning and remedy.",
    },
    "Deploy": {
        "apply": "Submit flows, or their next versions, to the control plane.",
        "history": "List the versions of a flow.",
        "rollback": "Return to an earlier version of a flow.",
        "delete": "Delete stopped flows; outputs and state are kept.",
        "package": "Create or inspect one file of flows and their code.",
    },
    "Operate": {
        "list": "List submitted flows and their state.",
        "status": "Show progress of each tier, backlog, and what is acknowledged.",
        "describe": "Show everything that the registry records about a flow.",
        "logs": "Show the output of a flow's workers.",
        "events": "Show the history of a flow: state changes, versions, operations.",
        "top": "Show live rates, backlog and bottlenecks of all flows.",
        "alerts": "List the alerts of a flow, or send a test.",
        "pause": "Pause flows; workers stay up.",
        "resume": "Resume paused or stopped flows, or retry failed ones.",
        "drain": "Process the data available now through all tiers, then stop.",
        "stop": "Stop flows after the current Batches.",
        "scale": "Change cores, memory, workers or executors of a flow or tier.",
        "limit": "Show or change rate limits of a running flow.",
        "ops": "List or cancel operations of several steps.",
        "recover": "After an outage, check that every flow is in its desired state.",
    },
    "Records": {
        "trace": "Trace a record through tiers, Batches and sinks.",
        "dead": "List, show, repair, replay or delete dead letters.",
        "summary": "Show the tables of summary sinks.",
        "source": "Show or set positions in sources of a flow file.",
        "offsets": "Show or set positions in sources of a submitted flow.",
        "rewind": "Read again what a flow has read since a time or a Batch.",
        "reset": "Delete a flow's state, so that it reads all sources from the start.",
        "maintain": "Merge, complete and clean up the places that sinks write to.",
        "files": "List committed objects of object stores.",
    },
    "Cluster": {
        "up": "Run a control plane on this machine, until Ctrl-C.",
        "master": "Run a master of the control plane, until Ctrl-C.",
        "node": "Run a node, on which masters start workers, until Ctrl-C.",
        "nodes": "List nodes and their workers.",
        "map": "Bind a tier to a node.",
        "unmap": "Remove the binding of a tier to a node.",
        "spawn": "Bind a tier to a node and start its flow.",
        "decommission": "Drain a node: move its workers to other nodes.",
        "worker": "Show a worker.",
        "groups": "Show groups of equivalent places; disable or enable members.",
        "peer": "Connect flows with flows of another control plane.",
        "quota": "Set shared resource quotas for flows with a label.",
        "token": "Create, list and remove tokens for the API.",
    },
    "Tools": {
        "config": "List all settings with their values and origins.",
        "doctor": "Check this machine: Python, Java, PySpark, memory, folders.",
        "warm": "List or stop warm Spark sessions.",
        "shell": "Run commands with completion and history, or a script of them.",
        "services": "Start, stop and list servers for trying and testing.",
        "jars": "Download the jars that PySpark does not include.",
        "schema": "Print the JSON Schema of flow files, for editors.",
        "completion": "Print the completion script for a shell.",
        "version": "Print the versions of Scribengin and of what it runs on.",
    },
}
"""Group → command → its line in the help; the code of `x` is `cli/commands/x.py`, loaded when it is called."""
_COMMANDS = {name: line for commands in _GROUPS.values() for name, line in commands.items()}


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
        width = max(map(len, _COMMANDS))
        for group, commands in _GROUPS.items():
            with formatter.section(group):
                formatter.write_dl([(f"{name:<{width}}", line) for name, line in commands.items()])


@click.group(cls=_Lazy, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110})
@click.version_option(package_name="scribengin", message="scribengin %(version)s")
def scribengin() -> None:
    """Reliable data flows on Spark: checked before they start, exactly once, with a ledger that proves it.

    FLOW is a flow file (it ends in .yaml, .yml or .py, or contains a "/") or the name of a submitted flow. With --json every command prints
    exactly one JSON object on stdout. `scribengin COMMAND --help` shows an example of each command.
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
    """The innermost line of a flow's own code: not of Scribengin, not of an installed package. Empty if there is none."""
    installed = (str(Path(__file__).parents[1]), sys.prefix, sys.base_prefix, "<")
    lines = [(frame.f_code.co_filename, line) for frame, line in traceback.walk_tb(error.__traceback__)]
    return next((f"{file}:{line}" for file, line in reversed(lines) if not file.startswith(installed)), "")


def _told(fault: EnvironmentFault, given: list[str]) -> int:
    """A fault from before the command could begin, for people or, asked for with --json, for programs."""
    (problem,) = problems_of(fault)
    if "--json" in given:
        output = JsonOutput()
        output.write(CommandAnswer(problems=[problem], exit=fault.exit).as_object(next((word for word in given if word in _COMMANDS), "")))
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
    output.write(CommandAnswer(problems=[problem], exit=Exit.INPUT).as_object(command))
    output.close()
    return Exit.INPUT
