"""`scribengin run FLOW`: the run takes place in its own thread; the main thread draws and handles the signals."""

from __future__ import annotations

import os
import signal
import threading
import time
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import click

from scribengin.cli.answer import CommandAnswer
from scribengin.cli.complete_values import flow_files, nodes
from scribengin.cli.display import Display, open_display
from scribengin.cli.flow_argument import as_called, flow_path
from scribengin.cli.settings import read_settings, run_settings, setting_flags
from scribengin.cli.warm import WarmCommand
from scribengin.core.errors import Exit
from scribengin.core.remedies import flow_command
from scribengin.core.time_text import now_text
from scribengin.state.columns import ColumnsAcceptance

if TYPE_CHECKING:
    from pathlib import Path

    from scribengin.local.contract import RunResult, RunSettings, RunView

_DRAW_EVERY_S = 0.25


@click.command(cls=WarmCommand)
@click.argument("flows", metavar="FLOW...", nargs=-1, required=True, type=click.Path(), shell_complete=flow_files)
@click.option("--once", is_flag=True, help="Read the data available now, then exit.")
@click.option(
    "--tier", shell_complete=nodes("tiers"), help="Run only this tier of a flow that has several; the other tiers may run elsewhere."
)
@click.option("--watch", is_flag=True, help="Only show previews, again after each save; see scribengin preview --watch.")
@click.option("--append-new-lineage", is_flag=True, help="Write beside the output of another lineage. First shows what that output is.")
@click.option(
    "--accept",
    type=click.Choice(["columns"]),
    help="Accept changed columns. Sinks whose folders hold files with other columns write the columns of the flow from "
    "now on. Sources read earlier files with other columns; missing ones are null.",
)
@setting_flags()
def command(
    *, flows: tuple[str, ...], once: bool, tier: str | None, watch: bool, append_new_lineage: bool, accept: str | None, **flags: Any
) -> CommandAnswer:
    """Run flows on this machine until Ctrl-C, or with --once until all available data is read.

    A restart continues from the last committed Batch. The first Ctrl-C finishes the current Batch, a second one exits at once; that Batch
    then runs again at the next start. No record is lost, and none is duplicated where the plan says exactly once.

    With --watch nothing is written. Each time the flow file or one of its modules is saved, the flow is checked and a preview is shown. If
    the file is invalid, the last valid preview stays.

    \b
    Example:
      scribengin run flow.yaml --once
    """
    paths = [flow_path(flow) for flow in flows]
    if watch:
        return _watch(paths, flags, alone=not (once or tier or append_new_lineage or accept))
    chosen = read_settings(flags)
    settings = run_settings(chosen)
    settings.once = once
    settings.tier = tier
    settings.append_new_lineage = append_new_lineage
    settings.word = ColumnsAcceptance(now_text()) if accept is not None else None
    display = open_display(chosen["progress"].value)
    try:
        result = _run(paths, settings, display)
    finally:
        display.close()
    _prepare_next_start()
    return CommandAnswer(
        result.as_json(),
        result.problems,
        exit_of(result, strict=settings.strict),
        show=lambda: _show(result, as_called(flow_command("dead-letter list"), {"flows": flows, **flags})),
    )


def _prepare_next_start() -> None:
    """Start building the class archive in the background, once for each installation. Called after the first run, so that it does not slow
    that run."""
    from scribengin.spark.class_archive import start_training

    if start_training():
        text = "building a cache in the background, once, so that later commands start faster: 30 s of one core, 180 MB in the cache folder"
        click.echo(f"{text} (SCRIBENGIN_CLASS_ARCHIVE=no for none)", err=True)


def _watch(paths: list[Path], flags: dict[str, Any], *, alone: bool) -> CommandAnswer:
    if len(paths) > 1 or not alone:
        raise click.UsageError("--watch only previews: it takes one FLOW and excludes --once, --tier, --accept and --append-new-lineage")
    from scribengin.cli.preview_settings import preview_settings
    from scribengin.cli.preview_view import watch_previews

    return watch_previews(paths[0], preview_settings(flags=flags))


def exit_of(result: RunResult, *, strict: bool) -> Exit:
    """The exit status of a run. With `strict` a single dead letter of this run makes it a failure."""
    dead = sum(query.this_run.dead for query in result.queries)
    wrong = any(problem.severity == "error" for problem in result.problems)
    return Exit.FAILED if result.state == "failed" or wrong or not result.balanced or (strict and dead) else Exit.DONE


def _show(result: RunResult, dead_list: str) -> None:
    from scribengin.cli.summary import show_summary

    show_summary(result, dead_list)


class _Latest:
    """Passes the newest view from the run's thread to the drawing thread. Notices of views that are replaced are kept."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._view: RunView | None = None
        self._put_at = 0.0
        self._notices: tuple[str, ...] = ()

    def put(self, view: RunView) -> None:
        with self._lock:
            self._view = view
            self._put_at = time.monotonic()
            self._notices += view.notices

    @property
    def is_running(self) -> bool:
        """True if queries run, so that a Batch may be under way. For signal handlers: takes no lock."""
        view = self._view
        return view is not None and view.phase in ("running", "degraded", "stopping")

    def take(self) -> RunView | None:
        """Returns the newest view with its elapsed time brought up to date and all notices since the last call; None before the first
        view."""
        now = time.monotonic()
        with self._lock:
            notices, self._notices = self._notices, ()
            return self._view and replace(self._view, notices=notices, seconds=self._view.seconds + now - self._put_at)


def _run(paths: list[Path], settings: RunSettings, display: Display) -> RunResult:
    """Run the flows in a thread and draw their progress until they end. Raises what `run_flows` raises."""
    latest = _Latest()
    ended = threading.Event()
    outcome: list[RunResult | BaseException] = []

    def work() -> None:
        try:
            from scribengin.local.run import run_flows

            outcome.append(run_flows(paths, settings, latest.put))
        except BaseException as error:  # the main thread raises it
            outcome.append(error)
        finally:
            ended.set()

    interrupts: list[bool] = []
    """one entry for each signal: whether a Batch may have been under way when it arrived"""

    said = False

    def interrupt(_number: int, _frame: Any) -> None:
        if interrupts:
            display.close()
            then = "the next start runs the current Batch again" if latest.is_running else "nothing was read"
            click.echo(f"left at once; {then}", err=True)
            os._exit(Exit.INTERRUPTED)
        interrupts.append(latest.is_running)
        settings.stop.set()

    def say_once() -> None:
        nonlocal said
        if interrupts and not said:
            said = True
            waits = "stopping after the current Batch" if interrupts[0] else "stopping before the next Batch"
            display.say(f"{waits}; Ctrl-C again exits at once, which is safe too")

    before = {number: signal.signal(number, interrupt) for number in (signal.SIGINT, signal.SIGTERM)}
    thread = threading.Thread(target=work, name="run", daemon=True)
    try:
        thread.start()
        while not ended.wait(_DRAW_EVERY_S):
            say_once()
            if view := latest.take():
                display.show(view)
        say_once()  # for a run that ended between two drawings
        if view := latest.take():
            display.show(view)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    result = outcome[0]
    if isinstance(result, BaseException):
        raise result
    return result
