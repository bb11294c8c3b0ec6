"""The argument FLOW: a file if it ends in .yaml, .yml or .py or contains a "/"; otherwise the name of a submitted flow."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from scribengin.cli.complete_values import flow_files
from scribengin.core.errors import InputError
from scribengin.core.problems import Place, Problem, did_you_mean
from scribengin.core.remedies import for_flow

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_SUFFIXES = (".yaml", ".yml", ".py")
_MOST_FILES, _HEAD_CHARACTERS = 100, 4096
"""the maximum number of files of a folder that are searched, and of characters of each"""

flow_argument = click.argument("flow", type=click.Path(), metavar="FLOW", shell_complete=flow_files)
"""Adds the argument `flow`, a text, to a command. `flow_path` converts it to a path."""


def is_name(text: str) -> bool:
    """True if the text is the name of a submitted flow and not a file."""
    return not (text.endswith(_SUFFIXES) or "/" in text)


def file_of_name(text: str) -> str:
    """Returns a flow file of the current folder whose stem or whose flow's name is `text`; empty if there is none."""
    if not text or not is_name(text):
        return ""
    files = sorted(file for file in Path().glob("*") if file.suffix in _SUFFIXES and file.is_file())[:_MOST_FILES]
    called = next((str(file) for file in files if file.stem == text), "")
    return called or next((str(file) for file in files if file.suffix != ".py" and _name_in(file) == text), "")


def refuse_files(ctx: click.Context) -> None:
    """Raise BadParameter if a file was given for an argument NAME, which is the name of a submitted flow. A command that only says that no
    control plane runs would send its user the wrong way."""
    for param in ctx.command.params:
        if not isinstance(param, click.Argument) or not (param.metavar or "").lstrip("[").startswith("NAME"):
            continue
        given = ctx.params.get(param.name or "")
        for text in given if isinstance(given, tuple) else (given,):
            if isinstance(text, str) and not is_name(text) and Path(text).is_file():
                name = _name_in(Path(text))
                message = f"{text} is a file; this command takes the name of a submitted flow{f': {name}' if name else ''}"
                raise click.BadParameter(message, ctx=ctx, param=param)


def _name_in(file: Path) -> str:
    """The `name:` in the first characters of a flow file; empty if there is none."""
    with file.open(errors="replace") as lines:
        found = re.search(r"^name:\s*[\"']?([\w-]+)", lines.read(_HEAD_CHARACTERS), re.MULTILINE)
    return found[1] if found else ""


def flow_path(text: str) -> Path:
    """The path of a flow file. Raises InputError if the text is the name of a submitted flow, a folder, or no existing file."""
    path = Path(text)
    if path.is_dir():
        inside = path / "flow.yaml"
        remedy = f"name the file: {inside}" if inside.is_file() else "name a flow file in it"
        raise InputError([Problem("flow-missing", Place(text), "this is a folder, not a flow file", remedy)])
    if is_name(text):
        remedy = f"name a file: {file}" if (file := file_of_name(text)) else "name a flow file, such as flow.yaml"
        message = f'"{text}" is the name of a submitted flow; this command takes a file'
        raise InputError([Problem("flow-name", Place(text), message, remedy)])
    if not path.is_file():
        near = [str(other) for other in path.parent.glob("*") if other.suffix in _SUFFIXES] if path.parent.is_dir() else []
        raise InputError([Problem("flow-missing", Place(text), "there is no such file", did_you_mean(text, near))])
    return path


def as_called(remedy: str, params: Mapping[str, Any]) -> str:
    """Insert the command's flow and state folder into the commands that a remedy names. A `run` in the remedy also keeps --once and --tier.
    A command with several flows leaves the remedy unchanged."""
    flows: Sequence[str] = params.get("flows") or ()
    flow = params.get("flow") or (flows[0] if len(flows) == 1 else "")
    settings = ("--state", str(params["state"])) if params.get("state") else ()
    of_run = ["--once"] * bool(params.get("once")) + (["--tier", str(params["tier"])] if params.get("tier") else [])
    return for_flow(remedy, str(flow), *settings, of_run=of_run) if flow else remedy
