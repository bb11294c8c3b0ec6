"""Prints a preview for people: each node with its columns, its counts, and its rows before and after."""

from __future__ import annotations

import signal
import sys
import time
from typing import TYPE_CHECKING, Any

import click
from rich.table import Table
from rich.text import Text

from scribengin.cli.answer import CommandAnswer, problems_of, show_problem
from scribengin.cli.tables import open_console
from scribengin.core.errors import ScribenginError
from scribengin.local.preview_contract import plain
from scribengin.plan.code_files import code_files

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    from rich.console import Console

    from scribengin.core.problems import Problem
    from scribengin.local.preview_contract import NodePreview, Preview, PreviewedRow, PreviewSettings


_CELL = 28
"""maximum number of characters of a value"""
_MARKS = {"kept": (" ", ""), "made": (" ", ""), "dropped": ("-", "dim"), "dead": ("x", "red")}
_FATES = {"dead_letter": "dead", "drop": "dead, which a run drops (on_error: drop)", "fail": "dead, at which a run stops (on_error: fail)"}


def show_preview(preview: Preview, console: Console | None = None) -> None:
    """Print a preview on stdout, or on `console`."""
    console = console or open_console()
    console.print(Text.assemble("flow ", (preview.flow, "bold"), ", a sample of it; nothing is written"))
    for node in preview.nodes:
        console.print()
        _show_node(node, console, alone=len(preview.nodes) == 1)


def _show_node(node: NodePreview, console: Console, *, alone: bool) -> None:
    reads = f" <- {', '.join(node.inputs)}" if node.inputs else ""
    kind = f"{node.kind} " if node.kind in ("source", "sink") else ""
    console.print(Text.assemble(kind, (node.node, "bold cyan"), reads, (f"  {node.about}", "dim")), soft_wrap=True)
    if node.failure:
        console.print(Text(f"  {node.failure}", style="red"))
        return
    console.print(Text("  ").append_text(_counts(node)))
    if node.columns is not None:
        console.print(Text(f"  columns  {node.columns}"), soft_wrap=True)
    if gone := _gone(node):
        console.print(Text(f"  gone     {', '.join(gone)}"), soft_wrap=True)
    for note in node.notes:
        console.print(Text(f"  note     {note}", style="yellow"))
    if alone:
        for id_ in dict.fromkeys(id_ for id_, _ in node.came):
            console.print(Text(f"  from {id_}", style="dim"))
            console.print(_input_table(node, id_))
        if node.came:
            console.print(Text("  gives", style="dim"))
    if any(row.before is not None or row.after for row in node.rows):
        console.print(_table(node))
    shown, there = sum(row.fate != "dead" or row.before is not None for row in node.rows), _there(node)
    if shown < there:
        console.print(Text(f"  {shown:,} of {there:,} rows; --rows N shows more", style="dim"))
    for line in _dead_lines(node):
        console.print(line, soft_wrap=True)


def _counts(node: NodePreview) -> Text:
    said = f"{node.rows_in:,} {'looked at' if node.kind == 'source' else 'in'}"
    outs = ", ".join(f"{count:,} {branch}" if branch else f"{count:,} out" for branch, count in node.out.items())
    text = Text(f"{said} -> {outs}")
    if node.dropped:
        text.append(f", {node.dropped:,} dropped", style="bold")
    if node.dead:
        text.append(f", {node.dead:,} {_FATES[node.on_error]}", style="red")
    return text


def _there(node: NodePreview) -> int:
    """The number of rows that could be shown: the rows that came in if each of them is matched with its results, otherwise the rows that go
    out."""
    return node.rows_in if any(row.before is not None for row in node.rows) else sum(node.out.values())


def _gone(node: NodePreview) -> list[str]:
    """The columns that come in and do not go out."""
    if node.columns is None or node.columns_in is None or all(row.before is None for row in node.rows):
        return []
    return [name for name in node.columns_in.names if name not in node.columns]


def _input_table(node: NodePreview, input_: str) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim")
    rows = [row for id_, row in node.came if id_ == input_]
    for name in ("", *rows[0]):
        table.add_column(_cut(name), no_wrap=True, overflow="ellipsis")
    for row in rows:
        table.add_row("", *_cells(row, list(rows[0])))
    return table


def _table(node: NodePreview) -> Table:
    """A table of rows: the columns that came in on the left, new or changed columns on the right. Rows without a result are marked."""
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim")
    befores = [row.before for row in node.rows if row.before is not None]
    left = list(befores[0]) if befores else []
    right = _changed(node, left) if befores else [*(node.columns.names if node.columns else ())]
    branched = any(branch for row in node.rows for branch, _ in row.after)
    table.add_column("", no_wrap=True)
    for name in left:
        table.add_column(_cut(name), no_wrap=True, overflow="ellipsis")
    if branched:
        table.add_column("to", no_wrap=True, style="cyan")
    if left and right:
        table.add_column("│", no_wrap=True, style="dim")
    for name in right:
        table.add_column(_cut(name), no_wrap=True, overflow="ellipsis")
    for row in node.rows:
        mark, style = _MARKS[row.fate]
        for index, (branch, after) in enumerate(row.after or [("", {})]):
            if row.before is None and not after:
                continue
            cells = [Text(mark if index == 0 else "+"), *_cells(row.before if index == 0 else None, left)]
            cells += [Text(branch)] if branched else []
            cells += [Text("│")] if left and right else []
            table.add_row(*cells, *_cells(after or None, right), style=style)
    return table


