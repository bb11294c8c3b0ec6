"""Previews again at each save, until Ctrl-C; a flow that is broken leaves the last good one on the screen. Nothing is ever written."""

from __future__ import annotations

import signal
import sys
import time
from typing import TYPE_CHECKING

import click

from scribengin.cli.answer import CommandAnswer, problems_of, show_problem
from scribengin.cli.preview_text import show_preview
from scribengin.core.errors import ScribenginError
from scribengin.plan.code_files import code_files

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from scribengin.core.problems import Problem
    from scribengin.local.preview_contract import Preview, PreviewSettings

LOOK_S = 0.25
SETTLED_S = 0.1
"""files that have not changed for so long are saved: an editor empties one before it fills it"""


def watch_previews(path: Path, settings: PreviewSettings) -> CommandAnswer:
    """Show a preview now, and at each change of the file, or of a `.py` file that travels with it. Returns at Ctrl-C, with the last good
    preview as its result."""
    from scribengin.local.preview import Previews

    last: Preview | None = None
    with Previews(path, settings, tell=lambda said: click.echo(said, err=True)) as previews:
        screen = _Screen(path)
        before = signal.signal(signal.SIGTERM, signal.default_int_handler)  # Spark and the scratch folder go with it
        try:
            while True:
                seen, begun = _settled(path), time.monotonic()
                problems: Sequence[Problem] = ()
                fresh = False
                try:
                    found = previews.preview_now()
                    problems = found.problems
                    fresh = last is None or all(problem.severity != "error" for problem in problems)
                    last = found if fresh else last
                except ScribenginError as error:
                    problems = problems_of(error)
                except Exception as error:  # the next save may mend it
                    problems = problems_of(ScribenginError(f"{type(error).__name__}: {error}"))
                screen.show(last, problems, time.monotonic() - begun, fresh=fresh)
                while stamps(path) == seen:
                    time.sleep(LOOK_S)
        except KeyboardInterrupt:
            click.echo("", err=True)
        finally:
            signal.signal(signal.SIGTERM, before)
    return CommandAnswer(None if last is None else last.as_json())


def _settled(path: Path) -> dict[Path, tuple[int, int, int]]:
    """The stamps, once they stay."""
    before, now = None, stamps(path)
    while now != before:
        time.sleep(SETTLED_S)
        before, now = now, stamps(path)
    return now


def stamps(path: Path) -> dict[Path, tuple[int, int, int]]:
    """File → what changes with its content. One that is gone for a moment, while an editor replaces it, has none."""
    found = {}
    try:
        files = [path, *code_files(path.resolve().parent)]
    except (OSError, ScribenginError):
        files = [path]
    for file in files:
        try:
            stat = file.stat()
        except OSError:
            continue
        found[file] = (stat.st_mtime_ns, stat.st_size, stat.st_ino)
    return found


class _Screen:
    """A terminal is cleared for each preview; elsewhere they follow each other."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._good_at = ""

    def show(self, last: Preview | None, problems: Sequence[Problem], seconds: float, *, fresh: bool) -> None:
        """`last` is the last good preview, `fresh` where it is of now."""
        now = time.strftime("%H:%M:%S")
        terminal = sys.stdout.isatty()
        if terminal:
            click.clear()
        if last is not None and (terminal or fresh):
            show_preview(last)
        sys.stdout.flush()
        for problem in problems:
            show_problem(problem)
        if fresh:
            self._good_at = now
        elif last is not None:
            click.echo(f"{now}  the flow is broken; the preview of {self._good_at} stands", err=True)
        click.echo(f"{now}  {seconds:.1f}s; watching {self._path} and its modules, nothing is written, Ctrl-C ends", err=True)
