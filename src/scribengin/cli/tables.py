"""Tables without lines, on stdout."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from rich.console import Console

_WIDE = 200


def open_console() -> Console:
    """stdout, as wide as its terminal; where it is none, wide enough that lines can be searched."""
    from rich.console import Console

    return Console(highlight=False, width=None if sys.stdout.isatty() else _WIDE)


def print_table(rows: Sequence[Mapping[str, Any]], columns: Mapping[str, str]) -> None:
    """`columns` maps keys of the rows to headings. Numbers stand right; a text that is too long for the terminal is folded."""
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim")
    for key, heading in columns.items():
        numbers = all(isinstance(row[key], int) for row in rows)
        table.add_column(heading, justify="right" if numbers else "left", no_wrap=numbers)
    for row in rows:
        cells = [row[key] for key in columns]
        table.add_row(*(Text(f"{cell:,}" if isinstance(cell, int) else str(cell)) for cell in cells))
    open_console().print(table)
