"""Prepares logs for people: puts the line of the user's code first, folds frames of Scribengin, Spark and Python, and selects new or recent
lines."""

from __future__ import annotations

import json
import re
from contextlib import suppress
from typing import TYPE_CHECKING

import click

from scribengin.core.time_text import moment_text, parse_time, shown_moment
from scribengin.core.units import show_duration
from scribengin.worker.log import WORD

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

_FRAME = re.compile(r'^(?P<indent>\s*)File "(?P<path>[^"]+)", line (?P<line>\d+)(?:, in (?P<name>.+))?$')
_JAVA = re.compile(r"^\s*(?:at [\w.$<>/]+\(|\.\.\. \d+ more$)")
_OTHERS = re.compile(r"/(?:site-packages|dist-packages|scribengin|pyspark(?:\.zip)?|py4j[^/]*|lib/python3[^/]*)/|^<")
"""matches paths of code that is not the user's"""
_CODE = re.compile(r"^.*/code/\w+\.zip/")
"""matches the folder in which executors have unpacked the user's modules"""
_MOMENT = re.compile(r"^(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\S*) ")


def folded(lines: Sequence[str]) -> list[str]:
    """Fold the frames of Scribengin, Spark and Python. Above each traceback a line names the last frame that is in the user's code."""
    shown: list[str] = []
    head, hidden, mine = 0, 0, ""
    skipping: int | None = None
    """indentation of the frame that is being left out; lines indented deeper belong to it"""

    def close() -> None:
        nonlocal hidden
        if hidden:
            shown.append(f"      … {hidden} frame{'s' * (hidden != 1)} of Scribengin, Spark and Python (--all shows them)")
        hidden = 0

    def settle() -> None:
        nonlocal mine
        close()
        if mine:
            shown.insert(head, mine)
        mine = ""

    for line in lines:
        frame = _FRAME.match(line)
        indent = len(line) - len(line.lstrip())
        if skipping is not None and frame is None and line.strip() and indent > skipping:
            continue
        skipping = None
        # the path of the user's own code, without the folder where it was unpacked
        path = "" if frame is None else _CODE.sub("", str(frame["path"]))
        if frame is not None and path == frame["path"] and _OTHERS.search(path):
            hidden, skipping = hidden + 1, len(frame["indent"])
        elif _JAVA.match(line):
            hidden += 1
        else:
            if indent == 0 and frame is None:
                settle()
            close()
            if frame is not None:
                mine = f"    your code: {path}:{frame['line']}" + (f" in {frame['name']}" if frame["name"] else "")
            shown.append(_plain(line) if frame is None else line.replace(frame["path"], path))
            if indent == 0 and frame is None:
                head = len(shown)
    settle()
    return shown


def _plain(line: str) -> str:
    """A line for people: milestones as a sentence with durations, and its time in the common form."""
    if line.startswith(WORD):
        with suppress(ValueError, AttributeError):
            marks = json.loads(line.removeprefix(WORD))
            begun, ended = min(marks.values()), max(marks.values())
            return (
                f"{shown_moment(moment_text(ended))} started; first Batch committed {show_duration(ended - begun)} after the process began"
            )
    if moment := _MOMENT.match(line):
        return shown_moment(moment[1]) + line[moment.end(1) :]
    return line


def since(lines: Sequence[str], earliest: datetime) -> list[str]:
    """The lines from the first one at or after `earliest`. A line without a time belongs to the line before it."""
    for number, line in enumerate(lines):
        moment = _MOMENT.match(line)
        if moment is not None:
            with suppress(ValueError):
                if parse_time(moment[1]) >= earliest:
                    return list(lines[number:])
    return []


def new_lines(before: Sequence[str], now: Sequence[str]) -> list[str]:
    """The lines that were appended between two reads of the end of a file. If the two reads have no line in common, all lines of the
    second."""
    for kept in range(min(len(before), len(now)), 0, -1):
        if list(before[-kept:]) == list(now[:kept]):
            return list(now[kept:])
    return list(now)


def print_lines(lines: Sequence[str]) -> None:
    """Print lines; errors and the user's own code are coloured."""
    for line in lines:
        if re.match(r"^\S+ error\b", line):
            click.secho(line, fg="red")
        else:
            click.secho(line, bold=line.startswith("    your code: ") or None, dim=line.startswith("      … ") or None)
