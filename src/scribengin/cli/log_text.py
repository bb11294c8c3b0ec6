"""Logs as people read them: the line of their own code first, frames of Scribengin, Spark and Python folded, only what is new or recent."""

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
"""paths of code that is not the user's"""
_CODE = re.compile(r"^.*/code/\w+\.zip/")
"""where executors have unpacked the user's modules"""
_MOMENT = re.compile(r"^(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\S*) ")


def folded(lines: Sequence[str]) -> list[str]:
    """The lines without frames of Scribengin, Spark and Python; the last line of a traceback that is the user's code comes first."""
    shown: list[str] = []
    head, hidden, mine = 0, 0, ""
    skipping: int | None = None
    """how far the frame that is left out is indented; what is further in is its code"""

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
        path = "" if frame is None else _CODE.sub("", str(frame["path"]))  # of the user's own, how they call it
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
    """Without milestones in seconds since 1970, and with its moment as all others."""
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
    """From the first line on that is of this moment or later; lines without a moment go with the one before them."""
    for number, line in enumerate(lines):
        moment = _MOMENT.match(line)
        if moment is not None:
            with suppress(ValueError):
                if parse_time(moment[1]) >= earliest:
                    return list(lines[number:])
    return []


def new_lines(before: Sequence[str], now: Sequence[str]) -> list[str]:
    """What was appended between two looks at the end of a file; all of it where the two have nothing in common."""
    for kept in range(min(len(before), len(now)), 0, -1):
        if list(before[-kept:]) == list(now[:kept]):
            return list(now[kept:])
    return list(now)


def print_lines(lines: Sequence[str]) -> None:
    """With errors, and the user's own code, in colour."""
    for line in lines:
        if re.match(r"^\S+ error\b", line):
            click.secho(line, fg="red")
        else:
            click.secho(line, bold=line.startswith("    your code: ") or None, dim=line.startswith("      … ") or None)