def _changed(node: NodePreview, left: Sequence[str]) -> list[str]:
    """The columns that are new, or whose value differs in at least one row."""
    names = node.columns.names if node.columns else ()
    pairs = [(row.before, after) for row in node.rows if row.before is not None for _, after in row.after]
    return [name for name in names if name not in left or any(before.get(name) != after.get(name) for before, after in pairs)]


def _cells(row: Mapping[str, Any] | None, names: Sequence[str]) -> Iterator[Text]:
    for name in names:
        if row is None:
            yield Text("")
        elif row.get(name) is None:
            yield Text("null", style="dim italic")
        else:
            yield Text(_cut(_shown(row[name])))


def _shown(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, dict | list | tuple | bytes):
        import json

        return json.dumps(plain(value), ensure_ascii=False)
    return str(plain(value))


def _cut(text: str) -> str:
    text = _visible(text)
    return text if len(text) <= _CELL else text[: _CELL - 1] + "…"


def _visible(text: str) -> str:
    """Escape characters that would control the terminal: data must not clear the screen or look different from what it is."""
    text = text.replace("\n", "⏎").replace("\t", "⇥")
    return "".join(each if each.isprintable() else each.encode("unicode_escape", "backslashreplace").decode() for each in text)


def _dead_lines(node: NodePreview) -> Iterator[Text]:
    for row in node.rows:
        if row.fate == "dead":
            yield _dead_line(row)


def _dead_line(row: PreviewedRow) -> Text:
    utility = f" in {row.utility}" if row.utility else ""
    line = Text.assemble("  ", (f"x {row.reason}{utility}", "red"), f": {_visible(row.message)}")
    where = ", ".join(filter(None, [row.code_line, f"record at {row.place}" if row.place else ""]))
    if where:
        line.append(f" ({where})", style="dim")
    if row.payload:
        line.append(f"  {_visible(row.payload.strip())}", style="dim")
    return line


# `--watch`: a preview after each save, until Ctrl-C. While the flow is broken the last good preview stays on the screen. Nothing is
# written.


LOOK_S = 0.25
SETTLED_S = 0.1
"""seconds without a change after which files count as saved: an editor may empty a file before it writes it"""


def watch_previews(path: Path, settings: PreviewSettings) -> CommandAnswer:
    """Show a preview now and after each change of the flow file or of a `.py` file that is packed with it. Returns at Ctrl-C; the result is
    the last good preview."""
    from scribengin.local.preview import Previews

    last: Preview | None = None
    with Previews(path, settings, tell=lambda said: click.echo(said, err=True)) as previews:
        screen = _Screen(path)
        ended = False

        def end(_signal: int, _frame: object) -> None:
            # Python drops an exception that a signal raises inside a destructor or a callback: the loop then sees it here
            nonlocal ended
            ended = True
            raise KeyboardInterrupt

        # SIGTERM as Ctrl-C, so that Spark ends and the scratch folder is removed
        before = {each: signal.signal(each, end) for each in (signal.SIGINT, signal.SIGTERM)}
        try:
            while not ended:
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
                except Exception as error:  # the next save may correct it
                    problems = problems_of(ScribenginError(f"{type(error).__name__}: {error}"))
                screen.show(last, problems, time.monotonic() - begun, fresh=fresh)
                while stamps(path) == seen and not ended:
                    time.sleep(LOOK_S)
        except KeyboardInterrupt:
            click.echo("", err=True)
        finally:
            for each, handler in before.items():
                signal.signal(each, handler)
    return CommandAnswer(None if last is None else last.as_json())


def _settled(path: Path) -> dict[Path, tuple[int, int, int]]:
    """Wait until the files no longer change, and return their stamps."""
    before, now = None, stamps(path)
    while now != before:
        time.sleep(SETTLED_S)
        before, now = now, stamps(path)
    return now


def stamps(path: Path) -> dict[Path, tuple[int, int, int]]:
    """Returns file → a stamp that changes with its content. A file that is missing for a moment, while an editor replaces it, is left
    out."""
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
    """Shows previews. Clears a terminal before each; elsewhere they are printed one after the other."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._good_at = ""

    def show(self, last: Preview | None, problems: Sequence[Problem], seconds: float, *, fresh: bool) -> None:
        """Show a preview and the problems of the flow.

        Args:
            last: the last good preview; None if there was none
            problems: the problems of the newest preview
            seconds: how long the newest preview took
            fresh: `last` is the newest preview
        """
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
            click.echo(f"{now}  the flow has errors; the last preview without errors is of {self._good_at}", err=True)
        click.echo(f"{now}  {seconds:.1f}s; watching {self._path} and its modules, nothing is written, Ctrl-C ends", err=True)
