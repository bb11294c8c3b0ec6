"""Prints tables without lines on stdout, as wide as the terminal. Numbers and times are never folded; lines have no blanks at their end."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from scribengin.core.time_text import shown_moment

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from rich.console import Console
    from rich.text import Text

_WIDE = 200
_GAP = 2
_NONE = ("", "-", "–")
"""texts that are shown in place of a missing number"""
_NARROWEST = 8
"""minimum width of a text column, however narrow the terminal is"""
STATE_STYLES = {
    **dict.fromkeys(("running", "finished", "done", "ok", "ready", "up"), "green"),
    **dict.fromkeys(("degraded", "recovering", "paused", "pausing", "stopping", "draining", "starting", "silent"), "yellow"),
    **dict.fromkeys(("failed", "firing", "lost"), "red"),
}
"""state → its colour; other states have none"""


def open_console() -> Console:
    """A console on stdout, as wide as the terminal. If stdout is not a terminal, wide enough that lines can be searched."""
    from rich.console import Console

    return Console(highlight=False, width=None if sys.stdout.isatty() else _WIDE)


def print_table(rows: Sequence[Mapping[str, Any]], columns: Mapping[str, str]) -> None:
    """Print rows as a table. `columns` maps keys of the rows to headings. Numbers are right-aligned, times are printed in one form, and
    texts that are too long for the terminal are folded."""
    from rich.text import Text

    numbers = {
        key
        for key in columns
        if any(isinstance(row[key], int) for row in rows) and all(isinstance(row[key], int) or row[key] in _NONE for row in rows)
    }
    cells = [[_cell(key, row[key]) for key in columns] for row in rows]
    times = {key for index, key in enumerate(columns) if rows and all(_is_time(row[index].plain) or not row[index].plain for row in cells)}
    print_grid(
        [Text(heading) for heading in columns.values()],
        cells,
        right=[key in numbers for key in columns],
        whole=[key in numbers or key in times for key in columns],
    )


def print_grid(
    head: Sequence[Text],
    rows: Sequence[Sequence[Text]],
    *,
    right: Sequence[bool],
    whole: Sequence[bool],
    console: Console | None = None,
) -> None:
    """Print cells below their headings.

    Args:
        head: the headings
        rows: the cells of each row
        right: for each column, whether it is right-aligned
        whole: for each column, whether it is never folded
        console: where to print; None is stdout
    """
    from rich.text import Text

    console = console or open_console()
    widths = [max(cell.cell_len for cell in column) for column in zip(head, *rows, strict=True)]
    while sum(widths) + _GAP * (len(widths) - 1) > console.width:
        foldable = [index for index, width in enumerate(widths) if not whole[index] and width > _NARROWEST]
        if not foldable:
            break
        widths[max(foldable, key=lambda index: widths[index])] -= 1
    for number, row in enumerate((head, *rows)):
        folded = [
            cell.wrap(console, width, overflow="fold") if cell.cell_len > width else [cell] for cell, width in zip(row, widths, strict=True)
        ]
        for place in range(max(map(len, folded))):
            line = Text()
            for index, parts in enumerate(folded):
                part = parts[place] if place < len(parts) else Text()
                part.rstrip()
                blanks = " " * (widths[index] - part.cell_len)
                line.append(blanks if right[index] else "")
                line.append_text(part)
                line.append("" if right[index] else blanks).append(" " * _GAP)
            line.rstrip()
            if number == 0:
                line.stylize("dim")
            console.print(line, no_wrap=True, overflow="ignore", crop=False)


def _cell(key: str, value: Any) -> Text:
    from rich.text import Text

    if isinstance(value, int):
        return Text(f"{value:,}")
    text = shown_moment(str(value))
    return Text(text, STATE_STYLES.get(text, "") if key == "state" else "")


def _is_time(text: str) -> bool:
    return len(text) == len("2026-01-31T12:00:00Z") and text.endswith("Z") and text[10] == "T"
