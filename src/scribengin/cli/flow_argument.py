"""The argument FLOW: a file if it ends in .yaml, .yml or .py or holds a "/"; else a name in a registry."""

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
"""how many files of a folder are looked at, and how much of each"""

flow_argument = click.argument("flow", type=click.Path(), metavar="FLOW", shell_complete=flow_files)
"""Gives a command the text `flow`; `flow_path` makes it a path."""


def is_name(text: str) -> bool:
    """True where it is the name of a flow in a registry, and no file."""
    return not (text.endswith(_SUFFIXES) or "/" in text)


def file_of_name(text: str) -> str:
    """The flow file of this folder that a name may mean, by the name of the file or of its flow; empty if there is none."""
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
    """What a flow file says its flow is called, as far as one line at its start tells."""
    with file.open(errors="replace") as lines:
        found = re.search(r"^name:\s*[\"']?([\w-]+)", lines.read(_HEAD_CHARACTERS), re.MULTILINE)
    return found[1] if found else ""


def flow_path(text: str) -> Path:
    """The file of that name. Raises InputError if it is the name of a submitted flow, or no such file exists."""
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
    """A remedy whose commands name the one flow of a command with these `params`, as it was written there, and where its state is; a `run`
    in it keeps what says how long and of what it runs."""
    flows: Sequence[str] = params.get("flows") or ()
    flow = params.get("flow") or (flows[0] if len(flows) == 1 else "")
    settings = ("--state", str(params["state"])) if params.get("state") else ()
    of_run = ["--once"] * bool(params.get("once")) + (["--tier", str(params["tier"])] if params.get("tier") else [])
    return for_flow(remedy, str(flow), *settings, of_run=of_run) if flow else remedy
