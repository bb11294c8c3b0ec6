"""What a run leaves on the screen: what became of each Query, and the ledger that proves it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.table import Table
from rich.text import Text

from scribengin.cli.summaries import show_summaries
from scribengin.cli.tables import open_console
from scribengin.core.units import show_duration
from scribengin.state.orders import order_texts
from scribengin.watching.words import catch_up_text, lag_text, lost_text

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from rich.console import Console

    from scribengin.local.contract import QueryResult, RunResult
    from scribengin.state.contract import Counts

_STYLE = {"finished": "green", "stopped": "yellow", "failed": "red"}
_COLUMNS = ("in", "made", "out", "filtered", "dead", "late", "held", "replayed")


def show_summary(result: RunResult, flow: str, console: Console | None = None) -> None:
    """Print it on stdout. `flow` is the argument FLOW, for the commands that it names."""
    console = console or open_console()
    console.print()
    # what makes a run that came to its end no success stands before all that looks like one
    wrong = [problem for problem in result.problems if problem.severity == "error"] if result.state != "failed" else []
    for problem in wrong:
        console.print(Text(problem.message, style="bold red"))
    state = Text(f"{result.state}, with errors", "red") if wrong else Text(result.state, _STYLE[result.state])
    console.print(Text.assemble((result.flow, "bold"), " ", state))
    if not result.queries:
        console.print(Text("  before it began: nothing was read or written"))
        return
    for query in result.queries:
        _show_query(query, console)
    console.print()
    if any(query.nodes for query in result.queries):
        console.print(ledger_table({query.name: query.nodes for query in result.queries}))
    show_verdict(result.violations, console)
    show_losses({query.name: query.nodes for query in result.queries}, console)
    if dead := sum(query.rows.dead for query in result.queries):
        letters = f"{dead:,} dead letter{'s' * (dead != 1)}"
        console.print(Text.assemble((letters, "yellow"), "; look at them with: ", (f"scribengin dead list {flow}", "bold")))
    if result.summaries:
        console.print()
        show_summaries({"summaries": result.summaries})


def show_verdict(violations: Sequence[str], console: Console, *, besides: bool = False) -> None:
    """One line where all is well, else every violation. `besides`: the sinks' places hold more than that."""
    if not violations and besides:
        console.print(Text("What this flow wrote balances. Its places hold more, which it did not account for: see below.", style="yellow"))
        return
    if not violations:
        console.print(Text("The ledger balances: every record that came in is accounted for.", style="green"))
        return
    console.print(Text("The ledger does NOT balance:", style="red"))
    for violation in violations:
        console.print(Text(f"  {violation}", style="red"))


def show_losses(queries: Mapping[str, Mapping[str, Counts]], console: Console) -> None:
    """A line for each source (Query → node) of which records were gone before they were read; they are no part of the balance."""
    for query, nodes in queries.items():
        for node, counts in nodes.items():
            if lost := lost_text(counts):
                console.print(
                    Text(f"Gone before they were read, records of {node} that query {query} went on without: {lost}.", style="red")
                )


def _show_query(query: QueryResult, console: Console) -> None:
    rate = f", {query.this_run.rows_in / query.seconds:,.0f} rows/s" if query.seconds and query.this_run.rows_in else ""
    batches = f"{query.batches:,} Batch{'es' * (query.batches != 1)}"
    earlier = "" if query.rows.rows_in == query.this_run.rows_in else f" ({query.rows.rows_in:,} with earlier runs)"
    console.print(
        Text.assemble(
            "  ", (query.name, "bold"), "  ", (query.state, _STYLE.get(query.state, "")),
            f"  {query.this_run.rows_in:,} rows in {show_duration(query.seconds)}{rate}, {batches}{earlier}",
        )
    )  # fmt: skip
    for sink in query.sinks:
        weaker = ", at least once" if sink.guarantee == "at least once" else ""
        console.print(Text(f"    {sink.rows:,} rows in {sink.place or sink.sink}{weaker}"))
    if query.view is not None and (lag := lag_text(query.view)):
        console.print(Text(f"    {', '.join(filter(None, [f'lag {lag}', catch_up_text(query.view)]))}", style="dim"))
    for note in (*query.notes, *order_texts(query.orders)):
        console.print(Text(f"    {note}", style="dim"))


def ledger_table(queries: Mapping[str, Mapping[str, Counts]]) -> Table:
    """Query → node → rows over the whole lineage; columns that are empty everywhere are left out."""
    rows = [
        (query, name, each.as_json()) for query, nodes in queries.items() for node in nodes for name, each in _with_parts(node, nodes[node])
    ]
    columns = [column for column in _COLUMNS if column in ("in", "out") or any(cells.get(column) for _, _, cells in rows)]
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim")
    table.add_column("Query")
    table.add_column("node")
    for column in columns:
        table.add_column(column, justify="right")
    before = ""
    for query, node, cells in rows:
        numbers = [_number(column, cells.get(column)) for column in columns]
        table.add_row("" if query == before else query, node, *numbers)
        before = query
    return table


def _with_parts(node: str, counts: Counts) -> Iterator[tuple[str, Counts]]:
    """A node, and below it each of its utilities, by what it was asked."""
    yield node, counts
    for name, part in counts.parts.items():
        yield f"  .{name}", part


def _number(column: str, count: int | None) -> Text:
    if not count:
        return Text("0" if column in ("in", "out") else "")
    return Text(f"{count:,}", style="yellow" if column in ("dead", "late") else "")
