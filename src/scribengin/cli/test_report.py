"""Prints the results of tests on stdout: a line for each test, and below a failed one the expected and actual rows."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click
from rich.table import Table
from rich.text import Text

from scribengin.cli.answer import show_problem
from scribengin.cli.tables import open_console
from scribengin.flow_tests.report import counts_text, table_rows

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from scribengin.flow_tests.contract import Difference, FlowTestOutcome

_STYLE = {"expected": "green", "got": "red"}


def tell(text: str) -> None:
    """Print on stderr that a slow step has started."""
    click.echo(click.style(text, dim=True), err=True)


def show_outcome(outcome: FlowTestOutcome) -> None:
    """Print the line of a test, and its problems and differences."""
    console = open_console()
    mark, style = ("ok", "green") if outcome.passed else ("FAILED", "bold red")
    console.print(Text.assemble((f"{mark:6} ", style), (f"{outcome.flow}: ", "dim"), outcome.name, (f"  {outcome.seconds:.2f} s", "dim")))
    for problem in outcome.problems:
        show_problem(problem, err=False)
    for difference in outcome.differences:
        console.print(Text.assemble("  ", (str(difference.place), "bold"), f": {difference.where}: {difference.what}"))
        if difference.pairs:
            console.print(_table(difference))
        for sentence in difference.parted:
            console.print(Text(f"    {sentence}", style="yellow"))
    if outcome.result is not None and outcome.result.ledger and not outcome.passed:
        console.print(Text(f"    {counts_text(outcome.result.ledger)}", style="dim"))


def show_sum(outcomes: Sequence[FlowTestOutcome], updated: Sequence[Path]) -> None:
    """Print the last line: the number of tests that passed and failed."""
    failed = sum(not outcome.passed for outcome in outcomes)
    seconds = sum(outcome.seconds for outcome in outcomes)
    passed = f"{len(outcomes) - failed} passed"
    text = f"{failed} failed, {passed}" if failed else passed
    click.echo(click.style(f"{text} in {seconds:.1f} s", fg="red" if failed else "green"))
    for file in updated:
        click.echo(f"{file} now expects the actual rows; check the file before you keep it")


def _table(difference: Difference) -> Table:
    """A table of the `expected` and `got` rows, one below the other, in which the differing cells are marked."""
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim")
    for name in ("", *difference.columns):
        table.add_column(name)
    for cells, differ in table_rows(difference):
        style = _STYLE.get(cells[0], "dim")
        marked = {index + 1 for index, name in enumerate(difference.columns) if name in differ}
        table.add_row(
            Text(f"    {cells[0]}", style=style),
            *(Text(cell, style=f"bold {style}" if at in marked else "") for at, cell in enumerate(cells[1:], 1)),
        )
    return table
