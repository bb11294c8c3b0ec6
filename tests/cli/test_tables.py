"""Tables: as wide as the terminal, no number and no time cut, no blanks at the ends of lines, one form of time."""

import io

import pytest
from rich.console import Console
from rich.text import Text

from scribengin.cli import tables
from scribengin.cli.tables import print_grid, print_table

ROWS = [
    {"flow": "orders", "state": "failed", "since": "2026-11-25T22:46:14.123+00:00", "rows": 1_234_567, "cause": "disk full"},
    {"flow": "clicks", "state": "running", "since": "2026-11-25T23:46:14+01:00", "rows": 7, "cause": "x" * 70},
]
COLUMNS = {"flow": "flow", "state": "state", "since": "since", "rows": "rows", "cause": "cause"}


@pytest.fixture
def printed(monkeypatch):
    def shown(rows, width=80, columns=COLUMNS, color=None):
        console = Console(file=io.StringIO(), width=width, force_terminal=color is not None, color_system=color, highlight=False)
        monkeypatch.setattr(tables, "open_console", lambda: console)
        print_table(rows, columns)
        return console.file.getvalue().splitlines()

    return shown


def test_a_long_text_is_folded_and_numbers_and_times_are_whole(printed):
    lines = printed(ROWS)
    assert max(map(len, lines)) <= 80
    text = "\n".join(lines)
    assert text.count("2026-11-25T22:46:14Z") == 2, "one form, in UTC"
    assert "1,234,567" in text
    assert "…" not in text
    assert text.count("x") == 70
    assert len(lines) > 3


def test_no_line_ends_in_blanks(printed):
    assert [line for line in printed(ROWS, 200) if line != line.rstrip()] == []


def test_numbers_stand_right(printed):
    header, *rows = printed(ROWS, 200)
    assert header.index("rows") + 4 == rows[0].index("1,234,567") + 9 == rows[1].index("  7  ") + 3


def test_where_only_whole_columns_are_left_the_table_is_wider_than_the_terminal(printed):
    (_, row, *_) = printed(ROWS[:1], width=20, columns={"since": "since", "rows": "rows"})
    assert row == "2026-11-25T22:46:14Z  1,234,567"


def test_states_are_coloured_by_what_they_mean(printed):
    text = "\n".join(printed(ROWS, 200, color="standard"))
    assert "\x1b[31mfailed\x1b[0m" in text
    assert "\x1b[32mrunning\x1b[0m" in text


def test_a_table_without_rows_is_its_headings(printed):
    assert printed([]) == ["flow  state  since  rows  cause"]


def test_a_grid_keeps_the_styles_of_its_cells():
    console = Console(file=io.StringIO(), width=80, force_terminal=True, color_system="standard", highlight=False)
    print_grid([Text("dead")], [[Text("12", "yellow")]], right=[True], whole=[True], console=console)
    assert "\x1b[33m12\x1b[0m" in console.file.getvalue()
